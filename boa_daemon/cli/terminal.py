"""A terminal that another process may have, relayed to ours; and a port that is relayed to another."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import signal
import sys
import termios
import tty
from contextlib import suppress
from types import TracebackType
from typing import Any

from boa_daemon.errors import InputError

BLOCK_BYTES = 1 << 16


def is_on_terminal() -> bool:
    """Return whether somebody types here."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class RelayedTerminal:
    """A fresh terminal of ours: `name` is for who opens a shell on it, `relay` shows it until that ends."""

    def __init__(self) -> None:
        self._ours, self._theirs = os.openpty()
        self.name = os.ttyname(self._theirs)
        self._before: list[Any] | None = None
        self._handler: Any = None

    def __enter__(self) -> RelayedTerminal:
        self._resize()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, self._before)
            signal.signal(signal.SIGWINCH, self._handler)
        for end in (self._ours, self._theirs):
            with suppress(OSError):
                os.close(end)

    def _resize(self, *_: object) -> None:
        """Make it as large as ours."""
        with suppress(OSError):
            size = fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8)
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def relay(self) -> None:
        """Copy what is typed and shown, until nobody has the terminal open any more, or ours is gone."""
        # Ours, or its end would never be seen.
        os.close(self._theirs)
        self._handler = signal.signal(signal.SIGWINCH, self._resize)
        self._before = termios.tcgetattr(0)
        tty.setraw(0)
        ends = [0, self._ours]
        while True:
            for end in select.select(ends, [], [])[0]:
                try:
                    block = os.read(end, BLOCK_BYTES)
                except OSError:
                    block = b""  # How a terminal says that its other side is closed.
                if not block:
                    return
                _write(1 if end == self._ours else self._ours, block)


def _write(end: int, block: bytes) -> None:
    """Write all of a block."""
    while block:
        block = block[os.write(end, block) :]


def relay_port(here: int, there: int) -> None:
    """Relay connections to a port of the loopback to another one, until an interrupt.

    Raises:
        InputError: when the port is not free.
    """
    asyncio.run(_relay_port(here, there))


async def _relay_port(here: int, there: int) -> None:
    """Relay each connection to its own."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while block := await reader.read(BLOCK_BYTES):
                writer.write(block)
                await writer.drain()
        with suppress(OSError):
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", there)
        except OSError:
            writer.close()  # The job does not listen, or not yet.
            return
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))

    try:
        server = await asyncio.start_server(serve, "127.0.0.1", here)
    except OSError as error:
        raise InputError(
            f"port {here} of this machine cannot be had: {error.strerror}", hint="Give another --local-port"
        ) from None
    async with server:
        await server.serve_forever()
