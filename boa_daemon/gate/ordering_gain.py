"""The gain from ordering messages on network cards, from the jobs' measurements.

The mean-field model of `policies.links.link_share` estimates how much slower each job is if all messages are
sent at once. In order, a message needs all its cards together, so it waits while a better-ranked job sends on
any of them, even if its other cards are idle. Both models are run as a fluid until the last job ends, which
gives both mean completion times. If iteration times were measured for a way of sending, they replace the
model until the first job ends: similar jobs shift apart by themselves, which averages miss. The gain is

    1 - mean JCT in order / mean JCT at once

and the cost is the time of an iteration's requests over its length. Only exposed communication counts,
because communication behind the backward pass costs no time. Cost: O(jobs^3), for all jobs linked by shared
cards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from policies.links.link_share import LEAST_LEFT, ROUNDS, slowdowns
from policies.model import JobId

UNKNOWN_SECONDS = 3600.0
"""Assumed remaining time of a job that does not report it; all such jobs count alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTraffic:
    """A job's traffic on its cards: per iteration, seconds of computing and of exposed sending if alone.

    `left_seconds` is the remaining time without neighbours, None if unknown. `asks` is the number of requests
    per iteration. `pieces` is the number of buckets, between which a better-ranked job may go first.
    """

    job: JobId
    compute_seconds: float
    sending_seconds: float
    asks: float
    round_trip_seconds: float
    left_seconds: float | None
    gpus: int = 1
    weight: float = 1.0
    pieces: float = 1.0
    cards: frozenset[str] = frozenset({"card"})

    @property
    def alone_seconds(self) -> float:
        """Seconds of an iteration without neighbours."""
        return self.compute_seconds + self.sending_seconds

    @property
    def share(self) -> float:
        """Seconds of exposed sending per second of computing."""
        return self.sending_seconds / max(self.compute_seconds, 1e-6)

    @property
    def cost_fraction(self) -> float:
        """Fraction of an iteration spent on asking."""
        return self.asks * self.round_trip_seconds / max(self.alone_seconds, 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderingGain:
    """The fractions of the mean and each job's completion time that ordering should save; cost of asking."""

    gain_fraction: float
    cost_fraction: float
    gains: Mapping[JobId, float]

    @classmethod
    def of(
        cls,
        jobs: Sequence[JobTraffic],
        *,
        crowding: float,
        seen: Mapping[bool, Mapping[JobId, float]] | None = None,
    ) -> OrderingGain:
        """Return the gain from ordering these jobs' messages; `crowding` is eta / b.

        `seen` has the measured seconds of an iteration beside the others, in order (True) and at once.
        """
        seen = seen or {}
        in_order = _finishes(jobs, crowding=crowding, in_order=True, seen=seen.get(True, {}))
        at_once = _finishes(jobs, crowding=crowding, in_order=False, seen=seen.get(False, {}))
        whole = {job.job: job.weight for job in jobs}
        return cls(
            gain_fraction=_saved(_mean(in_order, whole), _mean(at_once, whole)),
            cost_fraction=cost_fraction(jobs),
            gains={job: _saved(in_order[job], at_once[job]) for job in in_order},
        )


def gain_fraction(jobs: Sequence[JobTraffic], *, crowding: float) -> float:
    """Return the fraction of the mean completion time that ordering saves; `crowding` is eta / b."""
    return OrderingGain.of(jobs, crowding=crowding).gain_fraction


def _saved(now: float, before: float) -> float:
    return 1.0 - now / before if before > 0.0 else 0.0


def _mean(finishes: Mapping[JobId, float], weight: Mapping[JobId, float]) -> float:
    total = sum(weight.values())
    return sum(weight[job] * at for job, at in finishes.items()) / total if total > 0.0 else 0.0


def cost_fraction(jobs: Sequence[JobTraffic]) -> float:
    """Return the mean fraction of an iteration spent on asking."""
    return sum(job.cost_fraction for job in jobs) / len(jobs) if jobs else 0.0


def _finishes(
    jobs: Sequence[JobTraffic], *, crowding: float, in_order: bool, seen: Mapping[JobId, float]
) -> dict[JobId, float]:
    """Return the time until each job ends; `seen` has iteration times measured while all were present."""
    left = {job.job: job.left_seconds if job.left_seconds is not None else UNKNOWN_SECONDS for job in jobs}
    known = {job.job: job for job in jobs}
    shares = {job.job: job.share for job in jobs}
    per_second = {job.job: job.gpus / job.weight for job in jobs}
    now, finishes = 0.0, dict[JobId, float]()
    while left:
        ranked = sorted(left, key=lambda job: (left[job] * per_second[job], job))
        if in_order:
            factors = _in_order([known[job] for job in ranked])
        else:
            servers = {job: known[job].cards for job in ranked}
            factors = slowdowns(servers, shares, crowding=crowding, in_order=False)
        if len(left) == len(jobs):
            factors |= {job: seen[job] / known[job].alone_seconds for job in ranked if job in seen}
        step = min(left[job] * factors[job] for job in ranked)
        now += step
        for job in ranked:
            left[job] -= step / factors[job]
        for job in [job for job in ranked if left[job] <= 1e-9 * (1.0 + now)]:
            finishes[job] = now
            del left[job]
    return finishes


def _in_order(ranked: Sequence[JobTraffic]) -> dict[JobId, float]:
    """Return by what factor each job is slower than alone if better-ranked jobs send first.

    Better-ranked jobs that share a card never send at once, so their times add up; others are independent.
    For a worse-ranked job, a job waits until its present piece is sent: half a piece on average, and more if
    the job returns from computing so soon that the piece has only begun.
    """
    busy = {job.job: 0.0 for job in ranked}
    factors: dict[JobId, float] = {}
    for _ in range(ROUNDS):
        for place, job in enumerate(ranked):
            left = max(LEAST_LEFT, _left_by([b for b in ranked[:place] if b.cards & job.cards], busy))
            held = sum(busy[w.job] * _rest(w, job) for w in ranked[place + 1 :] if w.cards & job.cards)
            sending = (job.sending_seconds + held) / left
            iteration = job.compute_seconds + sending
            factors[job.job] = iteration / job.alone_seconds
            busy[job.job] = 0.5 * (busy[job.job] + job.sending_seconds / iteration)
    return factors


def _left_by(betters: Sequence[JobTraffic], busy: Mapping[JobId, float]) -> float:
    """Return the fraction of time in which none of the better-ranked jobs sends."""
    groups: list[list[JobTraffic]] = []
    for better in betters:
        for group in groups:
            if all(better.cards & member.cards for member in group):
                group.append(better)
                break
        else:
            groups.append([better])
    return prod(max(0.0, 1.0 - sum(busy[member.job] for member in group)) for group in groups)


def _rest(worse: JobTraffic, job: JobTraffic) -> float:
    """Return how long a worse-ranked job's piece still takes when a job returns from computing."""
    piece = worse.sending_seconds / max(worse.pieces, 1.0)
    return max(0.5 * piece, piece - job.compute_seconds)
