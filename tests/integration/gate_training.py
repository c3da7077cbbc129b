"""One rank of a small training run for `test_gate_torch.py`; orders on standard input, answers as JSON lines.

Each rank trains two copies of a model on the same data, one gated and one not. Threads are delayed at random,
differently on each rank, so that an order that only holds by luck would break.
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from boa_daemon.job.torch_gate import GatedModel


def a_model() -> DistributedDataParallel:
    """Return a model of many small buckets."""
    torch.manual_seed(7)
    layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6)))
    return DistributedDataParallel(layers, bucket_cap_mb=0.02)


def main() -> None:
    """Train for the numbers of iterations that are read from standard input."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    plain, model = a_model(), a_model()
    gated = GatedModel.attach(model)
    assert gated is not None
    pieces: list[int] = []
    reduce = gated._reduce
    chance = random.Random(rank)

    def late(piece: torch.Tensor) -> None:
        time.sleep(chance.uniform(0.0, 0.002))
        pieces.append(piece.numel())
        reduce(piece)

    gated._reduce = late  # type: ignore[method-assign]
    steps = [torch.optim.SGD(m.parameters(), lr=0.01) for m in (plain, model)]
    data = torch.Generator().manual_seed(rank)
    for line in sys.stdin:
        iterations = int(line)
        began = time.monotonic()
        for _ in range(iterations):
            batch = torch.randn(8, 64, generator=data)
            for m, step in zip((plain, model), steps, strict=True):
                step.zero_grad()
                m(batch).square().mean().backward()
                step.step()
        off = max(
            float((a - b).detach().abs().max())
            for a, b in zip(plain.parameters(), model.parameters(), strict=True)
        )
        connected = gated._client is not None and gated._client.is_connected
        answer: dict[str, Any] = {
            "off": off,
            "pieces": pieces,
            "questions": gated._sequence,
            "counts": gated.counts,
            "connected": connected,
            "seconds": time.monotonic() - began,
        }
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    gated.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
