"""Strangers and crowds: what a connection without a token, or one of too many, may cost."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from boa_daemon.api.admission import ANSWER_SECONDS
from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator, user_name
from boa_daemon.api.browser_security import Sessions
from boa_daemon.api.client import Client
from boa_daemon.api.log_limits import MOST_LINES, WINDOW_SECONDS, FewLines
from boa_daemon.api.server import ApiServer, tcp_socket, unix_socket
from boa_daemon.api.spare_descriptors import SPARE, SpareDescriptors
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.store.queue import JobQueue
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

TOKEN = "a-long-token-of-carol"


class Served:
    """A daemon's API over the socket and over TCP."""

    def __init__(
        self, folder: Path, play: DaemonInAFolder, *, at: str = "127.0.0.1:0", **settings: Any
    ) -> None:
        self.tokens = folder / "tokens"
        self.tokens.write_text(f"{TOKEN} carol\n")
        self.tokens.chmod(0o600)
        values = {"listen": "127.0.0.1:0", "tokens": str(self.tokens), "hosts": ["boa.example"], **settings}
        tcp = tcp_socket(at, is_secret=True)
        self.play, self.socket, self.port = play, folder / "boa.sock", tcp.getsockname()[1]
        gatekeeper = Authenticator(ApiSettings.model_validate(values))
        self.server = ApiServer(create_app(play.service, gatekeeper), [unix_socket(self.socket), tcp])
        self.server.start()
        self.url = f"http://127.0.0.1:{self.port}"

    def connect(self, kind: str) -> socket.socket:
        """Return a new connection, "tcp" or "unix"."""
        if kind == "tcp":
            return socket.create_connection(("127.0.0.1", self.port), timeout=30.0)
        channel = socket.socket(socket.AF_UNIX)
        channel.settimeout(30.0)
        channel.connect(str(self.socket))
        return channel


@contextmanager
def serving(folder: Path, **settings: Any) -> Iterator[Served]:
    play = DaemonInAFolder(folder, ManualClock(1e9))
    with tempfile.TemporaryDirectory(prefix="boa") as name:
        served = Served(Path(name), play, **settings)
        try:
            yield served
        finally:
            served.server.stop()
            play.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as found:
        yield found


def said_on(channel: socket.socket) -> bytes:
    """Return everything that comes until the other end closes."""
    found = b""
    with suppress(OSError):
        while part := channel.recv(65536):
            found += part
    return found


STRANGERS = {
    "a job": ("POST", "/v1/jobs"),
    "code": ("PUT", f"/v1/code/{'0' * 64}"),
    "an order": ("POST", "/v1/down"),
    "an unknown path": ("POST", "/v1/nothing"),
    "metrics": ("GET", "/metrics"),
    "no path of the API": ("POST", "/else"),
}


@pytest.mark.first_set(2)
@pytest.mark.parametrize("token", ["", "Authorization: Bearer wrong\r\n"], ids=["no token", "a wrong token"])
@pytest.mark.parametrize(("method", "path"), STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_is_refused_before_its_body(served: Served, method: str, path: str, token: str) -> None:
    """The answer comes though no byte of the body was sent, and the connection is closed."""
    with served.connect("tcp") as channel:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{token}Content-Length: 30000000\r\n\r\n"
        channel.sendall(head.encode())
        began = time.monotonic()
        answer = said_on(channel)
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b"connection: close" in answer.lower()
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["message"]
        assert time.monotonic() - began < 5.0


REFUSED = {
    "a stranger": ("tcp", "/v1/jobs", "", 401),
    "a wrong token": ("tcp", "/v1/jobs", "Authorization: Bearer wrong\r\n", 401),
    "too large a sign-in": ("tcp", "/v1/session", "", 413),
    "too many requests": ("tcp", "/v1/jobs", f"Authorization: Bearer {TOKEN}\r\n", 429),
    "too many on the socket": ("unix", "/v1/jobs", "", 429),
}


@pytest.mark.first_set(3)
@pytest.mark.parametrize("is_chunked", [False, True], ids=["in one", "in chunks"])
@pytest.mark.parametrize("size", [5000, 3_000_000])
@pytest.mark.parametrize("refusal", REFUSED.values(), ids=REFUSED)
def test_who_sends_the_body_after_the_refusal_sees_it_and_no_reset(
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    *,
    refusal: tuple[str, str, str, int],
    size: int,
    is_chunked: bool,
) -> None:
    """As clients do that send the head first; the connection ends as one that nobody broke."""
    monkeypatch.setattr("boa_daemon.api.admission.MOST_AT_ONCE", 0)
    kind, path, token, status = refusal
    body = b"x" * size
    length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {size}"
    with served.connect(kind) as channel:
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{token}{length}\r\n\r\n"
        channel.sendall(head.encode())
        # How long a body in chunks is shows only as it comes.
        answer = b"" if is_chunked and status == 413 else channel.recv(4096)
        channel.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (size, body) if is_chunked else body)
        while part := channel.recv(4096):
            answer += part
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["message"]


def test_what_follows_a_refusal_is_dropped_only_for_a_while(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger who goes on and on is hung up on."""
    monkeypatch.setattr("boa_daemon.api.admission.DROPPED_BYTES", 100_000)
    with served.connect("tcp") as channel:
        channel.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 30000000\r\n\r\n")
        assert channel.recv(4096).startswith(b"HTTP/1.1 401 ")
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            channel.sendall(b"x" * 29_000_000)
        assert time.monotonic() - began < 5.0


def test_a_sign_in_has_a_small_body(served: Served) -> None:
    """Nobody is known yet who sends it."""
    answer = httpx.post(f"{served.url}/v1/session", content=b"x" * 5000)
    assert answer.status_code == 413


@pytest.mark.first_set(1)
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_body_that_drips_has_one_time_limit(
    served: Served, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes soon after the last one, and the request is refused all the same."""
    monkeypatch.setattr("boa_daemon.api.admission.BODY_SECONDS", 1.0)
    with served.connect(kind) as channel:
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        channel.sendall(f"{head}Content-Length: 100000\r\n\r\n".encode())
        began = time.monotonic()
        with suppress(OSError):
            while time.monotonic() - began < 10.0:
                channel.sendall(b" ")
                time.sleep(0.1)
        assert time.monotonic() - began < 9.0
        assert b"408" in said_on(channel) or kind == "tcp"


@pytest.mark.first_set(1)
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_headers_that_drip_and_idle_connections_are_closed(
    served: Served, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the unix socket as well."""
    monkeypatch.setattr("boa_daemon.api.server.HEAD_SECONDS", 1.0)
    with served.connect(kind) as idle, served.connect(kind) as dripping:
        began = time.monotonic()
        dripping.sendall(b"GET /v1/status HTTP/1.1\r\n")
        with suppress(OSError):
            while time.monotonic() - began < 10.0:
                dripping.sendall(b"X: y\r\n")
                time.sleep(0.1)
        assert time.monotonic() - began < 9.0
        assert said_on(idle) == b""


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_one_peer_cannot_take_all_places(served: Served, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its further connections are refused with a sentence, and others are served."""
    monkeypatch.setattr("boa_daemon.api.server.MOST_OF_ADDRESS", 4)
    monkeypatch.setattr("boa_daemon.api.server.MOST_ON_SOCKET", 8)
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(served.connect(kind))
        time.sleep(0.3)
        fifth = stack.enter_context(served.connect(kind))
        assert b"too many connections at once" in said_on(fifth)
        other = {"tcp": "unix", "unix": "tcp"}[kind]
        line = stack.enter_context(served.connect(other))
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert b'"ok"' in said_on(line)


def test_one_user_has_a_limited_number_of_requests_at_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is told so."""
    monkeypatch.setattr("boa_daemon.api.admission.MOST_AT_ONCE", 1)
    with served.connect("tcp") as channel:
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        channel.sendall(f"{head}Content-Length: 100\r\n\r\n".encode())
        time.sleep(0.3)
        answer = httpx.get(f"{served.url}/v1/status", headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 429
    time.sleep(0.3)
    assert (
        httpx.get(f"{served.url}/v1/status", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    )


def test_strangers_cannot_fill_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Hundreds of malformed requests write a few lines."""
    caplog.set_level(logging.INFO)
    for _ in range(200):
        with served.connect("tcp") as channel:
            channel.sendall(b"nonsense\r\n\r\n")
            said_on(channel)
    assert 0 < sum("Invalid HTTP request" in record.getMessage() for record in caplog.records) <= MOST_LINES


def test_lines_left_out_are_counted() -> None:
    """In the first line of the next minute."""
    now = [0.0]
    few = FewLines(lambda: now[0])

    def said(text: str) -> str | None:
        record = logging.makeLogRecord({"msg": "a %s line", "args": (text,), "levelno": logging.WARNING})
        return record.getMessage() if few.filter(record) else None

    assert [said(str(n)) for n in range(MOST_LINES + 3)].count(None) == 3
    now[0] += WINDOW_SECONDS
    assert said("late") == "a late line (and 3 more lines like it)"


def test_a_reserve_of_descriptors_is_given_and_taken() -> None:
    """It is held until it is given."""
    before = len(os.listdir("/proc/self/fd"))
    spare = SpareDescriptors()
    assert len(os.listdir("/proc/self/fd")) == before + SPARE
    spare.give()
    assert len(os.listdir("/proc/self/fd")) == before


PROXY = {"X-Forwarded-User": "dave"}


def test_the_user_of_a_listed_proxy_is_the_one_it_names(tmp_path: Path) -> None:
    """Without a name it has no caller; a page of another site cannot use it."""
    with serving(tmp_path, proxies=["127.0.0.1"], admins=["dave"]) as served:
        url, host = f"{served.url}/v1/jobs", {"Host": "boa.example"}
        content = {"jobs": [job_content()]}
        answer = httpx.post(url, json=content, headers={**PROXY, **host})
        assert answer.status_code == 201
        (job,) = answer.json()["jobs"]
        assert served.play.storage.queue.active[job].user == "dave"
        assert httpx.get(url, headers=host).status_code == 401
        twice = [("X-Forwarded-User", "dave"), ("X-Forwarded-User", "erin"), ("Host", "boa.example")]
        assert httpx.get(url, headers=twice).status_code == 401
        foreign = {**PROXY, **host, "Origin": "https://evil.example"}
        assert httpx.post(url, json=content, headers=foreign).status_code == 403
        disguised = {**foreign, "Authorization": "Bearer x"}
        assert httpx.post(url, json=content, headers=disguised).status_code == 403
        assert httpx.get(url, headers={**PROXY, "Host": "rebound.example"}).status_code == 403
        down = httpx.post(f"{served.url}/v1/down", json={"is_down": False}, headers={**PROXY, **host})
        assert down.status_code == 200
        token = {"Authorization": f"Bearer {TOKEN}", **host}
        assert httpx.get(url, headers=token).status_code == 200


@pytest.mark.parametrize("proxies", [[], ["192.0.2.1"], ["no-such-user"]], ids=str)
def test_the_header_of_anybody_else_says_nothing(tmp_path: Path, proxies: list[str]) -> None:
    """Over TCP a token is needed, and over the socket the kernel's word counts."""
    with serving(tmp_path, proxies=proxies) as served:
        assert httpx.get(f"{served.url}/v1/jobs", headers=PROXY).status_code == 401
        with Client(served.socket) as client:
            (job,) = client.post("/jobs", {"jobs": [job_content()]})["jobs"]
            assert client.get(f"/jobs/{job}")["user"] == user_name(os.getuid())


@pytest.mark.parametrize(
    ("at", "host", "proxy", "status"),
    [
        ("[::]:0", "127.0.0.1", "127.0.0.1", 200),
        ("[::]:0", "[::1]", "::1", 200),
        ("[::1]:0", "[::1]", "0:0:0:0:0:0:0:1", 200),
        ("[::]:0", "127.0.0.1", "::1", 401),
        ("[::]:0", "[::1]", "127.0.0.1", 401),
    ],
)
def test_a_proxy_is_known_by_its_address_in_any_spelling(
    tmp_path: Path, at: str, host: str, proxy: str, status: int
) -> None:
    """A socket of both versions of IP writes an IPv4 address as ::ffff:127.0.0.1."""
    with serving(tmp_path, at=at, proxies=[proxy]) as served:
        answer = httpx.get(f"http://{host}:{served.port}/v1/jobs", headers={**PROXY, "Host": "boa.example"})
        assert answer.status_code == status


def test_a_session_ends_when_its_token_has_another_user() -> None:
    """And when its token is gone; those of other tokens go on."""
    sessions = Sessions()
    keys = {digest: sessions.begin("ann", digest) for digest in ("same", "other", "gone")}
    sessions.keep({"same": "ann", "other": "bob"})
    assert [sessions.user(keys[digest]) for digest in keys] == ["ann", None, None]


def test_a_proxy_at_the_unix_socket_is_no_user_itself(tmp_path: Path) -> None:
    """Its requests without a name are refused, though its user may be an administrator."""
    with serving(tmp_path, proxies=[user_name(os.getuid())]) as served:
        transport = httpx.HTTPTransport(uds=str(served.socket))
        with httpx.Client(transport=transport, base_url="http://boa.example") as client:
            assert client.get("/v1/jobs").status_code == 401
            assert client.get("/v1/jobs", headers=PROXY).status_code == 200
            assert client.post("/v1/down", json={"is_down": True}, headers=PROXY).status_code == 403


@pytest.mark.first_set(2)
@pytest.mark.parametrize("name", ["root", "daemon", "nobody", str(os.getuid()), "0", "00", ""])
def test_a_proxy_cannot_name_an_account_of_the_system(tmp_path: Path, name: str) -> None:
    """People choose their names where they sign in: jobs of "root" would run as root."""
    with serving(tmp_path, proxies=["127.0.0.1"]) as served:
        headers = {"X-Forwarded-User": name, "Host": "boa.example"}
        answer = httpx.post(f"{served.url}/v1/jobs", json={"jobs": [job_content()]}, headers=headers)
        assert answer.status_code == 401
        assert not served.play.storage.queue.active
    with serving(tmp_path, proxies=["127.0.0.1"], admins=["root"]) as served:
        headers["X-Forwarded-User"] = "root"
        assert httpx.get(f"{served.url}/v1/jobs", headers=headers).status_code == 200


@pytest.mark.first_set(3)
@pytest.mark.parametrize(
    ("said", "user"),
    [
        ("ann@lab.example", "ann"),
        ("ann@LAB.example", "ann"),
        ("ann@other.example", None),
        ("ann", None),
        ("@lab.example", None),
        ("ann@lab.example@other.example", None),
        ("root@lab.example", None),
    ],
)
def test_the_domain_of_a_proxys_users_is_taken_off(tmp_path: Path, said: str, user: str | None) -> None:
    """ann@lab.example is ann, whose limits are [users.ann]; nobody of another domain gets in."""
    with serving(tmp_path, proxies=["127.0.0.1"], proxy_user_domain="lab.example") as served:
        headers = {"X-Forwarded-User": said, "Host": "boa.example"}
        answer = httpx.post(f"{served.url}/v1/jobs", json={"jobs": [job_content()]}, headers=headers)
        assert answer.status_code == (401 if user is None else 201)
        assert [job.user for job in served.play.storage.queue.active.values()] == [user] * (user is not None)


class SignIn(BaseHTTPRequestHandler):
    """A small reverse proxy, as docs/how-to/sign-in-through-a-proxy.md asks: a cookie says who signed in."""

    people: dict[str, str]
    """User by the key in the cookie."""
    upstream: int

    def do_GET(self) -> None:
        """Pass a request on in the name of who signed in."""
        key = SimpleCookie(self.headers.get("Cookie", "")).get("sso")
        user = None if key is None else self.people.get(key.value)
        if user is None:
            self.send_error(403, "sign in first")
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        dropped = {"x-forwarded-user", "cookie", "connection", "content-length"}
        headers = {name: text for name, text in self.headers.items() if name.lower() not in dropped}
        link = HTTPConnection("127.0.0.1", self.upstream, timeout=30.0)
        try:
            link.request(self.command, self.path, body, {**headers, "X-Forwarded-User": user})
            answer = link.getresponse()
            content = answer.read()
        finally:
            link.close()
        self.send_response(answer.status)
        for name, text in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        """Pass an order on likewise."""
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def test_people_use_the_page_and_the_api_through_a_real_proxy(tmp_path: Path) -> None:
    """They are who the proxy says, whatever their browser claims, until the proxy knows them no longer."""
    with serving(tmp_path, proxies=["127.0.0.1"], proxy_user_domain="lab.example", admins=["ann"]) as served:
        people = {"key-of-ann": "ann@lab.example", "key-of-bob": "bob@lab.example"}
        handler = type("Handler", (SignIn,), {"people": people, "upstream": served.port})
        proxy = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            base, host = f"http://127.0.0.1:{proxy.server_port}", {"Host": "boa.example"}
            ann = httpx.Client(base_url=base, headers=host, cookies={"sso": "key-of-ann"})
            bob = httpx.Client(base_url=base, headers=host, cookies={"sso": "key-of-bob"})
            assert httpx.get(base, headers=host).status_code == 403
            assert "<html" in bob.get("/").text
            assert bob.get("/v1/page/now").status_code == 200
            answer = bob.post("/v1/jobs", json={"jobs": [job_content()]}, headers=PROXY)
            (job,) = answer.json()["jobs"]
            assert served.play.storage.queue.active[job].user == "bob"
            assert bob.post("/v1/down", json={"is_down": True}).status_code == 403
            origin = {"Origin": "https://evil.example"}
            assert bob.post(f"/v1/jobs/{job}/cancel", headers=origin).status_code == 403
            own = {"Origin": "https://boa.example", "Sec-Fetch-Site": "same-origin"}
            assert ann.post(f"/v1/jobs/{job}/cancel", headers=own).json()["changed"]
            del people["key-of-bob"]
            assert bob.get("/v1/jobs").status_code == 403
            ann.close()
            bob.close()
        finally:
            proxy.shutdown()
            proxy.server_close()


def test_sessions_end_with_their_token_and_when_revoked(served: Served) -> None:
    """The file of tokens is read again when it changes; a half-written one changes nothing."""

    def session(token: str = TOKEN) -> httpx.Client:
        client = httpx.Client(base_url=served.url)
        assert client.post("/v1/session", json={"token": token}).status_code == 200
        assert client.get("/v1/jobs").status_code == 200
        return client

    first = session()
    head = {"Authorization": f"Bearer {TOKEN}"}
    answer = httpx.delete(f"{served.url}/v1/sessions/carol", headers=head)
    assert (answer.status_code, answer.json()["ended"]) == (200, 1)
    assert first.get("/v1/jobs").status_code == 401
    assert httpx.delete(f"{served.url}/v1/sessions/dora", headers=head).status_code == 403
    second = session()
    served.tokens.write_text("short\n")
    assert second.get("/v1/jobs").status_code == 200
    served.tokens.write_text("another-long-token-of-carol carol\n")
    assert second.get("/v1/jobs").status_code == 401
    assert httpx.get(f"{served.url}/v1/jobs", headers=head).status_code == 401
    third = session("another-long-token-of-carol")
    for client in (first, second, third):
        client.close()


@pytest.mark.first_set(1)
@pytest.mark.parametrize("what", ["a job", "several jobs", "a list"])
def test_a_stuck_database_is_answered_within_two_seconds(served: Served, what: str) -> None:
    """Nothing is stored where the answer says so, and afterwards everything works."""
    database = served.play.storage.store.database
    may_end, has_begun = threading.Event(), threading.Event()

    def stuck() -> None:
        with database.write():
            has_begun.set()
            may_end.wait(30.0)

    thread = threading.Thread(target=stuck)
    thread.start()
    assert has_begun.wait(10.0)
    head = {"Authorization": f"Bearer {TOKEN}"}
    try:
        time.sleep(1.0)
        began = time.monotonic()
        if what == "a list":
            assert httpx.get(f"{served.url}/v1/jobs", headers=head, timeout=20.0).status_code == 200
        else:
            jobs = [job_content(f"j{n}") for n in range(1 if what == "a job" else 20)]
            answer = httpx.post(f"{served.url}/v1/jobs", json={"jobs": jobs}, headers=head, timeout=20.0)
            assert answer.status_code == 503
            assert "database" in answer.json()["message"]
        assert time.monotonic() - began < ANSWER_SECONDS + 0.2
    finally:
        may_end.set()
        thread.join()
    assert served.play.storage.queue.active == {}
    one = httpx.post(f"{served.url}/v1/jobs", json={"jobs": [job_content()]}, headers=head)
    assert one.status_code == 201


def test_the_status_comes_from_memory(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is built in the thread that answers everybody, and says why the database does not answer."""
    play = served.play
    play.service.submit([job_content("a", hours=9.0)], user="carol")
    for _ in range(3):
        play.daemon.tick()

    def gone(*_args: object, **_more: object) -> None:
        raise OSError(errno.EIO, "no database")

    monkeypatch.setattr(play.storage.store.database.engine, "connect", gone)
    monkeypatch.setattr(play.storage.store.database.engine, "begin", gone)
    play.daemon.tick()
    play.clock.instant += 3600.0
    head = {"Authorization": f"Bearer {TOKEN}"}
    answer = httpx.get(f"{served.url}/v1/status", headers=head, timeout=30.0)
    assert answer.status_code == 200
    assert "no database" in answer.json()["fault"]


REQUEST = f"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_request_whose_sender_has_nothing_more_to_say_is_answered(served: Served, kind: str) -> None:
    """`nc -N` and some proxies close their half of the connection; then the other half closes, too."""
    with served.connect(kind) as channel:
        channel.sendall(f"{REQUEST}\r\n".encode())
        channel.shutdown(socket.SHUT_WR)
        began = time.monotonic()
        answer = said_on(channel)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"fault"' in answer
    assert time.monotonic() - began < 4.0


@pytest.mark.parametrize("part", [REQUEST, "POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{"])
def test_half_a_request_is_not_waited_for(served: Served, part: str) -> None:
    """Its sender has closed its half of the connection: nothing more can come."""
    with served.connect("unix") as channel:
        channel.sendall(part.encode())
        channel.shutdown(socket.SHUT_WR)
        began = time.monotonic()
        said_on(channel)
    assert time.monotonic() - began < 4.0


AUTH = f"Authorization: Bearer {TOKEN}\r\n"
POST = f"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n{AUTH}Content-Type: application/json\r\n"
SHAPES: dict[str, bytes] = {
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    "a proxy's CONNECT": f"CONNECT evil:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n{AUTH}\r\n".encode(),
    "a proxy's address": f"GET http://evil/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n{AUTH}\r\n".encode(),
    "chunks of garbage": f"{POST}Transfer-Encoding: chunked\r\n\r\nZZZ\r\nhello".encode(),
    "a negative length": f"{POST}Content-Length: -5\r\n\r\n".encode(),
    "two lengths": f"{POST}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}".encode(),
    "a length of 5,000 digits": f"{POST}Content-Length: {'9' * 5000}\r\n\r\n".encode(),
    "a length and chunks": f"{POST}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode(),
    "JSON cut short": f'{POST}Content-Length: 5\r\n\r\n{{"a":'.encode(),
    "deep JSON": f"{POST}Content-Length: 200000\r\n\r\n{'[' * 200_000}".encode(),
    "a long number": f'{POST}Content-Length: 100011\r\n\r\n{{"jobs": [{"9" * 100_000}]'.encode(),
    "half a character": f'{POST}Content-Length: 29\r\n\r\n{{"jobs": [{{"name": "\\ud800"}}]}}'.encode(),
    "no UTF-8": f"{POST}Content-Length: 3\r\n\r\n".encode() + b"\xff\xfe\xfd",
    "gzip": f"{POST}Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n".encode() + b"\x1f\x8b00",
    "a megabyte of header": f"{REQUEST}X: {'y' * 1_000_000}\r\n\r\n".encode(),
    "a long path": f"GET /v1/{'a' * 60_000} HTTP/1.1\r\nHost: 127.0.0.1\r\n{AUTH}\r\n".encode(),
    "odd bytes in a path": f"GET /v1/jobs/%zz%00%ff HTTP/1.1\r\nHost: 127.0.0.1\r\n{AUTH}\r\n".encode(),
    "odd bytes in a query": f"GET /v1/jobs?user=%00 HTTP/1.1\r\nHost: 127.0.0.1\r\n{AUTH}\r\n".encode(),
    "no host": f"GET /v1/status HTTP/1.1\r\n{AUTH}\r\n".encode(),
    "odd bytes in a token": b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer \xff\r\n\r\n",
}


@pytest.mark.first_set(3)
@pytest.mark.parametrize("shape", SHAPES)
def test_whatever_comes_is_refused_as_the_senders_fault(served: Served, shape: str) -> None:
    """At once and with a status of 4xx: nothing fails, hangs or is taken for something else."""
    with served.connect("tcp") as channel:
        channel.settimeout(4.0)
        with suppress(OSError):
            channel.sendall(SHAPES[shape])
        assert channel.recv(12).startswith(b"HTTP/1.1 4")
    assert httpx.get(f"{served.url}/healthz").status_code == 200


def test_a_connection_is_not_upgraded(served: Served) -> None:
    """A web socket would have neither a caller nor a limit of time, whatever library is installed."""
    lines = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    for head in (REQUEST, "GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n"):
        with served.connect("tcp") as channel:
            channel.sendall(f"{head}{lines}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
            assert channel.recv(12) in (b"HTTP/1.1 200", b"HTTP/1.1 401")
    assert served.server._server.config.ws_protocol_class is None


def test_a_large_submission_has_time_to_be_written(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowded machine took two seconds for 3,600 jobs, and the answer was that the database was stuck."""
    write = JobQueue._write_waiting

    def slowly(queue: JobQueue) -> None:
        with queue.database.write():
            time.sleep(ANSWER_SECONDS + 0.5)
            write(queue)

    monkeypatch.setattr(JobQueue, "_write_waiting", slowly)
    head = {"Authorization": f"Bearer {TOKEN}"}
    for count, status in ((1000, 201), (20, 503)):
        jobs = [{**job_content("a"), "count": count}]
        answer = httpx.post(f"{served.url}/v1/jobs", json={"jobs": jobs}, headers=head, timeout=20.0)
        assert answer.status_code == status
