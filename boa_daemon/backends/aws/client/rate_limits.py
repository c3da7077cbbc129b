"""Our own rate limits for AWS calls, below AWS's: a token bucket for each kind of call."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

OWN_RATES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "ec2:RunInstances": (3.0, 1.0),
        "ec2:TerminateInstances": (50.0, 2.5),
        "ec2:CreateTags": (20.0, 5.0),
        "ssm": (20.0, 10.0),
        "s3": (200.0, 200.0),
        "sqs": (200.0, 200.0),
        "describe": (50.0, 10.0),
        "other": (20.0, 2.5),
    }
)
"""(size, refill per second), at most half of what EC2 grants an account, which others use too."""


def bucket_name(operation: str) -> str:
    """Return the name of the bucket that an operation takes its tokens from."""
    if operation in OWN_RATES:
        return operation
    service, _, verb = operation.partition(":")
    if service in OWN_RATES:
        return service
    return "describe" if verb.startswith(("Describe", "Get", "List", "Receive")) else "other"
