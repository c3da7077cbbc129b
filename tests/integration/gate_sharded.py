"""One rank of a sharded training run for `test_gate_sharded.py`, run with and without a gate.

The script does not mention the gate. The first argument selects the method: fsdp2, fsdp1, zero, or sends (as
a pipeline does). The rank prints the digest of its weights and its counts of questions to the gate as JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 256
STEPS = 12
STEP_SECONDS = 0.15
"""Long enough together for the line to the gate to stand before training ends."""


def a_model() -> nn.Sequential:
    """Return three layers, each larger than the size from which a collective asks the gate."""
    torch.manual_seed(7)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3)))


def sharded(way: str) -> tuple[Any, Any]:
    """Return the model and its optimizer."""
    model: Any = a_model()
    if way == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)
    if way == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(model)
    return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)


def digest(model: Any) -> str:
    """Return a digest of this rank's weights, to the bit."""
    found = hashlib.sha256()
    for weight in model.parameters():
        local = weight.to_local() if hasattr(weight, "to_local") else weight
        found.update(local.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def main() -> None:
    """Train, or send tensors from one stage to the next."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, way = dist.get_rank(), sys.argv[1]
    said: dict[str, Any] = {"rank": rank}
    if way == "sends":
        from torch.distributed.pipelining import PipelineStage  # noqa: F401  # as a pipeline would

        value = torch.full((WIDTH, WIDTH), float(rank))
        for _ in range(STEPS):
            if rank == 0:
                dist.send(value, 1)
            else:
                dist.recv(value, 0)
        said["value"] = float(value[0, 0])
    else:
        model, optimizer = sharded(way)
        data = torch.Generator().manual_seed(rank)
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.randn(8, WIDTH, generator=data)).square().mean().backward()
            optimizer.step()
            time.sleep(STEP_SECONDS)
        said["weights"] = digest(model)
    gating = sys.modules.get("boa_daemon.job.torch_collectives")
    groups = [] if gating is None else [one for _, one in gating._groups.values() if one is not None]
    said["questions"] = [group._sequence for group in groups]
    said["counts"] = [group.counts for group in groups]
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
