"""Comparison of drawn load with a trace: a right fit passes, and a wrong fit is named."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from boa_daemon.cli.plan.demo import shipped_settings
from boa_daemon.lab.traces.goodness_of_fit import LEVEL, GoodnessOfFit, goodness_of_fit
from boa_daemon.lab.traces.load_model import HOURS_PER_WEEK, TraceLoad, fit_load
from boa_daemon.traces.reader import Trace, TraceJob

DAYS = 21.0
TRUE = TraceLoad(
    rates={
        "day": tuple(6.0 if 8 <= hour % 24 < 20 else 1.0 for hour in range(HOURS_PER_WEEK)),
        "night": (2.0,) * HOURS_PER_WEEK,
    },
    burstiness=0.2,
    submissions={"day": (((0.0, 0.5),), ((0.0, 2.0),)), "night": (((0.0, 1.0), (0.5, 4.0)),)},
    hours=24.0 * DAYS,
)


def told(trace: Trace, load: TraceLoad | None = None, *, draws: int = 200) -> GoodnessOfFit:
    """Fit a load to a trace, and compare draws of the load with the trace."""
    return goodness_of_fit(trace, fit_load(trace) if load is None else load, draws=draws)


def wrong(found: GoodnessOfFit) -> set[str]:
    """Return the names of the groups that differ."""
    return {group.name for group in found.groups if not group.is_like}


def jobs_at(times: np.ndarray, scales: np.ndarray | None = None) -> Trace:
    """Return a trace of one class."""
    sizes = np.ones(len(times)) if scales is None else scales
    order = np.argsort(times)
    return Trace(
        tuple(
            TraceJob(str(n), float(t), "a", float(s))
            for n, (t, s) in enumerate(zip(times[order], sizes[order], strict=True))
        )
    )


@pytest.mark.exhaustive  # The tests of `boa trace fit` also check the shipped trace.
def test_a_right_fit_is_like_its_trace() -> None:
    """At most two of ten generated traces are rejected, and the shipped trace is accepted."""
    shipped = told(shipped_settings("30/h").trace)
    found = [told(TRUE.draw(TRUE.hours, seed=seed), draws=120) for seed in range(10)]

    assert shipped.is_like, shipped.sentence
    assert sum(not one.is_like for one in found) <= 2
    assert "like the trace: all 9" in shipped.sentence


@pytest.mark.exhaustive
def test_the_intervals_hold_95_per_cent_of_the_figures_of_a_right_load() -> None:
    """A whole comparison is rejected about one time in 20."""
    inside, tells = [], 0
    for seed in range(12):
        # Hours are counted from the first job.
        jobs = TRUE.draw(TRUE.hours, seed=100 + seed).jobs
        found = goodness_of_fit(Trace((TraceJob("first", 0.0, "day", 0.5), *jobs)), TRUE, draws=200)
        inside += [figure.is_inside for group in found.groups for figure in group.figures]
        tells += not found.is_like
    assert np.mean(inside) == pytest.approx(0.95, abs=0.02)
    assert tells <= 3, f"of 12, where {LEVEL:.0%} are expected"


@pytest.mark.parametrize(
    ("change", "group"),
    [
        ({"rates": {"day": (6.0,) * 168, "night": (2.0,) * 168}}, "hours of week"),
        ({"burstiness": 3.0}, "bursts"),
        ({"submissions": {**TRUE.submissions, "day": (((0.0, 3.0),),)}}, "sizes"),
        ({"growth_per_week": 0.5}, "days"),
    ],
)
def test_a_wrong_parameter_is_reported_in_its_group(change: dict[str, object], group: str) -> None:
    """The load differs in one parameter from the load of the trace."""
    found = told(TRUE.draw(TRUE.hours, seed=1), replace(TRUE, **change))

    assert group in wrong(found)
    assert f"NOT like the trace in {len(wrong(found))} group" in found.sentence
    assert f"{group}: " in found.sentence


def test_effects_outside_the_model_are_reported() -> None:
    """The effects are chains of jobs, busy days, and sizes that grow."""
    dice = np.random.default_rng(1)
    at = np.sort(dice.random(400) * 14.0 * 86_400.0)
    chains = jobs_at(np.concatenate([at, at + 30.0 + dice.random(400)]))
    per_day = np.where(np.arange(28) % 3 == 0, 90, 10)
    busy = jobs_at(np.concatenate([86_400.0 * (day + dice.random(jobs)) for day, jobs in enumerate(per_day)]))
    growing = jobs_at(at, np.exp(at / at[-1] * 3.0))

    assert "gaps" in wrong(told(chains))
    assert "days" in wrong(told(busy))
    assert "work over time" in wrong(told(growing))


def test_the_document_has_every_figure_with_its_interval() -> None:
    """It can be written as JSON, and counts the figures outside of their intervals."""
    found = told(TRUE.draw(96.0, seed=3))
    document = json.loads(json.dumps(found.to_document()))

    by_name = {group["name"]: group for group in document["groups"]}
    assert document["draws"] == 200
    assert len(by_name["hours of week"]["figures"]) in {95, 96}
    assert {figure["name"] for figure in by_name["classes"]["figures"]} == {"day", "night"}
    for group in document["groups"]:
        outside = [f for f in group["figures"] if not f["low"] <= f["seen"] <= f["high"]]
        assert group["outside"] == len(outside)
