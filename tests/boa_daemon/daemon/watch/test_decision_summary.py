"""A summary counts what runs: stopped nodes are no nodes, and held GPUs are used."""

from __future__ import annotations

from boa_daemon.daemon.watch.decision_summary import DecisionSummary
from boa_daemon.testing import a_job, a_node, a_state, some_slots
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.limits import Caps, Held
from boa_daemon.tick.facts.plan import Plan

HELD = tuple(Held(what=f"job {number}", code="cap-day") for number in range(12))
STATE = a_state(
    *(a_job(name) for name in "abc"),
    nodes=[a_node("n1"), a_node("n2", phase="requested"), a_node("n3", gpus=2, phase="stopped")],
    held={"a": some_slots("n1", 0, 1, 2)},
    now=3600.0,
)


def test_a_summary_counts_jobs_nodes_and_gpus() -> None:
    """One of three jobs runs, on three of the ten GPUs; one of three nodes is stopped."""
    found = DecisionSummary.of(
        Decision(state=STATE, plan=Plan(held=HELD), actions=()), Caps(usd_per_day=50.0)
    )
    assert (found.running, found.waiting) == (1, 2)
    assert (found.nodes, found.stopped) == (2, 1)
    assert (found.gpus, found.gpus_used) == (10, 3)
    assert found.usd_per_hour == STATE.usd_per_hour
    assert found.figures["day"]["cap_usd"] == 50.0
    assert found.held == tuple(held.sentence for held in HELD[:10])
