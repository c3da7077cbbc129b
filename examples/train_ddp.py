"""A small network under PyTorch DDP on the CPU; the global batch is the same at every width, so is the loss.

run: torchrun train_ddp.py --steps 60
"""

import argparse
import time

import torch
import torch.distributed as dist

from boa_daemon import job

flags = argparse.ArgumentParser()
flags.add_argument("--steps", type=int, default=60)
flags.add_argument("--every", type=int, default=20, help="steps between checkpoints")
flags.add_argument("--pause", type=float, default=0.0, help="seconds of pretended work per step")
asked = flags.parse_args()

dist.init_process_group("gloo")
rank, width = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).double()
model = torch.nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

for step in job.steps(asked.steps, every=asked.every, **job.torch_state(layers, optimizer)):
    time.sleep(asked.pause)
    draw = torch.Generator().manual_seed(step)
    x = torch.randn(64, 16, generator=draw, dtype=torch.float64)[rank::width]  # 64 of all ranks together.
    loss = torch.nn.functional.mse_loss(model(x), x.sin().sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss := loss.detach() / width)
    if rank == 0:
        print(f"step {step + 1} on {width} workers: loss {loss.item():.17g}", flush=True)
    job.report(step + 1, samples=64, loss=loss.item())
dist.destroy_process_group()
