"""Serve the daemon's page to the browser of the user who runs `boa open`.

A server on the loopback interface forwards requests to the daemon's socket, where the kernel identifies this
user. So only this user's browser may use it. The address holds a secret path and a key that works once and is
exchanged for a cookie of that path, HttpOnly and SameSite=Strict. Other users of the machine can reach the
port but have neither. Other sites can reach the port through the browser, but their requests have a foreign
Host or Origin and are refused. Only GET is forwarded, and if the daemon lets the page order, the few orders
of the page that bear a word, which the page alone can read.
"""

from __future__ import annotations

import hmac
import http.client
import json
import secrets
import socket
import threading
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from boa_daemon.api.browser_security import COOKIE, HEADERS, PAGE_ORDERS, WORD_HEADER
from boa_daemon.api.connection import PATIENCE_SECONDS, check_listens, check_owner
from boa_daemon.errors import InputError

_FILES = ("", "page.css", "page.js")
_MOST_BYTES = 4096
"""Longest order."""


class _OverSocket(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("boa", timeout=PATIENCE_SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket, if it still belongs to this user or root."""
        check_owner(self._path)
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_SECONDS)
        self.sock.connect(str(self._path))


class LocalPage:
    """A server of the page on a loopback port, for the holder of the address."""

    def __init__(self, path: Path, *, port: int = 0) -> None:
        """Listen.

        Raises:
            DaemonUnreachable: when nobody listens on the socket, or it is not trusted.
            InputError: when the port is taken.
        """
        check_owner(path)
        check_listens(path)
        self.path, self.place = path, f"/{secrets.token_urlsafe(12)}/"
        self._key: str | None = secrets.token_urlsafe(24)
        self.word = secrets.token_urlsafe(32)
        self._cookie, self._guard = secrets.token_urlsafe(32), threading.Lock()
        page = self

        class Handler(_Handler):
            local = page

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"--port {port}: {error}", hint="Leave it out to have any free one") from None
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The address to open; its key works once."""
        return f"http://{self.host}{self.place}?key={self._key}"

    def spend_key(self, given: str) -> bool:
        """Whether `given` is the key, which is used up then."""
        with self._guard:
            is_right = self._key is not None and hmac.compare_digest(self._key.encode(), given.encode())
            if is_right:
                self._key = None
            return is_right

    def knows(self, cookie: str) -> bool:
        """Whether a cookie is the right one."""
        return hmac.compare_digest(self._cookie.encode(), cookie.encode())

    def knows_word(self, word: str) -> bool:
        """Whether a word is the one that orders of the page have to bear."""
        return hmac.compare_digest(self.word.encode(), word.encode())

    @property
    def set_cookie(self) -> str:
        """The cookie as a header; browsers send it to no other path of this machine."""
        return f"{COOKIE}={self._cookie}; Path={self.place}; HttpOnly; SameSite=Strict"

    def serve(self) -> None:
        """Serve until `stop`."""
        self._server.serve_forever()

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of the page."""

    local: LocalPage
    protocol_version = "HTTP/1.1"
    timeout = 60.0

    def do_GET(self) -> None:
        """Forward a request, or refuse it."""
        asked = urlsplit(self.path)
        local = self.local
        key = parse_qs(asked.query).get("key", [""])[0] if asked.path == local.place else ""
        # With the key no origin is checked: the file that `boa open` opens in the browser is another site.
        refusal = self._refusal(is_key=bool(key))
        if refusal or not asked.path.startswith(local.place):
            self._say(403 if refusal else 404, refusal or "there is nothing here")
            return
        if key:
            self._exchange(key)
            return
        if not local.knows(self._cookie()):
            self._say(403, "this page is for the user who ran boa open: run it again")
            return
        rest = asked.path.removeprefix(local.place)
        if rest not in _FILES and not rest.startswith("v1/"):
            self._say(404, "there is nothing here")
            return
        self._pass_on(f"/{rest}" + (f"?{asked.query}" if asked.query else ""))

    def do_POST(self) -> None:
        """Forward an order of the page, or refuse it."""
        asked, local = urlsplit(self.path), self.local
        length = self.headers.get("Content-Length", "")
        body = self.rfile.read(int(length)) if length.isdecimal() and int(length) <= _MOST_BYTES else None
        rest = f"/{asked.path.removeprefix(local.place)}"
        refusal = self._refusal(is_key=False)
        if refusal or not asked.path.startswith(local.place):
            self._say(403 if refusal else 404, refusal or "there is nothing here")
        elif not local.knows(self._cookie()):
            self._say(403, "this page is for the user who ran boa open: run it again")
        elif body is None or not PAGE_ORDERS.fullmatch(rest):
            self._say(403, "the page may not order that")
        elif not local.knows_word(self.headers.get(WORD_HEADER, "")) or not self._may_order():
            self._say(403, "the page only reads, or the order does not come from it: reload it and try again")
        else:
            self._pass_on(rest, body)

    def _may_order(self) -> bool:
        """Whether the daemon lets the page order."""
        status, body, _ = self._ask("/v1/page/me")
        return status == 200 and bool(json.loads(body)["may_order"])

    def _exchange(self, key: str) -> None:
        """Exchange the key for the cookie."""
        if not self.local.spend_key(key):
            self._say(403, "that address was used before: run boa open again")
            return
        # Not a redirect: browsers send a strict cookie only to links from the same site.
        go_on = f'<meta http-equiv="refresh" content="0;url={self.local.place}">'
        body = f'<!DOCTYPE html><link rel="icon" href="data:,">{go_on}'.encode()
        kind = "text/html; charset=utf-8"
        self._answer(200, body, {"Content-Type": kind, "Set-Cookie": self.local.set_cookie})

    def _refusal(self, *, is_key: bool) -> str:
        """Return why a request is refused for its origin; empty when it is allowed."""
        if self.headers.get("Host") != self.local.host:
            return "use the address that boa open printed"
        if is_key:
            return ""
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site", "none")
        if (origin is not None and origin != f"http://{self.local.host}") or site not in (
            "none",
            "same-origin",
        ):
            return "the request came from another site"
        return ""

    def _cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            return ""
        return "" if found is None else found.value

    def _pass_on(self, target: str, order: bytes | None = None) -> None:
        """Forward a request to the daemon, and its answer to the browser."""
        status, body, kind = self._ask(target, order)
        if target == "/v1/page/me" and status == 200:
            # The socket knows no sessions: the word is this page's own.
            document = json.loads(body)
            document["word"] = self.local.word if document["may_order"] else ""
            body = json.dumps(document).encode()
        self._answer(status, body, {"Content-Type": kind})

    def _ask(self, target: str, order: bytes | None = None) -> tuple[int, bytes, str]:
        """Ask the daemon; return the status, the body and its media type."""
        text = "text/plain; charset=utf-8"
        connection = None
        try:
            connection = _OverSocket(self.local.path)
            if order is None:
                connection.request("GET", target)
            else:
                connection.request("POST", target, order, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers.get("Content-Type", "")
        except (OSError, ValueError, http.client.HTTPException) as error:
            return 502, f"the daemon does not answer: {error or type(error).__name__}\n".encode(), text
        except Exception as error:
            # The socket is gone, or belongs to somebody else now.
            return 502, f"{error}\n".encode(), text
        finally:
            if connection is not None:
                connection.close()

    def _say(self, status: int, sentence: str) -> None:
        """Answer with a sentence."""
        self._answer(status, f"{sentence}\n".encode(), {"Content-Type": "text/plain; charset=utf-8"})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in {**HEADERS, "cache-control": "no-store", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
        """Do not log requests to the terminal."""
