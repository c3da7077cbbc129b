"""One rank of a training job whose computing is a sleep and whose gradients are real bytes through gloo.

Orders come as JSON lines on standard input: `prepare` builds a model whose gradients have the wanted size,
`go` trains from a given instant on. Answers go to standard output, one line each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from boa_daemon.job.torch_gate import GatedModel


class SleepBackward(torch.autograd.Function):
    """Passes a value on; its backward pass takes a while."""

    @staticmethod
    def forward(context: Any, value: torch.Tensor, seconds: float) -> torch.Tensor:
        """Remember how long the backward pass takes."""
        context.seconds = seconds
        return value.clone()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Sleep, then let the gradient through."""
        time.sleep(context.seconds)
        return gradients[0], None


class Sleeper(torch.nn.Module):
    """A model of so many bytes that takes so long."""

    def __init__(self, message_bytes: int, forward_seconds: float, backward_seconds: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(max(1, message_bytes // 4)))
        self._seconds = forward_seconds, backward_seconds

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Sleep, then depend on all of the weights and on the value."""
        time.sleep(self._seconds[0])
        return SleepBackward.apply(self.weight.sum() * value, self._seconds[1])


class Training:
    """A prepared job."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        model = Sleeper(order["message_bytes"], order["forward_seconds"], order["backward_seconds"])
        self.model = DistributedDataParallel(
            model, bucket_cap_mb=order.get("ddp_bucket_megabytes", 1000), gradient_as_bucket_view=True
        )
        self.gated: GatedModel | None = None
        if order.get("gate"):
            os.environ["BOA_JOB_ID"] = order["job"]
            self.gated = GatedModel.attach(
                self.model,
                iterations=order["iterations"] if order.get("tells", True) else None,
                address=order["gate"],
            )
            self._wait_for_gate()
            if self.gated is not None:
                # Fresh connections start slowly; those of the ungated model are warm since its first run.
                dist.all_reduce(torch.zeros(500_000), group=self.gated._group)
        self.value = torch.ones(())

    def _wait_for_gate(self) -> None:
        """Give the line a moment, so that the first iteration is measured like the others."""
        client = self.gated._client if self.gated else None
        deadline = time.monotonic() + 2.0
        while client is not None and not client.is_connected and time.monotonic() < deadline:
            time.sleep(0.01)

    def run(self, start_at: float) -> dict[str, Any]:
        """Train, and say when it ended and how long each iteration took."""
        arrival = start_at + self.order.get("arrived_at_seconds", 0.0)
        time.sleep(max(0.0, arrival - time.monotonic()))
        ends = [time.monotonic()]
        for _ in range(self.order["iterations"]):
            self.model.zero_grad(set_to_none=False)
            self.model(self.value).backward()
            ends.append(time.monotonic())
            if self.order.get("progress") and dist.get_rank() == 0:
                Path(self.order["progress"]).write_text(str(len(ends) - 1), encoding="utf-8")
        answer: dict[str, Any] = {
            "finished_at_seconds": ends[-1] - start_at,
            "jct_seconds": ends[-1] - arrival,
            "iteration_seconds": [b - a for a, b in pairwise(ends)],
            "gradient": float(self.model.module.weight.grad[-1]),
        }
        if self.gated is not None:
            answer["counts"] = self.gated.counts
            if self.gated._client is not None:
                answer["lost_seconds"] = self.gated._client.lost_seconds
                answer["round_trip_seconds"] = self.gated._client.round_trip_seconds
            self.gated.close()
        return answer


def say(answer: dict[str, Any]) -> None:
    """Answer on standard output."""
    print(json.dumps(answer), flush=True)


def main() -> None:
    """Meet the other ranks, then obey until standard input ends."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    say({"rank": dist.get_rank()})
    training: Training | None = None
    for line in sys.stdin:
        order = json.loads(line)
        if order["verb"] == "prepare":
            training = Training(order)
            dist.barrier()
            say({"ready": True})
        elif training is not None:
            answer = training.run(order["start_at"])
            training = None
            say(answer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
