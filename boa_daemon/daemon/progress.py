"""How running jobs got on: steps, loss and GPUs over time, in memory, for whoever looks at a job.

A trail that is full loses every other point, so it always spans the whole run.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from policies.model import JobId

MOST_POINTS, MOST_JOBS = 256, 2000
Point = tuple[float, int, float | None, int]
"""An instant, the step that was done, the loss that was reported, and the GPUs."""


@dataclass(slots=True)
class _Trail:
    """Points of one job, at least `every` seconds apart."""

    points: list[Point] = field(default_factory=list)
    every: float = 5.0


class Progress:
    """Trails of the jobs that reported last."""

    def __init__(self) -> None:
        self._trails: OrderedDict[JobId, _Trail] = OrderedDict()

    def take(self, job: JobId, *, at: float, step: int | None, loss: float | None, gpus: int) -> None:
        """Add a point where a job got on."""
        if step is None:
            return
        trail = self._trails.setdefault(job, _Trail())
        self._trails.move_to_end(job)
        points = trail.points
        if points and (at - points[-1][0] < trail.every or points[-1][1:] == (step, loss, gpus)):
            return
        points.append((at, step, loss, gpus))
        if len(points) > MOST_POINTS:
            del points[1::2]
            trail.every *= 2.0
        if len(self._trails) > MOST_JOBS:
            self._trails.popitem(last=False)

    def of(self, job: JobId) -> list[Point]:
        """Return the trail of a job."""
        trail = self._trails.get(job)
        return [] if trail is None else list(trail.points)
