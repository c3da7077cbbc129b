"""Decisions in rounds at fixed intervals, as in Pollux and Tiresias.

A policy that decides in rounds stores one number in its last round (`Allocation.memory`): how many nodes it
wanted. The age of this memory tells when the next round is due, so the policy itself has no state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from policies.model import Job, JobId, Money, Width

ROUND_SECONDS = 60.0
"""The interval that Pollux's authors use on their cluster and in their simulator."""
_INSTANT = 1e-3


def is_due(money: Money | None, round_seconds: float) -> bool:
    """Return whether a round is due: there was none yet, or the last one is old enough."""
    if money is None or not money.memory:
        return True
    return money.memory_age_hours * 3600.0 >= round_seconds - _INSTANT


def nodes_of_last_round(money: Money | None) -> int:
    """Return how many nodes the last round wanted; 0 if there was none."""
    return 0 if money is None or not money.memory else round(money.memory[0])


def widths_held(jobs: Sequence[Job]) -> Mapping[JobId, Width]:
    """Return the current width of every running job: the answer between two rounds."""
    return {job.id: job.width for job in jobs if job.width is not None}
