"""The gate's state of a job: its request, its lease, and its measurements."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from boa_daemon.gate.ordering_gain import JobTraffic
from boa_daemon.gate.types import SendRequest
from policies.links.ada_srsf import Message
from policies.links.contention import Link
from policies.model import JobId

SMOOTHING = 0.2
"""Weight of the newest value in a moving mean."""
LEAST_TIMED = 4
"""Timed iterations after which a job's mean iteration time counts."""


def smooth(old: float | None, new: float | None, weight: float = SMOOTHING) -> float | None:
    """Return the moving mean after one more value; a missing value changes nothing."""
    if new is None:
        return old
    return new if old is None else old + weight * (new - old)


@dataclass(slots=True, kw_only=True)
class Lease:
    """A message in flight; `bytes_left` is an estimate of the link model.

    With `is_last`, the job computes next, so its cards may be handed over before it reports the end.
    """

    fence: int
    bytes: float
    servers: frozenset[str]
    bytes_left: float
    deadline: float
    updated_at: float
    seconds_per_byte: float
    crowd: int
    is_mixed: bool = False
    is_last: bool = False
    is_handed_over: bool = False

    @property
    def ends_at(self) -> float:
        """When everything is sent, as estimated by the link model."""
        return self.updated_at + self.bytes_left * self.seconds_per_byte

    def advance(self, now: float) -> None:
        """Deduct the bytes that were sent since the last update."""
        self.bytes_left = max(0.0, self.bytes_left - (now - self.updated_at) / self.seconds_per_byte)
        self.updated_at = now


@dataclass(slots=True, kw_only=True)
class JobAtGate:
    """A job that is connected to the gate."""

    job: JobId
    nics: frozenset[str]
    gpus: int
    weight: float
    joined_at: float
    ask: SendRequest | None = None
    asked_at: float = 0.0
    lease: Lease | None = None
    compute_seconds: float | None = None
    exposed_seconds: float | None = None
    round_trip_seconds: float | None = None
    iteration_bytes: float | None = None
    iterations_left: float | None = None
    grants: int = 0
    waited_seconds: float = 0.0
    stalls: int = 0
    computes_since: float | None = None
    asks_per_iteration: float | None = None
    leases: int = 0
    """Number of leases in this iteration."""
    _left_bytes: float = 0.0
    planned_gpu_seconds: float | None = None
    """Remaining GPU-seconds by the daemon's plan."""
    paces: dict[bool, float] = field(default_factory=dict)
    """Mean seconds of an iteration beside the present neighbours, in order (True) and at once (False)."""
    timed: Counter[bool] = field(default_factory=Counter)
    """Number of iterations in each mean of `paces`."""
    _began_at: float | None = None
    _free_iterations: int = 0
    """Iterations that the last answer allowed without asking; 0 for a lease."""

    def learn(self, ask: SendRequest, now: float) -> None:
        """Update the measurements from a request, and the time of the last iterations."""
        self.compute_seconds = smooth(self.compute_seconds, ask.compute_seconds)
        self.exposed_seconds = smooth(self.exposed_seconds, ask.exposed_seconds)
        self.round_trip_seconds = smooth(self.round_trip_seconds, ask.round_trip_seconds)
        if ask.iteration_bytes > 0.0:
            self.iteration_bytes = ask.iteration_bytes
        if ask.message_bytes >= self._left_bytes:
            # More is left than at the last request, so a new iteration has begun.
            if self.leases:
                self.asks_per_iteration = smooth(self.asks_per_iteration, float(self.leases))
            self.leases = 0
            self._time(ask, now)
        self._left_bytes = ask.message_bytes
        self.iterations_left = ask.iterations_left

    def answered(self, free_iterations: int) -> None:
        """Record the free iterations of an answer; with 0, the next iteration counts as in order."""
        self._free_iterations = free_iterations

    def has_shown(self, *, in_order: bool) -> bool:
        """Return whether enough iterations were timed, in order or at once."""
        return self.timed[in_order] >= LEAST_TIMED

    def forget_paces(self) -> None:
        """Discard the iteration times, because neighbours came or went."""
        for in_order in (True, False):
            self.forget_pace(in_order=in_order)
        self._began_at = None

    def forget_pace(self, *, in_order: bool) -> None:
        """Discard the iteration times of one way of sending."""
        self.paces.pop(in_order, None)
        self.timed[in_order] = 0

    def _time(self, ask: SendRequest, now: float) -> None:
        """Record the time since the last call as that of one or several iterations."""
        if self._began_at is not None:
            went = max(1, self._free_iterations)
            if self.iterations_left is not None and ask.iterations_left is not None:
                went = max(1, round(self.iterations_left - ask.iterations_left))
            in_order = self._free_iterations == 0
            weight = max(SMOOTHING, went / (self.timed[in_order] + went))
            pace = smooth(self.paces.get(in_order), (now - self._began_at) / went, weight)
            assert pace is not None
            self.paces[in_order] = pace
            self.timed[in_order] += went
        self._began_at = now

    @property
    def exposed_fraction(self) -> float | None:
        """The fraction of an iteration that waits for messages, as the job measured it."""
        if self.exposed_seconds is None or self.compute_seconds is None:
            return None
        return self.exposed_seconds / max(self.exposed_seconds + self.compute_seconds, 1e-9)

    def service_seconds(self, link: Link, now: float) -> float:
        """Return the remaining GPU-seconds: from the job's own count, else from the plan.

        Without both, return the GPU-seconds since the job joined. This makes the policy least attained
        service first, the usual substitute for unknown remaining work.
        """
        if self.iterations_left is not None and (
            self.compute_seconds is not None or self.planned_gpu_seconds is None
        ):
            compute = self.compute_seconds or 0.0
            message = self.iteration_bytes or 0.0
            # A job that asks has computed this iteration, and may have sent a part of it.
            sent = max(0.0, message - self.ask.message_bytes) if self.ask else 0.0
            had = compute + sent * link.seconds_per_byte
            return max(0.0, self.iterations_left * (compute + link.seconds(message)) - had) * self.gpus
        if self.planned_gpu_seconds is not None:
            return self.planned_gpu_seconds
        return (now - self.joined_at) * self.gpus

    def waiting(self, link: Link, now: float, *, servers: frozenset[str], most_bytes: float) -> Message:
        """Return the waiting message; the job must have asked."""
        assert self.ask is not None
        return Message(
            job=self.job,
            servers=servers,
            bytes_left=self.wanted_bytes(most_bytes),
            service_seconds=self.service_seconds(link, now),
            weight=self.weight,
            waited_seconds=now - self.asked_at,
        )

    def sending(self, link: Link, now: float) -> Message:
        """Return the message in flight; the job must have a lease."""
        assert self.lease is not None
        return Message(
            job=self.job,
            servers=self.lease.servers,
            bytes_left=self.lease.bytes_left,
            service_seconds=self.service_seconds(link, now),
            weight=self.weight,
        )

    def wanted_bytes(self, most_bytes: float) -> float:
        """Return the bytes of one grant: a bucket of the ready bytes, or the rest of the iteration."""
        assert self.ask is not None
        if self.ask.is_whole:
            return self.ask.ready_bytes
        if most_bytes == float("inf"):
            return max(self.ask.ready_bytes, self.ask.message_bytes)
        return min(self.ask.ready_bytes, most_bytes)

    def habits(self, link: Link, most_bytes: float) -> JobTraffic | None:
        """Return the job's traffic on its cards, or None until it has measured an iteration."""
        if self.compute_seconds is None or self.iteration_bytes is None:
            return None
        alone = link.seconds(self.iteration_bytes)
        sending = alone if self.exposed_seconds is None else min(alone, self.exposed_seconds)
        pieces = max(1.0, self.iteration_bytes / most_bytes)
        left = None
        if self.iterations_left is not None:
            left = self.iterations_left * (self.compute_seconds + sending)
        elif self.planned_gpu_seconds is not None:
            left = self.planned_gpu_seconds / self.gpus
        return JobTraffic(
            job=self.job,
            compute_seconds=self.compute_seconds,
            sending_seconds=sending,
            asks=pieces if self.asks_per_iteration is None else self.asks_per_iteration,
            pieces=pieces,
            round_trip_seconds=self.round_trip_seconds or 0.0,
            left_seconds=left,
            gpus=self.gpus,
            weight=self.weight,
            cards=self.nics,
        )
