"""`api/server.py`: certificates and tokens that people renew are used without a restart."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import Request

from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator, user_name
from boa_daemon.api.client import Client
from boa_daemon.api.connection import RefusedByDaemon
from boa_daemon.api.server import ApiServer, tcp_socket
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

FIRST, SECOND = "a-first-token-of-ann", "a-second-token-of-bea"


@pytest.fixture
def play(tmp_path: Path) -> Iterator[DaemonInAFolder]:
    made = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0))
    yield made
    made.close()


def test_a_renewed_certificate_and_new_tokens_are_used_from_the_next_connection_on(
    play: DaemonInAFolder, tmp_path: Path
) -> None:
    """A half-written certificate or file of tokens is not used, and is a fault until it is whole."""
    key, cert, tokens = (tmp_path / name for name in ("key.pem", "cert.pem", "tokens"))
    _make_certificate(key, cert)
    tokens.write_text(f"{FIRST} ann\n")
    tokens.chmod(0o600)
    settings = ApiSettings.model_validate({"listen": "127.0.0.1:0", "tokens": str(tokens)})
    gatekeeper, tcp = Authenticator(settings), tcp_socket("127.0.0.1:0", is_secret=True)
    server = ApiServer(create_app(play.service, gatekeeper), [tcp], tls=(str(cert), str(key)))
    server.start()
    url = f"https://127.0.0.1:{tcp.getsockname()[1]}/v1/status"

    def answer(token: str, trusted: str) -> int:
        context = ssl.create_default_context(cadata=trusted)
        return httpx.get(url, headers={"Authorization": f"Bearer {token}"}, verify=context).status_code

    try:
        old = cert.read_text()
        assert answer(FIRST, old) == 200
        cert.write_text(old[:200])
        assert answer(FIRST, old) == 200
        assert "cannot be used" in server.fault()
        _make_certificate(key, cert)
        new = cert.read_text()
        assert answer(FIRST, new) == 200
        assert server.fault() == ""
        with pytest.raises(httpx.HTTPError):
            answer(FIRST, old)

        tokens.write_text("short ann\n")
        assert answer(FIRST, new) == 200
        assert "cannot be used" in gatekeeper.fault()
        tokens.write_text(f"{SECOND} bea\n")
        assert (answer(SECOND, new), answer(FIRST, new)) == (200, 401)
        assert gatekeeper.fault() == ""
    finally:
        server.stop()


def test_the_name_of_a_user_who_was_made_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number is kept for minutes, not for the life of the daemon."""
    names: dict[int, str] = {}
    now = [0.0]

    class Entry:
        def __init__(self, name: str) -> None:
            self.pw_name = name

    monkeypatch.setattr("pwd.getpwuid", lambda uid: Entry(names[uid]))
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    assert user_name(54321) == "54321"
    names[54321] = "ann"
    now[0] = 301.0
    assert user_name(54321) == "ann"


def test_a_token_that_is_withdrawn_while_a_log_is_followed_ends_it_and_says_so(
    play: DaemonInAFolder, tmp_path: Path
) -> None:
    """A file of tokens from Windows is read, and so is a token from a file with its line end."""
    tokens = tmp_path / "tokens"
    tokens.write_bytes(f"\ufeff{FIRST} ann\r\n{SECOND}\tbea\r\n".encode())
    tokens.chmod(0o600)
    settings = ApiSettings.model_validate({"listen": "[::1]:0", "tokens": str(tokens)})
    tcp = tcp_socket("[::1]:0")
    server = ApiServer(create_app(play.service, Authenticator(settings)), [tcp])
    server.start()
    try:
        with Client(f"http://[::1]:{tcp.getsockname()[1]}", token=f"{FIRST}\n") as boa:
            (job,) = boa.submit(job_content())
            while boa.job(job)["status"] != "running":
                play.daemon.tick()
                play.clock.instant += 1.0  # type: ignore[attr-defined]
            following = boa.follow(job, poll_seconds=0.1)
            tokens.write_text(f"{SECOND} bea\n")
            with pytest.raises(RefusedByDaemon, match=r"the token is not known here: .* or was withdrawn"):
                next(following)
    finally:
        server.stop()


def test_a_user_directory_that_does_not_answer_keeps_one_user_waiting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """LDAP is down for a minute: who is known is served meanwhile, and a user is looked up once at a time."""
    asked: list[int] = []
    answers = threading.Event()

    class Entry:
        pw_name = "ann"

    def slow(uid: int) -> Entry:
        asked.append(uid)
        assert answers.wait(20.0)
        return Entry()

    gatekeeper = Authenticator(ApiSettings())
    user_name(0)
    monkeypatch.setattr("pwd.getpwuid", slow)

    def request(uid: int) -> Request:
        return Request({"type": "http", "client": (f"uid:{uid}", 1), "headers": [], "method": "GET"})

    async def ask() -> list[str]:
        waiting = [asyncio.ensure_future(gatekeeper.admit(request(61_234))) for _ in range(3)]
        root = await asyncio.wait_for(gatekeeper.admit(request(0)), 5.0)
        assert not any(one.done() for one in waiting)
        answers.set()
        return [root.user, *(one.user for one in await asyncio.gather(*waiting))]

    assert asyncio.run(ask()) == ["root", "ann", "ann", "ann"]
    assert asked == [61_234]


def _make_certificate(key: Path, cert: Path) -> None:
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*words, *names, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
