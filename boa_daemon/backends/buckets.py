"""A token bucket: how often we ask, kept below how often we may."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
"""(size, refill per second), half of what EC2 grants an account or less: others work there too."""


class TokenBucket:
    """Holds up to `size` tokens and gains `per_second`; `monotonic` tells the time in seconds."""

    def __init__(self, size: float, per_second: float, monotonic: Callable[[], float]) -> None:
        self._size, self._per_second, self._monotonic = size, per_second, monotonic
        self._tokens, self._at = size, monotonic()

    def take(self) -> float:
        """Take a token and return 0; with none left, return the seconds until there is one."""
        now = self._monotonic()
        self._tokens = min(self._size, self._tokens + max(now - self._at, 0.0) * self._per_second)
        self._at = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._per_second


def bucket_name(operation: str) -> str:
    """Return which bucket an operation draws from."""
    if operation in OWN_RATES:
        return operation
    service, _, verb = operation.partition(":")
    if service in OWN_RATES:
        return service
    return "describe" if verb.startswith(("Describe", "Get", "List", "Receive")) else "other"
