"""What a scrape says after ticks, failures and changes of purses."""

from __future__ import annotations

from typing import Any

from boa_daemon.daemon.watch.decision_summary import DecisionSummary
from boa_daemon.daemon.watch.metrics import Metrics
from boa_daemon.daemon.watch.purse_alerts import Purse
from boa_daemon.testing import a_job, a_node, a_state, some_slots
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.actions import StopJob, TerminateNode
from boa_daemon.tick.facts.limits import Caps, Held
from boa_daemon.tick.facts.plan import Plan, PlannedJobs
from policies.online.best_effort import Shortfall


def a_picture(*phases: Any, caps: Caps | None = None, **waiting: Any) -> DecisionSummary:
    """Return the summary of a decision that stops a job and ends a node."""
    nodes = [
        a_node("n0"),
        *(a_node(f"n{number}", phase=phase) for number, phase in enumerate(phases, start=1)),
    ]
    state = a_state(a_job("a"), a_job("b"), nodes=nodes, held={"a": some_slots("n0", 0)}, now=500.0)
    plan = Plan(jobs=PlannedJobs(waiting=waiting), held=(Held(what="x", code="cap-day"),))
    actions = (StopJob(id="s", job="a", generation=1, reason=""), TerminateNode(id="t", node="n0", reason=""))
    return DecisionSummary.of(Decision(state=state, plan=plan, actions=actions), caps)


def value(metrics: Metrics, name: str, /, **labels: str) -> float | None:
    """Return one sample of a scrape; None if it is not there."""
    return metrics.registry.get_sample_value(name, labels)


def test_a_tick_sets_what_there_is_and_counts_what_was_done() -> None:
    """Counters add up over ticks; gauges of reasons and phases that are gone are gone."""
    metrics = Metrics()
    metrics.ticked(a_picture("requested", "requested", b="node-limit"), 0.2)
    metrics.ticked(a_picture("stopped", b="cap-day"), 0.4)
    assert value(metrics, "boa_ticks_total", outcome="done") == 2.0
    assert value(metrics, "boa_tick_duration_seconds_sum") == 0.2 + 0.4
    assert value(metrics, "boa_actions_total", kind="stop") == 2.0
    assert value(metrics, "boa_actions_total", kind="terminate") == 2.0
    assert value(metrics, "boa_held_total", code="cap-day") == 2.0
    assert value(metrics, "boa_jobs", state="running") == 1.0
    assert value(metrics, "boa_jobs", state="waiting") == 1.0
    assert value(metrics, "boa_jobs_waiting", reason="cap-day") == 1.0
    assert value(metrics, "boa_jobs_waiting", reason="node-limit") is None
    assert value(metrics, "boa_nodes", phase="stopped") == 1.0
    assert value(metrics, "boa_nodes", phase="requested") is None
    assert value(metrics, "boa_last_tick_timestamp_seconds") == 500.0


def test_a_failed_tick_is_a_fault_until_the_next_one_is_done() -> None:
    """The last tick that was done stays the last."""
    metrics = Metrics()
    metrics.failed()
    assert value(metrics, "boa_ticks_total", outcome="failed") == 1.0
    assert value(metrics, "boa_fault") == 1.0
    metrics.ticked(a_picture(), 0.1)
    assert value(metrics, "boa_fault") == 0.0


def test_a_window_without_a_cap_has_no_cap_and_not_one_of_nothing() -> None:
    """An alert on spent over cap would fire for a cap of zero."""
    metrics = Metrics()
    metrics.ticked(a_picture(caps=Caps(usd_per_day=50.0)), 0.1)
    assert value(metrics, "boa_cap_dollars", window="day") == 50.0
    assert value(metrics, "boa_cap_dollars", window="month") is None
    assert value(metrics, "boa_spent_dollars", window="month") is not None


def test_purses_of_teams_and_users_have_series_those_of_jobs_none() -> None:
    """A purse that is gone leaves no series behind."""
    metrics = Metrics()
    ann = Purse(
        kind="user", name="ann", window="day 2026-11-28", spent_usd=1.0, cap_usd=9.0, reserved_usd=2.0
    )
    job = Purse(kind="job", name="a-1", window="", spent_usd=1.0, cap_usd=9.0)
    metrics.purses([ann, job])
    labels = {"kind": "user", "name": "ann", "window": "day"}
    found = [value(metrics, f"boa_purse_{what}_dollars", **labels) for what in ("spent", "reserved", "cap")]
    assert found == [1.0, 2.0, 9.0]
    assert value(metrics, "boa_purse_spent_dollars", kind="job", name="a-1", window="") is None
    metrics.purses([])
    assert value(metrics, "boa_purse_cap_dollars", **labels) is None


def test_a_shortfall_is_said_and_taken_back() -> None:
    """Zero growth while the budget pays for the load."""
    metrics = Metrics()
    short = Shortfall(
        budget=1.0, least_spend=4.0, unit="usd_per_hour", jobs_per_hour=2.0, gpu_hours_per_hour=3.0, served={}
    )
    for shortfall, expected in ((short, [1.0, 4.0, 2.0, 3.0]), (None, [0.0] * 4)):
        metrics.goes_so_far(shortfall)
        assert [
            value(metrics, "boa_best_effort"),
            value(metrics, "boa_least_budget_dollars_per_hour"),
            value(metrics, "boa_queue_growth_per_hour", of="jobs"),
            value(metrics, "boa_queue_growth_per_hour", of="gpu_hours"),
        ] == expected


def test_a_lost_net_is_one_and_a_found_one_zero() -> None:
    """The text of a scrape has the sample."""
    metrics = Metrics()
    metrics.net_is_lost("notifier", True)
    assert b'boa_safety_net_lost{net="notifier"} 1.0' in metrics.text()
    metrics.net_is_lost("notifier", False)
    assert value(metrics, "boa_safety_net_lost", net="notifier") == 0.0
