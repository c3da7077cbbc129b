"""A small network under the Trainer of Hugging Face; the global batch is 64 samples at any width.

run: torchrun train_huggingface.py --steps 60
"""

import argparse
import time

import torch
from transformers import Trainer, TrainingArguments

from boa_daemon.job.huggingface import BoaCallback
from boa_daemon.job.samples import split_batch

flags = argparse.ArgumentParser()
for name, default in (("--steps", 60), ("--every", 20), ("--pause", 0.0), ("--workers", 2)):
    flags.add_argument(name, type=type(default), default=default)
asked = flags.parse_args()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))

    def forward(self, x, labels):
        time.sleep(asked.pause)
        return {"loss": torch.nn.functional.mse_loss(self.layers(x), labels)}


torch.manual_seed(0)
draws = torch.randn(640, 16)
data = [{"x": row, "labels": row.sin().sum(0, keepdim=True)} for row in draws]
size, times = split_batch(64, most_per_rank=16)
how = {"per_device_train_batch_size": size, "gradient_accumulation_steps": times, "save_strategy": "no"}
how |= {"dataloader_num_workers": asked.workers}
how |= {"max_steps": asked.steps, "logging_steps": 1, "use_cpu": True, "lr_scheduler_type": "constant"}
boa = BoaCallback(every=asked.every)
trainer = Trainer(Net(), TrainingArguments("out", **how), train_dataset=data, callbacks=[boa])
trainer.train(resume_from_checkpoint=boa.checkpoint())
