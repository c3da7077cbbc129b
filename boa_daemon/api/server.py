"""uvicorn on a Unix socket that knows its peers, and on TCP where that is asked for."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from boa_daemon.api.who import group_id
from boa_daemon.errors import InputError

MOST_BYTES = 32 * 2**20
"""A batch of ten thousand jobs is a few megabytes."""
GROUP = "boa"
"""Where there is a group of this name, its members may talk to the daemon."""
_Message = MutableMapping[str, Any]
_App = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]],
    Awaitable[None],
]


class PeerProtocol(H11Protocol):
    """HTTP/1.1 whose client, on a Unix socket, is the user that the kernel names."""

    def connection_made(self, transport: Any) -> None:
        """Ask the kernel who connected."""
        super().connection_made(transport)
        channel = transport.get_extra_info("socket")
        if channel is not None and channel.family == socket.AF_UNIX:
            raw = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid, uid, _ = struct.unpack("3i", raw)
            self.client = (f"uid:{uid}", pid)


class SmallBodies:
    """Refuses requests that are too large, whether or not they say so at the start."""

    def __init__(self, app: _App, most: int = MOST_BYTES) -> None:
        self._app, self._most = app, most

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        """Count what comes in."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = dict(scope["headers"]).get(b"content-length", b"0")
        if said.isdigit() and int(said) > self._most:
            await _too_large(send, self._most)
            return
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._most:
                await _too_large(send, self._most)
                return
        sent = False

        async def whole() -> _Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, whole, send)


async def _too_large(send: Callable[[_Message], Awaitable[None]], most: int) -> None:
    """Answer 413."""
    message = f"a request has at most {most} bytes; send fewer jobs at once"
    text = json.dumps({"error": "TooLarge", "message": message, "exit_code": 2}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def unix_socket(path: Path) -> socket.socket:
    """Return a listening socket that its user and the group `boa` may use; an old one gives way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        channel.bind(str(path))
    finally:
        os.umask(before)
    group = group_id(GROUP)
    if group is not None and (os.getuid() == 0 or group in os.getgroups()):
        os.chown(path, -1, group)
        path.chmod(0o660)
    channel.listen(1024)
    return channel


def tcp_socket(listen: str) -> socket.socket:
    """Return a listening socket at ``host:port``.

    Raises:
        InputError: when that is no address of this machine.
    """
    host, _, port = listen.rpartition(":")
    try:
        return socket.create_server((host.strip("[]"), int(port)), backlog=256)
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(f"[api] listen = {listen!r}: {error}", hint="For example 127.0.0.1:8470") from None


class ApiServer:
    """Serves an application in a thread of its own."""

    def __init__(self, app: Any, sockets: list[socket.socket]) -> None:
        config = uvicorn.Config(
            SmallBodies(app),
            http=PeerProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            # A header must not say who connected.
            proxy_headers=False,
            timeout_graceful_shutdown=5,
            server_header=False,
        )
        self._server, self._sockets = uvicorn.Server(config), sockets
        self._thread = threading.Thread(target=self._run, name="boa-api", daemon=True)

    def _run(self) -> None:
        """Serve until told to stop."""
        asyncio.run(self._server.serve(sockets=self._sockets))

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the requests in flight and stop."""
        self._server.should_exit = True
        self._thread.join(timeout=10.0)
        for channel in self._sockets:
            channel.close()
