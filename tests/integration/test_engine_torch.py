"""A real PyTorch job under the local engine."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from engine_bench import DDP, EXAMPLES, Bench, loss_alone

from boa_daemon.engines.local import LocalEngine
from boa_daemon.job.processes import carrying

pytestmark = pytest.mark.frameworks


def _a_worker(bench: Bench) -> int:
    """Return the newest process of the newest generation, which is a worker that torchrun started."""
    folder = bench.engine.layout.unit(bench.job, bench.generation, 0)  # type: ignore[attr-defined]
    return max(carrying(f"BOA_UNIT={json.loads((folder / 'unit.json').read_text())['name']}"))


@pytest.mark.exhaustive
def test_a_torch_job_keeps_its_loss_through_a_kill_and_resizes(tmp_path: Path) -> None:
    """DDP over gloo runs on 2 GPUs until a worker is killed, then on 4, then on 1."""
    bench = Bench(engine=LocalEngine(tmp_path / "root"), workdir=tmp_path)
    run = f"{DDP} --steps 4000 --every 1"
    bench.admit(run)
    for gpus, ahead in ((2, 5), (4, 3)):
        before = bench.ends[-1].step or 0 if bench.ends else 0
        bench.start(gpus)
        bench.wait_step(before + ahead)
        if gpus == 2:
            os.kill(_a_worker(bench), signal.SIGKILL)
            assert bench.wait_end().phase == "failed"
        else:
            bench.stop()
            end = bench.wait_end()
            # torchrun has ended by itself or was ended, once its workers had saved.
            assert (end.phase, end.lost_steps) == ("stopped", 0), end
            assert end.exit_code in (0, -15), end
    last = (bench.ends[-1].step or 0) + 5
    bench.admit(f"{DDP} --steps {last} --every 1000")
    bench.start(1)
    resized = bench.wait_end()

    assert resized.phase == "finished"
    assert resized.loss == pytest.approx(
        loss_alone(tmp_path, EXAMPLES / "train_ddp.py", steps=last), rel=1e-9
    )
