"""The client of the command line: one socket, one question, one document."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from boa_daemon.errors import DAEMON_UNREACHABLE, BoaError

PATIENCE_SECONDS = 60.0
_TRUSTED = ("/run/",)
"""Only root makes folders there, so whatever listens there was put there by root."""


class DaemonUnreachable(BoaError):
    """Nobody answers at the socket."""

    exit_code = DAEMON_UNREACHABLE


class RefusedByDaemon(BoaError):
    """The daemon said no; the exit code is its own."""

    def __init__(self, message: str, *, exit_code: int, status: int) -> None:
        super().__init__(message)
        self.exit_code, self.status = exit_code, status


def check_owner(path: Path) -> None:
    """Refuse a socket that somebody else put there: it could pretend to be the daemon.

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
    """Knock at a socket: the library that asks leaks one where nobody opens.

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


class Client:
    """Talks to a daemon; use it in a `with`."""

    def __init__(self, path: Path) -> None:
        check_owner(path)
        check_listens(path)
        self._path = path
        self._http = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(path)), base_url="http://boa", timeout=PATIENCE_SECONDS
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Ask for a document."""
        given = {key: value for key, value in query.items() if value is not None}
        return self._answer("GET", path, params=given)

    def post(self, path: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Order something."""
        return self._answer("POST", path, json=None if document is None else dict(document))

    def _answer(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        """Return the answer as a document.

        Raises:
            DaemonUnreachable: when nobody answers.
            RefusedByDaemon: when the daemon says no.
        """
        try:
            answer = self._http.request(method, f"/v1{path}", **given)
        except httpx.HTTPError as error:
            raise DaemonUnreachable(
                f"the daemon at {self._path} does not answer: {error or type(error).__name__}"
            ) from None
        try:
            document = answer.json()
        except ValueError:
            raise DaemonUnreachable(f"what answers at {self._path} is not a BOA daemon") from None
        if answer.is_error:
            raise RefusedByDaemon(
                str(document.get("message", answer.reason_phrase)),
                exit_code=int(document.get("exit_code", 1)),
                status=answer.status_code,
            )
        found: dict[str, Any] = document
        return found
