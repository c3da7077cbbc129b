"""`api/connection.py`: whom to talk to, what to send, and what an answer means."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.api import connection
from boa_daemon.api.connection import (
    Answer,
    DaemonUnreachable,
    RefusedByDaemon,
    Unanswered,
    ask,
    check_listens,
    check_owner,
    is_url,
    open_http,
    stream,
)
from boa_daemon.errors import InputError

URL = "https://boa.example.org"


class Daemon:
    """Answers each request alike, and notes it."""

    def __init__(self, status: int = 200, body: object = None) -> None:
        self.status = status
        self.body = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
        self.heard: list[tuple[str, str, dict[str, str], bytes | None]] = []
        self.breaks = False

    @contextmanager
    def request(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None
    ) -> Iterator[Answer]:
        """Answer in two pieces."""
        self.heard.append((method, target, dict(headers), content))
        if self.breaks:
            raise Unanswered("it hung up")
        yield Answer(self.status, iter((self.body[:3], self.body[3:])))

    def close(self) -> None:
        """Do nothing."""

    def target(self, path: str = "/jobs", **query: Any) -> str:
        """Return what is asked for."""
        ask(self, "GET", path, at=URL, query=query)
        return self.heard[-1][1]


@pytest.mark.parametrize(
    ("address", "is_one"),
    [
        ("http://x", True),
        ("https://x", True),
        ("/run/boa.sock", False),
        ("httpx", False),
        (Path("/a"), False),
    ],
)
def test_an_address_is_a_url_or_a_socket(address: str | Path, is_one: bool) -> None:
    """A path never begins like a URL."""
    assert is_url(address) == is_one


@pytest.mark.parametrize(
    ("address", "token", "why"),
    [
        (URL, None, "needs a token"),
        (URL, " \n", "needs a token"),
        ("http://boa.example.org", "t", "would go to boa.example.org in the clear"),
        ("http://127.0.0.1.example.org", "t", "in the clear"),
        (URL, "t\nX-Other: 1", "printable ASCII"),
        (URL, "tök", "printable ASCII"),
    ],
)
def test_a_token_is_needed_and_never_sent_in_the_clear(address: str, token: str | None, why: str) -> None:
    """Nor anything that would be another header."""
    with pytest.raises(InputError, match=why):
        open_http(address, token)


@pytest.mark.parametrize("address", ["http://127.0.0.1:80", "http://[::1]:80", "http://localhost"])
def test_this_machine_needs_no_encryption(address: str) -> None:
    """A file of a token ends with a line end."""
    http: Any = open_http(address, "t\n")
    assert http._client.headers["Authorization"] == "Bearer t"
    assert not http._client.follow_redirects
    http.close()


def test_a_query_replaces_words_of_the_same_name() -> None:
    """Lists are words that recur; yes and no are small letters; an empty word stays."""
    daemon = Daemon()
    assert daemon.target() == "/v1/jobs"
    assert daemon.target("/jobs?a=1&b=&a=2", c=True) == "/v1/jobs?a=1&a=2&b=&c=true"
    assert daemon.target("/jobs?a=1&b=2", a=["x y", "&"], d=False) == "/v1/jobs?a=x+y&a=%26&b=2&d=false"


def test_a_document_is_sent_as_json_and_bytes_as_they_are() -> None:
    """A name with bytes of another encoding is told, before anything is sent."""
    daemon = Daemon(body={"id": "a-1"})
    assert ask(daemon, "POST", "/jobs", at=URL, document={"name": "é"}) == {"id": "a-1"}
    ask(daemon, "PUT", "/code/x", at=URL, content=b"\0")
    assert [row[2:] for row in daemon.heard] == [
        ({"content-type": "application/json"}, '{"name":"é"}'.encode()),
        ({}, b"\0"),
    ]
    with pytest.raises(InputError, match=r"the name dat\\udce4\.csv has bytes that are not UTF-8"):
        ask(daemon, "POST", "/jobs", at=URL, document={"data": "dat\udce4.csv"})
    with pytest.raises(InputError, match="not UTF-8"):
        ask(daemon, "GET", "/jobs", at=URL, query={"name": "\udce4"})
    assert len(daemon.heard) == 2


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ({"message": "no job a-9", "exit_code": 2}, 2, "no job a-9"),
        ({"message": "no"}, 1, "no"),
        ({}, 1, "HTTP status 404"),
    ],
)
def test_a_refusal_has_the_daemons_words_and_exit_code(body: dict[str, Any], code: int, said: str) -> None:
    """In a stream as well."""
    daemon = Daemon(404, body)
    for read in (lambda: ask(daemon, "GET", "/jobs", at=URL), lambda: list(stream(daemon, "/jobs", at=URL))):
        with pytest.raises(RefusedByDaemon) as error:
            read()
        assert (error.value.exit_code, error.value.status, str(error.value)) == (code, 404, said)


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"<html>"), (200, b"[]"), (200, b""), (302, b"{}"), (502, b"bad gateway"), (404, b"5")],
)
def test_what_answers_otherwise_is_no_daemon(status: int, body: bytes) -> None:
    """A proxy, a redirect to a login, or another program."""
    with pytest.raises(DaemonUnreachable, match=r"what answers at https://\S+ is not a BOA daemon"):
        ask(Daemon(status, body), "GET", "/jobs", at=URL)


def test_a_stream_comes_in_pieces_and_a_break_names_the_daemon() -> None:
    """Of a request, too."""
    daemon = Daemon(body=b"abcdef")
    assert list(stream(daemon, "/log", at=URL)) == [b"abc", b"def"]
    daemon.breaks = True
    for read in (lambda: ask(daemon, "GET", "/jobs", at=URL), lambda: list(stream(daemon, "/log", at=URL))):
        with pytest.raises(DaemonUnreachable, match=r"the daemon at https://.* does not answer: it hung up"):
            read()


@pytest.mark.parametrize(
    ("method", "content", "length"), [("POST", None, "0"), ("GET", None, None), ("PUT", b"ab", "2")]
)
def test_a_request_over_a_socket_has_its_length(
    method: str, content: bytes | None, length: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server would else wait for the body of a POST, or refuse it."""
    seen: dict[str, Any] = {}

    @contextmanager
    def sent(method: str, url: str, **more: Any) -> Iterator[Any]:
        seen.update(more, url=url)
        yield SimpleNamespace(status=200, iter_stream=lambda: iter([b"{}"]))

    http = connection._OverSocket(tmp_path / "boa.sock")
    monkeypatch.setattr(http._pool, "stream", sent)
    with http.request(method, "/v1/jobs", {"x": "y"}, content) as answer:
        assert b"".join(answer.body) == b"{}"
    headers = dict(seen["headers"])
    assert (headers.get("content-length"), headers["host"], headers["x"]) == (length, "boa", "y")
    assert set(seen["extensions"]["timeout"].values()) == {connection.PATIENCE_SECONDS}
    http.close()


def test_a_socket_is_ours_or_roots_or_in_a_folder_of_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user could speak as the daemon; a file is no socket."""
    path = tmp_path / "boa.sock"
    with pytest.raises(DaemonUnreachable, match="Start one with `boa daemon`"):
        check_owner(path)
    path.write_text("")
    with pytest.raises(DaemonUnreachable, match="is not a socket"):
        check_owner(path)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        owner = os.stat(path).st_uid

        def as_owned_by(uid: int) -> None:
            facts = SimpleNamespace(st_mode=0o140777, st_uid=uid)
            monkeypatch.setattr(Path, "stat", lambda self, **_: facts)

        for uid in (0, owner):
            as_owned_by(uid)
            check_owner(path)
        monkeypatch.setattr(os, "getuid", lambda: 1000)
        as_owned_by(0)
        check_owner(path)
        as_owned_by(1001)
        with pytest.raises(DaemonUnreachable, match="belongs to user 1001"):
            check_owner(path)
        monkeypatch.setattr(Path, "resolve", lambda self: Path("/run/boa/boa.sock"))
        check_owner(path)


def test_a_socket_that_nobody_listens_at_is_told(tmp_path: Path) -> None:
    """A daemon that was killed leaves its socket behind; before each request it is looked at."""
    path = tmp_path / "boa.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    with pytest.raises(DaemonUnreachable, match=r"Connection refused\. If it was killed, start it again"):
        check_listens(path)
    with pytest.raises(DaemonUnreachable, match="Connection refused"):
        ask(Daemon(), "GET", "/jobs", at=path)
    server.listen()
    check_listens(path)
    assert ask(Daemon(), "GET", "/jobs", at=path) == {}
    server.close()


# Where the environment names a proxy

NOBODY = "127.0.0.1:9"
PROXIES = ("http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PROXIES, "HTTP_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def why_unanswered(url: str) -> str:
    http = open_http(url, "a-token")
    try:
        with pytest.raises(Unanswered) as caught, http.request("GET", "/v1/status", {}, None):
            pass
    finally:
        http.close()
    return str(caught.value)


@pytest.mark.parametrize("name", PROXIES)
@pytest.mark.parametrize(
    "proxy", [f"http://{NOBODY}", NOBODY, f"socks5h://{NOBODY}", "ftp://x", "http://[::1"]
)
@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost:1", "[::1]:1"])
def test_no_proxy_leads_to_this_machine(
    monkeypatch: pytest.MonkeyPatch, name: str, proxy: str, host: str
) -> None:
    """Whatever the variable says, the daemon on this machine is asked itself."""
    monkeypatch.setenv(name, proxy)
    assert "proxy" not in why_unanswered(f"http://{host}")


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_a_proxy_that_does_not_answer_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, f"http://ann:secret@{NOBODY}")
    said = why_unanswered("https://boa.example:8470")
    assert f"through the proxy {NOBODY} of the environment; NO_PROXY" in said
    assert "secret" not in said


@pytest.mark.parametrize("proxy", [f"socks5h://{NOBODY}", "weird://host:1", "http://[::1"])
def test_a_proxy_that_cannot_be_used_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(InputError, match=r"of the environment cannot be used: .*NO_PROXY=boa\.example"):
        open_http("https://boa.example:8470", "a-token")


@pytest.mark.parametrize("without", ["boa.example", "example", "*", ".example,other"])
def test_no_proxy_leaves_a_host_out(monkeypatch: pytest.MonkeyPatch, without: str) -> None:
    """Also where the proxy itself could not be used."""
    monkeypatch.setenv("ALL_PROXY", f"socks5h://{NOBODY}")
    monkeypatch.setenv("NO_PROXY", without)
    open_http("https://boa.example:8470", "a-token").close()


@pytest.mark.parametrize("kind", ["nothing", "folder", "text", "half"])
def test_certificates_that_cannot_be_read_are_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """The variable names no file, a folder, another file, or one that is cut short."""
    file = tmp_path / "ca.pem"
    if kind == "folder":
        file.mkdir()
    elif kind != "nothing":
        file.write_text("hello" if kind == "text" else "-----BEGIN CERTIFICATE-----\nMIIB")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(InputError, match=r"certificates of authorities cannot be read: .*SSL_CERT_FILE"):
        open_http("https://boa.example:8470", "a-token")
