"""The API server: uvicorn on a unix socket with peer credentials, and on TCP if configured."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from boa_daemon.api.authentication import group_id
from boa_daemon.errors import InputError
from boa_daemon.inputs.watched_files import WatchedFiles

MOST_BYTES = 32 * 2**20
"""Largest request; a batch of ten thousand jobs is a few megabytes."""
MOST_CONNECTIONS, HEAD_SECONDS, BODY_SECONDS = 128, 10.0, 60.0
"""Over TCP: connections at once, and seconds allowed for a request's head and for its body."""
GROUP = "boa"
"""Group whose members may use the daemon's socket, if the group exists."""
_Message = MutableMapping[str, Any]
_App = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]],
    Awaitable[None],
]


class PeerProtocol(H11Protocol):
    """HTTP/1.1 that identifies the client of a unix socket by the kernel's peer credentials."""

    is_over_tcp = False
    _alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Identify the peer of a unix socket; limit the number of TCP connections."""
        super().connection_made(transport)
        channel = transport.get_extra_info("socket")
        if channel is not None and channel.family == socket.AF_UNIX:
            raw = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid, uid, _ = struct.unpack("3i", raw)
            self.client = (f"uid:{uid}", pid)
            return
        # Anybody may connect over TCP: limit the number of connections, and the time for a request.
        others = sum(1 for each in self.connections if getattr(each, "is_over_tcp", False))
        self.is_over_tcp = True
        if others >= MOST_CONNECTIONS:
            transport.abort()
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer."""
        if self._alarm is not None:
            self._alarm.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Start the timer for the next request."""
        super().on_response_complete()
        if self.is_over_tcp and not self.transport.is_closing():
            self._await_head()

    def _await_head(self) -> None:
        """Start a timer that closes the connection if no request arrives in time."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self.loop.call_later(HEAD_SECONDS, self._hang_up_if_silent)

    def _hang_up_if_silent(self) -> None:
        """Close the connection unless a request is being answered."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()


class BodySizeLimit:
    """Middleware that refuses large requests, with or without a Content-Length."""

    def __init__(self, app: _App, most: int = MOST_BYTES) -> None:
        self._app, self._most = app, most

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        """Read and count the body, then pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = dict(scope["headers"]).get(b"content-length", b"0")
        if said.isdigit() and int(said) > self._most:
            await _too_large(send, self._most)
            return
        body, more = b"", True
        while more:
            try:
                message = await asyncio.wait_for(receive(), BODY_SECONDS)
            except TimeoutError:
                return
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
    message = f"a request has at most {most} bytes; send fewer jobs at once"
    text = json.dumps({"error": "TooLarge", "message": message, "exit_code": 2}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def unix_socket(path: Path) -> socket.socket:
    """Return a listening socket for its user and the group `boa`, replacing an old socket."""
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


def tcp_socket(listen: str, *, is_secret: bool = False) -> socket.socket:
    """Return a listening socket at ``host:port``; beyond this machine only with TLS (`is_secret`).

    Raises:
        InputError: when this machine has no such address, or tokens would cross a network in the clear.
    """
    host, _, port = listen.rpartition(":")
    if not host:
        raise InputError(
            f"[api] listen = {listen!r} names no host", hint="Write 127.0.0.1:8470", setting=("api", "listen")
        )
    if not is_secret and not _is_loopback(host.strip("[]")):
        raise InputError(
            f"[api] listen = {listen!r} reaches other machines, and tokens would go there in the clear",
            hint="Set [api] tls_cert and tls_key, or listen at 127.0.0.1 behind a proxy that speaks TLS",
            setting=("api", "listen"),
        )
    try:
        return socket.create_server((host.strip("[]"), int(port)), backlog=256)
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(
            f"[api] listen = {listen!r}: {error}",
            hint="For example 127.0.0.1:8470",
            setting=("api", "listen"),
        ) from None


def _is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _context(certificate: str, key: str) -> ssl.SSLContext:
    """Return the TLS settings of a server with a certificate.

    Raises:
        OSError: when the files cannot be read, or do not go together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


class ApiServer:
    """Serves an application in its own thread; `tls` is a certificate file and its key file."""

    def __init__(self, app: Any, sockets: list[socket.socket], *, tls: tuple[str, str] | None = None) -> None:
        config = uvicorn.Config(
            BodySizeLimit(app),
            http=PeerProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            # A request header must not override the client's address.
            proxy_headers=False,
            timeout_graceful_shutdown=5,
            ssl_certfile=None if tls is None else tls[0],
            ssl_keyfile=None if tls is None else tls[1],
            server_header=False,
        )
        self._certificate: WatchedFiles[ssl.SSLContext] | None = None
        try:
            config.load()
            if tls is not None and config.ssl is not None:
                files = [Path(tls[0]), Path(tls[1])]
                self._certificate = WatchedFiles(files, lambda: _context(*tls))
                # Called at each handshake, so that a renewed certificate is used from the next one on.
                config.ssl.sni_callback = self._use_certificate
        except (OSError, ValueError) as error:
            raise InputError(
                f"[api] tls_cert and tls_key cannot be used: {error}", setting=("api", "tls_cert")
            ) from None
        self._server, self._sockets = uvicorn.Server(config), sockets
        self._thread = threading.Thread(target=self._run, name="boa-api", daemon=True)

    def _use_certificate(self, connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        del name, context
        assert self._certificate is not None
        connection.context = self._certificate.get()

    def fault(self) -> str:
        """Return why a changed certificate is not in use; empty if it is, or if there is none."""
        if self._certificate is None:
            return ""
        self._certificate.get()
        return self._certificate.fault

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=self._sockets))

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def stop(self) -> None:
        """Finish running requests and stop."""
        self._server.should_exit = True
        self._thread.join(timeout=10.0)
        for channel in self._sockets:
            channel.close()
