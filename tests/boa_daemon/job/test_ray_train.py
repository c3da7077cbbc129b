"""`job/ray_train.py`: the engine's reservation is handed to Ray Train, on the same GPUs and nodes."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.job import ray_train
from boa_daemon.job.ray_train import NODE_LABEL, ray_workers
from boa_daemon.job.stops import STOP_FILE


class Cluster:
    """Ray's client, with one reservation."""

    def __init__(self, generation: Path) -> None:
        self.name, self.is_granted, self.said = f"boa:{generation}", True, list[Any]()
        self.bundles: dict[int, dict[str, float]] = {1: {"GPU": 1.0}, 0: {"GPU": 2.0, "boa_node_n1": 0.001}}
        self.util = SimpleNamespace(
            get_placement_group=self._group,
            placement_group_table=lambda group: {
                "bundles": self.bundles,
                "bundles_to_node_id": {0: "x", 1: "y"},
            },
            remove_placement_group=lambda group: self.said.append("removed"),
        )

    def _group(self, name: str) -> Any:
        if name != self.name:
            raise ValueError(name)
        return SimpleNamespace(wait=lambda seconds: self.is_granted)

    def init(self, **how: Any) -> None:
        """Note how the cluster was joined."""
        self.said.append(how)

    def shutdown(self) -> None:
        """Note that it was left."""
        self.said.append("left")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return the cluster of a job's first node, in a generation's folder."""
    found = Cluster(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", found)  # type: ignore[arg-type]
    monkeypatch.setattr(ray_train, "current", lambda: None)
    monkeypatch.delenv(STOP_FILE, raising=False)
    for name, value in {"BOA_GATE": str(tmp_path / "gate.json"), "BOA_NODE_RANK": "0", "SECRET": "x"}.items():
        monkeypatch.setenv(name, value)
    return found


def test_each_reserved_gpu_is_a_worker_on_its_node(cluster: Cluster) -> None:
    """The reservation is released, so that the trainer can take the GPUs."""
    with ray_workers() as scaling:
        assert cluster.said[1:] == ["removed"]
    assert scaling == {
        "num_workers": 3,
        "use_gpu": True,
        "resources_per_worker": {"GPU": 1},
        "label_selector": [{NODE_LABEL: node} for node in ("x", "x", "y")],
    }
    cluster.bundles = {0: {"CPU": 2.0}}
    with ray_workers() as scaling:
        assert (scaling["use_gpu"], scaling["resources_per_worker"], scaling["num_workers"]) == (
            False,
            {"CPU": 1},
            2,
        )


def test_workers_get_boas_variables_and_where_a_stop_is_told(cluster: Cluster, tmp_path: Path) -> None:
    """Nothing else of this process: it may hold secrets of another job."""
    with ray_workers():
        variables = cluster.said[0]["runtime_env"]["env_vars"]
    assert {"BOA_GATE", STOP_FILE, "BOA_NODE_RANK"} <= set(variables)
    assert "SECRET" not in variables
    assert variables[STOP_FILE] == str(tmp_path / "stop")
    assert (cluster.said[0]["address"], cluster.said[0]["namespace"]) == ("auto", "boa")


def test_a_stop_is_told_to_the_workers_by_a_file(cluster: Cluster, tmp_path: Path) -> None:
    """Afterwards the signal means what it meant before, also if training fails."""
    before = signal.getsignal(signal.SIGTERM)

    def train() -> None:
        with ray_workers():
            signal.raise_signal(signal.SIGTERM)
            assert (tmp_path / "stop").exists()
            raise ValueError("training")

    with pytest.raises(ValueError, match="training"):
        train()
    assert signal.getsignal(signal.SIGTERM) is before
    assert cluster.said[-1] == "left"


def test_nothing_reserved_or_nothing_free_is_an_error(cluster: Cluster) -> None:
    """The cluster is left all the same."""
    cluster.is_granted = False
    with pytest.raises(RuntimeError, match="were not free within 60 s"), ray_workers():
        pytest.fail("it began")
    cluster.name = "boa:other"
    with pytest.raises(RuntimeError, match="it needs the ray engine"), ray_workers():
        pytest.fail("it began")
    assert cluster.said.count("left") == 2
    assert "removed" not in cluster.said


def test_on_other_nodes_the_script_ends_well(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer of the first node starts workers there."""
    monkeypatch.setenv("BOA_NODE_RANK", "1")
    with pytest.raises(SystemExit) as end, ray_workers():
        pytest.fail("it began")
    assert (end.value.code, cluster.said) == (0, [])
