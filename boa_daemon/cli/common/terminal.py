"""Relay a pseudo-terminal that another process uses to our terminal, and relay one port to another."""

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
    """Return whether standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class RelayedTerminal:
    """A pseudo-terminal: another process opens a shell on `name`, and `relay` connects it to our terminal."""

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
        """Give the pseudo-terminal the size of our terminal."""
        with suppress(OSError):
            size = fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8)
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def relay(self) -> None:
        """Copy input and output until no process has the pseudo-terminal open, or our terminal is closed."""
        # Close our copy of the other end; while it is open, the end of the shell cannot be seen.
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
                    block = b""  # Reading fails so when the other side of a terminal is closed.
                if not block:
                    return
                _write(1 if end == self._ours else self._ours, block)


def _write(end: int, block: bytes) -> None:
    while block:
        block = block[os.write(end, block) :]


def relay_port(here: int, there: int) -> None:
    """Relay connections from local port `here` to local port `there`, until an interrupt.

    Raises:
        InputError: when the port is not free.
    """
    asyncio.run(_relay_port(here, there))


async def _relay_port(here: int, there: int) -> None:
    """Serve `here`, and open a connection to `there` for each client."""

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
            writer.close()  # The job does not listen on the port, or not yet.
            return
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))

    try:
        server = await asyncio.start_server(serve, "127.0.0.1", here)
    except OSError as error:
        raise InputError(
            f"port {here} of this machine cannot be opened: {error.strerror}",
            hint="Give another --local-port",
        ) from None
    async with server:
        await server.serve_forever()
