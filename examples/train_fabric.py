"""A small network under Lightning Fabric; the global batch is 64 samples at any width.

run: torchrun train_fabric.py --steps 60
"""

import argparse
import time

import torch
from lightning.fabric import Fabric

from boa_daemon import job
from boa_daemon.job.fabric import fabric_state, where
from boa_daemon.job.samples import SampleStream

flags = argparse.ArgumentParser()
flags.add_argument("--steps", type=int, default=60)
flags.add_argument("--every", type=int, default=20, help="steps between checkpoints")
flags.add_argument("--pause", type=float, default=0.0, help="seconds of pretended work per step")
asked = flags.parse_args()

fabric = Fabric(accelerator="cpu", strategy="ddp", **where())
fabric.launch()
torch.manual_seed(0)
data = torch.randn(640, 16).double()
layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).double()
model, optimizer = fabric.setup(layers, torch.optim.Adam(layers.parameters(), lr=0.01))
found = job.resume()
stream = SampleStream(len(data), batch=64, step=found.step if found else 0)
batches = iter(torch.utils.data.DataLoader(data, sampler=stream, batch_size=stream.share))

for step in job.steps(
    asked.steps, every=asked.every, **fabric_state(fabric, model=model, optimizer=optimizer)
):
    time.sleep(asked.pause)
    loss = torch.nn.functional.mse_loss(model(x := next(batches)), x.sin().sum(1, keepdim=True))
    optimizer.zero_grad()
    fabric.backward(loss)
    optimizer.step()
    job.report(step + 1, samples=64, loss=fabric.all_reduce(loss.detach(), reduce_op="mean").item())
