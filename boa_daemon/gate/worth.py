"""Whether ordering the messages on a network card can pay, from what its jobs measured.

The mean-field model of `policies.link_share` says how much slower each job is with its messages in order
and with all at once. Run as a fluid until the last job ends, it gives the mean completion time both ways.
The gain is

    1 - mean JCT in order / mean JCT at once

and the cost is the questions of an iteration over its length. Only exposed communication counts: what hides
behind the backward pass cannot be won. Cost: O(jobs^2) per card.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policies.link_share import slowdowns
from policies.model import JobId

UNKNOWN_SECONDS = 3600.0
"""What is left of a job that does not say: all such jobs count alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What a job does on its cards: seconds per iteration computing, and exposed sending if alone.

    `left_seconds` is what it would still take alone; None where nobody knows.
    """

    job: JobId
    compute_seconds: float
    sending_seconds: float
    asks: float
    round_trip_seconds: float
    left_seconds: float | None
    gpus: int = 1
    weight: float = 1.0

    @property
    def alone_seconds(self) -> float:
        """An iteration without neighbours."""
        return self.compute_seconds + self.sending_seconds

    @property
    def share(self) -> float:
        """Seconds of exposed sending per second of computing."""
        return self.sending_seconds / max(self.compute_seconds, 1e-6)

    @property
    def cost_fraction(self) -> float:
        """Part of an iteration that goes into asking."""
        return self.asks * self.round_trip_seconds / max(self.alone_seconds, 1e-9)


def gain_fraction(jobs: Sequence[Habits], *, crowding: float) -> float:
    """Return which part of the mean completion time ordering saves; `crowding` is eta / b."""
    in_order = _mean_finish(jobs, crowding=crowding, in_order=True)
    at_once = _mean_finish(jobs, crowding=crowding, in_order=False)
    return 1.0 - in_order / at_once if at_once > 0.0 else 0.0


def cost_fraction(jobs: Sequence[Habits]) -> float:
    """Return the mean part of an iteration that goes into asking."""
    return sum(job.cost_fraction for job in jobs) / len(jobs) if jobs else 0.0


def _mean_finish(jobs: Sequence[Habits], *, crowding: float, in_order: bool) -> float:
    """Return the weighted mean time until a job ends, all of them sharing one card."""
    left = {job.job: job.left_seconds if job.left_seconds is not None else UNKNOWN_SECONDS for job in jobs}
    shares = {job.job: job.share for job in jobs}
    weight = {job.job: job.weight for job in jobs}
    per_second = {job.job: job.gpus / job.weight for job in jobs}
    now, total = 0.0, 0.0
    while left:
        ranked = sorted(left, key=lambda job: (left[job] * per_second[job], job))
        factors = slowdowns(
            dict.fromkeys(ranked, ("card",)),
            {job: shares[job] for job in ranked},
            crowding=crowding,
            in_order=in_order,
        )
        step = min(left[job] * factors[job] for job in ranked)
        now += step
        for job in ranked:
            left[job] -= step / factors[job]
        for job in [job for job in ranked if left[job] <= 1e-9 * (1.0 + now)]:
            total += weight[job] * now
            del left[job]
    return total / sum(weight.values())
