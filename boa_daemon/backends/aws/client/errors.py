"""A call to AWS that failed, with what its code means.

EC2 has some two hundred codes; the table in `refusal_codes` has those that its launch, list and end calls are
known to return. A code that is not in it is judged by its name (`Insufficient...`, `...LimitExceeded`,
`...Throttl...`), then by its HTTP status; after another HTTP 4xx it is a bad request, else unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from boa_daemon.backends.aws.client.refusal_codes import (
    BY_CODE,
    BY_MEANING,
    ENABLE_KEY,
    Meaning,
    RefusalRule,
    has_own_row,
    rule_of,
)
from boa_daemon.errors import CloudFailed

_BY_NAME: Mapping[str, Meaning] = MappingProxyType(
    {
        "Throttl": "throttled",
        "RequestLimitExceeded": "throttled",
        "BandwidthLimitExceeded": "throttled",
        "OverLimit": "throttled",
        "ThroughputExceeded": "throttled",
        "NotComplete": "throttled",
        "InProgress": "throttled",
        "Timeout": "unknown",
        "QuotaExceeded": "quota",
        "CapacityExceeded": "no-capacity",
        "Insufficient": "no-capacity",
        "LimitExceeded": "quota",
        "IOPSLimit": "quota",
        "CountExceeded": "quota",
        "ExpiredToken": "credentials",
        "AccessDenied": "denied",
        "Unauthorized": "denied",
        "NotPermitted": "denied",
        "PolicyViolation": "denied",
        "Suspended": "denied",
        "RegionDisabled": "denied",
        "SubscriptionRequired": "denied",
        "AccessDisabled": "denied",
        "AuthFailure": "credentials",
    }
)
"""What the name of an unlisted code says; the first part that occurs counts."""
_BY_STATUS: Mapping[int, Meaning] = MappingProxyType(
    {401: "credentials", 403: "denied", 408: "unknown", 429: "throttled"}
)
"""What the HTTP status says of an unlisted code whose name says nothing."""
_OF_NO_ANSWER: Mapping[str, str] = MappingProxyType(
    {
        "NoAnswer": "Something between here and AWS answered in its place, such as a proxy or a login page: "
        "check HTTPS_PROXY, NO_PROXY and AWS_ENDPOINT_URL",
        "TlsFailed": "The certificate is not one that this machine trusts: where a proxy of the house opens "
        "TLS, name its certificate authority in AWS_CA_BUNDLE",
        "ProxyFailed": "Check HTTPS_PROXY, its user and password, and NO_PROXY",
        "InvalidClient": "Check [cloud] region and endpoint, AWS_ENDPOINT_URL and ~/.aws/config",
    }
)
"""Advice for calls that AWS did not answer, whatever the service."""
_WITH_POLICY = {"s3": "bucket", "sqs": "queue"}
"""Services whose things have policies of their own; S3 says "Access Denied", and not which policy does."""
_DELETED: Mapping[str, str] = MappingProxyType(
    {
        "NonExistentQueue": "It was deleted: make it again under its name (`aws sqs create-queue`); "
        "`boa doctor` then prints the policy and the rules that it lacks",
        "QueueDoesNotExist": "It was deleted: make it again under its name (`aws sqs create-queue`); "
        "`boa doctor` then prints the policy that it lacks",
        "QueueDeletedRecently": "SQS takes a name of a deleted queue again after 60 s",
        "NoSuchBucket": "It was deleted, with its checkpoints and logs: make it again under its name "
        "(`aws s3 mb`), and jobs go on from what their nodes have; `boa doctor` then prints its policy",
    }
)
"""Advice for things that a person deleted, by a part of the code."""
_OF_QUOTA_CALL = (
    "The region's Service Quotas do not have it: BOA sets no limit of its own, and EC2 refuses too much"
)
_ENDS = ("ec2:TerminateInstances", "ec2:StopInstances", "ec2:DeleteVolume", "ec2:DeleteNetworkInterface")
"""Calls that a protection of the resource refuses."""
_CHANGES = ("ec2:StopInstances", "ec2:StartInstances")
"""Calls about an instance that there is."""
_LIMIT = re.compile(r"vCPU limit of (\d+)")
_DENIED = re.compile(r"not authorized to perform: (\S+) on resource: (\S+)")
_ENCODED = re.compile(r"\s*Encoded authorization failure message:.*", re.DOTALL)


class CallFailed(CloudFailed):
    """A call to AWS failed. `meaning` is the class of the error; `operation` is `service:Operation`."""

    def __init__(
        self,
        operation: str,
        code: str,
        message: str,
        *,
        http_status: int = 0,
        retry_after_seconds: float | None = None,
    ) -> None:
        self.operation, self.http_status = operation, http_status
        # As CloudTrail and older clients write them.
        code = code.removeprefix("Client.").removeprefix("Server.") or f"Http{http_status}"
        self.message = _ENCODED.sub("", message).strip().rstrip(".")
        self.encoded = message if _ENCODED.search(message) else ""
        """The whole message where it has an encoded reason, which only `aws sts` can read."""
        self.retry_after_seconds = retry_after_seconds
        meaning = meaning_of(code, http_status)
        if meaning == "protected" and operation not in _ENDS:
            # The code is also that of an account that may not do something at all.
            meaning = "denied"
        if meaning == "not-offered" and operation in _CHANGES:
            # The code is about the market for a launch, and about the instance for a stop or a start.
            meaning = "wrong-state"
        self.rule: RefusalRule = (
            BY_MEANING[meaning] if meaning == "wrong-state" else rule_of(code, meaning, message)
        )
        # EC2 uses a code of credentials for an image that is not shared with the account, too.
        is_about_image = meaning == "credentials" and self.rule.scope == "image"
        self.meaning: Meaning = "denied" if is_about_image else meaning
        super().__init__(f"{operation} failed: {code}: {self.message}", code=code, hint=self._hint(code))

    def _hint(self, code: str) -> str:
        """Return the advice of the code's row; the rows of single codes are about EC2."""
        if code == "ConnectionLost":
            return "Check the network, and AWS_ENDPOINT_URL where it is set; `boa doctor` tries each service"
        if code in _OF_NO_ANSWER:
            return _OF_NO_ANSWER[code]
        if gone := next((advice for part, advice in _DELETED.items() if part in code), ""):
            return gone
        if code.startswith("KMS.") or "KmsDisabled" in code or "KmsInvalidState" in code:
            # S3, SQS and SSM pass on what KMS says of the key of a bucket, queue or parameter.
            return ENABLE_KEY
        if code == "NoSuchResourceException" and self.operation.startswith("servicequotas:"):
            return _OF_QUOTA_CALL
        if self.operation.startswith(("ec2:", "ssm:GetParameter")):
            has_row = has_own_row(code) or self.rule is not BY_MEANING.get(self.meaning)
            is_known = has_row or self.meaning not in ("unknown", "bad-request", "dry-run")
            return self.rule.advice if is_known or self.rule.stale else ""
        if self.meaning in ("unknown", "bad-request", "dry-run", "wrong-state"):
            return ""
        if self.meaning in ("denied", "credentials"):
            # Rights, clocks and credentials are the account's and this machine's, whatever the service.
            thing = _WITH_POLICY.get(self.operation.partition(":")[0])
            if thing is None or self.rule.advice != BY_MEANING["denied"].advice:
                return self.rule.advice
            return f"{self.rule.advice}; if it is attached, the policy of the {thing} itself denies it"
        if self.meaning == "quota":
            # The row of its class is about vCPUs.
            return "Ask for a higher limit in the Service Quotas console, or delete what is not needed"
        return BY_MEANING[self.meaning].advice

    @property
    def vcpu_limit(self) -> int | None:
        """The quota that the message names, in vCPUs; None if it names none."""
        found = _LIMIT.search(self.message)
        return int(found[1]) if found else None

    @property
    def denied(self) -> tuple[str, str] | None:
        """The action and the resource that a denied call names; None if it names none."""
        found = _DENIED.search(self.message)
        return (found[1], found[2].rstrip(".")) if found else None


def meaning_of(code: str, http_status: int) -> Meaning:
    """Return what a code means; for a code that is not listed its name decides, and then the HTTP status."""
    row = BY_CODE.get(code)
    if row is not None and row.meaning != "bad-request":
        return row.meaning
    for part, meaning in _BY_NAME.items():
        if part in code:
            return meaning
    is_refused = 400 <= http_status < 500
    if row is None and http_status in _BY_STATUS:
        return _BY_STATUS[http_status]
    return "bad-request" if is_refused else "unknown"
