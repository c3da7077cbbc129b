"""The gate's status: jobs, cards, the link, and why messages on each card are ordered or not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from boa_daemon.tick.facts.state import GatedJob, GatedLink, GateView
from boa_daemon.units import SECONDS_PER_HOUR
from policies.links import adadual

if TYPE_CHECKING:
    from boa_daemon.gate.broker import Broker
    from boa_daemon.gate.job_state import JobAtGate


def status_of(broker: Broker, now: float) -> dict[str, Any]:
    """Return the status as plain JSON values."""
    link = broker.timings.link
    return {
        "policy": broker.settings.policy,
        # None: a grant covers a whole message.
        "bucket_bytes": broker.bucket_bytes if math.isfinite(broker.bucket_bytes) else None,
        "link": {
            "latency_seconds": link.latency_seconds,
            "seconds_per_byte": link.seconds_per_byte,
            "contention_seconds_per_byte": link.contention_seconds_per_byte,
            "fitted_from_messages": broker.timings.fitted_from,
        },
        "adadual_threshold": adadual.threshold(link.seconds_per_byte, link.contention_seconds_per_byte),
        "nics": [
            {
                "nic": nic.name,
                "is_on": nic.is_on,
                "why": nic.verdict.why if nic.verdict else "not judged yet",
                "jobs": len(nic.jobs),
                "sending": len(nic.in_flight),
                "asks": nic.asks,
                "meeting_fraction": nic.meeting_fraction,
                "gain_fraction": nic.verdict.gain_fraction if nic.verdict else None,
                "cost_fraction": nic.verdict.cost_fraction if nic.verdict else None,
            }
            for nic in sorted(broker.nics.values(), key=lambda nic: nic.name)
        ],
        "jobs": [
            _seat(broker, seat, now) for seat in sorted(broker.seats.values(), key=lambda seat: seat.job)
        ],
        "counts": dict(broker.counts),
    }


def _seat(broker: Broker, seat: JobAtGate, now: float) -> dict[str, Any]:
    return {
        "job": seat.job,
        "nics": sorted(seat.nics),
        "gpus": seat.gpus,
        "weight": seat.weight,
        "state": "sending" if seat.lease else "waiting" if seat.ask else "computing",
        "remaining_gpu_seconds": seat.service_seconds(broker.timings.link, now),
        "exposed_fraction": seat.exposed_fraction,
        "gain_fraction": broker.gains.get(seat.job),
        "grants": seat.grants,
        "mean_wait_seconds": seat.waited_seconds / seat.grants if seat.grants else 0.0,
        "stalls": seat.stalls,
        "round_trip_seconds": seat.round_trip_seconds,
    }


def view_of(broker: Broker, now: float) -> GateView:
    """Return the view for a tick: the jobs on each link in their order, and each job's measurements."""
    link = broker.timings.link
    hours = {
        job: seat.service_seconds(link, now) / seat.weight / SECONDS_PER_HOUR
        for job, seat in broker.seats.items()
    }
    return GateView(
        links={
            nic.name: GatedLink(
                jobs=tuple(sorted(nic.jobs, key=lambda job: (hours[job], job))),
                is_ordered=nic.is_on,
                why=nic.verdict.why if nic.verdict else "not judged yet",
                gain_fraction=nic.verdict.gain_fraction if nic.verdict else None,
            )
            for nic in sorted(broker.nics.values(), key=lambda nic: nic.name)
        },
        jobs={
            seat.job: GatedJob(
                ranked_by_hours=hours[seat.job],
                exposed_fraction=seat.exposed_fraction,
                gain_fraction=broker.gains.get(seat.job),
            )
            for seat in sorted(broker.seats.values(), key=lambda seat: seat.job)
        },
    )
