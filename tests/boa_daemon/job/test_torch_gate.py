"""`boa_daemon.job.torch_gate` and `torch_collectives` on streams and events of a fake GPU.

Real GPUs with NCCL would add that kernels keep a stream's order, which NCCL promises.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_stand_in import Event, Gpu, Stream, Tensor

from boa_daemon.job.gate.client import SendPermit

pytestmark = pytest.mark.frameworks

COUNT = 12


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """Import torch when these tests run: it takes a second that other test workers need not spend."""
    global torch, torch_collectives, torch_gate  # noqa: PLW0603
    import torch

    from boa_daemon.job import torch_collectives, torch_gate


class Wire:
    """The all-reduce of two ranks instead of NCCL: it doubles values and records faults."""

    def __init__(self) -> None:
        self.granted, self.sent, self.done = 0, 0, [0]
        self.faults: list[str] = []

    def all_reduce(self, piece: Tensor, **_: Any) -> None:
        """Enqueue on the current stream, as NCCL does."""
        if self.sent_or_under_way(piece) > self.granted:
            self.faults.append("enqueued without a grant")

        def work(value: float) -> float:
            if value != 3.0:
                self.faults.append(f"sent {value}, which is not what the backward pass had made, halved")
            self.sent += 1
            return value * 2.0

        piece.change(work)

    def sent_or_under_way(self, piece: Tensor) -> int:
        """Return how many numbers have been enqueued, with this piece."""
        self.done[0] += piece.numel()
        return self.done[0]


class Asked:
    """The gate's client: it grants three numbers at a time."""

    def __init__(self, wire: Wire, *, whole: bool = False) -> None:
        self.wire, self.whole, self.counts = wire, whole, {}

    def ask(self, ready: float, left: float, **measured: Any) -> SendPermit:
        """Grant a piece."""
        if self.wire.sent < self.wire.granted:
            self.wire.faults.append("asked before the last piece was through")
        self.wire.granted += COUNT if self.whole else 3
        return SendPermit(bytes=12.0, fence=5, lease_seconds=60.0)

    def done(self, fence: int, seconds: float, *, asks_next: bool = False) -> None:
        """Take the lease back; all pieces must be sent by now."""
        if self.wire.sent < self.wire.granted:
            self.wire.faults.append("given back before it was sent")

    def charge(self, seconds: float) -> None:
        """Count nothing."""


def stand_in(monkeypatch: pytest.MonkeyPatch, module: Any, gpu: Gpu, wire: Wire) -> None:
    """Replace the module's PyTorch by the fake."""
    names = {name: getattr(torch, name) for name in ("zeros", "tensor", "int64")}
    monkeypatch.setattr(module, "torch", SimpleNamespace(**names, cuda=gpu.cuda))
    monkeypatch.setattr(module, "_torch", SimpleNamespace(cuda=gpu.cuda, futures=gpu.futures))
    dist = SimpleNamespace(all_reduce=wire.all_reduce, broadcast=lambda *_, **__: None)
    monkeypatch.setattr(module, "dist", dist)


@pytest.mark.parametrize("attempt", range(3))
def test_ddp_sends_finished_gradients_under_a_grant_and_returns_the_result(
    monkeypatch: pytest.MonkeyPatch, attempt: int
) -> None:
    """Gradients are made on one stream and sent on another; the optimizer reads them on the first."""
    gpu, wire = Gpu(), Wire()
    stand_in(monkeypatch, torch_gate, gpu, wire)
    gated = torch_gate.GatedModel.__new__(torch_gate.GatedModel)
    gated._free_iterations, gated._granted_bytes, gated._world_size = 0, 0.0, 2
    gated._sequence, gated._lease, gated._sent_bytes, gated._lease_began = 0, 0, 0, 0.0
    gated._is_leader, gated._leader, gated._control, gated._group = True, 0, None, None
    gated._measured = torch_gate.IterationTiming(COUNT * 4)
    gated._stream, gated._client, gated.iterations_left = Stream(), Asked(wire), None
    gradients = Tensor(gpu, [0.0] * COUNT)
    gradients.change(lambda _: 6.0)
    produced = Event()
    produced.record(gpu.current_stream())
    bucket = torch_gate.Bucket(tensor=gradients, promise=gpu.future(), is_last=True, produced=produced)
    # As in training, the hook's thread sends, and the host waits for the promise.
    sender = threading.Thread(target=gated._send, args=(bucket,))
    sender.start()
    value = bucket.promise.wait()
    read: list[float] = []
    gpu.current_stream().put(lambda: read.extend(value.values))
    gpu.current_stream().synchronize()
    sender.join(60.0)

    assert wire.faults == []
    assert read == [6.0] * COUNT
    assert gated._sequence == COUNT / 3


def test_the_fake_detects_gradients_that_are_sent_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that does not wait for the gradients sends values that are not there yet."""
    gpu, wire = Gpu(), Wire()
    wire.granted = COUNT
    gradients = Tensor(gpu, [0.0] * COUNT)
    gpu.default.put(lambda: threading.Event().wait(0.05))
    gradients.change(lambda _: 6.0)
    side = Stream()
    with gpu.stream(side):
        gradients.div_(2.0)
        wire.all_reduce(gradients)
    side.synchronize()
    assert wire.faults


@pytest.mark.parametrize("is_async", [False, True])
def test_a_sharded_message_asks_when_made_and_ends_when_sent(
    monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    """This holds for synchronous and asynchronous calls on a stream of NCCL."""
    gpu, wire = Gpu(), Wire()
    stand_in(monkeypatch, torch_collectives, gpu, wire)
    monkeypatch.setattr(torch_collectives, "measured_together", lambda *_: {})
    group = torch_collectives.OrderedGroup.__new__(torch_collectives.OrderedGroup)
    group._per_byte = {"reduce-scatter": 1.0}
    group._lock, group._sequence, group._free, group._side = threading.Lock(), 0, 0, None
    group._is_leader, group._control, group._measured = True, None, torch_collectives.CollectiveTiming(0)
    group._client = asked = Asked(wire, whole=True)
    ask = asked.ask
    gradients = Tensor(gpu, [0.0] * COUNT)
    gpu.default.put(lambda: threading.Event().wait(0.05))
    gradients.change(lambda _: 3.0)

    def when_made(*words: Any, **options: Any) -> SendPermit:
        if gradients.values != [3.0] * COUNT:
            wire.faults.append("asked for what was not made yet")
        return ask(*words, **options)

    asked.ask = when_made  # type: ignore[method-assign]
    nccl = Stream()

    def call() -> Any:
        nccl.wait_stream(gpu.current_stream())
        with gpu.stream(nccl):
            wire.all_reduce(gradients)
        ended = Event()
        ended.record(nccl)
        wait = SimpleNamespace(wait=lambda: gpu.current_stream().wait_event(ended))
        if is_async:
            return wait
        return wait.wait()

    group.send("reduce-scatter", call, COUNT * 4, gradients.device)
    assert wire.faults == []
    assert wire.sent == COUNT
