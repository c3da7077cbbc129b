"""Connections to a daemon: a unix socket of this machine, or HTTP(S) with a token.

A socket is spoken to by httpcore, on which httpx rests: for certificates, proxies and redirects httpx takes a
fifth of the processor time of `boa status`, and a socket has none of them.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

from boa_daemon.errors import DAEMON_UNREACHABLE, BoaError, InputError

if TYPE_CHECKING:
    import httpcore
    import httpx

PATIENCE_SECONDS = 60.0
_TRUSTED = ("/run/",)
"""Folders in which only root creates entries, so that root has placed any socket there."""
_FIRST_REDIRECT, _FIRST_ERROR = 300, 400


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


class Answer(NamedTuple):
    """The head of an HTTP answer, and its body in pieces, which end when the request does."""

    status: int
    body: Iterator[bytes]


class Unanswered(Exception):
    """The connection broke, or was never there; the message says why."""


class Http(Protocol):
    """A connection that requests are sent over."""

    def request(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None
    ) -> AbstractContextManager[Answer]:
        """Send a request; the body of its answer is read within the `with` statement.

        Raises:
            Unanswered: when the connection breaks, also while the body is read.
        """

    def close(self) -> None:
        """Close the connection."""


class _OverSocket:
    """A connection over a unix socket."""

    def __init__(self, path: Path) -> None:
        import httpcore  # noqa: PLC0415 - unused with a URL

        self._pool: httpcore.ConnectionPool = httpcore.ConnectionPool(uds=str(path))
        self._errors = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)

    @contextmanager
    def request(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None
    ) -> Iterator[Answer]:
        waits = dict.fromkeys(("connect", "read", "write", "pool"), PATIENCE_SECONDS)
        sent = {"host": "boa", "accept": "*/*", **headers}
        if content is not None:
            sent["content-length"] = str(len(content))
        elif method == "POST":
            sent["content-length"] = "0"
        try:
            with self._pool.stream(
                method,
                f"http://boa{target}",
                headers=list(sent.items()),
                content=content,
                extensions={"timeout": waits},
            ) as answer:
                yield Answer(answer.status, answer.iter_stream())
        except self._errors as error:
            raise Unanswered(str(error) or type(error).__name__) from None

    def close(self) -> None:
        self._pool.close()


class _OverNetwork:
    """A connection to a URL."""

    def __init__(self, client: httpx.Client, proxy: str | None) -> None:
        self._client, self._proxy = client, proxy

    @contextmanager
    def request(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None
    ) -> Iterator[Answer]:
        import httpx  # noqa: PLC0415 - loaded already

        try:
            with self._client.stream(method, target, headers=dict(headers), content=content) as answer:
                yield Answer(answer.status_code, answer.iter_bytes())
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            if self._proxy is not None:
                why += f" (asked through the proxy {self._proxy} of the environment; NO_PROXY leaves it out)"
            raise Unanswered(why) from None

    def close(self) -> None:
        self._client.close()


def open_http(address: str | Path, token: str | None) -> Http:
    """Return a connection to a socket or a URL; a URL is not contacted yet.

    Raises:
        InputError: when a token is missing, or would cross a network in the clear.
        DaemonUnreachable: when there is no socket, it is not ours or root's, or nobody listens.
    """
    if not is_url(address):
        path = Path(address)
        check_owner(path)
        check_listens(path)
        return _OverSocket(path)
    url = urlsplit(str(address))
    token = (token or "").strip()  # A file of it ends with a line end.
    if not token:
        raise InputError(f"{address} needs a token", hint="Set BOA_TOKEN, or give token=")
    is_here = _is_loopback(url.hostname or "")
    if url.scheme == "http" and not is_here:
        raise InputError(f"the token would go to {url.hostname} in the clear", hint="Use https://")
    if not token.isascii() or not token.isprintable():
        raise InputError("a token is printable ASCII without line ends")
    import httpx  # noqa: PLC0415 - unused with a socket

    proxy = None if is_here else _proxy_of(url.scheme, url.hostname or "")
    try:
        certificates = httpx.create_ssl_context() if url.scheme == "https" else False
    except OSError as error:
        hint = "Correct or unset SSL_CERT_FILE and SSL_CERT_DIR"
        raise InputError(f"certificates of authorities cannot be read: {error}", hint=hint) from None
    try:
        # Redirects are not followed, so the token reaches no other host. No proxy leads to this machine.
        client = httpx.Client(
            base_url=str(address).rstrip("/"),
            headers={"Authorization": f"Bearer {token}"},
            timeout=PATIENCE_SECONDS,
            verify=certificates,
            trust_env=proxy is not None,
        )
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        # SOCKS needs a package of its own, for one.
        why = str(error).partition("\n")[0].rstrip(".")
        hint = f"Unset its variable, or set NO_PROXY={url.hostname}"
        raise InputError(f"the proxy {proxy} of the environment cannot be used: {why}", hint=hint) from None
    return _OverNetwork(client, proxy)


def _is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its name or address."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _proxy_of(scheme: str, host: str) -> str | None:
    """Return the proxy of the environment for an address, without its password; None if there is none."""
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - slow, and unused with a socket

    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host):
        return None
    with suppress(ValueError):
        place = urlsplit(proxy if "://" in proxy else f"//{proxy}")
        return f"{place.hostname}:{place.port}" if place.port else str(place.hostname)
    return "(its address is malformed)"


def ask(
    http: Http,
    method: str,
    path: str,
    *,
    at: str | Path,
    query: Mapping[str, Any] | None = None,
    document: Mapping[str, Any] | None = None,
    content: bytes | None = None,
) -> dict[str, Any]:
    """Send one request and return its document; errors name `at`.

    `query` is added to the query of `path`; the body is `document` as JSON, or `content`.

    Raises:
        DaemonUnreachable: when nobody answers.
        RefusedByDaemon: when the daemon refuses.
        InputError: when a name in it has bytes that are not UTF-8.
    """
    if not is_url(at):
        check_listens(Path(at))
    headers = {}
    try:
        if document is not None:
            headers["content-type"] = "application/json"
            text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            content = text.encode()
        target = _with_query(f"/v1{path}", query or {})
    except UnicodeEncodeError as error:
        raise _not_utf8(error) from None
    with _errors_name(at), http.request(method, target, headers, content) as answer:
        body = b"".join(answer.body)
        if answer.status >= _FIRST_ERROR:
            raise _refusal(answer.status, body, at)
        return _document(answer.status, body, at)


def _not_utf8(error: UnicodeEncodeError) -> InputError:
    """Return the error for a name of a file that was written in another encoding, as on an old disk."""
    start = max(error.object.rfind('"', 0, error.start) + 1, error.start - 200)
    name = error.object[start : error.end + 20].partition('"')[0]
    said = name.encode(errors="backslashreplace").decode()
    hint = "Rename it; or set LC_ALL=C.UTF-8 if it is UTF-8 and only this shell cannot read it"
    return InputError(f"the name {said} has bytes that are not UTF-8", hint=hint)


def stream(http: Http, path: str, *, at: str | Path) -> Iterator[bytes]:
    """Yield the pieces of an answer that is not a document; raises as `ask` does."""
    with _errors_name(at), http.request("GET", f"/v1{path}", {}, None) as answer:
        if answer.status >= _FIRST_ERROR:
            raise _refusal(answer.status, b"".join(answer.body), at)
        yield from answer.body


@contextmanager
def _errors_name(at: str | Path) -> Iterator[None]:
    """Say which daemon did not answer."""
    try:
        yield
    except Unanswered as error:
        raise DaemonUnreachable(f"the daemon at {at} does not answer: {error}") from None


def _with_query(target: str, query: Mapping[str, Any]) -> str:
    """Return a target with more words in its query, which replace those of the same name."""
    if not query:
        return target
    path, _, before = target.partition("?")
    words: dict[str, list[Any]] = {}
    for name, value in parse_qsl(before, keep_blank_values=True):
        words.setdefault(name, []).append(value)
    for name, value in query.items():
        values = value if isinstance(value, list | tuple) else [value]
        words[name] = [str(each).lower() if isinstance(each, bool) else each for each in values]
    return f"{path}?{urlencode(words, doseq=True)}"


def _document(status: int, body: bytes, at: str | Path) -> dict[str, Any]:
    document = None
    with suppress(ValueError):
        document = json.loads(body)
    if not isinstance(document, Mapping) or _FIRST_REDIRECT <= status < _FIRST_ERROR:
        raise DaemonUnreachable(f"what answers at {at} is not a BOA daemon")
    return dict(document)


def _refusal(status: int, body: bytes, at: str | Path) -> BoaError:
    document = _document(status, body, at)
    return RefusedByDaemon(
        str(document.get("message") or f"HTTP status {status}"),
        exit_code=int(document.get("exit_code", 1)),
        status=status,
    )


def check_owner(path: Path) -> None:
    """Refuse a socket of another user, who could impersonate the daemon.

    Raises:
        DaemonUnreachable: when there is no socket, or it is not ours or root's.
    """
    try:
        found = path.stat()
    except PermissionError:
        raise DaemonUnreachable(
            f"{path} may not be reached: the rights of a folder on its way forbid it. Run this as the "
            "daemon's user, or set [daemon] socket to one in a folder that you may enter"
        ) from None
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
    """Check that a socket accepts connections, because httpcore leaks a socket when one does not.

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
