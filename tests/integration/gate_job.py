"""A DDP job for `test_daemon_gate.py`, as a user would write it: the script does not mention the gate."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group(
    "gloo", rank=int(os.environ["BOA_NODE_RANK"]), world_size=int(os.environ["BOA_NODES"])
)
model = DistributedDataParallel(torch.nn.Linear(64, 64))
step, stop = 0, torch.zeros(1)
while not stop:
    model(torch.randn(4, 64)).square().mean().backward()
    time.sleep(0.02)
    step += 1
    Path(f"step-{os.environ['BOA_NODE_RANK']}").write_text(str(step), encoding="utf-8")
    stop = torch.tensor([float(Path("go").exists())])
    dist.broadcast(stop, src=0)
dist.destroy_process_group()
