"""The network of train_ddp.py under Ray Train: Ray starts the workers, BOA says how many and where.

run: python train_ray.py --steps 60
"""

import argparse
import time

import ray.train
import torch
import torch.distributed as dist
from ray.train.torch import TorchConfig, TorchTrainer

from boa_daemon import job


def train(asked):
    rank, width = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).double()
    model = torch.nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in job.steps(asked["steps"], every=asked["every"], **job.torch_state(layers, optimizer)):
        time.sleep(asked["pause"])
        x = torch.randn(64, 16, generator=torch.manual_seed(step), dtype=torch.float64)[rank::width]
        loss = torch.nn.functional.mse_loss(model(x), x.sin().sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss := loss.detach() / width)
        job.report(step + 1, samples=64, loss=loss.item())


if __name__ == "__main__":
    flags = argparse.ArgumentParser()
    for name, default in (("--steps", 60), ("--every", 20), ("--pause", 0.0)):
        flags.add_argument(name, type=type(default), default=default)
    with job.ray_workers() as workers:
        how = {"torch_config": TorchConfig("gloo"), "scaling_config": ray.train.ScalingConfig(**workers)}
        TorchTrainer(train, train_loop_config=vars(flags.parse_args()), **how).fit()
