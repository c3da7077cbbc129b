"""The course of the loss over 1 -> 2 -> 4 -> 1 workers is that of a run that was never stopped.

Data order, augmentation, learning rate and accumulation depend on the step alone and are equal to the last
bit; dropout masks are drawn by each rank, so they are other masks of the same distribution at other widths.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, signal, sys
import numpy as np, torch, torch.distributed as dist
from boa_daemon import job
from boa_daemon.job.samples import SampleStream, split_batch

DROPOUT, UNTIL, TOTAL, BATCH = float(sys.argv[1]), int(sys.argv[2]), 120, 32
dist.init_process_group("gloo")
rank, width = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
micro, times = split_batch(BATCH, most_per_rank=8)
points = torch.randn(512, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

class Data(torch.utils.data.Dataset):
    def __len__(self): return len(points)
    def __getitem__(self, index):
        noise = torch.randn(8, generator=torch.Generator().manual_seed(int(index)), dtype=torch.float64)
        return points[index] + 0.1 * noise, points[index].sin().sum()

net = torch.nn.Sequential(
    torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Dropout(DROPOUT), torch.nn.Linear(64, 1)
).double()
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: np.float64(0.99) ** e)
found = job.resume()
stream = SampleStream(len(points), batch=BATCH, step=found.step if found else 0, steps=TOTAL)
batches = iter(torch.utils.data.DataLoader(Data(), sampler=stream, batch_size=micro))
for step in job.steps(TOTAL, every=50, **job.torch_state(net, optimizer, scheduler)):
    optimizer.zero_grad()
    total = torch.zeros(1, dtype=torch.float64)
    for part in range(times):
        x, y = next(batches)
        loss = (model(x).squeeze(1) - y).square().sum() * width / BATCH
        loss.backward()
        total += loss.detach() / width
    optimizer.step()
    scheduler.step()
    dist.all_reduce(total)
    job.report(step + 1, samples=BATCH, loss=total)
    if rank == 0:
        print("LOSS", step, float(total), scheduler.get_last_lr()[0], flush=True)
    if step + 2 == UNTIL and rank == width - 1:
        os.kill(os.getpid(), signal.SIGTERM)
dist.destroy_process_group()
# PyTorch leaves the threads of gloo behind, and a process that ends beside them aborts now and then.
sys.stdout.flush()
os._exit(0)
"""
PARTS = ((1, 30), (2, 60), (4, 90), (1, 1000))


def course(
    folder: Path, parts: tuple[tuple[int, int], ...], dropout: float
) -> list[tuple[int, float, float]]:
    """Run the script at each width up to a step; return step, loss and learning rate of every step."""
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(SCRIPT)
    rows: list[tuple[int, float, float]] = []
    for generation, (width, until) in enumerate(parts, 1):
        environment = {
            **os.environ,
            "BOA_CHECKPOINT_DIR": str(folder / "checkpoints"),
            "BOA_PROGRESS_FILE": str(folder / "progress"),
            "BOA_GENERATION": str(generation),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={width}"]
        done = subprocess.run(
            [*command, str(script), str(dropout), str(until)],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        lines = [line.split() for line in done.stdout.splitlines() if "LOSS" in line]
        rows += [(int(step), float(loss), float(rate)) for _, step, loss, rate in lines]
    return rows


@pytest.mark.exhaustive
def test_without_dropout_the_course_is_equal(tmp_path: Path) -> None:
    """Each of the 120 losses within rounding, each learning rate to the last bit, no step twice."""
    whole = course(tmp_path / "whole", PARTS[-1:], 0.0)
    resized = course(tmp_path / "resized", PARTS, 0.0)

    assert [row[0] for row in resized] == list(range(120))
    assert [row[2] for row in resized] == [row[2] for row in whole]
    assert [row[1] for row in resized] == pytest.approx([row[1] for row in whole], rel=1e-9)


@pytest.mark.exhaustive
def test_with_dropout_the_course_is_equal_within_the_noise_of_the_masks(tmp_path: Path) -> None:
    """The mean loss of each 30 steps is within 15 % of the unbroken run's."""
    whole = course(tmp_path / "whole", PARTS[-1:], 0.2)
    resized = course(tmp_path / "resized", PARTS, 0.2)
    for begin in range(0, 120, 30):
        means = [sum(row[1] for row in rows[begin : begin + 30]) / 30 for rows in (whole, resized)]
        assert means[1] == pytest.approx(means[0], rel=0.15)


@pytest.mark.frameworks
def test_at_one_width_the_course_with_dropout_is_equal(tmp_path: Path) -> None:
    """Two ranks with a mask of their own each, stopped once: every loss to the last bit."""
    whole = course(tmp_path / "whole", ((2, 1000),), 0.5)
    stopped = course(tmp_path / "stopped", ((2, 40), (2, 1000)), 0.5)

    assert stopped == whole
