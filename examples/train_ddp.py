"""A small network under PyTorch DDP on the CPU; the global batch is the same at every width, so is the loss.

run: torchrun train_ddp.py --steps 60
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from boa_daemon import job

BATCH = 64  # Of all ranks together.


def batch_of(step, rank, width):
    draw = torch.Generator().manual_seed(step)
    x = torch.randn(BATCH, 16, generator=draw, dtype=torch.float64)
    mine = slice(rank * BATCH // width, (rank + 1) * BATCH // width)
    return x[mine], x.sin().sum(1, keepdim=True)[mine]


def main(steps, every, pause):
    dist.init_process_group("gloo")
    rank, width = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).double()
    model, found = DistributedDataParallel(layers), job.resume()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if found:
        state = torch.load(found.path)
        layers.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(found.step if found else 0, steps):
        time.sleep(pause)  # Pretended work.
        x, y = batch_of(step, rank, width)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss := loss.detach() / width)
        if rank == 0:
            print(f"step {step + 1} on {width} workers: loss {loss.item():.17g}", flush=True)
        job.report(step + 1, samples=BATCH, loss=loss.item())
        if job.should_checkpoint(every=every):
            state = {"model": layers.state_dict(), "optimizer": optimizer.state_dict()}
            job.save(step + 1, lambda file, state=state: torch.save(state, file))
            if job.should_stop():
                return
    job.finish()


if __name__ == "__main__":
    flags = argparse.ArgumentParser()
    flags.add_argument("--steps", type=int, default=60)
    flags.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    flags.add_argument("--pause", type=float, default=0.0, help="seconds of pretended work per step")
    asked = flags.parse_args()
    main(asked.steps, asked.every, asked.pause)
    dist.destroy_process_group()
