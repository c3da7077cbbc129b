"""Warnings about running jobs, sent while there is still time to act: a key for each, and a sentence."""

from __future__ import annotations

from boa_daemon.store.records import JobRecord
from boa_daemon.tick.facts.ports import RunReport
from boa_daemon.tick.facts.retries import Silence
from boa_daemon.units import SECONDS_PER_HOUR, format_hours

MOST_OF_GRACE = 0.7
"""Part of the stop grace that a save may take: a job notices a stop one step late, and may miss the end."""


def grace_warning(job: JobRecord, report: RunReport) -> tuple[str, str] | None:
    """Warn, before any stop, that a job's steps or saves take too long for its stop grace."""
    grace = float(job.content["stop_grace_seconds"])
    if report.gap_seconds is not None and report.gap_seconds > grace:
        return f"gap:{job.id}", (
            f"job {job.id} took {report.gap_seconds:.0f} s from one step to the next and has {grace:.0f} s "
            "when it is stopped: raise its stop_grace_seconds, or report and save more often, or its last "
            "steps may be lost"
        )
    if report.save_seconds is None or report.save_seconds <= MOST_OF_GRACE * grace:
        return None
    return f"grace:{job.id}", (
        f"job {job.id} takes {report.save_seconds:.0f} s to save a checkpoint and has {grace:.0f} s "
        "when it is stopped: raise its stop_grace_seconds, or its last steps are lost"
    )


def silence_warning(job: JobRecord, silence: Silence, now: float) -> tuple[str, str] | None:
    """Warn when half of the time for the first step has passed without a step or a printed line."""
    is_half_over = silence.limit_seconds / 2.0 < now - silence.since <= silence.limit_seconds
    if silence.kind != "no-report-no-print" or not is_half_over:
        return None
    half, whole = (format_hours(silence.limit_seconds / SECONDS_PER_HOUR / n) for n in (2.0, 1.0))
    return f"silent:{job.id}:{job.generation}", (
        f"job {job.id} reported no step and printed nothing within {half}: it is ended after "
        f"{whole}, unless its first_report_hours is longer"
    )


def stall_warning(job: JobRecord, stall: Silence, now: float, *, step: int | None) -> tuple[str, str]:
    """Warn that a job makes no more steps."""
    still = f"job {job.id} has made no step for {now - stall.since:.0f} s"
    return f"stalled:{job.id}:{job.generation}", f"{still}, after step {step}"
