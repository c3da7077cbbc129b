"""`client/credential_source.py`: what a source of credentials does wrong is told, and nothing is sent.

Real sessions of boto3, with the files and programs that people have.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from botocore.credentials import RefreshableCredentials

from boa_daemon.backends.aws.client import credential_source
from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.settings import AwsSettings

PROCESS = "[profile x]\ncredential_process = DIR/program\n"
ROLE = "[profile x]\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = y\n"
SSO = "[profile x]\nsso_start_url = https://a.test/start\nsso_region = us-east-1\nsso_account_id = 1\n"
EXPIRED = {
    "Version": 1, "AccessKeyId": "A", "SecretAccessKey": "B", "SessionToken": "C",
    "Expiration": "2020-01-01T00:00:00Z",
}  # fmt: skip
KEYS = "[profile y]\naws_access_key_id = A\naws_secret_access_key = B\n"
_OPEN = os.open
Case = tuple[str, str, str]
CASES: Mapping[str, Case] = {
    "a program that is not there": (PROCESS, "", "No such file"),
    "a program that fails": (PROCESS, "echo no token >&2; exit 3", "no token"),
    "a program that prints a page": (PROCESS, "echo '<html>'", "JSONDecodeError"),
    "a program that prints nothing": (PROCESS, "true", "JSONDecodeError"),
    "a program of another version": (PROCESS, """echo '{"Version": 2}'""", "Unsupported version"),
    "a program whose keys have expired": (PROCESS, f"echo '{json.dumps(EXPIRED)}'", "still expired"),
    "a program that hangs": (PROCESS, "sleep 3", "has not answered"),
    "a role without its source": (ROLE, "", "does not exist"),
    "a role that wants a code of a person": (
        f"{ROLE}mfa_serial = arn:aws:iam::123456789012:mfa/me\n{KEYS}", "", "MFA",
    ),
    "a web identity without its file": (
        "[profile x]\nrole_arn = arn:aws:iam::1:role/x\nweb_identity_token_file = DIR/none\n", "",
        "No such file",
    ),
    "single sign-on without a login": (f"{SSO}sso_role_name = r\n", "", "SSO"),
    "a profile that is not there": (KEYS, "", "could not be found"),
    "a file cut short": ("[profile x\nregion", "", "parse config file"),
}  # fmt: skip


def a_profile(folder: Path, patch: pytest.MonkeyPatch, config: str, program: str) -> None:
    """Write the files of a profile, and choose it."""
    (folder / "config").write_text(config.replace("DIR", str(folder)))
    if program:
        (folder / "program").write_text(f"#!/bin/sh\n{program}\n")
        (folder / "program").chmod(0o755)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        patch.delenv(name, raising=False)
    patch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "none"))
    patch.setenv("HOME", str(folder))
    patch.setenv("AWS_PROFILE", "x")
    # Nobody sits there: a terminal of the test's own would be asked for the code.
    patch.setattr("getpass.fallback_getpass", _nobody)
    patch.setattr("os.open", _no_terminal)


def _nobody(*_words: object) -> str:
    raise EOFError


def _no_terminal(path: str, *arguments: int, **options: int) -> int:
    if path == "/dev/tty":
        raise OSError("no terminal")
    return _OPEN(path, *arguments, **options)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("operation", ["ec2:RunInstances", "ec2:DescribeInstances"])
def test_a_source_that_fails_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, operation: str
) -> None:
    """A launch is refused, not lost: nothing was sent. The net of the credentials says why."""
    config, program, said = CASES[name]
    a_profile(tmp_path, monkeypatch, config, program)
    if "hangs" in name:
        monkeypatch.setattr(credential_source, "SOURCE_SECONDS", 0.3)
        monkeypatch.setattr(credential_source, "TYPED_SECONDS", 0.3)
    calls = AwsCalls(AwsSettings(endpoint="http://127.0.0.1:9"), tries=1)
    with pytest.raises(CallFailed) as failed:
        calls.call(operation)

    assert failed.value.meaning == "credentials"
    assert said in str(failed.value)
    assert "aws sso login" in calls.credentials_fault


def test_a_source_that_hangs_is_waited_for_once_and_used_when_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other calls fail at once meanwhile, and no second program is started."""
    keys = json.dumps(EXPIRED | {"Expiration": "2099-01-01T00:00:00Z"})
    program = f"echo x >> {tmp_path}/runs; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo '{keys}'"
    a_profile(tmp_path, monkeypatch, PROCESS, program)
    source = credential_source.CredentialSource(_session(), seconds=0.2)
    for most in (1.5, 0.15):
        began = time.monotonic()
        with pytest.raises(credential_source.SourceHangs):
            source.check()
        assert time.monotonic() - began < most
    (tmp_path / "go").touch()
    until = time.monotonic() + 20.0
    while time.monotonic() < until:
        try:
            source.check()
            break
        except credential_source.SourceHangs:
            time.sleep(0.05)
    assert source._credentials.get_frozen_credentials().access_key == "A"
    assert (tmp_path / "runs").read_text() == "x\n"


@pytest.mark.parametrize("minutes", [1, 5, 12, 20, 60])
def test_credentials_that_live_for_minutes_are_not_asked_for_with_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    """botocore wants new ones from 15 minutes before the end on, so it would run the program twice a call."""
    ends = f"$(date -u -d '+{minutes} minutes' +%Y-%m-%dT%H:%M:%SZ)"
    keys = '{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "B", "SessionToken": "C"'
    program = f"""echo x >> {tmp_path}/runs; echo '{keys}, "Expiration": "'"{ends}"'"}}'"""
    a_profile(tmp_path, monkeypatch, PROCESS, program)
    session = _session()
    source = credential_source.CredentialSource(session)
    for _ in range(4):
        source.check()
        # As botocore does to sign.
        session.get_credentials().get_frozen_credentials()  # type: ignore[attr-defined]

    assert (tmp_path / "runs").read_text() == "x\n"
    assert not source._needs(None)


def test_credentials_of_minutes_are_renewed_before_they_end() -> None:
    """In the last quarter of their life they are asked for anew, and the new ones fit their own life."""
    made: list[float] = []

    def make() -> dict[str, str]:
        made.append(time.time())
        ends = datetime.fromtimestamp(time.time() + 3.0, UTC).isoformat()
        return {"access_key": f"A{len(made)}", "secret_key": "B", "token": "C", "expiry_time": ends}

    found = RefreshableCredentials.create_from_metadata(make(), make, "test")
    source = credential_source.CredentialSource(Slow(found))
    until = time.monotonic() + 7.0
    while time.monotonic() < until:
        source.check()
        assert not found.refresh_needed(0)
        time.sleep(0.05)

    assert 3 <= len(made) <= 5


@pytest.mark.parametrize("minutes", [3.0, 12.0, 20.0, 60.0, 720.0])
def test_credentials_are_renewed_long_before_they_end_however_often_they_are_checked(
    minutes: float,
) -> None:
    """Each look at old ones must not put off their renewal, until calls are signed with ones that end."""
    clock = [datetime(2026, 1, 1, tzinfo=UTC)]
    made = [clock[0]]

    def make() -> dict[str, str]:
        made.append(clock[0])
        ends = (clock[0] + timedelta(minutes=minutes)).isoformat()
        return {"access_key": f"A{len(made)}", "secret_key": "B", "token": "C", "expiry_time": ends}

    found = RefreshableCredentials(
        "A", "B", "C", clock[0] + timedelta(minutes=minutes), make, "test", time_fetcher=lambda: clock[0]
    )
    source = credential_source.CredentialSource(Slow(found))
    for _ in range(400):
        source.check()
        assert not found.refresh_needed(min(minutes * 60.0 / 6.0, 600.0))
        clock[0] += timedelta(minutes=minutes / 100.0)

    assert 4 <= len(made) <= 7


class Slow:
    """A session whose credentials take as long as `waits` says, by the number of the question."""

    def __init__(self, answer: object, *waits: threading.Event) -> None:
        self.answer, self.waits, self.asked = answer, waits, 0

    def get_credentials(self) -> object:
        """Wait, and return or raise the answer."""
        self.asked += 1
        if self.waits:
            self.waits[min(self.asked, len(self.waits)) - 1].wait(10.0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_session_without_credentials_is_asked_once() -> None:
    """Before each call it would look at the metadata service, which takes seconds where none answers."""
    session = Slow(None)
    source = credential_source.CredentialSource(session)
    for _ in range(3):
        source.check()

    assert session.asked == 1


def test_each_of_two_callers_hears_of_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for a question that failed is told so also if another caller asks again meanwhile."""
    first, second = threading.Event(), threading.Event()
    session = Slow(ValueError("no token"), first, second)
    source = credential_source.CredentialSource(session, seconds=10.0)
    join = threading.Thread.join

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        join(thread, timeout)
        if thread.name == "boa-credentials" and session.asked == 1:
            # The other caller comes before this one has looked at the answer.
            monkeypatch.undo()
            other.start()
            while session.asked < 2:
                time.sleep(0.01)

    def ask_again() -> None:
        with suppress(ValueError):
            source.check()

    other = threading.Thread(target=ask_again)
    monkeypatch.setattr(threading.Thread, "join", joined)
    first.set()
    with pytest.raises(ValueError, match="no token"):
        source.check()
    second.set()
    other.join()


def test_a_source_that_hangs_on_leaves_few_threads_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that hangs for days is not started again every few minutes of them."""
    sessions: list[Slow] = []
    never = threading.Event()

    def make() -> Slow:
        sessions.append(Slow(None, never))
        return sessions[-1]

    monkeypatch.setattr(credential_source, "SOURCE_SECONDS", 0.0)
    monkeypatch.setattr(credential_source, "TYPED_SECONDS", 0.0)
    monkeypatch.setattr("boa_daemon.backends.aws.client.calls.GIVE_UP_SECONDS", 0.02)
    calls = AwsCalls(AwsSettings(), make_session=make)
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        with pytest.raises(CallFailed, match="has not answered"):
            calls.call("sts:GetCallerIdentity")
        time.sleep(0.01)
    never.set()

    assert 2 <= len(sessions) <= 6


def _session() -> object:
    import boto3

    return boto3.session.Session()
