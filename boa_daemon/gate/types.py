"""The gate's settings, requests, grants and verdicts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from policies.errors import InvalidProblem, UnknownPolicy
from policies.links.ada_srsf import DEFAULT_LINK_POLICY, LINK_POLICIES, default_bucket_bytes, link_policy
from policies.links.contention import Link
from policies.model import JobId

POLICIES = tuple(name for name in LINK_POLICIES if name != "srsf-preemptive")
"""Policies of a gate: all but srsf-preemptive, because no transport can pause a message in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """Settings of the gate.

    `link` is used until enough messages were timed to fit it. A message that has waited longer than
    `patience_seconds` goes first (ageing). Ordering turns on if its expected gain beyond the cost exceeds
    `least_gain_fraction`. A lease lasts `lease_factor` times as long as the message should take beside
    another, at least `least_lease_seconds`, and at most the larger of `most_lease_seconds` and 1.5 times that
    time. With `fills_idle_cards`, buckets also go beside those in flight if a card would idle otherwise
    (`policies.links.nic_filling`, `boa_daemon.gate.grant_sizes`).
    """

    policy: str = DEFAULT_LINK_POLICY
    link: Link
    bucket_bytes: float | None = None
    patience_seconds: float = 5.0
    least_lease_seconds: float = 0.25
    lease_factor: float = 4.0
    most_lease_seconds: float = 1.2
    is_always_on: bool = False
    least_gain_fraction: float = 0.01
    evaluate_seconds: float = 2.0
    free_seconds: float = 1.0
    beat_seconds: float = 0.1
    fits_link: bool = True
    fills_idle_cards: bool = True

    def __post_init__(self) -> None:
        if self.policy == "srsf-preemptive":
            raise UnknownPolicy(
                "srsf-preemptive pauses messages in flight, which no network can. "
                "ada-srsf-buckets comes nearest: it decides anew at every bucket"
            )
        if self.policy not in POLICIES:
            raise UnknownPolicy(
                f"there is no gate policy {self.policy!r}. Choose one of {', '.join(POLICIES)}"
            )
        for name in (
            "patience_seconds",
            "least_lease_seconds",
            "evaluate_seconds",
            "free_seconds",
            "beat_seconds",
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise InvalidProblem(f"{name} must be more than zero; got {value!r}")
        link_policy(self.policy, self.link, bucket_bytes=self.bucket_bytes)

    @property
    def fills(self) -> bool:
        """Whether messages may fill idle cards; only with buckets, because only buckets end soon enough."""
        return self.fills_idle_cards and self.policy == "ada-srsf-buckets"

    def lease_seconds(self, expected: float) -> float:
        """Return the lease duration of a message that should take `expected` seconds; it bounds a stall."""
        most = max(self.most_lease_seconds, 1.5 * expected)
        return max(self.least_lease_seconds, min(self.lease_factor * expected, most))

    @property
    def grant_bytes(self) -> float:
        """Bytes of one grant: a bucket, or infinite; `boa_daemon.gate.grant_sizes` may extend it."""
        if self.policy != "ada-srsf-buckets":
            return math.inf
        return default_bucket_bytes(self.link) if self.bucket_bytes is None else self.bucket_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """A job's request to send, with its own measurements.

    `ready_bytes` can be sent now, `message_bytes` are left in this iteration, `iteration_bytes` are those of
    a whole iteration. With `is_whole`, the ready bytes cannot be split into buckets. `compute_seconds` is an
    iteration without its exposed communication (`exposed_seconds`, for which training waits).
    `round_trip_seconds` is the time from a request until all ranks know the answer.
    """

    id: int
    ready_bytes: float
    message_bytes: float
    is_whole: bool = False
    iteration_bytes: float = 0.0
    iterations_left: float | None = None
    compute_seconds: float | None = None
    exposed_seconds: float | None = None
    round_trip_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The answer to a request: send `bytes` within the lease, then `free_iterations` without asking.

    A grant with `fence` 0 is not a lease, and nothing has to be given back.
    """

    job: JobId
    id: int
    fence: int
    bytes: float
    lease_seconds: float
    free_iterations: int
    overhead_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NicVerdict:
    """Whether a network card's messages are ordered, and why.

    `gain_fraction` is the fraction of the mean JCT that ordering should save, `cost_fraction` the fraction
    that asking adds.
    """

    nic: str
    is_on: bool
    why: str
    jobs: int
    gain_fraction: float | None = None
    cost_fraction: float | None = None
