"""The rhythm of the load: by how much each hour of the week is busier than the mean, where the data show it.

A budget is promised by the month, and a week has busy days and quiet ones. A law of pacing that takes a
weekend for less load to come lets the jobs of Sunday have what those of Monday need. What it has to know is
the load of the hours that its horizon covers, over the mean:

    factor(h) = d(day of h) u(hour of h), the mean over a week being one

    d, u     shrunk means over the weeks, or days, that were seen: 1 + s (mean - 1)
    s        tau^2 / (tau^2 + sigma^2 / n): the positive part of James and Stein's rule
    sigma^2  how much the same day of the week differs from week to week, pooled
    tau^2    how much the means of the days differ beyond what sigma^2 / n explains

So bursts, single large jobs and drift, which no second week repeats, make sigma^2 and not a rhythm: s is then
zero, and every factor one. Days count only whole, hours likewise; all times are UTC. Nothing is said before
two whole weeks were seen.

Cost: O(hours seen).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.errors import InvalidProblem
from policies.speedup import Floats

HOURS_PER_DAY, DAYS_PER_WEEK = 24, 7
HOURS_PER_WEEK = HOURS_PER_DAY * DAYS_PER_WEEK
LEAST_WEEKS = 2
MOST_WEEKS = 13
"""Older weeks say nothing of how a team works now."""
LEAST_FACTOR = 0.02
"""No hour is believed to bring nothing: a job that comes in one would count for ever."""
MONDAY_HOUR = 96
"""Of the Unix epoch, a Thursday: hours until the first Monday began."""


def hour_of_week(seconds: float) -> float:
    """Return the hours since Monday, 0 h UTC, of an instant in Unix seconds."""
    return (seconds / 3600.0 - MONDAY_HOUR) % HOURS_PER_WEEK


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The load in each hour of the week over its mean, Monday 0 h UTC first; the mean of `factors` is one.

    Raises:
        InvalidProblem: when there are not 168 positive factors with the mean one.
    """

    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.factors) != HOURS_PER_WEEK or not min(self.factors) > 0.0:
            raise InvalidProblem(f"a rhythm has {HOURS_PER_WEEK} positive factors, not {len(self.factors)}")
        if not abs(sum(self.factors) / HOURS_PER_WEEK - 1.0) < 1e-6:
            raise InvalidProblem(
                f"the factors of a rhythm have the mean {sum(self.factors) / HOURS_PER_WEEK}"
            )

    def hours_of_load(self, begin: float, hours: float) -> float:
        """Return how many mean hours of load come in so many hours from an hour of the week on."""
        return self._until(begin % HOURS_PER_WEEK + hours) - self._until(begin % HOURS_PER_WEEK)

    @property
    def by_day(self) -> tuple[float, ...]:
        """The load of each day of the week over the mean, Monday first."""
        days = np.array(self.factors).reshape(DAYS_PER_WEEK, HOURS_PER_DAY)
        return tuple(days.mean(axis=1).tolist())

    def _until(self, hour: float) -> float:
        """Return the mean hours of load from Monday 0 h to so many hours later."""
        weeks, rest = divmod(hour, float(HOURS_PER_WEEK))
        whole = int(rest)
        part = (rest - whole) * self.factors[min(whole, HOURS_PER_WEEK - 1)]
        return weeks * HOURS_PER_WEEK + sum(self.factors[:whole]) + part

    def differs(self, other: Rhythm | None, *, by: float) -> bool:
        """Return whether some day of the week or hour of the day differs by more than a share of the mean."""
        mine = np.array(self.factors).reshape(DAYS_PER_WEEK, HOURS_PER_DAY)
        known = np.ones_like(mine) if other is None else np.array(other.factors).reshape(mine.shape)
        return any(bool(np.any(np.abs((mine - known).mean(axis=axis)) > by)) for axis in (0, 1))


def estimate_rhythm(work: Floats, *, first_hour: int) -> Rhythm | None:
    """Return the rhythm of the work that came in each hour; None where the data show none.

    `work`, shape (hours,), may be in any unit; `first_hour` counts hours from the Unix epoch.
    """
    begin = (MONDAY_HOUR - first_hour) % HOURS_PER_DAY  # Of the first whole day.
    days = (len(work) - begin) // HOURS_PER_DAY
    weeks = min(days // DAYS_PER_WEEK, MOST_WEEKS)
    if weeks < LEAST_WEEKS:
        return None
    end = begin + days * HOURS_PER_DAY
    newest = np.asarray(work[end - weeks * HOURS_PER_WEEK : end], dtype=float)
    mean = float(newest.mean())
    if mean <= 0.0:
        return None
    shape = (weeks, DAYS_PER_WEEK, HOURS_PER_DAY)
    of_weeks = newest.reshape(shape) / mean
    # The first day of these weeks may be any day of the week: they are turned until Monday comes first.
    weekday = (first_hour + end - MONDAY_HOUR) // HOURS_PER_DAY % DAYS_PER_WEEK
    of_weeks = np.roll(of_weeks.reshape(weeks * DAYS_PER_WEEK, HOURS_PER_DAY), weekday, axis=0).reshape(shape)
    by_day = _shrunk(of_weeks.mean(axis=2))
    expected = np.maximum(by_day, LEAST_FACTOR)
    by_hour = _shrunk((of_weeks / expected[None, :, None]).reshape(-1, HOURS_PER_DAY))
    factors = np.maximum(np.outer(by_day, by_hour).ravel(), LEAST_FACTOR)
    if np.ptp(factors) == 0.0:
        return None
    return Rhythm(tuple((factors / factors.mean()).tolist()))


def _shrunk(seen: Floats) -> Floats:
    """Return the means of columns, shrunk towards one as far as rows do not repeat them; shape (columns,)."""
    rows, columns = seen.shape
    means = seen.mean(axis=0)
    noise = float(((seen - means) ** 2).sum()) / ((rows - 1) * columns) / rows
    spread = float(((means - 1.0) ** 2).sum()) / (columns - 1)
    kept = max(1.0 - noise / spread, 0.0) if spread > 0.0 else 0.0
    return np.asarray(1.0 + kept * (means - 1.0))
