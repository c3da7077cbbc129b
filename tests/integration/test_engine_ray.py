"""The `ray` engine on a real cluster of three Ray nodes on this machine."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from benchmark_modules import module_of
from engine_bench import EXAMPLES, NUMPY, Bench, loss_alone, numpy_loss, until

from boa_daemon.engines.ray import RayEngine
from boa_daemon.job.processes import carrying
from boa_daemon.job.unit import Unit
from boa_daemon.testing import a_node
from boa_daemon.tick.facts.ports import Accepted, JobGate, Refused, Unknown

pytestmark = pytest.mark.frameworks

SLOW_SECONDS = 500.0
"""Ray Train starts a controller and workers, each of which imports PyTorch."""


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A head and two named nodes; Ray's own processes use the machine's address."""
    import ray
    import ray.cluster_utils

    cluster = ray.cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    nodes = {
        name: cluster.add_node(num_cpus=2, num_gpus=4, resources={f"boa_node_{name}": 1})
        for name in ("n1", "n2")
    }
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


def contract() -> dict[str, Callable[..., None]]:
    """Return the tests of the engines' contract suite by name, one for each parameter."""
    place = Path(__file__).parents[1] / "boa_daemon" / "engines" / "test_contract.py"
    module = module_of(place, "engine_contract")
    found: dict[str, Callable[..., None]] = {}
    for name, test in vars(module).items():
        if not name.startswith("test_"):
            continue
        marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
        # The parametrization of `bench` only selects an engine; here the engine is Ray.
        marks = [mark for mark in marks if mark.args[0] != "bench"]
        for mark in marks:
            found |= {f"{name}-{value}": partial(test, **{mark.args[0]: value}) for value in mark.args[1]}
        if not marks:
            found[name] = test
    return found


@pytest.mark.exhaustive
@pytest.mark.enable_socket
@pytest.mark.filterwarnings("ignore")  # Ray leaves files and sockets open; they are not ours.
def test_ray_keeps_the_contract_of_engines(cluster: tuple[Any, dict[str, Any]], tmp_path: Path) -> None:
    """Each test of the suite that `local` and `ssm` pass runs with its own engine on one Ray cluster."""
    ray_cluster, _ = cluster
    tests = contract()
    assert len(tests) >= 12
    for name, test in tests.items():
        work = tmp_path / name
        work.mkdir()

        def make(root: Path = work / "shared", gate: JobGate | None = None) -> RayEngine:
            return RayEngine(root, address=ray_cluster.address, gate=gate)

        bench = Bench(engine=make(), workdir=work)
        bench.again = make  # type: ignore[attr-defined]
        until(
            lambda bench=bench: (
                set(bench.engine.prepare([a_node(n) for n in bench.nodes]).values()) == {Accepted()}
            )
        )
        test(bench, **({"tmp_path": work} if "tmp_path" in signature(test).parameters else {}))
        for job, report in bench.engine.poll().items():
            if not report.is_over:
                bench.engine.kill(job, report.generation)
                bench.wait(lambda report: report.is_over)


def living_groups() -> list[dict[str, Any]]:
    """Return the placement groups that hold GPUs; on a slow machine one may have been tried and removed."""
    import ray

    return [group for group in ray.util.placement_group_table().values() if group["state"] != "REMOVED"]


def the_same_without_ray(folder: Path) -> Path:
    """Return a script with the training loop of the example for Ray Train, for torchrun."""
    lines = (EXAMPLES / "train_ray.py").read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("def train("))
    end = next(number for number, line in enumerate(lines) if line.startswith("if __name__"))
    head = "import argparse, time, torch\nimport torch.distributed as dist\nfrom boa_daemon import job\n"
    tail = (
        "flags = argparse.ArgumentParser()\n"
        "for name, default in (('--steps', 60), ('--every', 20), ('--pause', 0.0)):\n"
        "    flags.add_argument(name, type=type(default), default=default)\n"
        "dist.init_process_group('gloo')\n"
        "train(vars(flags.parse_args()))\n"
        "dist.destroy_process_group()\n"
    )
    file = folder / "train_without_ray.py"
    file.write_text(head + "\n".join(lines[begin:end]) + "\n" + tail)
    return file


@pytest.mark.exhaustive
@pytest.mark.enable_socket
@pytest.mark.filterwarnings("ignore")  # Ray leaves files and sockets open; they are not ours.
def test_a_ray_train_job_is_resized_and_loses_no_step(
    cluster: tuple[Any, dict[str, Any]], tmp_path: Path
) -> None:
    """A TorchTrainer job runs on one GPU, then on one GPU of each of two nodes, and keeps its loss."""
    ray_cluster, _ = cluster
    engine = RayEngine(tmp_path / "shared", address=ray_cluster.address)
    bench = Bench(engine=engine, workdir=tmp_path)
    run = f"{sys.executable} {EXAMPLES / 'train_ray.py'} --every 100000 --steps"
    bench.admit(f"{run} 100000", stop_grace_seconds=SLOW_SECONDS)
    bench.start()
    bench.wait(lambda report: (report.step or 0) >= 5, seconds=SLOW_SECONDS)
    until(lambda: gpus_taken() == {"n1": 1.0})
    bench.stop()
    end = bench.wait_end(seconds=SLOW_SECONDS)
    assert (end.phase, end.lost_steps) == ("stopped", 0), end
    until(lambda: not living_groups())
    last = (end.step or 0) + 300
    bench.admit(f"{run} {last}", stop_grace_seconds=SLOW_SECONDS)
    bench.start(2, nodes=2)
    bench.wait(lambda report: (report.step or 0) > (end.step or 0), seconds=SLOW_SECONDS)
    until(lambda: gpus_taken() == {"n1": 1.0, "n2": 1.0})
    resized = bench.wait_end(seconds=SLOW_SECONDS)
    assert resized.phase == "finished"
    assert resized.loss == pytest.approx(
        loss_alone(tmp_path, the_same_without_ray(tmp_path), steps=last), rel=1e-9
    )


def gpus_taken() -> dict[str, float]:
    """Return how many GPUs the placement groups hold on each of the named nodes."""
    import ray

    names = {
        node["NodeID"]: name.removeprefix("boa_node_")
        for node in ray.nodes()
        for name in node["Resources"]
        if name.startswith("boa_node_")
    }
    taken: Counter[str] = Counter()
    for group in living_groups():
        for number, node in group["bundles_to_node_id"].items():
            taken[names[node]] += group["bundles"][number].get("GPU", 0.0)
    return dict(taken)


@pytest.mark.exhaustive
@pytest.mark.enable_socket
@pytest.mark.filterwarnings("ignore")  # Ray leaves files and sockets open; they are not ours.
@pytest.mark.parametrize("is_restarted", [False, True], ids=["while it runs", "while no daemon runs"])
def test_a_job_whose_folder_somebody_deleted_leaves_its_nodes(
    cluster: tuple[Any, dict[str, Any]], tmp_path: Path, is_restarted: bool
) -> None:
    """It stayed unknown, its processes ran on, and its placement group kept their GPUs."""
    ray_cluster, _ = cluster
    engine = RayEngine(tmp_path / "shared", address=ray_cluster.address)
    bench = Bench(engine=engine, workdir=tmp_path)
    run = f"{NUMPY} --steps 100000 --pause 0.01"
    bench.admit(run)
    bench.start(2, nodes=2)
    bench.wait_step(2)
    mark = f"BOA_UNIT={Unit.read(engine.layout.unit('a', 1, 0)).name}"
    shutil.rmtree(engine.layout.job("a"))
    if is_restarted:
        bench.engine = RayEngine(tmp_path / "shared", address=ray_cluster.address)
        bench.admit(run)
        bench.engine.reattach()
        assert bench.engine.start(bench.order(2, nodes=2)) == Accepted()
    end = bench.wait_end()
    assert (end.phase, end.cause) == ("failed", "agent-lost")
    assert "deleted" in end.evidence
    assert not carrying(mark)
    until(lambda: not living_groups())
    bench.start(2, nodes=2)
    assert bench.wait_step(2).generation == 2
    bench.engine.kill("a", 2)
    bench.wait_end()


@pytest.mark.exhaustive  # A cluster takes half a minute of the processor to start.
@pytest.mark.enable_socket
@pytest.mark.filterwarnings("ignore")  # Ray leaves files and sockets open; they are not ours.
def test_jobs_are_pinned_resized_taken_over_and_lost_with_their_node(
    cluster: tuple[Any, dict[str, Any]], tmp_path: Path
) -> None:
    """A job runs on two nodes, under a second engine, and on a node that leaves: no saved step is lost."""
    ray_cluster, ray_nodes = cluster
    engine = RayEngine(tmp_path / "shared", address=ray_cluster.address)
    bench = Bench(engine=engine, workdir=tmp_path)
    answers = engine.prepare([a_node("n1"), a_node("n2"), a_node("elsewhere")])
    assert [type(answers[name]) for name in ("n1", "n2", "elsewhere")] == [Accepted, Accepted, Unknown]
    bench.admit(f"{NUMPY} --steps 100000 --pause 0.004 --every 1")

    bench.start(2, nodes=2)
    step = bench.wait_step(3).step or 0
    until(lambda: len(living_groups()) == 1)
    (group,) = living_groups()
    assert sorted(bundle["GPU"] for bundle in group["bundles"].values()) == [1.0, 1.0]
    assert group["state"] == "CREATED"

    bench.engine = RayEngine(tmp_path / "shared", address=ray_cluster.address)
    assert bench.engine.reattach()["a"].generation == 1
    bench.wait_step(step + 2)
    bench.stop()
    end = bench.wait_end()
    assert (end.phase, end.lost_steps) == ("stopped", 0)
    until(lambda: not living_groups())

    bench.start(2)
    bench.wait_step((end.step or 0) + 3)
    ray_cluster.remove_node(ray_nodes["n1"])
    lost = bench.wait_end()
    assert (lost.phase, lost.cause) == ("failed", "agent-lost")
    assert lost.lost_steps <= 1
    bench.generation += 1
    assert isinstance(bench.engine.start(bench.order(1)), Refused), "n1 is not in the cluster any more"

    stands = lost.manifest.step if lost.manifest else 0
    bench.nodes = ("n2",)
    bench.admit(f"{NUMPY} --steps {stands + 5} --every 1")
    assert bench.engine.start(bench.order(1)) == Accepted()
    last = bench.wait_end()
    assert last.phase == "finished"
    assert last.loss == pytest.approx(numpy_loss(stands + 5), rel=1e-9)
