"""A GPU made of threads: streams run their work in order and late, events order streams, the host runs ahead.

It keeps what PyTorch promises of streams and events, and no more: a stream waits for another only through an
event, and the host waits for a stream only if it synchronizes. Code that forgets to wait usually reads a
value that is not computed yet.
"""

from __future__ import annotations

import contextlib
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

_chance = random.Random(1)


class Stream:
    """Runs its work items one after another, each after a random delay."""

    def __init__(self, device: object = None) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            work = self._queue.get()
            time.sleep(_chance.uniform(0.0, 0.004))
            work()

    def put(self, work: Callable[[], None]) -> None:
        """Enqueue a kernel; the host does not wait."""
        self._queue.put(work)

    def wait_event(self, event: Event) -> None:
        """Make later work on this stream wait for an event."""
        happened = event.happened
        self.put(lambda: _in_time(happened))

    def wait_stream(self, other: Stream) -> None:
        """Make later work on this stream wait for the present work on another stream."""
        event = Event()
        event.record(other)
        self.wait_event(event)

    def synchronize(self) -> None:
        """Make the host wait for the present work on this stream."""
        event = Event()
        event.record(self)
        event.synchronize()


class Event:
    """An event that happens when its stream reaches the point at which it was recorded."""

    def __init__(self) -> None:
        self.happened = threading.Event()

    def record(self, stream: Stream) -> None:
        """Record this event on a stream."""
        self.happened = happened = threading.Event()
        stream.put(happened.set)

    def synchronize(self) -> None:
        """Make the host wait for this event."""
        _in_time(self.happened)


def _in_time(happened: threading.Event) -> None:
    assert happened.wait(60.0), "a stream waits for an event that nobody recorded"


class Gpu:
    """One device: its default stream, each host thread's current stream, and PyTorch's names for both."""

    def __init__(self) -> None:
        self.default = Stream()
        self._local = threading.local()
        self.cuda = SimpleNamespace(
            Stream=Stream, Event=Event, stream=self.stream, current_stream=self.current_stream
        )
        self.futures = SimpleNamespace(Future=self.future)

    def current_stream(self, device: object = None) -> Stream:
        """Return the current stream of this host thread."""
        return getattr(self._local, "stream", self.default)

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        """Use another stream within the context."""
        before = self.current_stream()
        self._local.stream = stream
        try:
            yield
        finally:
            self._local.stream = before

    def future(self, devices: object = None) -> Future:
        """Return a future on this device."""
        return Future(self)


class Future:
    """Like a PyTorch future with devices: `wait` makes the current stream wait for the value."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._done, self._event = gpu, threading.Event(), Event()
        self._value: Any = None

    def set_result(self, value: Any) -> None:
        """Set the value; it is valid when the current stream reaches this point."""
        self._value = value
        self._event.record(self._gpu.current_stream())
        self._done.set()

    def set_exception(self, fault: Exception) -> None:
        """Set an error."""
        self._value = fault
        self._done.set()

    def wait(self) -> Any:
        """Make the host wait for the result to be set, and its stream for the value."""
        _in_time(self._done)
        if isinstance(self._value, Exception):
            raise self._value
        self._gpu.current_stream().wait_event(self._event)
        return self._value


class Tensor:
    """Numbers on the device; changes to them are enqueued."""

    def __init__(self, gpu: Gpu, values: list[float], start: int = 0, stop: int | None = None) -> None:
        self.gpu, self.values, self.device = gpu, values, SimpleNamespace(type="cuda")
        self._start, self._stop = start, len(values) if stop is None else stop

    def numel(self) -> int:
        """Return the count of numbers."""
        return self._stop - self._start

    def element_size(self) -> int:
        """Return the bytes of one number."""
        return 4

    def __getitem__(self, part: slice) -> Tensor:
        return Tensor(self.gpu, self.values, self._start + part.start, self._start + part.stop)

    def change(self, change: Callable[[float], float]) -> None:
        """Enqueue a change of each number."""

        def work() -> None:
            for at in range(self._start, self._stop):
                self.values[at] = change(self.values[at])

        self.gpu.current_stream().put(work)

    def div_(self, number: float) -> Tensor:
        """Divide in place."""
        self.change(lambda value: value / number)
        return self
