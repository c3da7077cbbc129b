"""The progress of jobs over time: steps, loss, GPUs and how much these work.

A full trail drops every other point, so that it always spans the whole run. Trails are in memory, and are
stored every 15 minutes and when the daemon closes, so an orderly restart loses nothing.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from policies.model import JobId

MOST_POINTS, MOST_JOBS = 256, 2000
KEEP_SECONDS = 900.0
Point = tuple[float, int, float | None, int, float | None]
"""Instant, step, reported loss, GPUs, and the fraction of time in which these work, if known."""


@dataclass(slots=True)
class _Trail:
    """Points of one job, at least `every` seconds apart."""

    points: list[Point] = field(default_factory=list)
    every: float = 5.0
    text: str = ""


class Progress:
    """Trails of the `MOST_JOBS` jobs that reported most recently."""

    def __init__(self) -> None:
        self._trails: OrderedDict[JobId, _Trail] = OrderedDict()

    def take(
        self,
        job: JobId,
        *,
        at: float,
        step: int | None,
        loss: float | None,
        gpus: int,
        use: float | None = None,
    ) -> None:
        """Add a point if the job made progress."""
        if step is None:
            return
        trail = self._trails.setdefault(job, _Trail())
        self._trails.move_to_end(job)
        points = trail.points
        if points and (at - points[-1][0] < trail.every or points[-1][1:4] == (step, loss, gpus)):
            return
        points.append((at, step, loss, gpus, use))
        trail.text = ""
        if len(points) > MOST_POINTS:
            del points[1::2]
            trail.every *= 2.0
        if len(self._trails) > MOST_JOBS:
            self._trails.popitem(last=False)

    def of(self, job: JobId) -> list[Point]:
        """Return the points of a job."""
        trail = self._trails.get(job)
        return [] if trail is None else list(trail.points)

    def documents(self) -> dict[str, str]:
        """Return the trails as JSON text by job."""
        for trail in self._trails.values():
            trail.text = trail.text or json.dumps([trail.every, trail.points], separators=(",", ":"))
        return {str(job): trail.text for job, trail in self._trails.items()}

    def restore(self, documents: Mapping[str, str]) -> None:
        """Restore the trails of an earlier process, except for jobs that have reported since."""
        for job, text in documents.items():
            if job not in self._trails and len(self._trails) < MOST_JOBS:
                every, points = json.loads(text)
                # Points of an earlier version have no use of the GPUs.
                found: list[Point] = [
                    (at, step, loss, gpus, use[0] if use else None) for at, step, loss, gpus, *use in points
                ]
                self._trails[JobId(job)] = _Trail(found, every, text)
                self._trails.move_to_end(JobId(job), last=False)
