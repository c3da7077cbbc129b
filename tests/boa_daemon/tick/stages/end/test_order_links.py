"""The plan records who sends first on shared links: in the plan's order or in the gate's."""

from __future__ import annotations

from dataclasses import replace

from drafts import a_draft, a_plan

from boa_daemon.testing import a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.facts.state import GatedLink, GateView
from boa_daemon.tick.stages.end.order_links import order_links


def a_link(*jobs: str, is_ordered: bool = True) -> GatedLink:
    """Return a link on which these jobs send."""
    return GatedLink(jobs=jobs, is_ordered=is_ordered, why="")


def test_the_plan_lists_the_links_on_which_the_gate_orders_several_jobs() -> None:
    """Links with one job, links without an order and states without a gate are left out."""
    draft = a_draft()
    state = a_state(a_job("a"), a_job("b"))
    assert order_links(state, draft) is draft
    links = {"n1": a_link("b", "a"), "n2": a_link("a"), "n3": a_link("a", "b", is_ordered=False)}
    found = order_links(replace(state, gate=GateView(links=links, jobs={})), draft)
    assert found.plan.link_order == {"n1": ("b", "a")}
    none = replace(state, gate=GateView(links={"n2": a_link("a")}, jobs={}))
    assert order_links(none, draft) is draft


def test_in_the_simulator_the_link_order_follows_the_planned_slots() -> None:
    """The job with one hour left sends before the job with two; without slots the order is empty."""
    state = a_state(a_job("a", remaining_gpu_hours=2.0), a_job("b"), nodes=[a_node("n1"), a_node("n2")])
    slots = {job: some_slots("n1", at) + some_slots("n2", at) for at, job in enumerate("ab")}
    site = rules(orders_links=True)
    found = order_links(state, a_draft(site=site, plan=a_plan(slots=slots)))
    assert found.plan.link_order == {"n1": ("b", "a"), "n2": ("b", "a")}
    assert order_links(state, a_draft(site=site)).plan.link_order == {}
