"""Connections to a daemon: a unix socket of this machine, or HTTP(S) with a token."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from boa_daemon.errors import DAEMON_UNREACHABLE, BoaError, InputError

PATIENCE_SECONDS = 60.0
_TRUSTED = ("/run/",)
"""Folders in which only root creates entries, so that root has placed any socket there."""
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class DaemonUnreachable(BoaError):
    """Nobody answers at the address, or the socket is not trusted."""

    exit_code = DAEMON_UNREACHABLE


class RefusedByDaemon(BoaError):
    """The daemon refused: `status` is the HTTP status, `exit_code` that of its error."""

    def __init__(self, message: str, *, exit_code: int, status: int) -> None:
        super().__init__(message)
        self.exit_code, self.status = exit_code, status


def is_url(address: str | Path) -> bool:
    """Whether an address is an HTTP URL rather than a socket."""
    return str(address).startswith(("http://", "https://"))


def open_http(address: str | Path, token: str | None) -> httpx.Client:
    """Return an HTTP client for a socket or a URL; a URL is not contacted yet.

    Raises:
        InputError: when a token is missing, or would cross a network in the clear.
        DaemonUnreachable: when there is no socket, it is not ours or root's, or nobody listens.
    """
    if not is_url(address):
        path = Path(address)
        check_owner(path)
        check_listens(path)
        # A socket needs no TLS, and loading all certificates would take longer than most answers.
        transport = httpx.HTTPTransport(uds=str(path), verify=False)
        return httpx.Client(transport=transport, base_url="http://boa", timeout=PATIENCE_SECONDS)
    url = urlsplit(str(address))
    if not token:
        raise InputError(f"{address} needs a token", hint="Set BOA_TOKEN, or give token=")
    if url.scheme == "http" and url.hostname not in _LOOPBACK:
        raise InputError(f"the token would go to {url.hostname} in the clear", hint="Use https://")
    if not token.isascii() or not token.isprintable():
        raise InputError("a token is printable ASCII without line ends")
    headers = {"Authorization": f"Bearer {token}"}
    # Redirects are not followed, so the token reaches no other host.
    return httpx.Client(
        base_url=str(address).rstrip("/"),
        headers=headers,
        timeout=PATIENCE_SECONDS,
        verify=url.scheme == "https",
    )


def ask(
    http: httpx.Client,
    method: str,
    path: str,
    *,
    at: str | Path,
    query: Mapping[str, Any] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """Send one request and return its document; errors name `at`.

    `query` is added to the query of `path`.

    Raises:
        DaemonUnreachable: when nobody answers.
        RefusedByDaemon: when the daemon refuses.
    """
    if not is_url(at):
        check_listens(Path(at))
    try:
        answer = http.request(method, httpx.URL(f"/v1{path}").copy_merge_params(query or {}), **given)
    except httpx.HTTPError as error:
        said = error or type(error).__name__
        raise DaemonUnreachable(f"the daemon at {at} does not answer: {said}") from None
    if answer.is_error:
        raise _refusal(answer, at)
    return _document(answer, at)


def _document(answer: httpx.Response, at: str | Path) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        document = None
    if not isinstance(document, Mapping) or answer.is_redirect:
        raise DaemonUnreachable(f"what answers at {at} is not a BOA daemon")
    return dict(document)


def _refusal(answer: httpx.Response, at: str | Path) -> BoaError:
    document = _document(answer, at)
    return RefusedByDaemon(
        str(document.get("message", answer.reason_phrase)),
        exit_code=int(document.get("exit_code", 1)),
        status=answer.status_code,
    )


def stream(http: httpx.Client, path: str, *, at: str | Path) -> Iterator[bytes]:
    """Yield the pieces of an answer that is not a document; raises as `ask` does."""
    try:
        with http.stream("GET", f"/v1{path}") as answer:
            if answer.is_error:
                answer.read()
                raise _refusal(answer, at)
            yield from answer.iter_bytes()
    except httpx.HTTPError as error:
        said = error or type(error).__name__
        raise DaemonUnreachable(f"the daemon at {at} does not answer: {said}") from None


def check_owner(path: Path) -> None:
    """Refuse a socket of another user, who could impersonate the daemon.

    Raises:
        DaemonUnreachable: when there is no socket, or it is not ours or root's.
    """
    try:
        found = path.stat()
    except OSError:
        raise DaemonUnreachable(
            f"no daemon listens at {path}. Start one with `boa daemon`, or set [daemon] socket"
        ) from None
    if not stat.S_ISSOCK(found.st_mode):
        raise DaemonUnreachable(f"{path} is not a socket")
    if found.st_uid not in (0, os.getuid()) and not str(path.resolve()).startswith(_TRUSTED):
        raise DaemonUnreachable(
            f"{path} belongs to user {found.st_uid}, not to you or root: it is not trusted"
        )


def check_listens(path: Path) -> None:
    """Check that a socket accepts connections, because httpx leaks a socket when one does not.

    Raises:
        DaemonUnreachable: when nobody listens.
    """
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(PATIENCE_SECONDS)
        try:
            channel.connect(str(path))
        except OSError as error:
            why = error.strerror or error
            raise DaemonUnreachable(
                f"the daemon at {path} does not answer: {why}. If it was killed, start it again with "
                "`boa daemon`: it takes up jobs and instances as they are"
            ) from None
