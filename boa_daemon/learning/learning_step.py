"""The learning step: turn the reports of jobs into figures of their classes that the plan follows.

The daemon takes this step before each tick, the simulator after one, so the simulator tests the daemon's own
learning. A planned figure stays until the data contradict it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from boa_daemon.learning.beliefs import (
    CHANGE_THRESHOLD,
    MOST_HALF_LIVES,
    Beliefs,
    ClassBelief,
    PlannedFigures,
    classes_differ,
)
from boa_daemon.learning.exploration_value import Exploration
from boa_daemon.learning.learner import Learner
from boa_daemon.learning.observed_rhythm import rhythm_of
from boa_daemon.learning.samples import DAY, HOUR, KEPT_SECONDS, Sample
from boa_daemon.learning.speedups import CurveEstimate, WidthEstimate, measured_class
from boa_daemon.learning.width_trials import GpuHourWorth, WidthTrials
from boa_daemon.tick.facts.state import JobState
from policies.errors import PolicyError
from policies.model import Job, JobClass, JobId
from policies.online.rhythm import Rhythm

_Speeds: TypeAlias = tuple[tuple[WidthEstimate, ...], ...]


class LearntClasses:
    """Classes as stated and as planned; a variant, `vision[2-8]`, follows its class.

    `rates` and `sizes` say whether the plan follows these figures; it always follows speeds. The rates of
    `unstated` classes are not stated.
    """

    def __init__(
        self,
        stated: Mapping[str, JobClass],
        *,
        unstated: frozenset[str] = frozenset(),
        rates: bool = True,
        sizes: bool = True,
    ) -> None:
        self.stated, self.unstated = dict(stated), unstated
        self.classes, self.planned = dict(stated), dict(stated)
        self.curves: Mapping[tuple[str, str], CurveEstimate] = {}
        self.figures: dict[str, PlannedFigures] = {}
        self.rhythm: Rhythm | None = None
        self._rates, self._sizes = rates, sizes
        self._all_stated = dict(stated)
        self._measured: dict[str, tuple[JobClass, PlannedFigures | None, _Speeds, JobClass]] = {}
        self._with_speeds: dict[str, tuple[JobClass, _Speeds, JobClass]] = {}

    def adopt(self, names: Iterable[str]) -> None:
        """Add classes that jobs arrived for, if the class file need not name each."""
        del names

    def learn(
        self,
        curves: Mapping[tuple[str, str], CurveEstimate],
        beliefs: Mapping[str, ClassBelief] | None = None,
    ) -> bool:
        """Take new measurements; return whether they differ enough from the plan for a new one.

        Without `beliefs` rates and sizes stay as planned.

        Raises:
            PolicyError: when no problem has such figures; the plan keeps its earlier ones.
        """
        before, old_curves = dict(self.figures), self.curves
        self.curves = curves
        for name, belief in (beliefs or {}).items():
            if name in self.stated:
                known = self.figures.get(name) or PlannedFigures(per_hour=belief.stated_per_hour)
                self.figures[name] = known.followed(belief, rates=self._rates, sizes=self._sizes)
        try:
            found = {name: self._as_measured(stated) for name, stated in list(self._all_stated.items())}
        except PolicyError:
            self.figures, self.curves = before, old_curves
            raise
        planned = self.planned.items()
        if not any(
            found[name] is not known and classes_differ(found[name], known) for name, known in planned
        ):
            # Keep the old figures, so that new variants of a class are planned with the same ones.
            self.figures = before
            return False
        self._plan_by(found)
        return True

    def learn_rhythm(self, rows: Iterable[Sample], *, now: float) -> bool:
        """Estimate the weekly rhythm of arrivals, if rates are followed; return whether it is new.

        It is new if a day of the week, or an hour of the day, differs by more than a plan may be off.
        """
        if not self._rates:
            return False
        work = {name: found.size_gpu_hours for name, found in self.classes.items()}
        found, known = rhythm_of(rows, work, now=now), self.rhythm
        is_new = known is not None if found is None else found.differs(known, by=CHANGE_THRESHOLD)
        if is_new:
            self.rhythm = found
        return is_new

    def take_back(self, figures: Mapping[str, PlannedFigures]) -> None:
        """Return to earlier rates and sizes."""
        self.figures = dict(figures)
        self._plan_by({name: self.measured(stated) for name, stated in list(self._all_stated.items())})

    def _as_measured(self, stated: JobClass) -> JobClass:
        """Return `measured`, made anew only if the class's own figures or speeds are new."""
        base = stated.name.partition("[")[0]
        figures, known, speeds = (
            self.figures.get(base),
            self._measured.get(stated.name),
            self._speeds_of(stated),
        )
        if known is None or known[:2] != (stated, figures) or not _are_same(known[2], speeds):
            known = self._measured[stated.name] = stated, figures, speeds, self.measured(stated)
        return known[3]

    def _speeds_of(self, stated: JobClass) -> _Speeds:
        """Return the estimated speeds of a class or a variant, by GPU type."""
        base = stated.name.partition("[")[0]
        keys = [(base, name) for name in stated.phases[0].speedups]
        return tuple(self.curves[key].widths for key in keys if key in self.curves)

    def measured(self, stated: JobClass) -> JobClass:
        """Return a class or a variant with the measurements of its class."""
        base = self.stated[stated.name.partition("[")[0]]
        speeds, known = self._speeds_of(stated), self._with_speeds.get(stated.name)
        # A rate that changes does not change the speeds of hundreds of phases.
        if known is None or known[0] != stated or not _are_same(known[1], speeds):
            found = measured_class(stated, list(self.curves.values()), base=base)
            known = self._with_speeds[stated.name] = stated, speeds, found
        figures = self.figures.get(base.name)
        return known[2] if figures is None else figures.of(known[2])

    def _plan_by(self, found: dict[str, JobClass]) -> None:
        self.planned = found
        self.classes = {name: found[name] for name in self.stated}


def _are_same(some: _Speeds, others: _Speeds) -> bool:
    """Return whether speeds are the same: estimates are replaced and not changed, so identity tells."""
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


@dataclass(slots=True)
class LearningStep:
    """The learner, the beliefs about classes, and the width trials of jobs.

    Without `at_once` new speeds wait for the next estimate of a rate, unless a job tries a width or nothing
    was measured before; this is faster in simulated time.
    """

    learner: Learner = field(default_factory=Learner)
    beliefs: Beliefs = field(default_factory=Beliefs)
    tries: WidthTrials = field(default_factory=WidthTrials)
    at_once: bool = True
    _rhythm_day: int | None = None

    def follow(
        self,
        classes: LearntClasses,
        done_by_class: Callable[[], Mapping[str, Collection[float]]],
        *,
        now: float,
    ) -> bool:
        """Save what was seen and estimate what is due; return whether the classes are planned anew.

        `done_by_class` gives the work, over their scales, that unfinished jobs have done.

        Raises:
            PolicyError: when no problem has such figures; the classes keep their earlier ones.
        """
        learner, life = self.learner, self.beliefs.weights.half_life_hours
        learner.save(now, kept_seconds=max(KEPT_SECONDS, MOST_HALF_LIVES * HOUR * life))
        classes.adopt(list(learner.seen))
        due = self.beliefs.due(list(classes.stated), learner.seen, events=learner.events, now=now)
        running = done_by_class() if due else {}
        for name in due:
            self.beliefs.refresh(
                classes.stated[name],
                learner.rows_of(name),
                running.get(name, ()),
                is_rate_stated=name not in classes.unstated,
                events=learner.events[name],
                now=now,
            )
        is_first = not classes.curves and bool(learner.samples)
        has_rhythm = False
        if (day := int(now // DAY)) != self._rhythm_day:
            self._rhythm_day = day
            has_rhythm = classes.learn_rhythm(learner.rows.values(), now=now)
        if not (due or is_first or (learner.has_news and (self.at_once or self.tries.explorations))):
            return has_rhythm
        curves = classes.curves
        if learner.has_news or is_first:
            curves = learner.curves(list(classes.stated.values()), now=now)
        if not due and curves is classes.curves:
            return has_rhythm
        return classes.learn(curves, self.beliefs.known) or has_rhythm

    def explore(
        self,
        classes: LearntClasses,
        jobs: Callable[[], Mapping[JobId, JobState]],
        *,
        worth: GpuHourWorth | None,
        now: float,
        believed: Callable[[Job], Job] = lambda job: job,
    ) -> Mapping[JobId, Exploration]:
        """Let a few jobs try widths whose speed is worth more than the trial costs; return the new trials.

        `believed` gives a job of `jobs` with the work left that it is believed to have.
        """
        if worth is None or self.tries.fraction <= 0.0 or not classes.curves:
            return {}
        before = self.tries.explorations
        curves = list(classes.curves.values())
        self.tries.update(
            jobs(), curves, classes.planned, self.learner, worth=worth, now=now, believed=believed
        )
        return {job: found for job, found in self.tries.explorations.items() if job not in before}
