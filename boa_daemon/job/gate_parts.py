"""What a gated model is made of besides the hook: measurements, the control group, how the gate is found."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from boa_daemon.job.gate.address import BadAddress, GateAddress
from boa_daemon.job.gate.address_file import find_address


@dataclass(slots=True)
class Measured:
    """An iteration as rank 0 sees it: length, exposed communication, and computing as what is left of it."""

    iteration_bytes: int
    iteration_seconds: float | None = None
    exposed_seconds: float | None = None
    ready_at: float = 0.0
    _ended_at: float = 0.0

    @property
    def compute_seconds(self) -> float | None:
        """An iteration without the communication that training waits for."""
        if self.iteration_seconds is None or self.exposed_seconds is None:
            return None
        return max(0.0, self.iteration_seconds - self.exposed_seconds)

    def pause(self) -> None:
        """Leave the iterations out that nobody times: the next one that ends is where measuring begins."""
        self._ended_at = 0.0

    def end(self, sent_bytes: int) -> None:
        """Note the end of an iteration: exposed is what came after the last bucket was ready."""
        now = time.monotonic()
        if self._ended_at:
            self.iteration_seconds = now - self._ended_at
            self.exposed_seconds = now - self.ready_at
        self.iteration_bytes, self._ended_at = sent_bytes, now


def control_group(ranks: list[int]) -> Any:
    """Return the group over which rank 0 passes answers on, on an interface of its own where one is named."""
    interface, usual = os.environ.get("BOA_CONTROL_INTERFACE"), os.environ.get("GLOO_SOCKET_IFNAME")
    if not interface:
        return dist.new_group(ranks, backend="gloo")
    # Gloo reads the interface of a group when it makes the group.
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    try:
        return dist.new_group(ranks, backend="gloo")
    finally:
        if usual is None:
            del os.environ["GLOO_SOCKET_IFNAME"]
        else:
            os.environ["GLOO_SOCKET_IFNAME"] = usual


def find(text: str) -> GateAddress | None:
    """Return the gate's address, or None: an address of no use must not stop a job."""
    try:
        return find_address(text)
    except BadAddress as fault:
        say_off(fault)
        return None


def say_off(fault: Exception) -> None:
    """Say in the job's own log why the gate is not asked."""
    print(f"boa gate: off, {fault}", flush=True)  # noqa: T201  # the job's log is the place
