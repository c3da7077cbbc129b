"""Phase shift: jobs that share a link start their iterations at different times, once, so that messages miss.

Source: the idea of CASSINI (Rajasekaran, Ghobadi, Akella, NSDI 2024, arXiv 2308.00852): an iteration is a
circle with an arc of sending; jobs on a shared link turn their circles until the arcs miss each other.
Circles need a common length. Here the slowest job's iteration is the circle, and each other job goes round
it m times, its iteration stretched to T / m:

    m_j = floor(T / t_j + 1e-9),    stretch_j = T / (m_j t_j) - 1

A job whose stretch exceeds `most_stretch` cannot be locked to the circle and is left alone. Offsets are
chosen on a grid, job by job in order of the arcs' length, the least overlap with those already set, then
once more round until nothing improves.

    symbol   here              meaning
    t_j      period_seconds    one iteration of the job, sending included
             sending_seconds   the arc: sending in one iteration
    T        circle_seconds    the slowest job's iteration
    m_j      turns             iterations of the job per circle

Cost: O(rounds x jobs x grid x log(grid)) by circular correlation.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.model import JobId, check_positive

GRID = 720
"""Points of the circle: half a degree each."""
_ROUNDS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A job's iteration: its period, how long it sends in it, and through which servers."""

    job: JobId
    period_seconds: float
    sending_seconds: float
    servers: frozenset[Hashable]

    def __post_init__(self) -> None:
        check_positive(f"period_seconds of job {self.job}", self.period_seconds)
        check_positive(f"sending_seconds of job {self.job}", self.sending_seconds, zero=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """When a locked job sends: at `offset_seconds` plus any multiple of `period_seconds`."""

    job: JobId
    offset_seconds: float
    period_seconds: float

    def delay_seconds(self, at_seconds: float) -> float:
        """Return how long a message that is ready at an instant of the common clock waits for its turn."""
        return (self.offset_seconds - at_seconds) % self.period_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The locked jobs' shifts, and the seconds per circle in which messages meet, before and after."""

    circle_seconds: float
    shifts: tuple[Shift, ...]
    meeting_seconds_unshifted: float
    meeting_seconds: float


def shift_phases(beats: Sequence[Beat], *, most_stretch: float = 0.05) -> Schedule:
    """Return the shifts that keep messages on shared servers apart as far as they can be.

    `meeting_seconds_unshifted` is the mean over random offsets: what jobs that drift freely get.
    """
    if not beats:
        return Schedule(circle_seconds=0.0, shifts=(), meeting_seconds_unshifted=0.0, meeting_seconds=0.0)
    circle = max(beat.period_seconds for beat in beats)
    turns = {beat.job: int(circle / beat.period_seconds + 1e-9) for beat in beats}
    locked = [
        beat for beat in beats if circle / (turns[beat.job] * beat.period_seconds) - 1.0 <= most_stretch
    ]
    locked.sort(key=lambda beat: (-beat.sending_seconds, beat.job))
    arcs = {beat.job: _arcs(beat, turns[beat.job], circle) for beat in locked}
    offsets = _choose_offsets(locked, arcs, turns)
    step = circle / GRID
    shifts = tuple(
        Shift(job=beat.job, offset_seconds=offsets[beat.job] * step, period_seconds=circle / turns[beat.job])
        for beat in locked
    )
    pairs = [(a, b) for i, a in enumerate(locked) for b in locked[:i] if a.servers & b.servers]
    return Schedule(
        circle_seconds=circle,
        shifts=shifts,
        meeting_seconds_unshifted=sum(float(arcs[a.job].sum() * arcs[b.job].sum()) / GRID for a, b in pairs)
        * step,
        meeting_seconds=step
        * sum(
            float(np.roll(arcs[a.job], offsets[a.job]) @ np.roll(arcs[b.job], offsets[b.job]))
            for a, b in pairs
        ),
    )


def _arcs(beat: Beat, turns: int, circle: float) -> NDArray[np.float64]:
    """Return, for each point of the grid, which part of it the job sends, at offset zero."""
    edges = np.arange(GRID + 1) * (circle / GRID)
    period = circle / turns
    length = min(beat.sending_seconds, period)
    sent = np.floor(edges / period) * length + np.minimum(edges % period, length)
    return np.asarray(np.clip(np.diff(sent) / (circle / GRID), 0.0, 1.0))


def _choose_offsets(
    beats: Sequence[Beat], arcs: dict[JobId, NDArray[np.float64]], turns: dict[JobId, int]
) -> dict[JobId, int]:
    """Return each job's offset in points of the grid, by descent from job to job."""
    offsets: dict[JobId, int] = {}
    for _ in range(_ROUNDS):  # pragma: no branch  Most come to rest before.
        before = dict(offsets)
        for beat in beats:
            others = np.zeros(GRID)
            for other in beats:
                if other.job != beat.job and other.job in offsets and other.servers & beat.servers:
                    others += np.roll(arcs[other.job], offsets[other.job])
            spectrum = np.conj(np.fft.rfft(arcs[beat.job])) * np.fft.rfft(others)
            meeting = np.fft.irfft(spectrum, GRID)[: max(1, GRID // turns[beat.job])]
            # The first of equals, within rounding: the same jobs get the same offsets on every machine.
            offsets[beat.job] = int(np.argmax(meeting <= meeting.min() + 1e-9 * GRID))
        if offsets == before:
            break
    return offsets
