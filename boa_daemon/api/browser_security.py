"""Protect the API from other sites that steer a browser: hosts, origins, sessions, page policy.

A client with a token sends it in a header, which no other site can make a browser do. A request without this
header may come from a browser that another site steers. Then the Host header must name this daemon (which a
rebound DNS name does not), and the request must originate from the daemon's own page. A session may only
read, unless the settings let the page order: then a few orders pass that bear a word in a header. Only the
page can read that word, and no other site can send the header.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from boa_daemon.dashboard.assets import CONTENT_SECURITY_POLICY

COOKIE, WORD_HEADER = "boa_session", "X-Boa-Word"
PAGE_ORDERS = re.compile(r"/v1/(jobs/[A-Za-z0-9-]{1,80}/(cancel|resize|hold|weight)|caps/(day|month))")
"""The paths of what the page may order."""
SESSION_SECONDS, MOST_SESSIONS = 12 * 3600.0, 1000
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[MutableMapping[str, Any], _Receive, _Send], Awaitable[None]]
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Sessions:
    """Sessions of users who signed in with a token.

    They end after 12 hours, with the daemon, with their token, and when they are revoked.
    """

    def __init__(self) -> None:
        self._users: dict[str, tuple[str, float, str]] = {}
        self._secret = secrets.token_bytes(32)

    def word(self, key: str | None) -> str:
        """Return the word that orders of a session have to bear; empty without a session."""
        if self.user(key) is None or key is None:
            return ""
        return hmac.new(self._secret, key.encode(), hashlib.sha256).hexdigest()

    def begin(self, user: str, token: str = "") -> str:
        """Begin a session, which ends with the token of this digest, and return its key."""
        now = time.monotonic()
        self._users = {key: one for key, one in self._users.items() if one[1] > now}
        while len(self._users) >= MOST_SESSIONS:
            self._users.pop(next(iter(self._users)))
        key = secrets.token_urlsafe(32)
        self._users[key] = (user, now + SESSION_SECONDS, token)
        return key

    def user(self, key: str | None) -> str | None:
        """Return the user of a session, or None."""
        user, until, _ = self._users.get(key or "", (None, 0.0, ""))
        return user if until > time.monotonic() else None

    def end(self, key: str | None) -> None:
        """End a session."""
        self._users.pop(key or "", None)

    def keep(self, tokens: Mapping[str, str]) -> None:
        """End the sessions of all other tokens, and of those that have another user now."""
        self._users = {key: one for key, one in self._users.items() if tokens.get(one[2]) == one[0]}

    def revoke(self, user: str) -> int:
        """End all sessions of a user; return how many there were."""
        gone = [key for key, one in self._users.items() if one[0] == user]
        for key in gone:
            self._users.pop(key, None)
        return len(gone)


class BrowserGuard:
    """Middleware that refuses cross-site requests, and adds the security headers to every response."""

    def __init__(
        self,
        app: _App,
        *,
        listen: str | None = None,
        hosts: Iterable[str] = (),
        is_proxied: Callable[[str], bool] = lambda _peer: False,
    ) -> None:
        self._app, self._is_proxied = app, is_proxied
        own = (listen or "").rpartition(":")[0].strip("[]")
        self._hosts = {host.lower() for host in (*hosts, own, "localhost") if host}

    async def __call__(self, scope: MutableMapping[str, Any], receive: _Receive, send: _Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: _Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self.refusal(scope)
        if refusal:
            document = {"error": "NotAllowed", "message": refusal, "exit_code": 1}
            await JSONResponse(document, status_code=403)(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

    def refusal(self, scope: MutableMapping[str, Any]) -> str:
        """Return why a request is refused; empty when it is allowed."""
        client = scope.get("client")
        headers = Headers(scope=scope)
        peer = "" if client is None else str(client[0])
        # A proxy's user is signed in by the browser itself, as with a cookie, whatever else the header says.
        if not self._is_proxied(peer) and (peer.startswith("uid:") or "authorization" in headers):
            return ""
        host = headers.get("host", "")
        if not self._is_ours(host):
            return f"the daemon is not known as {host!r}: add that name to [api] hosts to allow it"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return "the request came from another site"
        site = headers.get("sec-fetch-site", "none")
        if site in ("same-origin", "none"):
            return ""
        is_link = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        return "" if is_link and scope["path"] == "/" else "the request came from another site"

    def _is_ours(self, host: str) -> bool:
        """Whether a Host header names this daemon: an IP address, or a configured name."""
        name = (urlsplit(f"//{host}").hostname or "").lower() if host else ""
        if name in self._hosts:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True
