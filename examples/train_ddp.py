"""A small network under PyTorch DDP on the CPU; the global batch is the same at every width, so is the loss.

run: torchrun train_ddp.py --steps 60
"""

import argparse
import time

import torch
import torch.distributed as dist

from boa_daemon import job
from boa_daemon.job.samples import SampleStream

flags = argparse.ArgumentParser()
for name, default in (("--steps", 60), ("--every", 20), ("--pause", 0.0), ("--workers", 2)):
    flags.add_argument(name, type=type(default), default=default)
asked = flags.parse_args()

dist.init_process_group("gloo")
rank, width = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).double()
model = torch.nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
found, data = job.resume(), torch.randn(480, 16).double()
stream = SampleStream(len(data), batch=48, step=found.step if found else 0, steps=asked.steps)
loader = torch.utils.data.DataLoader(data, stream.share, sampler=stream, num_workers=asked.workers)
steps = job.steps(asked.steps, every=asked.every, **job.torch_state(layers, optimizer))
for step, x in zip(steps, loader, strict=False):
    time.sleep(asked.pause)
    loss = torch.nn.functional.mse_loss(model(x), x.sin().sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss := loss.detach() / width)
    if rank == 0:
        print(f"step {step + 1} on {width} workers: loss {loss.item():.17g}", flush=True)
    job.report(step + 1, samples=48, loss=loss.item())
dist.destroy_process_group()
