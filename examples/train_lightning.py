"""A small network under Lightning, 64 samples per step at any width.

run: torchrun train_lightning.py --steps 60
"""

import argparse
import time

import lightning
import torch

from boa_daemon.job.lightning import BoaCallback
from boa_daemon.job.samples import SampleStream

flags = argparse.ArgumentParser()
for name, default in (("--steps", 60), ("--every", 20), ("--pause", 0.0), ("--workers", 2)):
    flags.add_argument(name, type=type(default), default=default)
asked = flags.parse_args()


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def training_step(self, x, _):
        time.sleep(asked.pause)
        return torch.nn.functional.mse_loss(self.layers(x), x.sin().sum(1, keepdim=True))


torch.manual_seed(0)
data, model, boa = torch.randn(640, 16).double(), Net().double(), BoaCallback(every=asked.every, batch=64)
stream = SampleStream(len(data), batch=64, step=boa.step, steps=asked.steps)
loader = torch.utils.data.DataLoader(data, sampler=stream, batch_size=stream.share, num_workers=asked.workers)
trainer = lightning.Trainer(max_steps=asked.steps, callbacks=[boa], strategy="ddp", **boa.where)
trainer.fit(model, loader, ckpt_path=boa.checkpoint())
