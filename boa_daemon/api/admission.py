"""Middleware before every route: who calls is asked first, then the body is read, in bounded time and number.

A caller without a token costs no memory: the answer is given before a byte of the body is read. What comes of
the body after that is dropped, up to a bound, before the connection is closed: its client would see a reset
in place of the answer. A whole body has `BODY_SECONDS`, and each part of an answer `STALL_SECONDS` to be
taken. One user's requests at a time are limited. When the database does not answer, a request is answered
without it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from boa_daemon.api.authentication import Authenticator
from boa_daemon.store.database import ALLOWANCE, DEADLINE, Allowance

MOST_BYTES = 32 * 2**20
"""Largest request; a batch of ten thousand jobs is a few megabytes."""
MOST_OPEN_BYTES = 4096
"""Largest request of a caller who is not known yet: one that exchanges a token for a session."""
BODY_SECONDS, STALL_SECONDS = 60.0, 60.0
"""Seconds for a whole body to arrive, and for a part of an answer to be taken."""
ANSWER_SECONDS, WAIT_SECONDS = 1.8, 1.5
"""Seconds after which a request that waits for a stuck database is answered, and for the writer's lock."""
BYTES_PER_SECOND = 200_000
"""A large submission has this much longer for its bytes."""
DROPPED_BYTES = 4 * 2**20
DROP_SECONDS, SILENT_SECONDS = 5.0, 1.0
"""How much of a refused request's body is read and dropped, for how long, and until when it is silent."""
MOST_AT_ONCE = 64
"""Largest number of a user's requests at once."""
OPEN = frozenset({"/", "/page.css", "/page.js", "/healthz", "/readyz", "/openapi.json", "/v1/session"})
"""Paths that need no caller; each of them reads nothing, or checks a token itself."""
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[MutableMapping[str, Any], _Receive, _Send], Awaitable[None]]


class CallerFirst:
    """Middleware that refuses unknown callers before their body is read, and a user's too many requests."""

    def __init__(self, app: _App, *, gatekeeper: Authenticator) -> None:
        self._app, self._gatekeeper = app, gatekeeper
        self._present: Counter[str] = Counter()

    async def __call__(self, scope: MutableMapping[str, Any], receive: _Receive, send: _Send) -> None:
        """Identify the caller, then pass the request on."""
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._gatekeeper.admit(Request(scope))
        except HTTPException as error:
            await refuse(
                send, error.status_code, "HTTPError", str(error.detail), headers=error.headers, unread=receive
            )
            return
        scope.setdefault("state", {})["caller"] = caller
        if self._present[caller.user] >= MOST_AT_ONCE:
            said = f"{caller.user} has {MOST_AT_ONCE} requests open already; wait for their answers"
            await refuse(send, 429, "TooMany", said, headers={"retry-after": "1"}, unread=receive)
            return
        self._present[caller.user] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._present[caller.user] -= 1
            if not self._present[caller.user]:
                del self._present[caller.user]


class BoundedRequest:
    """Middleware that limits a request's size and time, with or without a Content-Length.

    `busy_seconds` is for how long the database has not answered.
    """

    def __init__(
        self, app: _App, *, busy_seconds: Callable[[], float] = lambda: 0.0, most: int | None = None
    ) -> None:
        self._app, self._busy_seconds, self._most = app, busy_seconds, most

    async def __call__(self, scope: MutableMapping[str, Any], receive: _Receive, send: _Send) -> None:
        """Read and count the body, then pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = self._most or MOST_BYTES
        if "caller" not in scope.get("state", {}):
            most = min(most, MOST_OPEN_BYTES)
        said = dict(scope["headers"]).get(b"content-length", b"0")
        if said.isdigit() and int(said) > most:
            await _too_large(send, most, unread=receive)
            return
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return
                    body += message.get("body", b"")
                    if len(body) > most:
                        await _too_large(send, most, unread=receive if message.get("more_body") else None)
                        return
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            said_late = f"the body of a request has to arrive within {BODY_SECONDS:.0f} s"
            await refuse(send, 408, "TooSlow", said_late, unread=receive)
            return
        sent = False

        async def whole() -> _Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._answer(scope, whole, send, size=len(body))

    async def _answer(
        self, scope: MutableMapping[str, Any], receive: _Receive, send: _Send, *, size: int
    ) -> None:
        """Let the application answer; answer for it if the database does not answer in time."""
        begun, is_over = asyncio.get_running_loop().create_future(), False

        async def taken(message: _Message) -> None:
            if is_over:
                return
            if not begun.done():
                begun.set_result(None)
            async with asyncio.timeout(STALL_SECONDS):
                await send(message)

        extra = size / BYTES_PER_SECOND
        began, allowance = time.monotonic(), Allowance()
        DEADLINE.set(began + WAIT_SECONDS + extra)
        ALLOWANCE.set(allowance)
        task = asyncio.ensure_future(self._app(scope, receive, taken))
        try:
            seconds = ANSWER_SECONDS + extra
            while not (task.done() or begun.done()):
                await asyncio.wait({task, begun}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if task.done() or begun.done():
                    break
                late = time.monotonic() - began > ANSWER_SECONDS + extra + allowance.seconds
                if self._busy_seconds() > WAIT_SECONDS / 2.0 and (late or not allowance.seconds):
                    is_over = True
                    reads = scope["method"] in ("GET", "HEAD")
                    doubt = (
                        ""
                        if reads
                        else ", and whether this was stored is not known: look before you repeat it"
                    )
                    await refuse(send, 503, "NotReady", f"the database does not answer{doubt}")
                    return
                seconds = 0.1
            await task
        finally:
            begun.cancel()
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await asyncio.wait({task}, timeout=0.0)


async def refuse(
    send: _Send,
    status: int,
    error: str,
    message: str,
    *,
    headers: Any = None,
    exit_code: int = 1,
    unread: _Receive | None = None,
    most_unread: int = DROPPED_BYTES,
) -> None:
    """Answer with one sentence, and close the connection once what is `unread` of the body was dropped."""
    text = json.dumps({"error": error, "message": message, "exit_code": exit_code}).encode()
    lines = [(b"content-type", b"application/json"), (b"connection", b"close")]
    lines += [(key.lower().encode(), value.encode()) for key, value in (headers or {}).items()]
    lines.append((b"content-length", str(len(text)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": text, "more_body": unread is not None})
    if unread is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(DROP_SECONDS):
                await _drop(unread, most_unread)
        await send({"type": "http.response.body", "body": b""})


async def _drop(unread: _Receive, most: int) -> None:
    """Read a body and drop it, up to about so many bytes, until it ends or nothing comes for a while."""
    while most > 0:
        async with asyncio.timeout(SILENT_SECONDS):
            message = await unread()
        if not message.get("more_body", False):
            return
        most -= len(message["body"])


async def _too_large(send: _Send, most: int, *, unread: _Receive | None) -> None:
    said = f"a request has at most {most} bytes; send fewer jobs at once"
    bound = max(most, DROPPED_BYTES)
    await refuse(send, 413, "TooLarge", said, exit_code=2, unread=unread, most_unread=bound)
