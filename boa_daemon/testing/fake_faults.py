"""Planned faults of the fake cloud, and EC2's own throttling.

A fault hits calls of one operation: the n-th from now on, or several in a row. Its effect:

    error:CODE   answer this error; the call has no effect
    drop         the call has no effect, and no answer comes
    lost         the call has its effect, and no answer comes
    hang         wait `seconds`, then execute the call and answer
    reset        the call has its effect, and the connection is cut (in process: as `lost`)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

HTTP_STATUS = {
    "InsufficientInstanceCapacity": 500,
    "InsufficientHostCapacity": 500,
    "InsufficientReservedInstanceCapacity": 500,
    "UnfulfillableCapacity": 500,
    "InternalError": 500,
    "InternalFailure": 500,
    "Unavailable": 503,
    "RequestLimitExceeded": 503,
    "UnauthorizedOperation": 403,
    "AuthFailure": 401,
    "DryRunOperation": 412,
}
"""HTTP statuses of the codes that are not HTTP 400."""


@dataclass(slots=True)
class Fault:
    """One planned fault: the first `skip` calls of `operation` pass, the next `times` calls are hit.

    `operation` may be ``*``; `zone` limits the fault to launches in one zone.
    """

    operation: str
    what: str
    skip: int = 0
    times: int = 1
    zone: str = ""
    seconds: float = 0.0

    def hits(self, operation: str, zone: str) -> bool:
        """Count a call, and return whether the fault hits it."""
        if self.operation not in ("*", operation) or self.times < 1:
            return False
        if self.zone and self.zone != zone:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True


class Faults:
    """The planned faults in order; the first that hits applies. Also counts all calls."""

    def __init__(self) -> None:
        self.planned: list[Fault] = []
        self.counts: Counter[str] = Counter()

    def plan(self, operation: str, what: str, **how: object) -> None:
        """Plan a fault; see `Fault`."""
        self.planned.append(Fault(operation, what, **how))  # type: ignore[arg-type]

    def next(self, operation: str, zone: str = "") -> Fault | None:
        """Return the planned fault of a call, or None."""
        self.counts[operation] += 1
        for fault in self.planned:
            if fault.hits(operation, zone):
                return fault
        return None


EC2_LIMITS = {"RunInstances": (5.0, 2.0), "TerminateInstances": (100.0, 5.0), "CreateTags": (100.0, 10.0)}
"""(size, refill per second) per account and region; other reading calls have 100 and 20."""


class Throttle:
    """EC2's token buckets, on the fake cloud's clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tokens: dict[str, tuple[float, float]] = {}

    def admits(self, operation: str) -> bool:
        """Take a token of an operation's bucket; return False if there is none."""
        reads = (100.0, 20.0) if operation.startswith("Describe") else (50.0, 5.0)
        size, refill = EC2_LIMITS.get(operation, reads)
        now = self._clock()
        tokens, at = self._tokens.get(operation, (size, now))
        tokens = min(size, tokens + max(now - at, 0.0) * refill)
        self._tokens[operation] = (tokens - 1.0 if tokens >= 1.0 else tokens, now)
        return tokens >= 1.0
