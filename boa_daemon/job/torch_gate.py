"""The gate in PyTorch: a DistributedDataParallel communication hook that asks before it sends.

    from boa_daemon.job.torch_gate import gate
    model = gate(DistributedDataParallel(model))          # does nothing where BOA_GATE is not set

Gradient buckets go to a separate thread, so autograd never waits. In that thread, rank 0 asks the gate and
broadcasts the answer to all ranks over a small control group; only then is the all-reduce enqueued. Answers
are numbered, so that ranks cannot disagree about which bucket may go. If the gate answers that no other job
sends, or if there is no gate, the answer covers several iterations, and nothing is asked during these.

Answers should not queue behind gradients: if the node has a second network interface, name it in
BOA_CONTROL_INTERFACE.

With gloo, gradients use a process group of their own, which only that thread uses. With NCCL they stay on the
model's group, because two NCCL communicators at once on one GPU can deadlock; `find_unused_parameters` is not
supported then.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.card_bytes import per_byte
from boa_daemon.job.gate.client import GateClient, SendPermit
from boa_daemon.job.gate_parts import (
    IterationTiming,
    RanksDisagree,
    close_line,
    control_group,
    find,
    gloo_group,
    measured_together,
    open_line,
    passing_seconds,
    say_off,
)

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

_torch: Any = torch
"""PyTorch as `Any`, for the parts that have no type annotations."""
MOST_FREE_ITERATIONS = 10_000
MEASURED_ITERATIONS = 2
"""The last free iterations before a question: one marks the start, the next one is timed."""
LAST_SECONDS = 5.0
"""Longest wait at process exit for buckets that are still being sent."""
WHOLE_ITERATION = -1
"""Number of bytes in an answer that covers the rest of the iteration."""


@dataclass
class Bucket:
    """A gradient bucket to send: the flat tensor, DDP's future, and the CUDA event to wait for."""

    tensor: torch.Tensor
    promise: Any
    is_last: bool
    produced: Any = None

    @property
    def bytes(self) -> int:
        """Size of the bucket."""
        return self.tensor.numel() * self.tensor.element_size()


def gate(
    model: DistributedDataParallel, *, iterations: int | None = None, address: str | None = None
) -> DistributedDataParallel:
    """Make a model ask the gate before it sends gradients, and return the model.

    Every rank must call this, in the same order. `iterations` is the number of remaining backward passes with
    communication; without it, the gate ranks the job by the plan, or by the service it has had. `address`
    defaults to BOA_GATE. Without an address, or with all ranks on one node, the model is not changed.
    """
    if model in _gated:
        _gated[model].iterations_left = iterations
    else:
        _attach(model, iterations=iterations, address=address)
    return model


def hook_in(model: DistributedDataParallel) -> None:
    """Gate a model whose script does not mention the gate; if that is impossible, log why and go on."""
    if dist.get_backend(model.process_group) == "nccl" and model.find_unused_parameters:
        say_off(ValueError("it does not work with NCCL and find_unused_parameters together"))
        return
    _attach(model)


def make_way(model: DistributedDataParallel, state: object, hook: Any) -> bool:
    """Replace the gate's hook of a model by the script's own; return whether the model was gated."""
    gated = _gated.get(model)
    if gated is None:
        return False
    model._check_comm_hook(hook)  # type: ignore[no-untyped-call]  # PyTorch states no types here
    gated.instead = (state, hook)
    return True


def _attach(
    model: DistributedDataParallel, *, iterations: int | None = None, address: str | None = None
) -> None:
    gated = GatedModel.attach(model, iterations=iterations, address=address)
    if gated is not None:
        _gated[model] = gated


class GatedModel:
    """The gating of one model: the sender thread, the control group and, on rank 0, the gate's connection."""

    @classmethod
    def attach(
        cls, model: DistributedDataParallel, *, iterations: int | None = None, address: str | None = None
    ) -> GatedModel | None:
        """Register the hook; return None if the model needs no gate."""
        found = find(os.environ.get("BOA_GATE", "") if address is None else address)
        nodes: list[tuple[str, bool]] = [("", False)] * dist.get_world_size(model.process_group)
        mine = os.environ.get("BOA_NODE_ID") or os.uname().nodename
        dist.all_gather_object(nodes, (mine, found is not None), group=model.process_group)
        places = [node for node, _ in nodes]
        # All ranks must reach the same decision, even if their environments differ. A job has one connection
        # to the gate, that of its first rank: models without that rank (later pipeline stages) are not gated.
        first = dist.get_process_group_ranks(model.process_group)[0]
        if not nodes[0][1] or len(set(places)) < 2 or first != 0:
            return None
        gated = cls(model, nodes=places, iterations=iterations, address=found)
        model.register_comm_hook(gated, _hook)
        return gated

    def __init__(
        self,
        model: DistributedDataParallel,
        *,
        nodes: list[str],
        iterations: int | None,
        address: GateAddress | None,
    ) -> None:
        ranks = dist.get_process_group_ranks(model.process_group)
        self.iterations_left = iterations
        self.instead: tuple[object, Any] | None = None
        self._leader = ranks[0]
        self._is_leader = dist.get_rank() == ranks[0]
        self._world_size = len(ranks)
        self._control = control_group(ranks)
        passing = passing_seconds(self._control)
        is_nccl = dist.get_backend(model.process_group) == "nccl"
        if is_nccl and model.find_unused_parameters:
            raise ValueError(
                "with NCCL, the gate does not work with find_unused_parameters, whose own all-reduce "
                "would race with the gradients'. Turn find_unused_parameters off"
            )
        self._owns_group = not is_nccl
        self._group = model.process_group if is_nccl else gloo_group(ranks)
        self._device = next(model.parameters()).device
        self._buckets: queue.SimpleQueue[Bucket | None] = queue.SimpleQueue()
        self._sequence = 0
        self._free_iterations = 0
        self._is_new_iteration, self._goes_freely = True, False
        self._granted_bytes = 0.0
        self._lease = 0
        self._lease_began = 0.0
        self._sent_bytes = 0
        trained = (weight for weight in model.parameters() if weight.requires_grad)
        self._measured = IterationTiming(
            sum(weight.numel() * weight.element_size() for weight in trained),
            per_byte=per_byte("all-reduce", nodes, walks_nodes=is_nccl) or 1.0,
        )
        self._client = self._connect(address, sorted(set(nodes))) if self._is_leader else None
        if self._client is not None:
            self._client.passing_seconds = passing
        self._stream = _torch.cuda.Stream(self._device) if self._device.type == "cuda" else None
        self._thread = threading.Thread(target=self._run, name="boa-gate-send", daemon=True)
        self._thread.start()
        # If the thread were still inside PyTorch at interpreter exit, the process would abort.
        atexit.register(_let_end, weakref.ref(self))

    def push(self, bucket: Any) -> Any:
        """Take a bucket from DDP and return a future. Autograd calls this; it returns at once."""
        if self._is_new_iteration:
            # Read the count only here, where it is the same on all ranks: an answer can change it any time.
            self._goes_freely = self._free_iterations > MEASURED_ITERATIONS
        self._is_new_iteration = bucket.is_last()
        if self._goes_freely:
            return self._push_freely(bucket)
        tensor = bucket.buffer()
        is_cuda = tensor.device.type == "cuda"
        promise: Any = _torch.futures.Future(devices=[tensor.device] if is_cuda else None)
        item = Bucket(tensor=tensor, promise=promise, is_last=bucket.is_last())
        if is_cuda:
            item.produced = _torch.cuda.Event()
            item.produced.record(torch.cuda.current_stream(tensor.device))
        if item.is_last:
            self._measured.ready_at = time.monotonic()
        self._buckets.put(item)
        return promise

    def _push_freely(self, bucket: Any) -> Any:
        """Send a bucket as DDP itself does, in iterations that need no question."""
        tensor = bucket.buffer()
        tensor.div_(self._world_size)
        work = dist.all_reduce(tensor, group=self._group, async_op=True)
        self._sent_bytes += tensor.numel() * tensor.element_size()
        if bucket.is_last():
            self._end_iteration(is_measured=False)
        return work.get_future().then(_first)

    def close(self) -> None:
        """End the thread and the connection. Optional; only call it after the last backward pass."""
        self._end_thread(None)
        if self._client is not None:
            close_line(self._client, self._measured)
        dist.destroy_process_group(self._control)
        if self._owns_group:
            dist.destroy_process_group(self._group)

    @property
    def counts(self) -> dict[str, int]:
        """Number of answers to this rank's questions, by `SendPermit.why`."""
        return {} if self._client is None else dict(self._client.counts)

    def _end_thread(self, seconds: float | None) -> None:
        """Let the thread send its remaining buckets and end; wait at most `seconds`."""
        self._buckets.put(None)
        self._thread.join(seconds)

    def _connect(self, address: GateAddress | None, nics: list[str]) -> GateClient | None:
        """Return the connection to the gate, or None without one; training goes on either way."""
        if address is None:
            return None
        return open_line(address, nics=nics, gpus=self._world_size, measured=self._measured)

    def _run(self) -> None:
        """Send the buckets in the order in which DDP gave them."""
        while (bucket := self._buckets.get()) is not None:
            try:
                self._send(bucket)
            except Exception as fault:  # DDP raises it in the backward pass, where the user sees it
                bucket.promise.set_exception(fault)

    def _send(self, bucket: Bucket) -> None:
        """Average a bucket over the ranks, piece by piece as the gate allows."""
        flat, done = bucket.tensor, 0
        size = bucket.tensor.element_size()
        flat.div_(self._world_size) if bucket.produced is None else self._divide_on_gpu(bucket)
        while done < flat.numel():
            if self._free_iterations == 0 and self._granted_bytes <= 0:
                self._pass_gate((flat.numel() - done) * size, is_last=bucket.is_last)
            count = flat.numel() - done
            if self._free_iterations == 0:
                count = min(count, max(1, int(self._granted_bytes) // size))
            self._reduce(flat[done : done + count])
            done += count
            self._granted_bytes -= count * size
            self._sent_bytes += count * size
            self._give_back(is_end=bucket.is_last and done == flat.numel())
        if bucket.is_last:
            # Before DDP's future is fulfilled: the next iteration relies on these counts.
            self._end_iteration()
        self._fulfil(bucket)

    def _divide_on_gpu(self, bucket: Bucket) -> None:
        """Divide the bucket by the number of ranks on the side stream, once the gradients are ready."""
        assert self._stream is not None
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(bucket.produced)
            bucket.tensor.div_(self._world_size)

    def _reduce(self, piece: torch.Tensor) -> None:
        """All-reduce a piece of a bucket on this thread; wait for its end where its time is measured."""
        if self._stream is None:
            dist.all_reduce(piece, group=self._group)
            return
        with torch.cuda.stream(self._stream):
            dist.all_reduce(piece, group=self._group)
            sent = _torch.cuda.Event()
            sent.record(self._stream)
        if self._lease or self._free_iterations <= MEASURED_ITERATIONS:
            # A lease, and the timing before the next question, need the end of the transfer; all other free
            # iterations stay asynchronous.
            sent.synchronize()

    def _fulfil(self, bucket: Bucket) -> None:
        """Fulfil DDP's future with the bucket."""
        if self._stream is None:
            bucket.promise.set_result(bucket.tensor)
            return
        with torch.cuda.stream(self._stream):
            bucket.promise.set_result(bucket.tensor)

    def _pass_gate(self, ready_bytes: int, *, is_last: bool) -> None:
        """Wait for the answer: rank 0 asks the gate, the other ranks get it from rank 0."""
        self._sequence += 1
        answer = torch.zeros(3, dtype=torch.int64)
        if self._is_leader:
            try:
                go = self._ask(ready_bytes, is_last=is_last)
            except Exception as fault:  # the other ranks wait for an answer, whatever it is
                say_off(fault)
                self._client, go = (
                    None,
                    SendPermit(bytes=1e18, free_iterations=MOST_FREE_ITERATIONS, why="fault"),
                )
            covered = WHOLE_ITERATION if go.bytes >= 1e17 else int(go.bytes)
            answer = torch.tensor([self._sequence, go.free_iterations, covered], dtype=torch.int64)
            self._lease, self._lease_began = go.fence, time.monotonic()
        began = time.monotonic()
        dist.broadcast(answer, src=self._leader, group=self._control)
        if self._client is not None and not self._lease:
            # Broadcasting an answer without a lease is time lost to the gate as well.
            self._client.charge(time.monotonic() - began)
        sequence, free, covered = (int(value) for value in answer)
        if sequence != self._sequence:
            raise RanksDisagree(
                f"rank 0 answers question {sequence}, this rank waits at {self._sequence}: "
                "the ranks do not send the same buckets"
            )
        self._free_iterations = free
        self._granted_bytes = float("inf") if covered == WHOLE_ITERATION else float(covered)

    def _ask(self, ready_bytes: int, *, is_last: bool) -> SendPermit:
        """Return the gate's answer, or a free answer without a gate."""
        measured = self._measured
        left = max(ready_bytes, 0 if is_last else measured.iteration_bytes - self._sent_bytes)
        if self._client is None:
            return SendPermit(bytes=1e18, free_iterations=MOST_FREE_ITERATIONS, why="no gate")
        crossing = measured.per_byte
        go = self._client.ask(
            ready_bytes * crossing,
            left * crossing,
            iterations_left=self.iterations_left,
            **measured_together(self._client, measured),
        )
        if go.why in ("granted", "free"):
            return replace(go, bytes=go.bytes / crossing)
        return SendPermit(bytes=1e18, free_iterations=self._iterations_in(go.free_seconds), why=go.why)

    def _iterations_in(self, seconds: float) -> int:
        """Return the number of iterations that fit into `seconds`, at least one."""
        one = self._measured.iteration_seconds
        return 1 if one is None else max(1, min(MOST_FREE_ITERATIONS, round(seconds / max(one, 1e-6))))

    def _give_back(self, *, is_end: bool) -> None:
        """Give the lease back once the bytes that it covers have been sent."""
        if self._client is None or not self._lease:
            return
        if is_end or self._granted_bytes <= 0:
            seconds = time.monotonic() - self._lease_began
            self._client.done(self._lease, seconds, asks_next=not is_end)
            self._lease = 0

    def _end_iteration(self, *, is_measured: bool = True) -> None:
        if is_measured:
            self._measured.end(self._sent_bytes)
        else:
            self._measured.pause()
        self._sent_bytes = 0
        self._granted_bytes = 0.0
        self._free_iterations = max(0, self._free_iterations - 1)
        if self.iterations_left is not None:
            self.iterations_left = max(0, self.iterations_left - 1)


_gated: weakref.WeakKeyDictionary[Any, GatedModel] = weakref.WeakKeyDictionary()
"""The gated models, while they live."""


def _hook(gated: GatedModel, bucket: Any) -> Any:
    if gated.instead is not None:
        state, own = gated.instead
        return own(state, bucket)
    return gated.push(bucket)


# DDP rejects annotations that are strings, as they are in this file (`from __future__ import annotations`).
_hook.__annotations__.clear()


def _first(sent: Any) -> Any:
    """Return the tensor of a sent bucket, as DDP expects."""
    return sent.value()[0]


def _let_end(hook: weakref.ref[GatedModel]) -> None:
    """At interpreter exit: wait a little for the thread of a model that still lives."""
    living = hook()
    if living is not None:
        living._end_thread(LAST_SECONDS)
