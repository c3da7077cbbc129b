"""What EC2's error codes mean, and what to do about them: a closed table.

EC2 has some two hundred codes; the table has those that its launch, list and end calls are known to return.
A code that is not in it is a bad request if the answer was an HTTP 4xx, and else unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from boa_daemon.errors import CloudFailed

Meaning: TypeAlias = Literal[
    "no-capacity", "not-offered", "quota", "price", "throttled", "subnet-full", "denied", "credentials",
    "not-found", "token-reused", "wrong-state", "protected", "unknown", "dry-run", "bad-request",
]  # fmt: skip
MEANINGS: Mapping[str, Meaning] = MappingProxyType(
    {
        "InsufficientInstanceCapacity": "no-capacity",
        "InsufficientHostCapacity": "no-capacity",
        "InsufficientReservedInstanceCapacity": "no-capacity",
        "InsufficientCapacity": "no-capacity",
        "ReservationCapacityExceeded": "no-capacity",
        "UnfulfillableCapacity": "no-capacity",
        "Unsupported": "not-offered",
        "UnsupportedOperation": "not-offered",
        "VcpuLimitExceeded": "quota",
        "MaxSpotInstanceCountExceeded": "quota",
        "InstanceLimitExceeded": "quota",
        "MaxFleetCountExceeded": "quota",
        "SpotMaxPriceTooLow": "price",
        "RequestLimitExceeded": "throttled",
        "Throttling": "throttled",
        "ThrottlingException": "throttled",
        "ThrottledException": "throttled",
        "TooManyRequestsException": "throttled",
        "EC2ThrottledException": "throttled",
        "RequestThrottled": "throttled",
        "SlowDown": "throttled",
        "InsufficientFreeAddressesInSubnet": "subnet-full",
        "UnauthorizedOperation": "denied",
        "AccessDenied": "denied",
        "AccessDeniedException": "denied",
        "OptInRequired": "denied",
        "PendingVerification": "denied",
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted": "denied",
        "AuthFailure": "credentials",
        "InvalidClientTokenId": "credentials",
        "UnrecognizedClientException": "credentials",
        "SignatureDoesNotMatch": "credentials",
        "MissingAuthenticationToken": "credentials",
        "RequestExpired": "credentials",
        "ExpiredToken": "credentials",
        "ExpiredTokenException": "credentials",
        "NoCredentials": "credentials",
        "InvalidInstanceID.NotFound": "not-found",
        "InvalidInstanceID.Malformed": "not-found",
        "InvalidSpotInstanceRequestID.NotFound": "not-found",
        "IdempotentParameterMismatch": "token-reused",
        "IncorrectInstanceState": "wrong-state",
        "OperationNotPermitted": "protected",
        "InternalError": "unknown",
        "InternalFailure": "unknown",
        "ServerInternal": "unknown",
        "Unavailable": "unknown",
        "ServiceUnavailable": "unknown",
        "ServiceUnavailableException": "unknown",
        "Timeout": "unknown",
        "ConnectionLost": "unknown",
        "NoAnswer": "unknown",
        "TlsFailed": "unknown",
        "ProxyFailed": "unknown",
        "DryRunOperation": "dry-run",
    }
)
_FIXES: Mapping[Meaning, str] = MappingProxyType(
    {
        "no-capacity": "BOA tries other zones, types and markets; name more of them under [cloud]",
        "not-offered": "Leave the zone out of [cloud] zones, or the type out of instance_types",
        "quota": "Ask for more vCPUs in the Service Quotas console; `boa doctor` names the quota",
        "price": "Raise [cloud] spot_max_usd_per_hour, or leave it out to pay at most the on-demand price",
        "throttled": "BOA tries again later by itself",
        "subnet-full": "Give a larger subnet under [cloud] subnets",
        "denied": "Attach the policy that `boa iam` prints; `boa doctor` shows which call is missing",
        "credentials": "Renew the credentials and check the clock; `boa doctor` shows both",
        "not-found": "The instance may not be visible yet; the next listing decides",
        "token-reused": "This is a fault of BOA: the request is dropped, and the next tick asks anew",
        "protected": "Remove the termination protection of the instance; it costs money until then",
    }
)
_LIMIT = re.compile(r"vCPU limit of (\d+)")
_DENIED = re.compile(r"not authorized to perform: (\S+) on resource: (\S+)")
_ENCODED = re.compile(r"\s*Encoded authorization failure message:.*", re.DOTALL)


class CallFailed(CloudFailed):
    """A call to AWS failed. `meaning` is the class of the error; `operation` is `service:Operation`."""

    def __init__(self, operation: str, code: str, message: str, *, http_status: int = 0) -> None:
        self.operation, self.http_status = operation, http_status
        self.message = _ENCODED.sub("", message).strip().rstrip(".")
        self.meaning = meaning_of(code, http_status)
        hint = _FIXES.get(self.meaning, "") or _fix_of(code)
        super().__init__(f"{operation} failed: {code}: {self.message}", code=code, hint=hint)

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
    """Return what a code means; for a code that is not listed the HTTP status decides."""
    if code in MEANINGS:
        return MEANINGS[code]
    return "bad-request" if 400 <= http_status < 500 else "unknown"


def _fix_of(code: str) -> str:
    """Return what to try after a code that points at a setting."""
    if code == "ConnectionLost":
        return "Check the network, and AWS_ENDPOINT_URL where it is set; `boa doctor` tries each service"
    if code == "NoAnswer":
        return (
            "Something between here and AWS answered in its place, such as a proxy or a login page: "
            "check HTTPS_PROXY, NO_PROXY and AWS_ENDPOINT_URL"
        )
    if code == "TlsFailed":
        return (
            "The certificate is not one that this machine trusts: where a proxy of the house opens TLS, name "
            "its certificate authority in AWS_CA_BUNDLE"
        )
    if code == "ProxyFailed":
        return "Check HTTPS_PROXY, its user and password, and NO_PROXY"
    if code == "InvalidClient":
        return "Check [cloud] region and endpoint, AWS_ENDPOINT_URL and ~/.aws/config"
    if code.startswith("InvalidAMIID"):
        return "Name an image of this region under [cloud] image or images"
    if code.startswith("InvalidSubnetID"):
        return "Name subnets of this region under [cloud] subnets"
    if code.startswith("InvalidGroup"):
        return "Name security groups of the subnets' network under [cloud] security_groups"
    if code.startswith(("InvalidInstanceType", "InvalidParameterValue")):
        return "Check [cloud] against this region; `boa doctor` checks each setting"
    return ""
