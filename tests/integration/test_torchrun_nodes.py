"""Real torchrun over several nodes with addresses of their own, in any order of addresses."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from engine_bench import DDP, EXAMPLES, Bench, loss_alone
from node_networks import EngineOnNodes, node_network

from boa_daemon.job.processes import carrying
from boa_daemon.job.unit import read_json

pytestmark = pytest.mark.frameworks

C10D = DDP.replace("torch.distributed.run", "torch.distributed.run --rdzv-backend=c10d")
SORTED_AS_TEXT = (10, 11, 9)
"""As numbers they rise from 9 on, as text from 10 on: torchrun's c10d orders nodes by the text."""


def a_bench(folder: Path, network: object, nodes: int) -> Bench:
    engine = EngineOnNodes(folder / "root", network)  # type: ignore[arg-type]
    return Bench(engine=engine, workdir=folder, nodes=tuple(f"n{at + 1}" for at in range(nodes)))


@pytest.mark.exhaustive  # Six imports of PyTorch each; the engines' contract has DDP over two nodes.
@pytest.mark.parametrize(
    ("run", "last_bytes"),
    [
        # In the first case the address of the last node sorts first; the second launcher does not sort.
        (C10D, (*SORTED_AS_TEXT[1:], SORTED_AS_TEXT[0])),
        (DDP, SORTED_AS_TEXT[::-1]),
    ],
)
def test_one_rank_reports_saves_and_logs_whatever_order_addresses_sort_in(
    tmp_path: Path, run: str, last_bytes: tuple[int, ...]
) -> None:
    """One rank reports and logs each step; a stop leaves a checkpoint of the last step."""
    count = len(last_bytes)
    with node_network(last_bytes) as network:
        bench = a_bench(tmp_path, network, count)
        bench.admit(f"{run} --steps 100000 --every 1000 --pause 0.01")
        bench.start(count, nodes=count)
        bench.wait_step(4)
        bench.stop()
        end = bench.wait_end()

    assert (end.phase, end.lost_steps) == ("stopped", 0), end
    assert end.manifest is not None
    assert (end.manifest.generation, end.manifest.step) == (1, end.step)
    said = f"[rank 0] step 4 on {count} workers"
    assert said in bench.printed(), "the log that is shown is that of who reports"
    logs = [bench.engine.logs("a", node=node) for node in range(count)]
    assert [chunk.nodes for chunk in logs] == [count] * count
    assert sum(said in chunk.text for chunk in logs) == 1


@pytest.mark.exhaustive
def test_a_job_on_1_then_2_then_4_then_1_nodes_keeps_its_loss_under_kills(tmp_path: Path) -> None:
    """A worker of the last of two nodes and the keeper of the first of four nodes are killed."""
    with node_network((9, 10, 100, 11)) as network:
        bench = a_bench(tmp_path, network, 4)
        bench.admit(f"{DDP} --steps 100000 --every 1")
        for nodes in (1, 2, 4):
            before = bench.ends[-1].manifest.step if bench.ends and bench.ends[-1].manifest else 0
            bench.start(nodes, nodes=nodes)
            bench.wait_step(before + 4)
            if nodes > 1:
                os.kill(_victim(bench, nodes), signal.SIGKILL)
            if nodes != 2:
                bench.stop()
            end = bench.wait_end()
            assert end.phase == ("failed" if nodes == 2 else "stopped"), end
            assert end.lost_steps <= 1, "at most the step between its report and its save"
            assert end.manifest is not None
            assert end.manifest.generation == bench.generation
        last = (bench.ends[-1].step or 0) + 5
        bench.admit(f"{DDP} --steps {last} --every 1000")
        bench.start(1)
        resized = bench.wait_end()

    assert resized.phase == "finished"
    assert resized.loss == pytest.approx(
        loss_alone(tmp_path, EXAMPLES / "train_ddp.py", steps=last), rel=1e-9
    )


def _victim(bench: Bench, nodes: int) -> int:
    """Return a worker of the last of two nodes, or the keeper of the first of four."""
    number = nodes - 1 if nodes == 2 else 0
    folder = bench.engine.layout.unit("a", bench.generation, number)  # type: ignore[attr-defined]
    if nodes == 4:
        return int((read_json(folder / "keeper.json") or {})["pid"])
    return max(carrying(f"BOA_UNIT={(read_json(folder / 'unit.json') or {})['name']}"))


SLOW_SAVE = """
import sys, time, torch.distributed as dist
from boa_daemon import job
dist.init_process_group("gloo")
for step in job.steps(10**6, load=lambda path: None, save=lambda file: (time.sleep(35), file.write(b"x"))):
    time.sleep(0.05)
"""


@pytest.mark.exhaustive
def test_a_save_may_take_the_whole_grace(tmp_path: Path) -> None:
    """torchrun kills workers 30 s after SIGTERM by default; it gets the job's grace period instead."""
    script = tmp_path / "slow.py"
    script.write_text(SLOW_SAVE)
    with node_network((9,)) as network:
        bench = a_bench(tmp_path, network, 1)
        command = DDP.replace(str(EXAMPLES / "train_ddp.py"), str(script))
        bench.admit(command, stop_grace_seconds=90.0)
        bench.start(2)
        bench.wait_step(2)
        bench.stop()
        end = bench.wait_end()

    assert (end.phase, end.lost_steps) == ("stopped", 0), end
    assert end.manifest is not None
