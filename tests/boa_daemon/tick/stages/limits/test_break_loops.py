"""Launches are paused after many in a row that let no job start; ineffective ends of nodes are reported."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from drafts import a_draft, a_plan, gpus

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules
from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.limits import Act, ActKind, Held, Steady
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.stages.limits.break_loops import break_loops
from policies.model import Width

NOW = 10_000.0
STEADY = Steady(loop_times=3, loop_seconds=3600.0, launch_seconds=900.0)
SITE = rules(steady=STEADY)


def acts(kind: ActKind, target: str, *before: float) -> tuple[Act, ...]:
    """Return the same act at several times, each given in seconds before now."""
    return tuple(Act(kind=kind, target=target, at=NOW - seconds) for seconds in before)


def wanting(**changes: object) -> Draft:
    """Return a draft that rents two nodes for job a and one of another type for job b."""
    other = an_instance_type(gpu_type="other")
    plan = a_plan(
        widths={**gpus(a=8), "b": Width("other", 1)},
        launches={"gpu-x4": 2, "other-x4": 1},
        instance_types={"gpu-x4": an_instance_type(), "other-x4": other},
        waiting={"a": "nodes-to-come", "b": "nodes-to-come", "c": "resting"},
    )
    return a_draft(site=SITE, **({"plan": plan} | changes))


def broken(history: Sequence[Act], draft: Draft) -> Plan:
    """Return the plan of the stage after the given acts."""
    jobs = map(a_job, "abc")
    state = a_state(*jobs, nodes=[a_node()], now=NOW, acts=tuple(history))
    return break_loops(state, draft).plan


def test_launches_in_a_row_without_a_start_are_paused_until_the_first_is_an_hour_old() -> None:
    """Only the repeated type is paused: the other type is rented, and wait reasons of other jobs stay."""
    plan = broken(acts("launch", "gpu-x4", 900.0, 500.0, 10.0), wanting())

    assert plan.launches == {"other-x4": 1}
    assert plan.jobs.waiting == {"a": "loop", "b": "nodes-to-come", "c": "resting"}
    assert plan.wake_at == NOW - 900.0 + 3600.0
    numbers = {"launches": 3.0, "starts": 0.0, "seconds": 900.0}
    assert plan.held == (Held(what="2 gpu-x4", code="loop", numbers=numbers),)


@pytest.mark.parametrize(
    "history",
    [
        acts("launch", "gpu-x4", 900.0, 10.0),
        acts("launch", "gpu-x4", 899.0, 500.0, 10.0),
        acts("launch", "gpu-x4", 900.0, 500.0) + acts("start", "z", 400.0) + acts("launch", "gpu-x4", 10.0),
        acts("launch", "gone-x4", 900.0, 500.0, 10.0),
        acts("stop", "gpu-x4", 900.0, 500.0, 10.0),
    ],
)
def test_few_or_quick_launches_or_a_start_between_them_are_no_loop(history: tuple[Act, ...]) -> None:
    """Launches of a type that the plan does not rent, and other acts, are no loop either."""
    draft = wanting()
    assert broken(history, draft) is draft.plan


def test_more_launches_over_a_longer_time_are_also_a_loop() -> None:
    """Four launches over 901 s are paused where three over 900 s are the limit."""
    plan = broken(acts("launch", "gpu-x4", 901.0, 800.0, 500.0, 10.0), wanting())
    assert plan.held[0].numbers == {"launches": 4.0, "starts": 0.0, "seconds": 901.0}


def test_launches_are_not_paused_without_rules_against_flapping() -> None:
    """The same launches stay in the plan if the settings have no such rules."""
    draft = wanting(rules=rules())
    assert broken(acts("launch", "gpu-x4", 900.0, 500.0, 10.0), draft) is draft.plan


@pytest.mark.parametrize(
    ("before", "orders"),
    [((3600.0, 100.0, 10.0), 3.0), ((3601.0, 100.0, 10.0), None), ((3601.0, 30.0, 20.0, 10.0), 3.0)],
)
def test_the_end_of_a_node_is_ordered_again_and_reported_after_three_orders_in_an_hour(
    before: tuple[float, ...], orders: float | None
) -> None:
    """The release stays in the plan: only a note is added."""
    plan = a_plan(releases=("n1",), held=(Held(what="x", code="cap-day"),))
    found = broken(acts("terminate", "n1", *before), wanting(plan=plan))
    note = Held(what="the end of node n1", code="no-effect", numbers={"orders": orders or 0.0})
    assert found.releases == ("n1",)
    assert found.held == (plan.held if orders is None else (*plan.held, note))
    assert found.wake_at is None
