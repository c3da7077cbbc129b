"""The weekly rhythm of the load: the factor of each hour of the week over the mean, if the data show one.

A budget is for a month, and a week has busy and quiet days. Pacing that took a weekend for a lower load would
give Sunday's jobs the money that Monday's jobs need. Pacing therefore needs the load of the hours in its
horizon over the mean load:

    factor(h) = d(day of h) u(hour of h), the mean over a week being one

    d, u     shrunk means over the weeks, or days, that were seen: 1 + s (mean - 1)
    s        tau^2 / (tau^2 + sigma^2 / n): the positive part of James and Stein's rule
    sigma^2  variance of the same day of the week from week to week, pooled
    tau^2    variance of the means of the days beyond what sigma^2 / n explains

Bursts, single large jobs and drift do not repeat from week to week, so they enter sigma^2 and not the rhythm:
s is then zero, and every factor is one. Only whole days and hours are used; all times are UTC. No rhythm is
estimated before two whole weeks were seen.

Cost: O(hours seen).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.errors import InvalidProblem
from policies.speedup import Floats, Ints

HOURS_PER_DAY, DAYS_PER_WEEK = 24, 7
HOURS_PER_WEEK = HOURS_PER_DAY * DAYS_PER_WEEK
LEAST_WEEKS = 2
MOST_WEEKS = 13
"""Older weeks are ignored: they do not show how a team works now."""
LEAST_FACTOR = 0.02
"""The least factor: with a factor of zero, a job that still comes in that hour would count for ever."""
MONDAY_HOUR = 96
"""Hours from the Unix epoch, a Thursday, to the first Monday."""


def hour_of_week(seconds: float) -> float:
    """Return the hours since Monday, 0 h UTC, of an instant in seconds since the Unix epoch."""
    return (seconds / 3600.0 - MONDAY_HOUR) % HOURS_PER_WEEK


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLoad:
    """The work that came in each hour, in any unit, and how many equal jobs would vary as much.

    Both have shape (hours,). Jobs of sizes x count as (sum x)^2 / sum x^2 equal ones.
    """

    work: Floats
    jobs: Floats

    @classmethod
    def of(cls, hours: Ints, work: Floats) -> SeenLoad:
        """Return the load of jobs from the hour in which each came, and its work."""
        sums, squares = np.bincount(hours, weights=work), np.bincount(hours, weights=work * work)
        jobs = np.divide(sums * sums, squares, out=np.zeros(len(sums)), where=squares > 0.0)
        return cls(work=sums.astype(float), jobs=jobs)


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
                f"the factors of a rhythm must have the mean 1; got {sum(self.factors) / HOURS_PER_WEEK}"
            )

    def hours_of_load(self, begin: float, hours: float) -> float:
        """Return the load, in mean hours, of the `hours` that follow the hour of the week `begin`."""
        return self._until(begin % HOURS_PER_WEEK + hours) - self._until(begin % HOURS_PER_WEEK)

    @property
    def by_day(self) -> tuple[float, ...]:
        """The load of each day of the week over the mean, Monday first."""
        days = np.array(self.factors).reshape(DAYS_PER_WEEK, HOURS_PER_DAY)
        return tuple(days.mean(axis=1).tolist())

    def _until(self, hour: float) -> float:
        """Return the load, in mean hours, of the first `hour` hours since Monday 0 h."""
        weeks, rest = divmod(hour, float(HOURS_PER_WEEK))
        whole = int(rest)
        part = (rest - whole) * self.factors[min(whole, HOURS_PER_WEEK - 1)]
        return weeks * HOURS_PER_WEEK + sum(self.factors[:whole]) + part

    def differs(self, other: Rhythm | None, *, by: float) -> bool:
        """Return whether a day of the week or an hour of the day differs by more than the share `by`."""
        mine = np.array(self.factors).reshape(DAYS_PER_WEEK, HOURS_PER_DAY)
        known = np.ones_like(mine) if other is None else np.array(other.factors).reshape(mine.shape)
        return any(bool(np.any(np.abs((mine - known).mean(axis=axis)) > by)) for axis in (0, 1))


def estimate_rhythm(work: Floats, *, first_hour: int) -> Rhythm | None:
    """Estimate the rhythm from the work that came in each hour; None if the data show none.

    `work`, shape (hours,), may be in any unit; `first_hour` counts hours from the Unix epoch.
    """
    begin = (MONDAY_HOUR - first_hour) % HOURS_PER_DAY  # start of the first whole day
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
    # These weeks may begin on any day of the week: roll them so that Monday comes first.
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
    """Return the means of columns, shrunk towards one by how much the rows differ; shape (columns,)."""
    rows, columns = seen.shape
    means = seen.mean(axis=0)
    noise = float(((seen - means) ** 2).sum()) / ((rows - 1) * columns) / rows
    spread = float(((means - 1.0) ** 2).sum()) / (columns - 1)
    kept = max(1.0 - noise / spread, 0.0) if spread > 0.0 else 0.0
    return np.asarray(1.0 + kept * (means - 1.0))
