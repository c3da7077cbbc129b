"""The HTTP API: who may do what, how refusals look, and that malformed requests store nothing."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from sampling import sampled
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from boa_daemon.api.admission import MOST_BYTES
from boa_daemon.api.app import REFUSALS, create_app
from boa_daemon.api.authentication import Authenticator, read_tokens, user_name
from boa_daemon.api.client import Client, DaemonUnreachable, RefusedByDaemon
from boa_daemon.api.log_limits import FewLines
from boa_daemon.api.server import ApiServer, tcp_socket, unix_socket
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

TOKEN, ADMIN = "a-token-that-is-long-enough", "another-one-that-is-long"


@pytest.fixture
def play(tmp_path: Path) -> Iterator[DaemonInAFolder]:
    found = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0))
    yield found
    found.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="boa") as name:
        yield Path(name)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"# who may\n{TOKEN} carol\n{ADMIN} dora\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def served(play: DaemonInAFolder, folder: Path, tokens: Path) -> Iterator[tuple[Path, int]]:
    values = {"listen": "127.0.0.1:0", "tokens": str(tokens), "admins": ["dora"]}
    settings = ApiSettings.model_validate(values)
    tcp = tcp_socket("127.0.0.1:0")
    server = ApiServer(
        create_app(play.service, Authenticator(settings)), [unix_socket(folder / "boa.sock"), tcp]
    )
    server.start()
    yield folder / "boa.sock", tcp.getsockname()[1]
    server.stop()


def test_the_user_of_a_unix_socket_is_the_one_the_kernel_reports(
    served: tuple[Path, int], play: DaemonInAFolder
) -> None:
    """The job belongs to the user who runs the test."""
    with Client(served[0]) as client:
        (job,) = client.post("/jobs", {"jobs": [job_content()]})["jobs"]
        assert client.get(f"/jobs/{job}")["user"] == user_name(os.getuid())
    assert len(play.storage.queue.active) == 1


def test_other_users_may_not_open_the_socket(served: tuple[Path, int]) -> None:
    """The mode gives no rights to users outside of the owner and its group."""
    assert served[0].stat().st_mode & 0o007 == 0


def test_tcp_needs_a_token(served: tuple[Path, int]) -> None:
    """Without a valid token the answer is 401, also with a header that claims a user id."""
    url = f"http://127.0.0.1:{served[1]}/v1/status"
    claims = {"X-Forwarded-For": "uid:0", "Forwarded": "for=uid:0"}
    assert httpx.get(url, headers=claims).status_code == 401
    assert httpx.get(url, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert httpx.get(url, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_token_of_a_user_gives_no_administrator_rights(served: tuple[Path, int]) -> None:
    """The user carol is not allowed to order `down`."""
    answer = httpx.post(
        f"http://127.0.0.1:{served[1]}/v1/down",
        json={"is_down": True},
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    assert (answer.status_code, answer.json()["error"]) == (403, "NotAllowed")


def test_a_token_file_that_others_can_read_is_refused(tokens: Path) -> None:
    """A token of fewer than 16 characters is refused too."""
    tokens.chmod(0o644)
    with pytest.raises(InputError, match="others can read"):
        read_tokens(tokens)
    tokens.write_text("short carol\n")
    tokens.chmod(0o600)
    with pytest.raises(InputError, match="at least 16"):
        read_tokens(tokens)


def test_one_token_is_not_that_of_two_users(tokens: Path) -> None:
    """Neither the first nor the last user is taken; a line that is there twice says nothing new."""
    tokens.write_text(f"{TOKEN} carol\n{TOKEN} carol\n")
    assert set(read_tokens(tokens).values()) == {"carol"}
    tokens.write_text(f"{TOKEN} carol\n{ADMIN} ann\n{TOKEN} dave\n")
    with pytest.raises(InputError, match=r":3: the token of dave is also that of carol"):
        read_tokens(tokens)


def test_a_refusal_says_why_and_stores_nothing(served: tuple[Path, int], play: DaemonInAFolder) -> None:
    """One invalid job of two gives status 422, a sentence and exit code 2, and no job is stored."""
    with Client(served[0]) as client:
        with pytest.raises(RefusedByDaemon, match="Did you mean 'default'") as refused:
            client.post("/jobs", {"jobs": [job_content(), job_content(**{"class": "defualt"})]})
        assert (refused.value.status, refused.value.exit_code) == (422, 2)
        with pytest.raises(RefusedByDaemon) as missing:
            client.get("/jobs/nobody-1")
        assert missing.value.status == 404
    assert play.storage.queue.active == {}


def test_an_oversize_request_is_refused(served: tuple[Path, int], play: DaemonInAFolder) -> None:
    """A stated length is refused before the body comes; without one the server counts the bytes it reads."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(120.0)
        line.connect(str(served[0]))
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: boa\r\nContent-Length: {MOST_BYTES + 1}\r\n\r\n"
        line.sendall(head.encode())
        assert b" 413 " in line.recv(4096).partition(b"\r\n")[0]
    transport = httpx.HTTPTransport(uds=str(served[0]))
    with httpx.Client(transport=transport, base_url="http://boa", timeout=120.0) as client:
        chunk = b" " * 2**20

        def endless() -> Iterator[bytes]:
            for _ in range(MOST_BYTES // len(chunk) + 2):
                yield chunk

        # A server that closes the connection while reading has refused the request too.
        with suppress(httpx.WriteError, httpx.ReadError):
            assert client.post("/v1/jobs", content=endless()).status_code == 413
    assert play.storage.queue.active == {}


@pytest.mark.parametrize(
    "text",
    [
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"POST /v1/jobs HTTP/1.1\r\nHost: boa\r\nContent-Length: abc\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: boa\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: boa\r\n\r\n",
    ],
)
def test_malformed_http_is_answered_with_4xx(
    served: tuple[Path, int], play: DaemonInAFolder, text: bytes
) -> None:
    """The next request is answered normally."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(10.0)
        channel.connect(str(served[0]))
        channel.sendall(text)
        assert b" 4" in channel.recv(100)[:12]
    with Client(served[0]) as client:
        assert client.get("/status")["fault"] == ""
    assert play.storage.queue.active == {}


def test_an_unreachable_daemon_is_an_error_with_exit_code_5(folder: Path) -> None:
    """The path may be missing, be a plain file, or be a socket without a listener."""
    with pytest.raises(DaemonUnreachable, match="no daemon listens"):
        Client(folder / "none")
    (folder / "file").write_text("")
    with pytest.raises(DaemonUnreachable, match="not a socket"):
        Client(folder / "file")
    with socket.socket(socket.AF_UNIX) as channel:
        channel.bind(str(folder / "dead"))
    with pytest.raises(DaemonUnreachable, match="does not answer") as error:
        Client(folder / "dead")
    assert error.value.exit_code == 5


def test_a_socket_of_another_user_is_not_trusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user could pretend to be the daemon."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.bind(str(folder / "boa.sock"))
        found = (folder / "boa.sock").stat()

        class Foreign:
            st_mode, st_uid = found.st_mode, 4242

        monkeypatch.setattr(Path, "stat", lambda _self, **_: Foreign())
        with pytest.raises(DaemonUnreachable, match="belongs to user 4242"):
            Client(folder / "boa.sock")


def test_metrics_count_waiting_jobs_and_ticks(served: tuple[Path, int], play: DaemonInAFolder) -> None:
    """After a tick, the health and readiness checks succeed."""
    play.service.submit([job_content()], user="ann")
    play.daemon.tick()
    transport = httpx.HTTPTransport(uds=str(served[0]))
    with httpx.Client(transport=transport, base_url="http://boa") as client:
        text = client.get("/metrics").text
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 200
    assert 'boa_jobs{state="waiting"} 1.0' in text
    assert 'boa_ticks_total{outcome="done"} 1.0' in text


def test_the_daemon_is_not_ready_before_the_first_tick(
    served: tuple[Path, int], play: DaemonInAFolder
) -> None:
    """Readiness and plan give status 503 until then."""
    transport = httpx.HTTPTransport(uds=str(served[0]))
    with httpx.Client(transport=transport, base_url="http://boa") as client:
        assert client.get("/readyz").status_code == 503
        assert client.get("/v1/plan").status_code == 503
        play.daemon.tick()
        assert client.get("/v1/plan").json()["actions"] == []


def test_the_plan_shows_the_actions_of_the_next_tick_without_doing_them(play: DaemonInAFolder) -> None:
    """After a submission the plan shows one launch; the next tick has the same reasons."""
    play.daemon.tick()
    play.service.submit([job_content()], user="ann")
    shown = play.service.plan()["actions"]
    assert [action["kind"] for action in shown] == ["launch"]
    assert play.cloud.nodes() == []
    decision = play.daemon.tick()
    assert decision is not None
    assert [action.reason for action in decision.actions] == [action["reason"] for action in shown]


def test_the_openapi_document_describes_each_refusal_of_each_route_as_json(play: DaemonInAFolder) -> None:
    """Refusals are documents of one form, whatever a route answers otherwise: metrics are text."""
    document = create_app(play.service, Authenticator(ApiSettings())).openapi()
    problem = document["components"]["schemas"]["Problem"]
    assert set(problem["required"]) == {"error", "message", "exit_code"}
    for path, methods in document["paths"].items():
        for answers in (each["responses"] for each in methods.values()):
            for status, words in REFUSALS.items():
                answer = answers[str(status)]
                assert answer["description"] == words
                assert answer["content"] == {
                    "application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                }, (path, status)


def test_generated_requests_are_answered_as_the_openapi_document_says(
    served: tuple[Path, int], play: DaemonInAFolder
) -> None:
    """Schemathesis sends requests to every operation: no answer is a 5xx or breaks its declared schema.

    Half of the requests are such as the description allows, and half are such as it does not.
    """
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.errors import Unsatisfiable
    from schemathesis.checks import not_a_server_error
    from schemathesis.generation import GenerationMode
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    play.daemon.tick()
    (job,) = play.service.submit([job_content()], user="ann")["jobs"]
    document = create_app(play.service, Authenticator(ApiSettings())).openapi()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=f"http://127.0.0.1:{served[1]}")
    checks: list[Any] = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    counts = {"sent": 0, "good": 0}

    def send(case: Any) -> None:
        counts["sent"] += 1
        if "name" in case.path_parameters and counts["sent"] % 2:
            case.path_parameters["name"] = job
        answer = case.call(headers={"Authorization": f"Bearer {ADMIN}"})
        counts["good"] += answer.status_code < 300
        case.validate_response(answer, checks=checks)

    quiet = settings(
        max_examples=sampled(8),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    operations = [found.ok() for found in schema.get_all_operations()]
    for operation in operations:
        quiet(given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))(send))()
    assert counts["sent"] > 100
    assert counts["good"] > counts["sent"] / 8
    for operation in operations:
        with suppress(Unsatisfiable):  # Without parameters there is nothing to be wrong.
            quiet(given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))(send))()


def test_a_submission_on_a_full_disk_is_refused_with_503(
    served: tuple[Path, int], play: DaemonInAFolder
) -> None:
    """Nothing is stored, and the next submission is accepted."""

    def full(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT INTO jobs"):
            raise OperationalError(statement, None, Exception("database or disk is full"))

    with Client(served[0]) as client:
        event.listen(play.storage.store.database.engine, "before_cursor_execute", full)
        with pytest.raises(RefusedByDaemon, match="nothing was stored: database or disk is full") as refusal:
            client.post("/jobs", {"jobs": [job_content()]})
        event.remove(play.storage.store.database.engine, "before_cursor_execute", full)
        assert refusal.value.status == 503
        assert play.storage.queue.active == {}
        assert len(client.post("/jobs", {"jobs": [job_content()]})["jobs"]) == 1


def test_concurrent_clients_lose_no_submission(served: tuple[Path, int], play: DaemonInAFolder) -> None:
    """Eight clients submit ten jobs each, and all 80 jobs are stored."""

    def one(number: int) -> list[str]:
        with Client(served[0]) as client:
            found: list[str] = []
            for count in (1, 9):
                answer = client.post("/jobs", {"jobs": [job_content(f"c{number}")] * count})
                found += answer["jobs"]
            return found

    with ThreadPoolExecutor(8) as pool:
        names = [name for found in pool.map(one, range(8)) for name in found]
    assert len(names) == len(set(names)) == 80
    assert set(names) == set(play.storage.queue.active)


def test_other_users_cannot_read_the_environment_and_logs_of_a_job(
    play: DaemonInAFolder, folder: Path, tokens: Path
) -> None:
    """The job's user, a reader and an administrator can; another user gets status 403 for the logs."""
    words = {TOKEN: "carol", ADMIN: "dora", "a-third-token-for-bob": "bob", "a-fourth-token-of-rea": "rea"}
    tokens.write_text("".join(f"{token} {user}\n" for token, user in words.items()))
    values = {"listen": "127.0.0.1:0", "tokens": str(tokens), "admins": ["dora"], "readers": ["rea"]}
    tcp = tcp_socket("127.0.0.1:0")
    server = ApiServer(create_app(play.service, Authenticator(ApiSettings.model_validate(values))), [tcp])
    server.start()
    url = f"http://127.0.0.1:{tcp.getsockname()[1]}/v1/jobs"
    try:
        content = job_content(environment={"KEY": "sesame"}, run="echo sesame")
        head = {"Authorization": f"Bearer {TOKEN}"}
        (job,) = httpx.post(url, json={"jobs": [content]}, headers=head).json()["jobs"]
        for token, user in words.items():
            head = {"Authorization": f"Bearer {token}"}
            is_readable = user != "bob"
            assert ("sesame" in httpx.get(f"{url}/{job}", headers=head).text) is is_readable
            assert "sesame" not in httpx.get(url, headers=head).text
            assert httpx.get(f"{url}/{job}/logs", headers=head).status_code == (200 if is_readable else 403)
    finally:
        server.stop()


def test_only_administrators_submit_jobs_that_run_as_the_daemons_user(
    served: tuple[Path, int], play: DaemonInAFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `shared_account` other users may submit too, and the status has a note about it."""
    monkeypatch.setattr(play.runner, "runs_jobs_as_daemon", True, raising=False)
    url = f"http://127.0.0.1:{served[1]}/v1/jobs"

    def submitted(token: str) -> int:
        head = {"Authorization": f"Bearer {token}"}
        return httpx.post(url, json={"jobs": [job_content()]}, headers=head).status_code

    assert (submitted(TOKEN), submitted(ADMIN)) == (403, 201)
    engine = play.daemon.settings.engine.model_copy(update={"shared_account": True})
    play.daemon.settings = play.daemon.settings.model_copy(update={"engine": engine})
    assert submitted(TOKEN) == 201
    assert any("daemon's own user" in note for note in play.service.status()["notes"])


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:8470", "boa.example:8470"])
def test_listening_beyond_this_machine_without_tls_is_refused(listen: str) -> None:
    """Tokens would be sent unencrypted."""
    with pytest.raises(InputError, match="in the clear"):
        tcp_socket(listen)


@pytest.mark.parametrize(
    ("listen", "is_secret", "reached_at"),
    [
        ("[::1]:0", False, ["::1"]),
        ("::1:0", False, ["::1"]),
        ("[::]:0", True, ["::1", "127.0.0.1"]),
        ("0.0.0.0:0", True, ["127.0.0.1"]),
        ("localhost:0", False, ["localhost"]),
    ],
)
def test_addresses_of_both_versions_of_ip_are_listened_on(
    listen: str, is_secret: bool, reached_at: list[str]
) -> None:
    """An IPv6 address was refused; the wildcard of IPv6 is one for IPv4, too."""
    channel = tcp_socket(listen, is_secret=is_secret)
    try:
        for host in reached_at:
            socket.create_connection((host, channel.getsockname()[1]), timeout=5.0).close()
    finally:
        channel.close()


def test_a_token_is_accepted_over_tls(play: DaemonInAFolder, tokens: Path, tmp_path: Path) -> None:
    """On the same port, a request over plain HTTP fails."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*words, *names, *files], check=True, capture_output=True)
    settings = ApiSettings.model_validate({"listen": "127.0.0.1:0", "tokens": str(tokens)})
    tcp = tcp_socket("127.0.0.1:0", is_secret=True)
    server = ApiServer(create_app(play.service, Authenticator(settings)), [tcp], tls=(str(cert), str(key)))
    server.start()
    port = tcp.getsockname()[1]
    try:
        head = {"Authorization": f"Bearer {TOKEN}"}
        trusted = ssl.create_default_context(cafile=str(cert))
        url = f"https://127.0.0.1:{port}/v1/status"
        assert httpx.get(url, headers=head, verify=trusted).status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{port}/v1/status", headers=head)
    finally:
        server.stop()


def test_idle_connections_do_not_block_other_clients(
    served: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 silent or incomplete connections are closed, and other requests are answered."""
    monkeypatch.setattr("boa_daemon.api.server.HEAD_SECONDS", 1.0)
    lines = [socket.create_connection(("127.0.0.1", served[1])) for _ in range(300)]
    for line in lines[:150]:
        with suppress(OSError):
            line.sendall(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n")
    with Client(served[0]) as client:
        assert "fault" in client.get("/status")
    end, answer = time.monotonic() + 120.0, 0
    while answer != 200 and time.monotonic() < end:
        with suppress(httpx.HTTPError):
            url = f"http://127.0.0.1:{served[1]}/v1/status"
            answer = httpx.get(url, headers={"Authorization": f"Bearer {TOKEN}"}).status_code
        time.sleep(0.1)
    assert answer == 200
    for line in lines:
        line.settimeout(60.0)
        said = b""
        with suppress(OSError):
            while part := line.recv(4096):
                said += part
        line.close()
        assert not said or b"too many connections" in said


def test_a_wrong_token_is_logged_and_answered_after_a_second(
    served: tuple[Path, int], caplog: pytest.LogCaptureFixture
) -> None:
    """The delay slows down guessing."""
    # Other tests of this process may have had the few lines a minute that strangers can make it write.
    for kept in [one for one in logging.getLogger("boa.api").filters if isinstance(one, FewLines)]:
        logging.getLogger("boa.api").removeFilter(kept)
    began = time.monotonic()
    head = {"Authorization": "Bearer a-guess-at-a-token"}
    assert httpx.get(f"http://127.0.0.1:{served[1]}/v1/status", headers=head).status_code == 401
    assert time.monotonic() - began >= 1.0
    assert "a wrong token came from 127.0.0.1" in caplog.text
