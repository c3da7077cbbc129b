"""`aws/client/answers.py`: what a proxy, a login page or a broken connection says is no answer of AWS."""

from __future__ import annotations

import http.server
import itertools
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import boto3
import pytest
from aws_rigs import CATALOG, AwsRig, a_launch
from botocore.exceptions import ParamValidationError, SSLError

from boa_daemon.backends.aws.client.answers import NO_ANSWER, cleaned
from boa_daemon.backends.aws.client.calls import OPERATIONS, AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.instances.refusals import refusal_of
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.testing import ManualClock
from boa_daemon.testing.fronts import FAKE_CREDENTIALS
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import Unknown

HALF = '<?xml version="1.0"?><{0}Response xmlns="x"><requestId>1</requestId><instancesSet><item>'
INSIDE = "<{0}Response><Error><Code>InternalError</Code></Error>"
LIES: Mapping[str, tuple[int, str]] = {
    "a login page": (200, "<html><head><title>Log in</title></head></html>"),
    "a page with a doctype": (200, "<!DOCTYPE html>\n<html><body>Welcome</body></html>"),
    "plain text": (200, "upstream connect error"),
    "nothing": (200, ""),
    "half a document": (200, HALF),
    "half an object": (200, '{{"Instances": [{{"Insta'),
    "a list": (200, "[]"),
    "an error inside": (200, INSIDE),
    "the answer to another call": (200, "<DescribeRegionsResponse></DescribeRegionsResponse>"),
    "a redirect to a login page": (302, "<html>Moved</html>"),
    "a proxy that wants a password": (407, "Proxy Authentication Required"),
    "a proxy that forbids": (403, "<html><body>Blocked by policy</body></html>"),
    "a proxy that forbids in JSON": (403, '{{"error": "blocked"}}'),
    "a proxy's limit": (429, "Too many requests"),
    "a gateway without a server": (503, "<html><body><b>Http/1.1 Service Unavailable</b></body></html>"),
    "a gateway that speaks text": (502, "Bad gateway"),
    "a gateway's time-out": (504, ""),
    "not found by something else": (404, "<h1>404</h1>"),
    "bytes": (200, "\x00\x01\x7f"),
}
SERVICES = (
    "ec2:DescribeInstances", "ec2:RunInstances", "ec2:TerminateInstances", "ec2:CreateTags",
    "ssm:SendCommand", "pricing:GetProducts", "servicequotas:GetServiceQuota", "ce:GetCostAndUsage",
    "sts:GetCallerIdentity", "sqs:ReceiveMessage", "s3:ListObjectsV2", "s3:GetObject", "s3:PutObject",
    "s3:GetBucketPolicy", "sns:Publish", "iam:SimulatePrincipalPolicy", "cloudformation:DescribeStacks",
    "scheduler:CreateSchedule", "events:DescribeRule",
)  # fmt: skip


class Liar:
    """A server that answers every request alike."""

    def __init__(self) -> None:
        self.status, self.body = 200, b""
        handler = type("Handler", (_Handler,), {"liar": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        ticking = itertools.count()
        self.calls = AwsCalls(AwsSettings(endpoint=self.url), tries=1, monotonic=lambda: 10.0 * next(ticking))

    def say(self, status: int, text: str) -> None:
        """Answer so from now on."""
        self.status, self.body = status, text.encode("latin-1")

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    liar: Liar

    def _lie(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.liar.status)
        self.send_header("Content-Length", str(len(self.liar.body)))
        self.send_header("Location", "http://127.0.0.1:1/login")
        self.end_headers()
        self.wfile.write(self.liar.body)

    do_GET = do_POST = do_PUT = do_DELETE = _lie  # noqa: N815 - the names of the standard library

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def liar() -> Iterator[Liar]:
    """One server, and one set of clients, for all tests: making a client takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in FAKE_CREDENTIALS.items():
            patch.setenv(name, value)
        made = Liar()
        yield made
        made.close()


def smallest(shape: Any) -> Any:
    """Return the smallest value that botocore accepts for a shape."""
    if shape.type_name == "structure":
        return {name: smallest(shape.members[name]) for name in shape.required_members}
    empty: Mapping[str, Any] = {"list": [], "map": {}, "boolean": True, "timestamp": 0, "blob": b"x"}
    if shape.type_name in empty:
        return empty[shape.type_name]
    if shape.type_name == "string":
        return (shape.enum or ["x" * max(int(shape.metadata.get("min", 1)), 3)])[0]
    return int(shape.metadata.get("min", 1))


def arguments_of(calls: AwsCalls, operation: str) -> dict[str, Any]:
    """Return arguments with which botocore sends a call."""
    service, _, verb = operation.partition(":")
    shape = calls._client(operation, "").meta.service_model.operation_model(verb).input_shape
    found: dict[str, Any] = smallest(shape)
    return found | ({"QueueUrl": f"{calls.settings.endpoint}/1/q"} if service == "sqs" else {})


@pytest.mark.first_set(7)
@pytest.mark.parametrize("lie", LIES)
def test_what_is_no_answer_is_unknown_for_every_service(liar: Liar, lie: str) -> None:
    """The failure is of unknown effect, and names the HTTP status and the beginning of the text."""
    status, text = LIES[lie]
    for operation in SERVICES:
        if operation == "s3:PutObject" and (status, text) == (200, ""):
            continue  # S3 itself answers a write with nothing.
        body = text.format(operation.partition(":")[2])
        liar.say(status, body)
        with pytest.raises(CallFailed) as caught:
            liar.calls.call(operation, **arguments_of(liar.calls, operation))

        error, said = caught.value, str(caught.value)
        assert (error.code, error.meaning) == (NO_ANSWER, "unknown"), (operation, said)
        # botocore itself makes an error of what S3 says with 200 and is no XML.
        shown = (status, 500) if operation.startswith("s3:") and status == 200 else (status,)
        assert any(f"HTTP {each} " in said for each in shown), (operation, said)
        assert cleaned(body)[:20] in said, (operation, said)
        assert "\n" not in said


def test_every_operation_of_the_table_is_checked(liar: Liar) -> None:
    """No operation, present or future, takes a login page for an answer."""
    liar.say(200, "<html><body>Log in</body></html>")
    for operation in OPERATIONS:
        with pytest.raises(CallFailed) as caught:
            liar.calls.call(operation, **arguments_of(liar.calls, operation))
        assert caught.value.code == NO_ANSWER, (operation, str(caught.value))


@pytest.mark.parametrize("lie", LIES)
def test_a_launch_without_an_answer_counts_as_spent(liar: Liar, lie: str) -> None:
    """A launch whose answer is none is unknown, never refused: it may have happened."""
    status, text = LIES[lie]
    liar.say(status, text.format("RunInstances"))
    settings = AwsSettings(endpoint=liar.url, image="ami-1", instance_types=("g5.xlarge",))
    cloud = AwsCloud(
        settings, catalog=CATALOG, clock=ManualClock(1.8e9), calls=liar.calls, sleep=lambda seconds: None
    )
    cloud.launcher.image = lambda instance_type: ("ami-1", "/dev/xvda")  # type: ignore[method-assign]
    outcome = cloud.launch(a_launch(Offer(instance_type="g5.xlarge", usd_per_hour=1.0)))

    assert isinstance(outcome, Unknown), outcome
    assert f"HTTP {status}" in outcome.reason


class Raises:
    """A client whose calls raise."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.meta = boto3.client("ec2", region_name="us-east-1").meta

    def __getattr__(self, name: str) -> Any:
        def call(**_: object) -> None:
            raise self._error

        return call


class RaisingSession:
    """A session whose clients raise."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def client(self, service: str, **_: object) -> Any:
        """Return the client."""
        return Raises(self._error)


@pytest.mark.parametrize(
    ("error", "code", "hint"),
    [
        (SSLError(endpoint_url="https://ec2", error="self-signed certificate"), "TlsFailed", "AWS_CA_BUNDLE"),
        (KeyError("reservationSet"), NO_ANSWER, "proxy"),
        (ValueError("Expecting value: line 1"), NO_ANSWER, "proxy"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), NO_ANSWER, "proxy"),
        (OSError("broken"), NO_ANSWER, "proxy"),
        (RecursionError(), NO_ANSWER, "proxy"),
    ],
)
def test_any_exception_of_a_library_is_an_unknown_outcome(error: Exception, code: str, hint: str) -> None:
    """Errors outside of botocore's own base class are failures of the call like others."""
    calls = AwsCalls(AwsSettings(), session=RaisingSession(error))
    with pytest.raises(CallFailed) as caught:
        calls.call("ec2:DescribeInstances")

    assert (caught.value.code, caught.value.meaning) == (code, "unknown")
    assert hint in caught.value.hint


def test_a_request_that_was_never_sent_is_a_bad_request(rig: AwsRig) -> None:
    """botocore refuses the arguments before it sends them, so nothing counts as spent."""
    calls = AwsCalls(AwsSettings(), session=RaisingSession(ParamValidationError(report="no")))
    with pytest.raises(CallFailed) as caught:
        calls.call("ec2:RunInstances")

    assert caught.value.meaning == "bad-request"


def test_a_profile_that_does_not_exist_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client can be made, and that is about credentials."""
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(CallFailed, match="nobody") as caught:
        AwsCalls(AwsSettings()).call("ec2:DescribeInstances")

    assert caught.value.meaning == "credentials"


@pytest.mark.parametrize(
    ("operation", "inner"),
    [
        ("DescribeInstances", "<requestId>1</requestId>"),
        ("DescribeVolumes", ""),
        ("DescribeSpotInstanceRequests", "<other/>"),
    ],
)
def test_a_list_that_is_missing_is_not_an_empty_list(liar: Liar, operation: str, inner: str) -> None:
    """Nodes would count as gone, and their bills as ended."""
    liar.say(200, f"<{operation}Response>{inner}</{operation}Response>")
    items = operation.removeprefix("Describe")
    items = "Reservations" if items == "Instances" else items
    with pytest.raises(CallFailed, match=f"has no {items}"):
        list(liar.calls.pages(f"ec2:{operation}", items))


def test_an_instance_without_its_fields_makes_the_listing_unknown(liar: Liar) -> None:
    """A description without a launch time is no ground for any decision."""
    liar.say(
        200,
        "<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>i-1</instanceId>"
        "</item></instancesSet></item></reservationSet></DescribeInstancesResponse>",
    )
    cloud = AwsCloud(liar.calls.settings, catalog=CATALOG, clock=ManualClock(1.8e9), calls=liar.calls)
    with pytest.raises(CallFailed, match="the answer has no"):
        cloud.nodes()


def test_the_beginning_of_a_text_is_one_printable_line() -> None:
    """Control characters, which a terminal would obey, are not repeated; a hundred characters are enough."""
    assert cleaned(b"\x1b[31mred\r\n\tsecond\x00 line \xff") == "[31mred second line �"
    assert len(cleaned("x" * 5000)) == 100


def test_an_unknown_answer_is_no_refusal(rig: AwsRig) -> None:
    """Neither a failed TLS handshake nor a proxy's error closes an offer as if EC2 had refused it."""
    for code in (NO_ANSWER, "TlsFailed", "ProxyFailed"):
        error = CallFailed("ec2:RunInstances", code, "x", http_status=403)
        assert isinstance(refusal_of(error, rig.offer(), rig.cloud.market), Unknown)
