"""What the gate is told, what it answers, and how it is set up."""

from __future__ import annotations

import math
from dataclasses import dataclass

from policies.errors import InvalidProblem, UnknownPolicy
from policies.links.ada_srsf import DEFAULT_LINK_POLICY, LINK_POLICIES, default_bucket_bytes, link_policy
from policies.links.contention import Link
from policies.model import JobId

POLICIES = tuple(name for name in LINK_POLICIES if name != "srsf-preemptive")
"""What a gate can do. Pausing a message in flight is not among it: no transport can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """How the gate decides.

    `link` is believed until enough messages were timed to fit it. `patience_seconds` is ageing: whoever
    waited longer goes first. `least_gain_fraction` is what ordering must promise, beyond its cost, to stay
    on. A lease lasts `lease_factor` times as long as the message should take beside another, at least
    `least_lease_seconds` and at most `most_lease_seconds` or half as long again as it should take. With
    `fills_idle_cards` buckets also go beside those that are in flight, where a card would idle otherwise
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
        """Whether messages go beside the first one where a card would idle: only buckets end soon enough."""
        return self.fills_idle_cards and self.policy == "ada-srsf-buckets"

    def lease_seconds(self, expected: float) -> float:
        """Return the lease of a message that should take so long: nobody waits longer for one that stalls."""
        most = max(self.most_lease_seconds, 1.5 * expected)
        return max(self.least_lease_seconds, min(self.lease_factor * expected, most))

    @property
    def grant_bytes(self) -> float:
        """Bytes that one grant covers, a bucket or any message; `boa_daemon.gate.grant_sizes` extends it."""
        if self.policy != "ada-srsf-buckets":
            return math.inf
        return default_bucket_bytes(self.link) if self.bucket_bytes is None else self.bucket_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """One question: may this job send? And what the job measured of itself, where it has.

    `ready_bytes` wait to be sent now, `message_bytes` in the rest of the iteration, `iteration_bytes` in a
    whole one; with `is_whole` what is ready cannot be cut into buckets. `compute_seconds` is an iteration
    without its exposed communication (`exposed_seconds`, what training waits for). `round_trip_seconds` is
    the time from a question until all ranks know the answer.
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
    """The answer: send `bytes`, within the lease, and then so many iterations without asking.

    A grant with `fence` 0 is no lease: nobody else wants the cards, and nothing is to be given back.
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

    `gain_fraction` is what ordering should save of the mean JCT, `cost_fraction` what asking adds.
    """

    nic: str
    is_on: bool
    why: str
    jobs: int
    gain_fraction: float | None = None
    cost_fraction: float | None = None
