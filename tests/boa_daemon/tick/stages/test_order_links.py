"""Who sends first: by the plan in the simulator, as the gate says elsewhere."""

from __future__ import annotations

from dataclasses import replace

from drafts import a_draft, a_plan

from boa_daemon.testing import a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.stages.order_links import order_links
from boa_daemon.tick.state import GatedLink, GateView


def a_link(*jobs: str, is_ordered: bool = True) -> GatedLink:
    """Return a link on which jobs send."""
    return GatedLink(jobs=jobs, is_ordered=is_ordered, why="")


def test_the_plan_names_the_links_that_the_gate_orders_between_several_jobs() -> None:
    """Not one that a single job uses, and not one without an order; None where there is no gate."""
    draft = a_draft()
    state = a_state(a_job("a"), a_job("b"))
    assert order_links(state, draft) is draft
    links = {"n1": a_link("b", "a"), "n2": a_link("a"), "n3": a_link("a", "b", is_ordered=False)}
    found = order_links(replace(state, gate=GateView(links=links, jobs={})), draft)
    assert found.plan.link_order == {"n1": ("b", "a")}
    none = replace(state, gate=GateView(links={"n2": a_link("a")}, jobs={}))
    assert order_links(none, draft) is draft


def test_in_the_simulator_the_order_is_that_of_the_slots_that_are_planned() -> None:
    """Both start across n1 and n2, with one hour and two left; before that nobody sends."""
    state = a_state(a_job("a", remaining_gpu_hours=2.0), a_job("b"), nodes=[a_node("n1"), a_node("n2")])
    slots = {job: some_slots("n1", at) + some_slots("n2", at) for at, job in enumerate("ab")}
    site = rules(orders_links=True)
    found = order_links(state, a_draft(site=site, plan=a_plan(slots=slots)))
    assert found.plan.link_order == {"n1": ("b", "a"), "n2": ("b", "a")}
    assert order_links(state, a_draft(site=site)).plan.link_order == {}
