"""What the gate in PyTorch has besides the hooks: measurements, the control group, the line to the gate."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from boa_daemon.job.gate.address import BadAddress, GateAddress
from boa_daemon.job.gate.address_file import find_address
from boa_daemon.job.gate.client import GateClient


class RanksDisagree(RuntimeError):
    """Two ranks are at different messages: nothing was sent. The model differs between ranks."""


@dataclass(slots=True)
class IterationTiming:
    """An iteration as rank 0 sees it: length, exposed communication, and computing as what is left of it."""

    iteration_bytes: int
    iteration_seconds: float | None = None
    exposed_seconds: float | None = None
    ready_at: float = 0.0
    per_byte: float = 1.0
    """What crosses the busiest card for each byte counted here."""
    _ended_at: float = 0.0

    @property
    def crossing_bytes(self) -> float:
        """What an iteration sends through the busiest card."""
        return self.iteration_bytes * self.per_byte

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
        return gloo_group(ranks)
    # Gloo reads the interface of a group when it makes the group.
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    try:
        return gloo_group(ranks)
    finally:
        if usual is None:
            del os.environ["GLOO_SOCKET_IFNAME"]
        else:
            os.environ["GLOO_SOCKET_IFNAME"] = usual


def passing_seconds(group: Any) -> float:
    """Return what it takes until all ranks of a control group know something; all of them call this."""
    times = []
    for _ in range(4):
        began = time.monotonic()
        dist.all_reduce(torch.zeros(1), group=group)
        times.append(time.monotonic() - began)
    return min(times)


def gloo_group(ranks: list[int]) -> Any:
    """Return a group of these ranks; where they are a part of the job, the others need not call."""
    # A name that is made from ranks alone would come again after its group has gone, and find old addresses.
    is_part = len(ranks) < dist.get_world_size()
    return dist.new_group(ranks, backend="gloo", use_local_synchronization=is_part)


@dataclass(slots=True)
class _Line:
    """A line to the gate, and those of this process that ask over it."""

    client: GateClient
    parts: list[IterationTiming] = field(default_factory=list)


_lines: dict[tuple[str, str], _Line] = {}
"""The lines of this process, by gate and job: two for one job would each cut the other off."""


def open_line(
    address: GateAddress, *, nics: Sequence[str], gpus: int, measured: IterationTiming
) -> GateClient | None:
    """Return this process's line to the gate, or None without a token: training goes on either way."""
    try:
        token = address.read_token()
    except OSError as fault:
        say_off(fault)
        return None
    if not token:
        return None
    job = os.environ.get("BOA_JOB_ID", "job")
    try:
        weight = float(os.environ.get("BOA_WEIGHT", "1"))
    except ValueError:
        weight = 1.0
    line = _lines.get((str(address), job))
    if line is None:
        client = GateClient(address, job=job, nics=nics, token=token, gpus=gpus, weight=weight)
        line = _lines[str(address), job] = _Line(client)
    line.parts.append(measured)
    return line.client


def close_line(client: GateClient, measured: IterationTiming) -> None:
    """Hang up once nobody of this process asks any more."""
    for key, line in list(_lines.items()):
        if line.client is client:
            line.parts = [part for part in line.parts if part is not measured]
            if line.parts:
                return
            del _lines[key]
    client.close()


def measured_together(client: GateClient, measured: IterationTiming) -> dict[str, float | None]:
    """Return what the gate is told of an iteration in which several of this process may send."""
    parts = next((line.parts for line in _lines.values() if line.client is client), [measured])
    exposed = [part.exposed_seconds for part in parts if part.exposed_seconds is not None]
    lengths = [part.iteration_seconds for part in parts if part.iteration_seconds is not None]
    known = bool(exposed and lengths)
    return {
        "iteration_bytes": sum(part.crossing_bytes for part in parts) or None,
        "compute_seconds": max(0.0, max(lengths) - sum(exposed)) if known else None,
        "exposed_seconds": sum(exposed) if known else None,
    }


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
