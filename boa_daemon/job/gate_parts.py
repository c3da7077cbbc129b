"""Shared parts of the PyTorch hooks of the gate: timing, the control group, the connection to the gate."""

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
from boa_daemon.job.log_line import log_line


class RanksDisagree(RuntimeError):
    """Two ranks are about to send different messages: the model differs between ranks. Nothing was sent."""


@dataclass
class IterationTiming:
    """Timing of an iteration on rank 0: its length and exposed communication; the rest is computing."""

    iteration_bytes: int
    iteration_seconds: float | None = None
    exposed_seconds: float | None = None
    ready_at: float = 0.0
    per_byte: float = 1.0
    """Bytes through the busiest network card for each byte counted here."""
    _ended_at: float = 0.0

    @property
    def crossing_bytes(self) -> float:
        """Bytes that an iteration sends through the busiest network card."""
        return self.iteration_bytes * self.per_byte

    def pause(self) -> None:
        """Skip iterations that are not timed; timing starts again at the end of the next iteration."""
        self._ended_at = 0.0

    def end(self, sent_bytes: int) -> None:
        """Record the end of an iteration; exposed is the time since the last bucket was ready."""
        now = time.monotonic()
        if self._ended_at:
            self.iteration_seconds = now - self._ended_at
            self.exposed_seconds = now - self.ready_at
        self.iteration_bytes, self._ended_at = sent_bytes, now


def control_group(ranks: list[int]) -> Any:
    """Return the group that broadcasts rank 0's answers; BOA_CONTROL_INTERFACE may name its interface."""
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
    """Return the seconds of a tiny all-reduce over a control group, the best of four; all ranks call this."""
    times = []
    for _ in range(4):
        began = time.monotonic()
        dist.all_reduce(torch.zeros(1), group=group)
        times.append(time.monotonic() - began)
    return min(times)


def gloo_group(ranks: list[int]) -> Any:
    """Return a gloo group of these ranks; if they are a part of the job, the others need not call this."""
    # For all ranks: a name made from the ranks alone would recur after its group is gone, with old addresses.
    is_part = len(ranks) < dist.get_world_size()
    return dist.new_group(ranks, backend="gloo", use_local_synchronization=is_part)


@dataclass
class _Line:
    """A connection to the gate, and the parts of this process that use it."""

    client: GateClient
    parts: list[IterationTiming] = field(default_factory=list)


_lines: dict[tuple[str, str], _Line] = {}
"""This process's connections by gate and job: the gate allows one per job and cuts off the older."""


def open_line(
    address: GateAddress, *, nics: Sequence[str], gpus: int, measured: IterationTiming
) -> GateClient | None:
    """Return this process's connection to the gate, or None without a token; training goes on either way."""
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
    """Close the connection once no part of this process uses it."""
    for key, line in list(_lines.items()):
        if line.client is client:
            line.parts = [part for part in line.parts if part is not measured]
            if line.parts:
                return
            del _lines[key]
    client.close()


def measured_together(client: GateClient, measured: IterationTiming) -> dict[str, float | None]:
    """Return the measurements of an iteration for the gate, summed over all senders of this process."""
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
    """Return the gate's address, or None; an invalid address is reported but does not stop the job."""
    try:
        return find_address(text)
    except BadAddress as fault:
        say_off(fault)
        return None


def say_off(fault: Exception) -> None:
    """Write into the job's log why the gate is off."""
    log_line(f"off, {fault}", speaker="boa gate")
