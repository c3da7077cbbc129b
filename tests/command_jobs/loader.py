"""A loop over a PyTorch loader with two workers, alone or under torchrun."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist

from boa_daemon import job

flags = argparse.ArgumentParser()
flags.add_argument("--persistent", action="store_true")
asked = flags.parse_args()

if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(256, 4))
loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, persistent_workers=asked.persistent)


def batches() -> Iterator[torch.Tensor]:
    while True:
        for (x,) in loader:
            yield x


rows = batches()
for step in job.steps(1_000_000, **job.torch_state(model, optimizer)):
    model(next(rows)).pow(2).mean().backward()
    optimizer.step()
    time.sleep(0.01)
    if step % 20 == 0:
        print("step", step, flush=True)  # noqa: T201  a job's output
