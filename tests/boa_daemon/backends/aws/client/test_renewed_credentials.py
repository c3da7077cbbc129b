"""`client/calls.py`: credentials and certificates that their owner renews are read anew."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from aws_rigs import AwsRig, a_launch
from botocore.exceptions import (
    ConfigParseError,
    ConnectionClosedError,
    CredentialRetrievalError,
    MetadataRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSLError,
    SSOTokenLoadError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.testing.fake_answers import Answer, Call, ec2_error
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_iam import Principal
from boa_daemon.testing.fronts import FakeServer

OLD, NEW = "AKIAOLDKEY", "AKIANEWKEY"
CODES = (
    "ExpiredToken",
    "InvalidClientTokenId",
    "AuthFailure",
    "RequestExpired",
    "UnrecognizedClientException",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("operation", ["DescribeInstances", "RunInstances"])
def test_a_call_refused_for_its_credentials_is_repeated_once_with_new_ones(
    rig: AwsRig, code: str, operation: str
) -> None:
    """The session is made anew, the call succeeds, and one instance exists."""
    offer = rig.offer()
    rig.fake.faults.plan(operation, f"error:{code}", times=1)

    if operation == "RunInstances":
        rig.cloud.launch(a_launch(offer))
        assert len(rig.fake.live()) == 1
    else:
        rig.cloud.nodes()
    assert rig.fake.faults.counts[operation] == 2
    assert rig.cloud.calls.credentials_fault == ""


def test_credentials_that_stay_wrong_are_told_and_read_at_most_every_15_seconds(rig: AwsRig) -> None:
    """The fault is a note with the remedy; the first call that succeeds heals it."""
    rig.fake.faults.plan("DescribeInstances", "error:ExpiredToken", times=3)
    for _ in range(2):
        with pytest.raises(CallFailed):
            rig.cloud.nodes()

    assert rig.fake.faults.counts["DescribeInstances"] == 3
    assert "ExpiredToken" in rig.cloud.faults()["credentials"]
    rig.cloud.nodes()
    assert "credentials" not in rig.cloud.faults()


@pytest.mark.parametrize("how", ["renewed", "half written", "missing at first"])
def test_a_credentials_file_is_read_anew_when_its_keys_were_renewed(
    rig: AwsRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A real session and a real file: the old key is withdrawn, the file gets the new one."""
    file = tmp_path / "credentials"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    everything = {"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    nothing: dict[str, Any] = {"Statement": []}
    rig.fake.iam.principals[NEW] = Principal("arn:aws:iam::123456789012:role/new", [everything])
    rig.fake.iam.principals[OLD] = Principal("arn:aws:iam::123456789012:role/old", [everything])
    ticking = iter(range(0, 10**9, 20))
    settings = AwsSettings()
    if how != "missing at first":
        file.write_text(_keys(OLD))
    calls = AwsCalls(settings, monotonic=lambda: float(next(ticking)), sleep=lambda seconds: None)
    if how == "missing at first":
        with pytest.raises(CallFailed, match="NoCredentials"):
            calls.call("ec2:DescribeInstances")
    else:
        calls.call("ec2:DescribeInstances")
    rig.fake.iam.principals[OLD] = Principal("arn:aws:iam::123456789012:role/old", [nothing])
    if how == "half written":
        file.write_text(_keys(NEW)[:45])
        rig.fake.faults.plan("DescribeInstances", "error:ExpiredToken", times=1)
        with pytest.raises(CallFailed):
            calls.call("ec2:DescribeInstances")
    file.write_text(_keys(NEW))
    if how == "renewed":
        rig.fake.faults.plan("DescribeInstances", "error:ExpiredToken", times=1)
    calls.call("ec2:DescribeInstances")


def test_a_changed_certificate_bundle_is_read_anew() -> None:
    """A TLS error makes the session again; other lost connections do not."""
    made: list[_Session] = []

    def make() -> _Session:
        made.append(_Session(SSLError(endpoint_url="x", error="bad") if not made else None))
        return made[-1]

    calls = AwsCalls(AwsSettings(), make_session=make)
    assert calls.call("ec2:DescribeInstances") == {"Reservations": []}
    assert len(made) == 2

    made.clear()
    lost = AwsCalls(
        AwsSettings(),
        make_session=lambda: _Session(ConnectionClosedError(endpoint_url="x")),
    )
    with pytest.raises(CallFailed, match="ConnectionLost"):
        lost.call("ec2:DescribeInstances")


@pytest.mark.parametrize("operation", ["ec2:PurchaseCapacityBlock", "ec2:RunInstances"])
def test_a_purchase_whose_connection_failed_is_not_made_again(operation: str) -> None:
    """EC2 may have carried out the call: it is sent once, and the next call reads the certificates anew."""
    sessions: list[_Session] = []

    def make() -> _Session:
        sessions.append(_Session(SSLError(endpoint_url="x", error="bad record mac")))
        return sessions[-1]

    calls = AwsCalls(AwsSettings(), make_session=make)
    with pytest.raises(CallFailed, match="TlsFailed"):
        calls.call(operation)
    assert [each.sent for each in sessions] == [1]
    with pytest.raises(CallFailed, match="TlsFailed"):
        calls.call(operation)
    assert [each.sent for each in sessions] == [1, 1]


_ERRORS = {
    "no keys": NoCredentialsError(),
    "half a key": PartialCredentialsError(
        provider="shared-credentials-file", cred_var="aws_secret_access_key"
    ),
    "instance role": MetadataRetrievalError(error_msg="timed out"),
    "assumed role": CredentialRetrievalError(provider="assume-role", error_msg="expired"),
    "web identity": TokenRetrievalError(provider="web-identity", error_msg="no file"),
    "SSO session": UnauthorizedSSOTokenError(),
    "SSO cache": SSOTokenLoadError(error_msg="no token"),
    "profile": ProfileNotFound(profile="lab"),
    "half a file": ConfigParseError(path="~/.aws/credentials", error="no section"),
}
"""What botocore raises while the source of the credentials is being renewed."""


@pytest.mark.parametrize("source", sorted(_ERRORS))
@pytest.mark.parametrize("at", ["session", "call"])
def test_every_source_of_credentials_is_asked_again(source: str, at: str) -> None:
    """A source that was broken when it was read is read again, and the same call succeeds."""
    error: list[Exception] = [_ERRORS[source]]

    def make() -> _Session:
        if error and at == "session":
            raise error.pop()
        return _Session(error.pop() if error else None)

    calls = AwsCalls(AwsSettings(), make_session=make)

    assert calls.call("ec2:DescribeInstances") == {"Reservations": []}
    assert calls.credentials_fault == ""


class _Session:
    """A session and its client, whose calls fail with an error, or return no instances."""

    class meta:  # noqa: N801 - the client's own attribute
        """What a client says of itself."""

        class events:  # noqa: N801
            """Its events, to which nobody listens."""

            register = staticmethod(lambda *_, **__: None)

    def __init__(self, error: Exception | None) -> None:
        self._error, self.sent = error, 0

    def client(self, *_: object, **__: object) -> _Session:
        return self

    def describe_instances(self, **_: object) -> dict[str, object]:
        self.sent += 1
        if self._error is not None:
            raise self._error
        return {"Reservations": []}

    purchase_capacity_block = run_instances = describe_instances


def _keys(key: str) -> str:
    return f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secretsecretsecret\n"


class _Metadata(BaseHTTPRequestHandler):
    """The metadata service of an instance with a role; `how` it answers is set by the test."""

    how, key, seconds = "ok", "AKIAFIRST", 3600.0

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_PUT(self) -> None:
        """Give a token."""
        self._say({"down": 503, "no token": 403}.get(self.how, 200), b"token")

    def do_GET(self) -> None:
        """Give the role's name and its keys."""
        status = {"down": 503, "no token": 401, "no role": 404}.get(self.how, 200)
        if status != 200 or self.path.endswith("security-credentials/"):
            return self._say(status, b"boa")
        if self.how == "no answer":
            return self._say(200, b"<html>Please log in</html>")
        ends = datetime.now(UTC) + timedelta(seconds=self.seconds)
        keys = {"Code": "Success", "AccessKeyId": self.key, "SecretAccessKey": "s", "Token": "t"}
        return self._say(200, json.dumps(keys | {"Expiration": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}).encode())

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Cloud(FakeCloud):
    """A fake AWS that knows which keys have expired."""

    expired: frozenset[str] = frozenset()

    def handle(self, call: Call, body: bytes, forward: Any) -> Answer:
        if call.access_key in self.expired:
            return ec2_error("RequestExpired", "Request has expired.", 400)
        return super().handle(call, body, forward)


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Metadata]]:
    """Serve a metadata service, and leave no other source of credentials."""
    made = type("Own", (_Metadata,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), made)
    Thread(target=server.serve_forever, daemon=True).start()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    yield made
    server.shutdown()
    server.server_close()


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["down", "no token", "no role", "no answer"])
def test_keys_of_an_instance_role_that_cannot_be_had_for_a_while(metadata: type[_Metadata], how: str) -> None:
    """The role's keys expire while its metadata service fails: that is told, and its return is used."""
    fake, clock = _Cloud(time.time), [0.0]
    with FakeServer(fake) as url:
        calls = AwsCalls(
            AwsSettings(endpoint=url),
            monotonic=lambda: clock[0],
            sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds),
        )
        calls.call("ec2:DescribeInstances")
        metadata.how, fake.expired = how, frozenset({"AKIAFIRST"})
        for _ in range(2):
            clock[0] += 30.0
            with pytest.raises(CallFailed) as failed:
                calls.call("ec2:DescribeInstances")
            assert failed.value.meaning == "credentials"
            assert "Renew the credentials" in calls.credentials_fault
        assert "the role of this instance" in calls.credentials_fault
        metadata.how, metadata.key = "ok", "AKIASECOND"
        clock[0] += 30.0
        calls.call("ec2:DescribeInstances")
        assert calls.credentials_fault == ""
