"""A gate in its own thread, so that the work of the daemon, tests and benchmarks does not delay it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from boa_daemon.gate.server import GateServer
from boa_daemon.gate.types import GateSettings
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.tick.facts.state import GateView

CLOSE_SECONDS = 5.0
_Answer = TypeVar("_Answer")


class GateThread:
    """A gate server in a thread, used with `with`; `addresses` are those at which it listens."""

    def __init__(self, settings: GateSettings, secret: str, *addresses: GateAddress) -> None:
        self.addresses: list[GateAddress] = []
        self.server = GateServer(settings, secret)
        self._wanted = addresses
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="boa-gate", daemon=True)

    def __enter__(self) -> GateThread:
        self._thread.start()
        try:
            self.addresses = asyncio.run_coroutine_threadsafe(
                self.server.start(*self._wanted), self._loop
            ).result()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the gate; a second call does nothing."""
        if self._loop.is_closed():
            return
        if self._thread.is_alive():
            closing = asyncio.run_coroutine_threadsafe(self.server.close(), self._loop)
            try:
                closing.result(CLOSE_SECONDS)
            except TimeoutError:
                return  # The gate hangs. Its thread is a daemon thread, which ends with the process.
            self._stop()
        else:
            # The thread died without closing its sockets: run its loop here to close them.
            self._loop.run_until_complete(self.server.close())
            self._loop.close()

    def is_listening(self) -> bool:
        """Return whether the gate runs and accepts new connections."""
        return self._thread.is_alive() and self.server.is_listening

    def status(self, *, patience_seconds: float | None = None) -> dict[str, Any] | None:
        """Return the gate's status; None if it does not answer in time."""
        return self._ask(self.server.status, patience_seconds)

    def view(self, *, patience_seconds: float | None = None) -> GateView | None:
        """Return the gate's links and jobs; None if it does not answer in time."""
        return self._ask(self.server.view, patience_seconds)

    def _ask(self, question: Callable[[], _Answer], patience_seconds: float | None) -> _Answer | None:
        """Call a function in the gate's thread and return its result; None if that takes too long."""

        async def ask() -> _Answer:
            return question()

        asked = asyncio.run_coroutine_threadsafe(ask(), self._loop)
        try:
            return asked.result(patience_seconds)
        except TimeoutError:
            asked.cancel()
            return None

    def take_plan(
        self, remaining_gpu_seconds: dict[str, float], generations: dict[str, int] | None = None
    ) -> None:
        """Send the gate each job's remaining GPU-seconds and newest generation."""
        self._loop.call_soon_threadsafe(self.server.take_plan, remaining_gpu_seconds, generations or {})

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
