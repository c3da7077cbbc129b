"""Start-time shift: when each job's next message may leave, so that jobs on shared cards miss each other.

The alternative to asking before every message: a job is delayed once, then runs freely, and is asked back
when it may have drifted. The offsets are `policies.links.phase_shift`'s, from the periods that the jobs
measured.
"""

from __future__ import annotations

from collections.abc import Iterable

from boa_daemon.gate.job_state import JobAtGate
from policies.links.contention import Link
from policies.links.phase_shift import Beat, Schedule, Shift, shift_phases
from policies.model import JobId

TOLERANCE = 0.05
"""Drift up to this part of a period is left alone."""
MOST_STRETCH = 0.1
"""Iterations are stretched by at most this much to fit a common circle."""
CHECK_ITERATIONS = 8
"""How long a job that keeps time runs before its drift is looked at."""
KEEPS_PLAN = 0.05
"""Offsets stay while no period has changed by more than this."""


class Shifter:
    """The schedule of the jobs that share cards, on the gate's own clock."""

    def __init__(self) -> None:
        self.schedule: Schedule | None = None
        self._beats: dict[JobId, Beat] = {}
        self._shifts: dict[JobId, Shift] = {}

    def plan(self, seats: Iterable[JobAtGate], link: Link, most_bytes: float) -> None:
        """Choose the offsets anew when the jobs or their periods have changed."""
        beats = {}
        for seat in seats:
            habits = seat.habits(link, most_bytes)
            if habits is not None:
                beats[seat.job] = Beat(
                    job=seat.job,
                    period_seconds=max(habits.alone_seconds, 1e-6),
                    sending_seconds=habits.sending_seconds,
                    servers=seat.nics,
                )
        if beats.keys() == self._beats.keys() and all(
            abs(beat.period_seconds / self._beats[job].period_seconds - 1.0) <= KEEPS_PLAN
            for job, beat in beats.items()
        ):
            return
        self._beats = beats
        self.schedule = shift_phases(list(beats.values()), most_stretch=MOST_STRETCH)
        self._shifts = {shift.job: shift for shift in self.schedule.shifts}

    def turn(self, job: JobId, ready_at: float) -> float:
        """Return when a message that became ready at an instant may leave."""
        shift = self._shifts.get(job)
        if shift is None:
            return ready_at
        delay = shift.delay_seconds(ready_at)
        late = shift.period_seconds - delay
        # A little late is on time: waiting a whole period for it would cost more than it brings.
        return ready_at if late <= TOLERANCE * shift.period_seconds else ready_at + delay

    def free_iterations(self, job: JobId) -> int:
        """Return how many iterations the job may run before it has drifted by the tolerance."""
        shift = self._shifts.get(job)
        if shift is None:
            return CHECK_ITERATIONS
        drift = abs(shift.period_seconds - self._beats[job].period_seconds)
        return int(min(CHECK_ITERATIONS, TOLERANCE * shift.period_seconds / max(drift, 1e-9)))
