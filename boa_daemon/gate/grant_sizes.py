"""Sizes of grants, chosen for few requests and no pause between two messages.

    a bucket        takes at least as long as twenty requests, so that asking costs at most a twentieth
    a grant         lasts until a better-ranked job on the same cards may be back from computing
    a hand-over     the next message is granted when the last one should have been sent, before its end is
                    reported

The first two never let a worse-ranked job send while a better one waits. The third lets two messages overlap
for the time of a report; if overlap slows the link down (eta), the gate waits for the report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from boa_daemon.gate.job_state import JobAtGate
from boa_daemon.gate.types import GateSettings
from policies.links.contention import Link

QUESTIONS_PER_BUCKET = 20
MOST_GRANT_SECONDS = 0.25
"""Limit of a grant's duration, because a job that is not known yet may join."""
MOST_CONTENTION = 0.1
"""Largest eta / b at which a message may begin while another one ends."""


def bucket_bytes(settings: GateSettings, seats: Iterable[JobAtGate], link: Link) -> float:
    """Return the least bytes of a grant, from the median round trip of requests."""
    trips = [seat.round_trip_seconds for seat in seats if seat.round_trip_seconds is not None]
    if not trips or not math.isfinite(settings.grant_bytes):
        return settings.grant_bytes
    return max(settings.grant_bytes, QUESTIONS_PER_BUCKET * median(trips) / link.seconds_per_byte)


def undisturbed_bytes(seat: JobAtGate, others: Iterable[JobAtGate], link: Link, now: float) -> float:
    """Return the bytes that a job can send before a better-ranked other may be back from computing."""
    mine = seat.service_seconds(link, now) / seat.weight
    until = MOST_GRANT_SECONDS
    for other in others:
        if other.service_seconds(link, now) / other.weight >= mine:
            continue
        if other.compute_seconds is None or other.computes_since is None:
            return 0.0
        until = min(until, other.computes_since + other.compute_seconds - now)
    return max(0.0, until / link.seconds_per_byte)


def allows_overlap(settings: GateSettings, link: Link) -> bool:
    """Return whether a message may begin while another one ends."""
    return settings.fills and link.contention_seconds_per_byte <= MOST_CONTENTION * link.seconds_per_byte
