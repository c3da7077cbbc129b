"""A training with a gigabyte of state under PyTorch DDP on the CPU, for `restart.py --job large`.

run: torchrun train_large.py --steps 1000000

Its state is a small network and a table of 2**28 numbers in single precision; each step writes a row of it.
So a step takes milliseconds, and a resize takes what the state takes to go through a checkpoint.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

from boa_daemon import job

ROWS, WIDE = 2**18, 2**10
flags = argparse.ArgumentParser()
for name, default in (("--steps", 1_000_000), ("--pause", 0.05)):
    flags.add_argument(name, type=type(default), default=default)
asked = flags.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)


def note(what: str) -> None:
    """Write the time of a part of the start into the file that the benchmark names."""
    if "RESTART_TRACE" in os.environ:
        with Path(os.environ["RESTART_TRACE"]).open("a") as trace:
            trace.write(f"{time.time():.3f} rank {dist.get_rank()} {what}\n")


note("begins")
layers = torch.nn.Sequential(torch.nn.Linear(WIDE, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
table = torch.nn.Module()
table.register_buffer("rows", torch.empty(ROWS, WIDE))
optimizer = torch.optim.SGD(layers.parameters(), lr=0.01, momentum=0.9)
steps = job.steps(asked.steps, every=1_000_000, **job.torch_state(layers, table, optimizer))
model = None
for step in steps:
    is_new = model is None
    if model is None:
        note("has its state")
        if step == 0:
            table.rows.normal_()
        model = torch.nn.parallel.DistributedDataParallel(layers)
        note("has its peers")
    time.sleep(asked.pause)
    row = table.rows[step % ROWS]
    loss = model(row.clone()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    row.mul_(0.5)
    job.report(step + 1, samples=dist.get_world_size())
    if is_new:
        note("has made a step")
dist.destroy_process_group()
