"""The trainers of `examples/` at 1 -> 2 -> 1 workers lose no step and keep the loss of an unbroken run."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from engine_bench import EXAMPLES, TORCHRUN, Bench, loss_alone

from boa_daemon.engines.local import LocalEngine
from boa_daemon.tick.facts.ports import Accepted
from policies.model import GpuSlot

pytestmark = pytest.mark.frameworks

FRAMEWORKS = ("huggingface", "lightning", "fabric", "accelerate", "jax")
"""DDP, FSDP2, numpy and Ray Train have tests of their own."""
UNEQUAL = (GpuSlot("n1", 0), GpuSlot("n1", 1), GpuSlot("n2", 0))
"""Nodes of different numbers of GPUs: Lightning takes all nodes for equal."""
PLAIN = """
import argparse
import torch
from boa_daemon import job
from boa_daemon.job.samples import SampleStream

flags = argparse.ArgumentParser()
flags.add_argument("--steps", type=int)
flags.add_argument("--every")
torch.manual_seed(0)
data = torch.randn(640, 16).double()
layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).double()
optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)
batches = iter(SampleStream(len(data), batch=64))
for step in range(flags.parse_args().steps):
    x = data[[next(batches) for _ in range(64)]]
    loss = torch.nn.functional.mse_loss(layers(x), x.sin().sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    job.report(step + 1, samples=64, loss=loss.item())
"""
"""What the examples of Lightning, Fabric and Accelerate train, in PyTorch alone."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_loses_no_step_and_keeps_its_loss(tmp_path: Path, framework: str) -> None:
    """Each stop leaves a checkpoint of the last step; the final loss is that of an unbroken run.

    The widths are one worker, two on a node (under Lightning three on two unequal nodes), and one again.
    """
    # JAX has all GPUs of its node in one process, which needs no launcher.
    start = sys.executable if framework == "jax" else TORCHRUN
    script = EXAMPLES / f"train_{framework}.py"
    alone = script.read_text() if framework in ("huggingface", "jax") else PLAIN
    # Only Lightning has unequal nodes: Fabric learns its nodes through the same function.
    slots = UNEQUAL if framework == "lightning" else UNEQUAL[:2]
    if len(slots) == 3:
        text, script = script.read_text(), tmp_path / "train.py"
        script.write_text(text.replace("64", "66"))
        alone = alone.replace("64", "66")
    (tmp_path / "alone.py").write_text(alone)
    run = f"{start} {script}"
    bench = Bench(engine=LocalEngine(tmp_path / "root"), workdir=tmp_path)
    bench.admit(f"{run} --steps 4000 --every 1000 --pause 0.02", stop_grace_seconds=60.0)
    done = 0
    for part in (slots[:1], slots):
        bench.generation += 1
        assert bench.engine.start(replace(bench.order(len(part)), slots=part)) == Accepted()
        bench.wait_step(done + 4)
        bench.stop()
        end = bench.wait_end()
        done = end.step or 0
        assert (end.phase, end.lost_steps) == ("stopped", 0), f"{end}\n{bench.printed()}"
        assert end.manifest is not None
        assert (end.manifest.generation, end.manifest.step) == (bench.generation, done)
    # More steps are left than were made, so a loader that wrongly starts from the beginning changes the loss.
    total = 2 * done + 20
    bench.admit(f"{run} --steps {total} --every {total - done}")
    bench.start(1)
    resized = bench.wait_end()
    assert (resized.phase, resized.step) == ("finished", total), f"{resized}\n{bench.printed()}"
    if framework in ("huggingface", "lightning"):
        # As after a kill between the last checkpoint and the report of the end. Only these two have
        # loops of their own; the others use `job.steps`.
        bench.start(1)
        assert bench.wait_end().phase == "finished", bench.printed()
    # Hugging Face uses single precision, whose sums depend on the width; the others use double precision.
    precision = 1e-5 if framework == "huggingface" else 1e-9
    assert resized.loss == pytest.approx(
        loss_alone(tmp_path, tmp_path / "alone.py", steps=total), rel=precision
    )


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("train_*.py")), ids=lambda file: file.stem)
def test_an_example_has_at_most_40_lines(file: Path) -> None:
    """An example fits on a screen."""
    assert len(file.read_text().splitlines()) <= 40
