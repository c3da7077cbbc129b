"""An independent reader checks each sentence where several limits hold at once, and in the course of days."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from capped_sites import a_capped_site
from hypothesis import given, settings
from hypothesis import strategies as st
from load_scenarios import NODE, PROBLEM, Scenario, a_trace_of
from reason_reader import untruths
from sampling import sampled

from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.limits import Caps, Steady
from policies.model import Budget


@settings(max_examples=sampled(400), deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_said_is_true_whatever_limits_bind(seed: int) -> None:
    """Nodes, dollars per hour, day and month, quotas, stock, purses, dates, two GPU types, a short budget."""
    site = a_capped_site(seed)
    assert untruths(site.decision, site.rules) == []


class _IsOver(Exception):
    """The part of the day to be read is over."""


@pytest.mark.parametrize(
    ("budget", "caps", "most_nodes", "learns"),
    [
        (4.0, {"usd_per_hour": 8.0}, None, False),
        (4.0, {"usd_per_day": 30.0}, 5, False),
        (6.0, {}, None, True),
        (20.0, {"usd_per_hour": 16.0, "usd_per_day": 10.0}, 3, True),
        (12.0, {"usd_per_month": 60.0}, None, False),
        (28.0, {}, 2, False),
    ],
)
def test_what_is_said_stays_true_from_tick_to_tick(
    budget: float, caps: dict[str, Any], most_nodes: int | None, learns: bool
) -> None:
    """Three hours of jobs under a cap, below the load or above it, told and learning."""
    classes = [replace(one, arrivals_per_hour=one.arrivals_per_hour / 4.0) for one in PROBLEM.classes]
    run = prepare(
        SimulationSettings(
            trace=a_trace_of(Scenario(name="steady"), classes, hours=3.0, seed=1),
            problem=replace(PROBLEM, classes=tuple(classes)),
            instance_types={"gpu": NODE},
            budget=Budget(amount=budget),
            policy="boa-paced",
            best_effort=True,
            learns=learns,
            max_nodes=most_nodes,
            outages=((3600.0, 5400.0),),
        )
    )
    hard = Caps(tick_seconds=300.0, **caps) if caps else None
    rules = replace(run.controller.rules, caps=hard, steady=Steady())
    run = replace(run, controller=replace(run.controller, rules=rules))
    ticks = 0

    def read(decision: Decision) -> None:
        nonlocal ticks
        ticks += 1
        if decision.state.now > 3.0 * 3600.0:
            raise _IsOver
        if ticks % 3 == 0:
            assert untruths(decision, rules) == []

    with pytest.raises(_IsOver):
        run.finish(read)
    assert ticks >= 40
