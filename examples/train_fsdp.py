"""A network sharded by FSDP2, saved and sharded anew by torch.distributed.checkpoint: a folder of shards.

run: torchrun train_fsdp.py --steps 60
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from boa_daemon import job

flags = argparse.ArgumentParser()
flags.add_argument("--steps", type=int, default=60)
flags.add_argument("--every", type=int, default=20, help="steps between checkpoints")
flags.add_argument("--pause", type=float, default=0.0, help="seconds of pretended work per step")
asked = flags.parse_args()

dist.init_process_group("gloo")
rank, width = dist.get_rank(), dist.get_world_size()
mesh = dist.init_device_mesh("cpu", (width,))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).double()
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

for step in job.steps(asked.steps, every=asked.every, **job.sharded_state(model, optimizer)):
    time.sleep(asked.pause)
    draw = torch.Generator().manual_seed(step)
    x = torch.randn(64, 16, generator=draw, dtype=torch.float64)[rank::width]  # 64 of all ranks together.
    loss = torch.nn.functional.mse_loss(model(x), x.sin().sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss := loss.detach() / width)
    job.report(step + 1, samples=64, loss=loss.item())
dist.destroy_process_group()
