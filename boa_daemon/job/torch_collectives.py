"""The gate for sharded training: the collectives of FSDP and of ZeRO's optimizer ask before they send.

    import boa_daemon.job.torch_collectives as collectives
    collectives.put_in()             # before the model is made; jobs started by BOA do not need this

In the PyTorch modules that shard (`CALLERS`), `torch.distributed` is replaced by a proxy. It asks the gate
before an all-gather, reduce-scatter, all-reduce or broadcast over a group of the whole job, and forwards
everything else. Not gated are the script's own collectives, tensor-parallel collectives, sends between
pipeline stages, and groups that are a part of the job.

A message is sent in one piece by the same PyTorch call as without the gate, so results are bit-identical.
Rank 0 asks when the message is ready and broadcasts a numbered answer. An answer without a lease covers a
number of collectives, which all ranks count in the same way. BOA_GATE_HYBRID=1 declares that all ranks send
the same, as in hybrid sharding without pipeline stages. Then groups that are a part of the job are gated too,
together, if each rank is in one of them.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.card_bytes import Collective, per_byte
from boa_daemon.job.gate.client import SendPermit
from boa_daemon.job.gate_parts import (
    IterationTiming,
    RanksDisagree,
    close_line,
    control_group,
    find,
    measured_together,
    open_line,
    passing_seconds,
    say_off,
)

_torch: Any = torch
"""PyTorch as `Any`, for the parts that have no type annotations."""
CALLERS = (
    "torch.distributed.fsdp._fully_shard._fsdp_collectives",
    "torch.distributed.fsdp._flat_param",
    "torch.distributed.fsdp._runtime_utils",
    "torch.distributed.optim.zero_redundancy_optimizer",
)
"""The modules whose collectives are gated: FSDP2, FSDP1, and ZeRO's optimizer."""
COLLECTIVES: Mapping[str, Collective] = MappingProxyType(
    {
        "all_gather": "all-gather",
        "all_gather_into_tensor": "all-gather",
        "all_gather_single": "all-gather",
        "reduce_scatter_tensor": "reduce-scatter",
        "reduce_scatter_single": "reduce-scatter",
        "all_reduce": "all-reduce",
        "broadcast": "broadcast",
    }
)
LEAST_BYTES = 65_536
"""Smaller messages do not ask, because asking takes longer than sending them."""
MOST_FREE = 1_000_000
FREE_WHILE_LEARNING = 8
"""Collectives covered by a free answer until the number of collectives per iteration is known."""


@dataclass
class CollectiveTiming(IterationTiming):
    """Counts of rank 0 between optimizer steps: collectives, bytes, and time spent sending."""

    collectives: int = 0
    _sent: int = 0
    _bytes: float = 0.0
    _seconds: float | None = 0.0

    def add(self, sent_bytes: float, seconds: float | None) -> None:
        """Count a collective; `seconds` is how long training waited for it, None if unknown."""
        self._sent += 1
        self._bytes += sent_bytes
        self._seconds = None if seconds is None or self._seconds is None else self._seconds + seconds

    @property
    def left_bytes(self) -> float:
        """Bytes still to be sent in this iteration, if it is like the last one."""
        return max(0.0, self.iteration_bytes - self._bytes)

    def step(self, *_: Any) -> None:
        """End the iteration at an optimizer step; ignore steps before which nothing was sent."""
        if not self._sent:
            return
        now = time.monotonic()
        if self._ended_at and self._seconds is not None:
            self.iteration_seconds, self.exposed_seconds = now - self._ended_at, self._seconds
        self.iteration_bytes, self.collectives, self._ended_at = int(self._bytes), self._sent, now
        self._sent, self._bytes, self._seconds = 0, 0.0, 0.0


class OrderedGroup:
    """Gates the messages of one process group; each rank makes it at its first message."""

    def __init__(self, group: Any, nodes: Sequence[str], address: GateAddress | None) -> None:
        mine = [nodes[rank] for rank in dist.get_process_group_ranks(group)]
        is_nccl = dist.get_backend(group) == "nccl"
        self._per_byte = {
            kind: per_byte(kind, mine, walks_nodes=is_nccl, everywhere=nodes)
            for kind in set(COLLECTIVES.values())
        }
        self._control = control_group(list(range(len(nodes))))
        passing = passing_seconds(self._control)
        self._is_leader = dist.get_rank() == 0
        self._measured = CollectiveTiming(0)
        self._client = None
        if self._is_leader and address is not None:
            nics = sorted(set(nodes))
            self._client = open_line(address, nics=nics, gpus=len(nodes), measured=self._measured)
            if self._client is not None:
                self._client.passing_seconds = passing
            register_optimizer_step_post_hook(self._measured.step)
        self._lock = threading.Lock()
        self._sequence, self._free = 0, 0
        self._side: Any = None

    @property
    def counts(self) -> dict[str, int]:
        """Number of answers to this rank's questions, by `SendPermit.why`."""
        return {} if self._client is None else dict(self._client.counts)

    def send(self, kind: Collective, call: Callable[[], Any], size: int, device: torch.device) -> Any:
        """Wait for the gate's permission, make the call, and return its result."""
        with self._lock:
            crossing = size * self._per_byte[kind]
            if self._free:
                self._free -= 1
                began = time.monotonic()
                work = call()
                # An asynchronous call is waited for later, so its duration is unknown.
                is_over = work is None and device.type == "cpu"
                self._measured.add(crossing, time.monotonic() - began if is_over else None)
                return work
            if device.type != "cpu":
                _torch.cuda.current_stream(device).synchronize()
            fence = self._pass_gate(crossing)
            began = time.monotonic()
            work = call()
            if fence and self._client is not None:
                self._wait_until_sent(work, device)
                seconds = time.monotonic() - began
                self._client.done(fence, seconds)
                self._measured.add(crossing, seconds)
            else:
                self._measured.add(crossing, None)
            return work

    def close(self) -> None:
        """Close this group's use of the connection to the gate."""
        if self._client is not None:
            close_line(self._client, self._measured)
        self._client = None

    def _wait_until_sent(self, work: Any, device: torch.device) -> None:
        """Wait for the end of a message, on a side stream, so that the sending stream is not delayed."""
        if device.type == "cpu":
            if work is not None:
                work.wait()
            return
        if self._side is None:
            self._side = _torch.cuda.Stream(device)
        self._side.wait_stream(_torch.cuda.current_stream(device))
        with _torch.cuda.stream(self._side):
            if work is not None:
                work.wait()
            sent = _torch.cuda.Event()
            sent.record(self._side)
        sent.synchronize()

    def _pass_gate(self, crossing: float) -> int:
        """Wait for the answer; return the fence of the lease on rank 0, and 0 without a lease."""
        self._sequence += 1
        answer = torch.zeros(2, dtype=torch.int64)
        fence = 0
        if self._is_leader:
            go = self._ask(crossing)
            fence = go.fence
            answer = torch.tensor([self._sequence, self._collectives_in(go)], dtype=torch.int64)
        began = time.monotonic()
        dist.broadcast(answer, src=0, group=self._control)
        if self._client is not None and not fence:
            self._client.charge(time.monotonic() - began)
        sequence, free = (int(value) for value in answer)
        if sequence != self._sequence:
            raise RanksDisagree(
                f"rank 0 answers question {sequence}, this rank waits at {self._sequence}: "
                "the ranks do not send the same collectives"
            )
        self._free = free
        return fence

    def _ask(self, crossing: float) -> SendPermit:
        """Return the gate's answer, or a free answer without a gate; never raise, since other ranks wait."""
        nobody = SendPermit(bytes=1e18, free_seconds=3600.0, why="no gate")
        if self._client is None:
            return nobody
        try:
            left = max(crossing, self._measured.left_bytes)
            return self._client.ask(
                crossing, left, is_whole=True, **measured_together(self._client, self._measured)
            )
        except Exception as fault:
            say_off(fault)
            self._client = None
            return nobody

    def _collectives_in(self, go: SendPermit) -> int:
        """Return how many collectives may follow this one without asking; 0 under a lease."""
        if go.fence:
            return 0
        per_iteration = self._measured.collectives
        if not per_iteration:
            return FREE_WHILE_LEARNING
        iterations = float(go.free_iterations)
        one = self._measured.iteration_seconds
        if go.free_seconds and one:
            iterations = go.free_seconds / max(one, 1e-6)
        return max(1, min(MOST_FREE, round(max(1.0, iterations) * per_iteration)))


class GatedCollectives:
    """A proxy for `torch.distributed` in a PyTorch module; its collectives ask the gate first."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        kind = COLLECTIVES.get(name)
        if kind is None:
            return found

        def send(*words: Any, **options: Any) -> Any:
            return self._send(kind, found, words, options)

        return send

    def _send(self, kind: Collective, call: Any, words: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Send through the gate if the group is gated; the group and the tensors are among the arguments."""
        given = [*words, *options.values()]
        tensors = [one for one in given if isinstance(one, torch.Tensor)]
        tensors += [one for many in given if isinstance(many, list) for one in many]
        size = max(sum(t.nbytes for t in many) for many in _alike(given)) if tensors else 0
        group = next((one for one in given if isinstance(one, dist.ProcessGroup)), None) or dist.group.WORLD
        if size < LEAST_BYTES or torch.compiler.is_compiling():
            return call(*words, **options)
        ordered = _ordered(group)
        if ordered is None:
            return call(*words, **options)
        return ordered.send(kind, lambda: call(*words, **options), size, tensors[0].device)


def make_ordered_group(group: Any) -> OrderedGroup | None:
    """Return the gating of a group, made by all ranks together; None if the group is not gated.

    All ranks reach the same decision: first from facts that are the same on all, then by what rank 0 found.
    """
    is_hybrid = os.environ.get("BOA_GATE_HYBRID", "") == "1"
    ranks = dist.get_process_group_ranks(group)
    if len(ranks) < 2 or (len(ranks) < dist.get_world_size() and not is_hybrid):
        return None
    found = find(os.environ.get("BOA_GATE", ""))
    said: list[tuple[str, bool]] = [("", False)] * dist.get_world_size()
    dist.all_gather_object(said, (os.environ.get("BOA_NODE_ID") or os.uname().nodename, found is not None))
    nodes = [node for node, _ in said]
    if not said[0][1] or len({nodes[rank] for rank in ranks}) < 2:
        return None
    return OrderedGroup(group, nodes, found)


_groups: dict[str, tuple[Any, OrderedGroup | None]] = {}
"""Gating by group name, with the group itself, because PyTorch reuses the names of groups that are gone."""


def _ordered(group: Any) -> OrderedGroup | None:
    known = _groups.get(group.group_name)
    if known is None or known[0] is not group:
        known = group, make_ordered_group(group)
        _groups[group.group_name] = known
    return known[1]


def put_in() -> None:
    """Gate the collectives of all modules in `CALLERS`; calling it again does nothing."""
    for name in CALLERS:
        try:
            put_into(importlib.import_module(name))
        except ImportError:
            continue  # This version of PyTorch does not have the module.


def put_into(module: Any) -> None:
    """Gate the collectives of one module."""
    if not isinstance(module.dist, GatedCollectives):
        module.dist = GatedCollectives(module.dist)


def _alike(given: Sequence[Any]) -> list[list[Any]]:
    """Return each tensor, and each list of tensors, as a list."""
    return [
        [one] if isinstance(one, torch.Tensor) else one
        for one in given
        if isinstance(one, (torch.Tensor, list))
    ]
