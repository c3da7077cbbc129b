"""`learning/learning_step.py`: when new figures make a new plan, and when a class is looked at."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from boa_daemon.learning import learning_step as module
from boa_daemon.learning.beliefs import ClassBelief, PlannedFigures
from boa_daemon.learning.learning_step import LearningStep, LearntClasses
from boa_daemon.learning.speedups import CurveEstimate, WidthEstimate
from boa_daemon.testing import a_class
from policies.errors import PolicyError
from policies.online.estimates import Belief
from policies.speedup import Table

TABLE = Table(gpus=(1, 2, 4), speeds=(1.0, 1.8, 3.0))
STATED = {name: a_class(name, sizes=(4.0,), arrivals_per_hour=2.0, curve=TABLE) for name in ("c", "d")}
VARIANT = a_class("c[1-2]", sizes=(4.0,), arrivals_per_hour=2.0, curve=Table(gpus=(1, 2), speeds=(1.0, 1.8)))
DAY = 86_400.0


def a_belief(name: str = "c", *, rate: float = 2.0, size: float = 4.0) -> ClassBelief:
    """Return a belief that is sure to a fiftieth."""
    each = [Belief(mean=mean, low=mean * 0.98, high=mean * 1.02) for mean in (rate, size)]
    return ClassBelief(name=name, rate=each[0], size=each[1], stated_per_hour=2.0, stated_gpu_hours=4.0)


def a_curve(name: str = "c", *, two: float = 1.0) -> dict[tuple[str, str], CurveEstimate]:
    """Return the measured curve of a class; `two` is the speed-up at two GPUs."""
    widths = tuple(
        WidthEstimate(
            gpus=gpus,
            samples_per_second=speed,
            speedup=speed,
            spread=0.01,
            measured_seconds=600.0,
            measurements=5,
        )
        for gpus, speed in ((1, 1.0), (2, two), (4, 3.0))
    )
    flat = tuple(tuple(1e-4 if row == column else 0.0 for column in range(3)) for row in range(3))
    return {(name, "gpu"): CurveEstimate(class_name=name, gpu_type="gpu", widths=widths, covariance=flat)}


def classes(**changes: Any) -> LearntClasses:
    """Return the two classes as stated, with a variant of the first that a planner has added."""
    found = LearntClasses(STATED, **changes)
    found._all_stated[VARIANT.name] = VARIANT
    found.planned = dict(found._all_stated)
    return found


def test_figures_within_a_tenth_make_no_plan_and_are_not_taken() -> None:
    """New variants are planned with the figures of the plan."""
    found = classes()
    assert not found.learn({}, {"c": a_belief(rate=2.1, size=4.2)})
    assert (found.figures, found.planned["c"]) == ({}, STATED["c"])


def test_new_figures_are_those_of_the_class_and_of_its_variants() -> None:
    """Other classes stay, and a belief about a class that is gone changes nothing."""
    found = classes()
    assert found.learn({}, {"c": a_belief(rate=3.0, size=8.0), "gone": a_belief("gone", rate=9.0)})
    for name in ("c", VARIANT.name):
        assert (found.planned[name].arrivals_per_hour, found.planned[name].size_gpu_hours) == (3.0, 8.0)
    assert (found.planned["d"], set(found.classes), set(found.figures)) == (STATED["d"], {"c", "d"}, {"c"})
    assert not found.learn({}, {"c": a_belief(rate=3.0, size=8.0)})
    assert found.learn({}, {"c": a_belief(rate=2.0, size=8.0)})


@pytest.mark.parametrize(
    ("follows", "planned"),
    [({"rates": False}, (2.0, 8.0)), ({"sizes": False}, (3.0, 4.0)), ({}, (3.0, 8.0))],
)
def test_a_plan_follows_only_what_it_shall(follows: dict[str, bool], planned: tuple[float, float]) -> None:
    """Rates may be promised, and sizes known."""
    found = classes(**follows)
    found.learn({}, {"c": a_belief(rate=3.0, size=8.0)})
    assert (found.planned["c"].arrivals_per_hour, found.planned["c"].size_gpu_hours) == planned


def test_measured_speeds_are_always_followed() -> None:
    """Also by variants, and beside a new rate, whose class is made anew."""
    found = classes(rates=False, sizes=False)
    assert found.learn(a_curve(two=1.4))
    for name in ("c", VARIANT.name):
        assert float(found.planned[name].phases[0].speedups["gpu"].speed_at(2)) == pytest.approx(
            1.4, rel=0.05
        )
    assert not found.learn(found.curves)
    assert found.planned["d"] is STATED["d"]
    both = classes()
    assert both.learn(curves := a_curve(two=1.4))
    assert both.learn(curves, {"c": a_belief(rate=9.0)})
    assert both.planned["c"].arrivals_per_hour == 9.0
    assert both.learn(a_curve(two=1.0), {"c": a_belief(rate=9.0)})
    assert float(both.planned["c"].phases[0].speedups["gpu"].speed_at(2)) < 1.2


def test_figures_that_make_no_problem_leave_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Curves, too: the next step tries again."""
    found = classes()
    found.learn(curves := a_curve(two=1.4), {"c": a_belief(rate=3.0)})
    before = dict(found.figures), dict(found.planned)

    def refuse(self: object, job_class: object) -> object:
        raise PolicyError("impossible")

    monkeypatch.setattr(PlannedFigures, "of", refuse)
    with pytest.raises(PolicyError):
        found.learn(a_curve(two=1.0), {"c": a_belief(rate=9.0)})
    assert (found.figures, found.planned, found.curves) == (*before, curves)


def test_a_plan_goes_back_to_earlier_figures() -> None:
    """The speeds stay as measured."""
    found = classes()
    found.learn(a_curve(two=1.4), {"c": a_belief(rate=3.0)})
    found.take_back({})
    assert found.figures == {}
    assert found.planned["c"].arrivals_per_hour == found.planned[VARIANT.name].arrivals_per_hour == 2.0
    assert float(found.planned["c"].phases[0].speedups["gpu"].speed_at(2)) == pytest.approx(1.4, rel=0.05)


def test_a_rhythm_is_new_when_it_differs_comes_or_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rates there is none to follow."""
    rhythms: list[Any] = []
    monkeypatch.setattr(module, "rhythm_of", lambda rows, work, now: rhythms[-1])
    found = classes()

    def learnt(rhythm: Any) -> bool:
        rhythms.append(rhythm)
        return found.learn_rhythm([], now=0.0)

    same, other = (SimpleNamespace(differs=lambda known, by, is_so=is_so: is_so) for is_so in (False, True))
    assert [learnt(None), learnt(other), learnt(same), learnt(other)] == [False, True, False, True]
    assert found.rhythm is other
    assert (learnt(None), found.rhythm, learnt(None)) == (True, None, False)
    found = classes(rates=False)
    assert (learnt(other), found.rhythm) == (False, None)


class Step:
    """A learning step whose learner, beliefs and trials note what they are asked."""

    def __init__(self, *, at_once: bool = True, due: tuple[str, ...] = (), has_news: bool = False) -> None:
        self.refreshed: list[tuple[Any, ...]] = []
        self.kept: list[float] = []
        self.due, self.curves = list(due), a_curve(two=1.4)
        self.learner = SimpleNamespace(
            seen={"c"}, events=Counter({"c": 3}), rows={}, samples=[], has_news=has_news,
            save=lambda now, kept_seconds: self.kept.append(kept_seconds),
            rows_of=lambda name: [f"row of {name}"],
            curves=lambda classes, now: self.curves,
        )  # fmt: skip
        self.beliefs = SimpleNamespace(
            weights=SimpleNamespace(half_life_hours=168.0), known={"c": a_belief(rate=3.0)},
            due=lambda names, seen, events, now: self.due, refresh=self._refresh,
        )  # fmt: skip
        self.tries = SimpleNamespace(explorations={}, fraction=0.1, update=self._update)
        self.step = LearningStep(
            learner=cast(Any, self.learner),
            beliefs=cast(Any, self.beliefs),
            tries=cast(Any, self.tries),
            at_once=at_once,
        )
        self.classes = classes(unstated=frozenset({"d"}))

    def _refresh(self, stated: Any, rows: Any, running: Any, **how: Any) -> None:
        self.refreshed.append((stated.name, rows, running, how["is_rate_stated"], how["events"]))

    def _update(self, *_: object, **__: object) -> None:
        self.tries.explorations = {"a": "old", "b": "new"}

    def follow(self, now: float = 0.0, done: Any = None) -> bool:
        """Take a step."""
        return self.step.follow(self.classes, done or (lambda: {"c": [1.0]}), now=now)


def test_what_is_due_is_estimated_and_planned() -> None:
    """With the work of running jobs, which is asked for only then; rows are kept as long as they count."""
    step = Step(due=("c", "d"))
    assert step.follow()
    assert step.refreshed == [("c", ["row of c"], [1.0], True, 3), ("d", ["row of d"], (), False, 0)]
    assert step.classes.planned["c"].arrivals_per_hour == 3.0
    assert step.kept[0] >= 13 * 168 * 3600
    step.due.clear()
    assert not step.follow(done=lambda: pytest.fail("it asked"))


@pytest.mark.parametrize(
    ("at_once", "explores", "is_planned"), [(True, False, True), (False, False, False), (False, True, True)]
)
def test_new_speeds_wait_for_the_next_rate_unless_they_are_wanted_at_once(
    at_once: bool, explores: bool, is_planned: bool
) -> None:
    """A job that tries a width wants to know; so do those who have measured nothing yet."""
    step = Step(at_once=at_once, has_news=True)
    step.classes.curves = a_curve("d", two=1.8)
    step.tries.explorations = {"a": 1} if explores else {}
    assert step.follow() == is_planned
    first = Step(at_once=False)
    first.learner.samples = ["one"]
    assert first.follow()


def test_without_news_the_known_speeds_are_used() -> None:
    """They are not made again for each rate."""
    step = Step(due=("c",))
    step.learner.curves = lambda classes, now: pytest.fail("it was made again")
    assert step.follow()
    quiet = Step(has_news=True)
    quiet.classes.curves = quiet.curves
    assert not quiet.follow()


def test_the_rhythm_is_looked_at_once_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one makes a plan by itself."""
    step = Step()
    looks: list[float] = []
    monkeypatch.setattr(LearntClasses, "learn_rhythm", lambda self, rows, now: looks.append(now) or True)
    assert [step.follow(now) for now in (0.0, DAY - 1.0, DAY, DAY + 9.0)] == [True, False, True, False]
    assert looks == [0.0, DAY]


@pytest.mark.parametrize("without", ["worth", "fraction", "curves", ""])
def test_widths_are_tried_where_that_is_worth_something(without: str) -> None:
    """Not before anything was measured; only new trials are told."""
    step = Step()
    step.tries.explorations = {"a": "old"}
    step.classes.curves = {} if without == "curves" else a_curve()
    step.tries.fraction = 0.0 if without == "fraction" else 0.1
    worth = None if without == "worth" else cast(Any, lambda *_: 1.0)
    found = step.step.explore(step.classes, dict, worth=worth, now=0.0)
    assert found == ({} if without else {"b": "new"})
