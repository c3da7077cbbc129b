"""A small network under PyTorch DDP on the CPU; the global batch is the same at every width, so is the loss.

run: torchrun train_ddp.py --steps 60
"""

import argparse
import time

import torch
import torch.distributed as dist

from boa_daemon import job

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


class Batches(torch.utils.data.Dataset):  # One item is this rank's part of the 64 samples of a step.
    def __getitem__(self, step):
        draw = torch.Generator().manual_seed(step)
        return torch.randn(64, 16, generator=draw, dtype=torch.float64)[rank::width]


found = job.resume()
left = range(found.step if found else 0, asked.steps)
batches = iter(torch.utils.data.DataLoader(Batches(), None, sampler=left, num_workers=asked.workers))
for step in job.steps(asked.steps, every=asked.every, **job.torch_state(layers, optimizer)):
    time.sleep(asked.pause)
    x = next(batches)
    loss = torch.nn.functional.mse_loss(model(x), x.sin().sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss := loss.detach() / width)
    if rank == 0:
        print(f"step {step + 1} on {width} workers: loss {loss.item():.17g}", flush=True)
    job.report(step + 1, samples=64, loss=loss.item())
dist.destroy_process_group()
