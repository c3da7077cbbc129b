"""The API server: uvicorn on a unix socket with peer credentials, and on TCP if configured."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import struct
import threading
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from boa_daemon.api.authentication import group_id
from boa_daemon.api.log_limits import limit_lines
from boa_daemon.api.spare_descriptors import SpareDescriptors
from boa_daemon.errors import InputError
from boa_daemon.inputs.watched_files import WatchedFiles

_LOG = logging.getLogger("boa.api")
MOST_CONNECTIONS, HEAD_SECONDS = 128, 10.0
"""Over TCP: connections at once; and, everywhere, seconds for a request's head and of idleness."""
MOST_OF_ADDRESS, MOST_OF_USER = 32, 64
"""Connections at once of an address, and of a user on the unix socket (root and the daemon's user: more)."""
MOST_ON_SOCKET = 512
RETRY_SECONDS = 5.0
"""Seconds after which the reserve of descriptors is filled again."""
GROUP = "boa"
"""Group whose members may use the daemon's socket, if the group exists."""


class PeerProtocol(H11Protocol):
    """HTTP/1.1 that identifies the client of a unix socket by the kernel's peer credentials.

    The number of connections is limited, in all and of each user or address, and so is the time that a
    connection may be silent.
    """

    place: tuple[str, str] | None = None
    """What the connection counts for: ("tcp", address) or ("unix", user id)."""
    proxies: frozenset[str] = frozenset()
    _alarm: asyncio.TimerHandle | None = None
    _is_half_closed = False

    def connection_made(self, transport: Any) -> None:
        """Identify the peer; close the connection if its user, its address or everybody has too many."""
        super().connection_made(transport)
        channel = transport.get_extra_info("socket")
        if channel is not None and channel.family == socket.AF_UNIX:
            raw = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid, uid, _ = struct.unpack("3i", raw)
            self.client = (f"uid:{uid}", pid)
            place, most = ("unix", str(uid)), MOST_OF_USER
            if uid in (0, os.getuid()):
                most = MOST_ON_SOCKET // 2
            most_of_all = MOST_ON_SOCKET
        else:
            host = "?" if self.client is None else _plain_address(str(self.client[0]))
            self.client = None if self.client is None else (host, self.client[1])
            place, most, most_of_all = ("tcp", host), MOST_OF_ADDRESS, MOST_CONNECTIONS
            if host in self.proxies:
                most = MOST_CONNECTIONS
        others = [each.place for each in self.connections if isinstance(each, PeerProtocol)]
        of_kind = sum(each is not None and each[0] == place[0] for each in others)
        if of_kind >= most_of_all or sum(each == place for each in others) >= most:
            _LOG.warning("too many connections at once, the last of %s", place[1])
            transport.write(_FULL)
            transport.close()
            return
        self.place = place
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer."""
        if self._alarm is not None:
            self._alarm.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read nothing of a connection that has no place."""
        if self.place is not None:
            super().data_received(data)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a whole request although its sender has nothing more to say, as `nc -N` and some proxies."""
        cycle = self.cycle
        is_open = cycle is not None and not cycle.response_complete and not cycle.more_body
        self._is_half_closed = is_open and self.scheme == "http"
        return self._is_half_closed

    def on_response_complete(self) -> None:
        """Start the timer for the next request."""
        super().on_response_complete()
        if self._is_half_closed and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
        if self.place is not None and not self.transport.is_closing():
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


def _plain_address(host: str) -> str:
    """Return an address as people write it: IPv4 as such, also where a socket of both versions took it."""
    return host.removeprefix("::ffff:") if "." in host else host


_SAID = b'{"error": "TooMany", "message": "too many connections at once; close some", "exit_code": 1}'
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_SAID), _SAID)
)


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
        address = (host.strip("[]"), int(port))
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        # An IPv6 wildcard is for IPv4 too, as people expect who write [::].
        both = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=256, dualstack_ipv6=both)
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

    def __init__(
        self,
        app: Any,
        sockets: list[socket.socket],
        *,
        tls: tuple[str, str] | None = None,
        is_on_unix: bool = False,
    ) -> None:
        self.is_on_unix = is_on_unix
        proxies = getattr(getattr(app, "state", None), "proxies", ())
        protocol = type("ServedProtocol", (PeerProtocol,), {"proxies": frozenset(proxies)})
        config = uvicorn.Config(
            app,
            http=protocol,
            log_config=None,
            access_log=False,
            # An upgraded connection would have neither a time limit nor a caller.
            ws="none",
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
        self._spare = SpareDescriptors()
        limit_lines()
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
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._on_trouble)
        await self._server.serve(sockets=self._sockets)

    def _on_trouble(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Without a descriptor for a new connection, give the reserve away for a while."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            self._spare.give()
            loop.call_later(RETRY_SECONDS, self._spare.take)
        loop.default_exception_handler(context)

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def stop(self) -> None:
        """Finish running requests and stop."""
        self._server.should_exit = True
        self._thread.join(timeout=10.0)
        for channel in self._sockets:
            channel.close()
        self._spare.give()
