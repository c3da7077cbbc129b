"""Fewer questions, and no pause between two messages: what the gate knows of the next moments.

    a bucket        takes as long as twenty questions, or longer: asking costs a twentieth at most
    a grant         reaches until a better-ranked job on the same cards may be back from computing
    a hand-over     the next message is granted when the last one should be through, not when its end is known

The first two never let a worse job send while a better one waits. The third lets two meet for the time that
news takes; where meeting costs the link something (eta), the end is waited for.
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
"""A grant covers no more than this takes, whoever is expected: others may come whom nobody knows yet."""
MOST_CONTENTION = 0.1
"""Eta over b, up to which a message may begin while another one ends."""


def bucket_bytes(settings: GateSettings, seats: Iterable[JobAtGate], link: Link) -> float:
    """Return what a grant covers at least, from how long questions take."""
    trips = [seat.round_trip_seconds for seat in seats if seat.round_trip_seconds is not None]
    if not trips or not math.isfinite(settings.grant_bytes):
        return settings.grant_bytes
    return max(settings.grant_bytes, QUESTIONS_PER_BUCKET * median(trips) / link.seconds_per_byte)


def undisturbed_bytes(seat: JobAtGate, others: Iterable[JobAtGate], link: Link, now: float) -> float:
    """Return what a job can send before a better one of the others may be back from computing."""
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
