"""The only module that calls AWS: every call is listed, counted, rate-limited, and fails with one error.

`boa iam` makes its policy from `OPERATIONS`, so the policy and the calls cannot drift apart.
`NODE_OPERATIONS` are the calls that nodes make, with the AWS command line and the nodes' role.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from email.utils import parsedate_to_datetime
from functools import partial
from threading import Lock
from types import MappingProxyType
from typing import Any

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError, SSLError

from boa_daemon.backends.aws.client.answers import NO_ANSWER, answer_of, cleaned, mark_no_answer
from boa_daemon.backends.aws.client.credential_source import GIVE_UP_SECONDS, CredentialSource, SourceHangs
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.client.rate_limits import OWN_RATES, bucket_name
from boa_daemon.backends.aws.client.resource_names import home_region
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.errors import InputError
from boa_daemon.job.gate.bucket import TokenBucket

OPERATIONS: Mapping[str, str] = MappingProxyType(
    {
        "ec2:RunInstances": "launch",
        "ec2:TerminateInstances": "release",
        "ec2:CancelSpotInstanceRequests": "release",
        "ec2:DeleteVolume": "release",
        "ec2:DeleteNetworkInterface": "release",
        "ec2:StopInstances": "pool",
        "ec2:StartInstances": "pool",
        "scheduler:CreateSchedule": "pool-end",
        "ec2:CreateTags": "tag",
        "ec2:CreateImage": "bake",
        "ec2:DeregisterImage": "unbake",
        "ec2:DeleteSnapshot": "unbake",
        "ec2:DescribeSnapshots": "baked",
        "ec2:DescribeInstances": "read",
        "ec2:DescribeInstanceStatus": "read",
        "ec2:DescribeInstanceTopology": "read",
        "ec2:DescribeInstanceTypeOfferings": "read",
        "ec2:DescribeSpotPriceHistory": "read",
        "ec2:DescribeSpotInstanceRequests": "read",
        "ec2:DescribeSubnets": "read",
        "ec2:DescribeImages": "read",
        "ec2:DescribeVolumes": "read",
        "ec2:DescribeNetworkInterfaces": "read",
        "ec2:DescribeCapacityReservations": "read",
        "ec2:DescribeCapacityBlockOfferings": "read",
        "ec2:PurchaseCapacityBlock": "stack",
        "ec2:DescribeRouteTables": "read",
        "ec2:DescribeVpcEndpoints": "read",
        "ec2:DescribeVpcs": "stack",
        "ssm:GetParameter": "image",
        "ssm:SendCommand": "command",
        "ssm:GetCommandInvocation": "answer",
        "ssm:DescribeInstanceInformation": "answer",
        "pricing:GetProducts": "account",
        "servicequotas:GetServiceQuota": "account",
        "ce:GetCostAndUsage": "account",
        "sts:GetCallerIdentity": "free",
        "sqs:ReceiveMessage": "queue",
        "sqs:DeleteMessageBatch": "queue",
        "sqs:GetQueueAttributes": "queue",
        "s3:ListObjectsV2": "list",
        "s3:GetObject": "fetch",
        "s3:GetBucketPolicy": "bucket",
        "s3:GetBucketEncryption": "bucket",
        "s3:GetBucketLifecycleConfiguration": "bucket",
        "s3:GetPublicAccessBlock": "bucket",
        "events:ListRuleNamesByTarget": "rules",
        "events:DescribeRule": "rules",
        "s3:PutObject": "claim",
        "s3:DeleteObject": "tidy",
        "sns:Publish": "alert",
        "iam:SimulatePrincipalPolicy": "self",
        "iam:CreateServiceLinkedRole": "stack",
        "cloudformation:CreateStack": "stack",
        "cloudformation:UpdateStack": "stack",
        "cloudformation:DeleteStack": "stack",
        "cloudformation:DescribeStacks": "stack",
        "cloudformation:DescribeStackEvents": "stack",
        "s3:DeleteObjects": "stack",
        "s3:DeleteBucket": "stack",
    }
)
"""`service:Operation` to the group of the policy that allows it.

The calls of group `stack` are those of `boa up`, `boa down --stack` and `boa blocks --buy`. They use the
rights of the administrator who types them, and no policy of BOA allows them. Group `free` needs no
permission. `bake`, `unbake` and `baked` belong to `boa image`, which has a policy of its own.
"""
NODE_OPERATIONS: Mapping[str, str] = MappingProxyType(
    {
        "s3:PutObject": "write",
        "s3:AbortMultipartUpload": "write",
        "s3:GetObject": "write",
        "s3:DeleteObject": "write",
        "s3:ListObjectsV2": "list",
        "sqs:SendMessage": "tell",
        "ssm:GetParameter": "parameter",
        "secretsmanager:GetSecretValue": "secret",
    }
)
"""Calls of `aws s3` and `aws sqs` in the scripts on nodes; `rm` deletes a job's older checkpoints."""

_CLIENT_OF = {"servicequotas": "service-quotas"}
_AT_HOME = frozenset({"pricing", "ce", "iam"})
"""Services of a whole partition, called in its `home_region`: most regions have no endpoint of theirs."""
_ONE_TRY = frozenset({"ec2:RunInstances", "ec2:PurchaseCapacityBlock"})
"""Calls that are not retried here, unless they had no effect: EC2 sends `InsufficientInstanceCapacity` as
HTTP 500, and a purchase has no idempotency token."""
RENEW_SECONDS = 15.0
"""Credentials that AWS refuses are read anew at most this often."""
_QUICK = frozenset({"ssm", "s3"})
_QUICK_READ_SECONDS, _QUICK_TRIES = 10.0, 2
"""Engines call these services once per node within a tick, so a call must end before the watchdog acts."""


class AwsCalls:
    """Clients of one account, made on first use, with explicit retries and time-outs.

    botocore tries each call up to `tries` times, except launches and purchases.
    """

    def __init__(
        self,
        settings: AwsSettings,
        *,
        session: Any = None,
        connect_timeout_seconds: float = 5.0,
        read_timeout_seconds: float = 30.0,
        tries: int = 3,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        make_session: Callable[[], Any] | None = None,
    ) -> None:
        self.settings = settings
        self.counts: Counter[str] = Counter()
        self.clock_skew_seconds = 0.0
        self.on_date: Callable[[float], None] = lambda _instant: None
        self._make_session = make_session or (_own_session if session is None else lambda: session)
        self._session = session
        self._source: CredentialSource | None = None
        self._give_up_seconds = GIVE_UP_SECONDS
        self._monotonic = monotonic
        self._generation, self._session_at, self._renewed_at = 0, monotonic(), float("-inf")
        self.credentials_fault = ""
        """Why AWS does not accept the credentials; empty while calls succeed."""
        self._timeouts = {"connect_timeout": connect_timeout_seconds, "read_timeout": read_timeout_seconds}
        self._tries, self._sleep = tries, sleep
        self._clients: dict[tuple[str, str, bool], Any] = {}
        self._buckets = {name: TokenBucket(*rate, monotonic) for name, rate in OWN_RATES.items()}
        self._lock = Lock()

    def client(self, service: str) -> Any:
        """Return the calls of a service under boto3's method names; each goes through `call`."""
        return ServiceCalls(self, service)

    def call(self, operation: str, *, region: str = "", **arguments: Any) -> dict[str, Any]:
        """Make one call, `service:Operation`, and return its answer.

        If our own rate limit is reached, launches fail as throttled; all other calls wait.

        Raises:
            CallFailed: when AWS refuses, cannot be reached or does not answer.
        """
        if operation not in OPERATIONS:
            raise ValueError(f"{operation} is not in the table of calls")
        self._pace(operation)
        generation = self._generation
        try:
            answer = self._call_once(operation, region, arguments)
        except CallFailed as error:
            # A call that was refused for its credentials had no effect. One whose TLS connection failed may
            # have had one: a purchase would be made twice, and the launcher repeats launches by their token.
            may_repeat = error.meaning == "credentials" or operation not in _ONE_TRY
            if not (self._is_renewed(error, generation) and may_repeat):
                self._note_credentials(error)
                raise
            try:
                answer = self._call_once(operation, region, arguments)
            except CallFailed as again:
                self._note_credentials(again)
                raise
        self.credentials_fault, self._give_up_seconds = "", GIVE_UP_SECONDS
        return answer

    def _note_credentials(self, error: CallFailed) -> None:
        if error.meaning == "credentials":
            self.credentials_fault = str(error)

    def _is_renewed(self, error: CallFailed, generation: int) -> bool:
        """Read the credentials and certificates anew if an error shows that they changed; return whether.

        Their files, environment and instance role have an owner who renews them while the daemon runs.
        """
        is_about_them = error.meaning == "credentials" or isinstance(error.__cause__, SSLError)
        if not is_about_them:
            return False
        if isinstance(error.__cause__, SourceHangs):
            # Another question would hang as well: the tick must not wait for it twice.
            if self._source is not None and self._source.is_given_up:
                # Each time later: a thread and perhaps a program stay behind, for as long as they hang.
                self._give_up_seconds *= 2.0
                self.renew()
            return False
        with self._lock:
            if self._generation != generation:
                return True
            if self._monotonic() - self._renewed_at < RENEW_SECONDS:
                return False
        self.renew()
        return True

    def renew(self) -> None:
        """Read credentials and certificates anew: the next call makes its session and client again."""
        with self._lock:
            self._clients, self._session, self._source = {}, None, None
            self._generation += 1
            self._renewed_at = self._session_at = self._monotonic()

    def session_age_seconds(self) -> float:
        """Return the seconds since the credentials were read."""
        return self._monotonic() - self._session_at

    def _call_once(self, operation: str, region: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Make one call with the present credentials.

        Raises:
            CallFailed: when AWS refuses, cannot be reached or does not answer.
        """
        self.counts[operation] += 1
        try:
            self._source_of_credentials().check()
        except Exception as error:
            # Nothing was sent, whatever the source raises: its file, its program or the person who types.
            raise _without_credentials(operation, error) from error
        try:
            client = self._client(operation, region)
        except Exception as error:
            raise _unusable(operation, error) from error
        try:
            answer = getattr(client, xform_name(operation.partition(":")[2]))(**arguments)
        except ClientError as error:
            self._read_clock(error.response)
            raise _refused(operation, error) from error
        # Also errors outside of botocore's own classes: its parsers', urllib3's, those of JSON and XML.
        except Exception as error:
            raise _unanswered(operation, error) from error
        if NO_ANSWER in answer:
            raise _failure_of(operation, answer)
        self._read_clock(answer)
        found: dict[str, Any] = answer_of(answer, operation)
        return found

    def pages(self, operation: str, items: str, *, region: str = "", **arguments: Any) -> Iterator[Any]:
        """Yield the items of all pages of an answer.

        Raises:
            CallFailed: as `call` does.
        """
        seen = {arguments.get("NextToken")}
        while True:
            answer = self.call(operation, region=region, **arguments)
            # A list that is missing is not an empty list: nodes would count as gone.
            yield from answer[items]
            if not answer.get("NextToken"):
                return
            if answer["NextToken"] in seen:
                raise CallFailed(operation, NO_ANSWER, "the answer names a page as the next one that we had")
            seen.add(answer["NextToken"])
            arguments["NextToken"] = answer["NextToken"]

    def _pace(self, operation: str) -> None:
        """Wait for a token of the rate limit; a launch fails instead."""
        bucket = self._buckets[bucket_name(operation)]
        while (seconds := self._take(bucket)) > 0.0:
            if operation in _ONE_TRY:
                raise CallFailed(
                    operation,
                    "RequestLimitExceeded",
                    f"our own rate limit, retry in {seconds:.1f} s",
                    retry_after_seconds=seconds,
                )
            self._sleep(seconds)

    def _take(self, bucket: TokenBucket) -> float:
        """Take a token, under a lock: ticks and the refresh of prices run in different threads."""
        with self._lock:
            return bucket.take()

    def _source_of_credentials(self) -> CredentialSource:
        """Return the source of the present session's credentials."""
        with self._lock:
            if self._source is None:
                self._session = self._session or self._make_session()
                self._source = CredentialSource(self._session, give_up_seconds=self._give_up_seconds)
            return self._source

    def _client(self, operation: str, region: str) -> Any:
        """Return the client for an operation; `Session.client` is not thread-safe, but clients are."""
        service = operation.partition(":")[0]
        where = region or self.settings.region
        if service in _AT_HOME:
            where = home_region(where)
        key = (service, where, operation in _ONE_TRY)
        with self._lock:
            if key not in self._clients:
                self._session = self._session or self._make_session()
                attempts, timeouts = 1 if key[2] else self._tries, dict(self._timeouts)
                if service in _QUICK:
                    attempts = min(attempts, _QUICK_TRIES)
                    timeouts["read_timeout"] = min(timeouts["read_timeout"], _QUICK_READ_SECONDS)
                from botocore.config import Config  # noqa: PLC0415 - slow to import, and others have no AWS

                config = Config(
                    retries={"total_max_attempts": attempts, "mode": "standard"},
                    user_agent_extra="boa-daemon",
                    **timeouts,
                )
                client = self._session.client(
                    _CLIENT_OF.get(service, service),
                    region_name=where,
                    endpoint_url=self.settings.endpoint or None,
                    config=config,
                )
                # By an id, as a session of tests gives one client several times.
                client.meta.events.register("before-parse", mark_no_answer, unique_id="boa-no-answer")
                self._clients[key] = client
            return self._clients[key]

    def _read_clock(self, answer: Mapping[str, Any]) -> None:
        """Compare the answer's date with our clock: AWS refuses signatures when they differ much."""
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        try:
            instant = parsedate_to_datetime(date).astimezone(UTC) if date else None
        except (TypeError, ValueError):
            return
        if instant is not None:
            self.clock_skew_seconds = (datetime.now(UTC) - instant).total_seconds()
            self.on_date(instant.timestamp())


class ServiceCalls:
    """The listed calls of one service as methods: `send_command(...)` is `ssm:SendCommand`.

    Engines use it in place of a boto3 client, and so depend on neither boto3 nor this module.
    """

    def __init__(self, calls: AwsCalls, service: str) -> None:
        self._calls = calls
        names = (name.partition(":") for name in OPERATIONS)
        self._operations = {xform_name(verb): f"{service}:{verb}" for its, _, verb in names if its == service}

    def __getattr__(self, method: str) -> Callable[..., dict[str, Any]]:
        """Return the call of a method.

        Raises:
            AttributeError: when the table of calls has none of this name.
        """
        if method.startswith("_") or method not in self._operations:
            raise AttributeError(f"{method} is not in the table of calls")
        return partial(self._calls.call, self._operations[method])


def own_ssm(region: str) -> Any:
    """Return an SSM client with the credentials of the caller's shell, for commands that a person types."""
    return _own_session().client("ssm", region_name=region or None)


def _own_session() -> Any:
    """Return a boto3 session with the credentials of the environment."""
    import boto3  # noqa: PLC0415 - slow to import, and daemons without AWS never need it

    return boto3.session.Session()


def known_regions() -> list[str]:
    """Return the regions of all partitions that the installed boto3 knows."""
    session = _own_session()
    return [
        name
        for part in session.get_available_partitions()
        for name in session.get_available_regions("ec2", part)
    ]


def check_region(region: str) -> None:
    """Refuse a region that boto3 does not know, unless AWS_ENDPOINT_URL is set.

    Raises:
        InputError: when boto3 does not know the region.
    """
    if os.environ.get("AWS_ENDPOINT_URL"):
        return
    known = known_regions()
    if region not in known:
        near = ", ".join(get_close_matches(region, known, n=3)) or "see `aws ec2 describe-regions`"
        raise InputError(
            f"[cloud] region: {region!r} is not known",
            hint=f"Near it: {near}. For one that is newer than your boto3: pip install -U boto3",
            setting=("cloud", "region"),
        )


def _refused(operation: str, error: ClientError) -> CallFailed:
    """Return the failure of a refused call, or of the call before it that was to give the credentials.

    With a role, a web identity or single sign-on botocore asks STS or the portal first.
    """
    asked = error.operation_name
    if asked == operation.partition(":")[2]:
        return _failure_of(operation, error.response)
    said = error.response.get("Error", {})
    return CallFailed(
        operation,
        "NoCredentials",
        f"{asked} gave none: {said.get('Code', '')}: {cleaned(str(said.get('Message', '')))}",
        http_status=401,
    )


def _failure_of(operation: str, response: Mapping[str, Any]) -> CallFailed:
    """Return the failure of a call that was answered with an error, or by something that is not AWS."""
    no_answer = response.get(NO_ANSWER)
    if no_answer:
        return CallFailed(operation, NO_ANSWER, no_answer["said"], http_status=no_answer["status"])
    said = response.get("Error", {})
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return CallFailed(operation, said.get("Code", ""), said.get("Message", ""), http_status=status)


def _without_credentials(operation: str, error: Exception) -> CallFailed:
    """Return the failure of a call for which there are no credentials: nothing was sent."""
    if isinstance(error, ClientError):
        return _refused(operation, error)
    name, said = type(error).__name__, cleaned(str(error)) or "no reason given"
    if isinstance(error, EOFError) or name == "GetPassWarning":
        said = "they want a code that a person types (MFA), and nobody is there: use a role without one"
    elif not (_is_about_credentials(name) or isinstance(error, SourceHangs)):
        said = f"{name}: {said}"
    return CallFailed(operation, "NoCredentials", said, http_status=401)


def _unusable(operation: str, error: Exception) -> CallFailed:
    """Return the failure of a call that no client can be made for: nothing was sent."""
    name, said = type(error).__name__, cleaned(str(error))
    if _is_about_credentials(name):
        return CallFailed(operation, "NoCredentials", said, http_status=401)
    return CallFailed(operation, "InvalidClient", f"{name}: {said}", http_status=400)


def _unanswered(operation: str, error: Exception) -> CallFailed:
    """Return the failure of a call that raised: without an answer the call may have had its effect."""
    name, said = type(error).__name__, cleaned(str(error))
    if _is_about_credentials(name):
        return CallFailed(operation, "NoCredentials", said, http_status=401)
    if isinstance(error, ParamValidationError):
        return CallFailed(operation, "ParamValidation", cleaned(str(error)), http_status=400)
    if isinstance(error, BotoCoreError):
        for part, code in (("Timeout", "Timeout"), ("SSL", "TlsFailed"), ("Proxy", "ProxyFailed")):
            if part in name:
                return CallFailed(operation, code, str(error))
        return CallFailed(operation, "ConnectionLost", str(error))
    return CallFailed(operation, NO_ANSWER, f"the answer cannot be read: {name}: {said}")


def _is_about_credentials(name: str) -> bool:
    """Return whether an error of botocore is about credentials, by its class's name."""
    return any(
        part in name for part in ("Credential", "Token", "Profile", "SSO", "Config", "Metadata", "MFA")
    )
