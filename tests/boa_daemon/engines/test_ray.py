"""`engines/ray.py`: nodes, reservations and pinned tasks, on a stand-in for Ray's client.

`tests/integration` runs the engine on Ray itself; here is what it asks of Ray.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.engines import ray as engine_module
from boa_daemon.engines.ray import RayEngine, resource_of
from boa_daemon.errors import MissingExtra
from boa_daemon.job.unit import Unit, read_json, write_json
from boa_daemon.testing import a_node
from boa_daemon.tick.facts.ports import Accepted, Unknown


class RayError(Exception):
    """The error of Ray's tasks."""


class Cluster:
    """Ray's client, for a cluster of nodes by their names; a task runs when its result is asked for."""

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(RayError=RayError)
        self.util = SimpleNamespace(
            placement_group=self._reserve,
            get_placement_group=self._group,
            remove_placement_group=self._remove,
        )
        self.alive, self.gpus = {"n1": True, "n2": True}, 8.0
        self.groups: dict[str, tuple[list[dict[str, float]], str]] = {}
        self.pinned: list[dict[str, Any]] = []
        self.silent: set[str] = set()
        self.begun: dict[str, Any] = {}

    def is_initialized(self) -> bool:
        """Return whether `init` was called."""
        return bool(self.begun)

    def init(self, **options: Any) -> None:
        """Note how the cluster was joined."""
        self.begun = options

    def get_runtime_context(self) -> Any:
        """Return the address of the cluster."""
        return SimpleNamespace(gcs_address="10.0.0.1:6379")

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes, among them one that is not BOA's."""
        mine = [
            {
                "Alive": alive,
                "NodeManagerAddress": f"at-{name}",
                "Resources": {"CPU": 4.0, resource_of(name): 1.0},
            }
            for name, alive in self.alive.items()
        ]
        return [*mine, {"Alive": True, "NodeManagerAddress": "head", "Resources": {"CPU": 4.0}}]

    def cluster_resources(self) -> dict[str, float]:
        """Return what the cluster has; a cluster without GPUs does not name them."""
        return {"CPU": 8.0} | ({"GPU": self.gpus} if self.gpus else {})

    def remote(self, function: Callable[..., Any]) -> Any:
        """Return a function as a task."""

        def options(**asked: Any) -> Any:
            self.pinned.append(asked)
            (node,) = asked["resources"]
            return SimpleNamespace(remote=lambda *words: (node.removeprefix("boa_node_"), function, words))

        return SimpleNamespace(options=options)

    def get(self, task: Any, timeout: float) -> Any:
        """Return the result of a task; some nodes do not answer."""
        assert timeout > 0.0
        node, function, words = task
        if node in self.silent:
            raise RayError(node)
        return function(*words)

    def _reserve(self, bundles: list[dict[str, float]], *, name: str, lifetime: str) -> None:
        self.groups[name] = bundles, lifetime

    def _group(self, name: str) -> str:
        if name not in self.groups:
            raise ValueError(name)
        return name

    def _remove(self, group: str) -> None:
        del self.groups[group]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return the cluster that `import ray` finds."""
    found = Cluster()
    monkeypatch.setitem(sys.modules, "ray", found)  # type: ignore[arg-type]
    return found


@pytest.fixture
def engine(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RayEngine:
    """Return the engine; keepers are not started, and a unit's status is its end."""
    del cluster
    monkeypatch.setattr(engine_module, "start_apart", lambda *_: SimpleNamespace(wait=lambda: None))
    monkeypatch.setattr(
        engine_module,
        "read_unit_status",
        lambda folder, asked, keep=None: {"exit": read_json(folder / "exit.json"), "asked": asked},
    )
    monkeypatch.setattr(
        engine_module,
        "authentic_status",
        lambda folder, status, asked: status if status is not None and status["asked"] == asked else None,
    )
    return RayEngine(tmp_path)


def some_units(folder: Path, *gpus: int) -> list[Unit]:
    """Return the units of a generation with so many GPUs each."""
    return [
        Unit(
            name=f"u{rank}",
            job="a",
            generation=1,
            rank=rank,
            run="true",
            folder=folder / "a" / "g1" / f"n{rank}",
            workdir=".",
            progress_file="",
            checkpoint_dir="",
            environment={"BOA_GPUS_PER_NODE": str(count)},
        )
        for rank, count in enumerate(gpus)
    ]


def launched(engine: RayEngine, folder: Path) -> list[Path]:
    """Start two units on two nodes; return their folders."""
    units = some_units(folder, 4, 2)
    for unit in units:
        unit.folder.mkdir(parents=True)
    engine._launch(units, ["n1", "n2"])
    return [unit.folder for unit in units]


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that installs it is the hint."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match="the ray engine needs Ray"):
        RayEngine(tmp_path)


def test_a_cluster_is_joined_once_in_the_namespace_of_boa(cluster: Cluster, tmp_path: Path) -> None:
    """A process that is part of a cluster stays in it; jobs are told which cluster it is."""
    RayEngine(tmp_path, address="ray://x")
    assert cluster.begun == {"address": "ray://x", "namespace": "boa", "log_to_driver": False}
    again = RayEngine(tmp_path, address="other", environment={"A": "b"})
    assert cluster.begun["address"] == "ray://x"
    assert again._environment == {"RAY_ADDRESS": "10.0.0.1:6379", "A": "b"}


def test_a_node_is_ready_once_it_is_alive_in_the_cluster(engine: RayEngine, cluster: Cluster) -> None:
    """One that has not joined, or has died, may still come."""
    cluster.alive["n2"] = False
    outcomes = engine.prepare([a_node(name) for name in ("n1", "n2", "n3")])
    assert [type(outcomes[name]) for name in ("n1", "n2", "n3")] == [Accepted, Unknown, Unknown]


def test_a_generation_whose_node_is_missing_does_not_start(engine: RayEngine) -> None:
    """The error names what is missing, and nothing else."""
    assert engine._addresses(["n1"])["n1"] == "at-n1"
    with pytest.raises(OSError, match=r"^n3 is not in the Ray cluster$"):
        engine._addresses(["n1", "n3"])


@pytest.mark.parametrize(("gpus", "kind"), [(8.0, "GPU"), (0.0, "CPU")])
def test_the_gpus_of_each_unit_are_reserved_on_its_node_beyond_the_daemon(
    engine: RayEngine, cluster: Cluster, tmp_path: Path, gpus: float, kind: str
) -> None:
    """A cluster without GPUs reserves CPUs; a daemon that restarts finds the reservation."""
    cluster.gpus = gpus
    folders = launched(engine, tmp_path)
    bundles, lifetime = cluster.groups[f"boa:{folders[0].parent}"]
    assert [
        (each[kind], each[resource_of(node)] < 0.01) for each, node in zip(bundles, ("n1", "n2"), strict=True)
    ] == [
        (4.0, True),
        (2.0, True),
    ]
    assert lifetime == "detached"
    assert [read_json(folder / "node.json") for folder in folders] == [{"node": "n1"}, {"node": "n2"}]


def test_a_task_is_pinned_to_its_node_and_never_repeated_by_ray(
    engine: RayEngine, cluster: Cluster, tmp_path: Path
) -> None:
    """A keeper that Ray starts twice would run a job twice."""
    launched(engine, tmp_path)
    assert [{*each["resources"]} for each in cluster.pinned] == [{"boa_node_n1"}, {"boa_node_n2"}]
    assert all((each["max_retries"], each["num_cpus"]) == (0, 0) for each in cluster.pinned)


def test_the_reservation_ends_once_all_units_have_ended(
    engine: RayEngine, cluster: Cluster, tmp_path: Path
) -> None:
    """While one runs, or cannot be read, its GPUs are in use."""
    folders = launched(engine, tmp_path)
    write_json(folders[0] / "exit.json", {"code": 0})
    assert [unit and unit["exit"] for unit in engine._statuses(folders)] == [{"code": 0}, None]
    cluster.silent = {"n2"}
    assert engine._statuses(folders)[1] is None
    assert cluster.groups
    cluster.silent = set()
    write_json(folders[1] / "exit.json", {"code": 1})
    for _ in range(2):
        engine._statuses(folders)
        assert not cluster.groups


def test_a_unit_on_a_node_that_has_left_is_lost_unless_it_had_ended(
    engine: RayEngine, cluster: Cluster, tmp_path: Path
) -> None:
    """A node that is slow is not one that has left."""
    folders = launched(engine, tmp_path)
    write_json(folders[0] / "exit.json", {"code": 0})
    cluster.alive = {"n1": False, "n2": False}
    first, second = (unit and unit["exit"] for unit in engine._statuses(folders))
    assert first == {"code": 0}
    assert (second["agent_lost"], second["code"]) == (True, None)


def test_a_task_has_none_of_rays_own_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A job sees its own GPUs, not those of the task, and the cluster that it was told."""
    seen: list[dict[str, str]] = []

    def start(folder: Path, environment: dict[str, str]) -> Any:
        seen.append(environment)
        return SimpleNamespace(wait=lambda: None)

    monkeypatch.setattr(engine_module, "start_apart", start)
    for name in ("RAY_JOB_ID", "CUDA_VISIBLE_DEVICES", "MINE", "BOTH"):
        monkeypatch.setenv(name, "task")
    engine_module._launch(str(tmp_path), {"RAY_ADDRESS": "a", "BOTH": "told"})
    assert not {"RAY_JOB_ID", "CUDA_VISIBLE_DEVICES"} & {*seen[0]}
    assert (seen[0]["MINE"], seen[0]["BOTH"], seen[0]["RAY_ADDRESS"]) == ("task", "told", "a")


def test_a_signal_reaches_the_keepers_of_all_units_whose_nodes_are_there(
    engine: RayEngine, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very signal that was ordered; a node that has left gets none."""
    folders = launched(engine, tmp_path)
    cluster.alive["n2"] = False
    told: list[tuple[str, object, tuple[Any, ...]]] = []
    monkeypatch.setattr(
        engine,
        "_on",
        lambda task, node: SimpleNamespace(remote=lambda *words: told.append((node, task, words))),
    )
    engine._signal(folders[0].parent, signal.SIGUSR1)
    assert told == [("n1", engine._signal_task, (str(folders[0]), int(signal.SIGUSR1)))]


def test_nothing_is_prepared_ahead_and_all_jobs_run_as_rays_user(engine: RayEngine) -> None:
    """The GPUs of the next generation are still reserved for the present one."""
    assert engine.ahead(None)  # type: ignore[arg-type]
    assert engine.runs_jobs_as_daemon
