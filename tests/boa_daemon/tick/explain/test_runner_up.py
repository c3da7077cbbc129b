"""The next best choice beside each decision, and the cost of both."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drafts import a_plan

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, some_slots
from boa_daemon.tick.explain.runner_up import Alternatives, Choice, WidthLimits, action_choice, width_choice
from boa_daemon.tick.facts.actions import LaunchNodes, StartJob, TerminateNode
from boa_daemon.tick.facts.offers import Cooldown, Offer
from boa_daemon.tick.facts.room_caps import RoomCap
from policies.model import Width

MACHINE = an_instance_type()
PRICES = {"a": 4.0, "b": 3.0, "c": 5.0, "d": None}
OFFERS = tuple(Offer(instance_type=MACHINE.name, zone=zone, usd_per_hour=usd) for zone, usd in PRICES.items())


def launch(zone: str | None, *, count: int = 2) -> LaunchNodes:
    """Return a launch of nodes in this zone."""
    offer = next((offer for offer in OFFERS if offer.zone == zone), None)
    return LaunchNodes(id="x", instance_type=MACHINE, count=count, offer=offer, reason="")


def test_the_runner_up_of_a_launch_is_the_cheapest_other_open_offer() -> None:
    """The cost is in USD per hour for all nodes; closed offers and offers without a price do not count."""
    state = a_state(offers=OFFERS)
    found = action_choice(state, launch("b"), {})
    assert found is not None
    assert (found.chosen, found.cost, found.runner_up, found.runner_up_cost, found.unit) == (
        "gpu-x4/b/on-demand", 6.0, "gpu-x4/a/on-demand", 8.0, "USD/hour"
    )  # fmt: skip
    closed = replace(state, cooldowns={"gpu-x4/a": Cooldown(until=1.0)})
    assert (other := action_choice(closed, launch("b"), {})) is not None
    assert other.runner_up == "gpu-x4/c/on-demand"


@pytest.mark.parametrize("zone", [None, "d"])
def test_a_launch_without_a_price_has_no_runner_up(zone: str | None) -> None:
    """The launch has no offer, or its offer has no price."""
    assert action_choice(a_state(offers=OFFERS), launch(zone), {}) is None


def test_an_only_offer_has_no_runner_up() -> None:
    """Offers of other types, and offers without a price, are no alternatives."""
    for others in ((OFFERS[3],), (replace(OFFERS[0], instance_type="other"),)):
        assert action_choice(a_state(offers=(OFFERS[1], *others)), launch("b"), {}) is None


def test_the_runner_up_of_ending_a_node_is_to_keep_it_at_its_price() -> None:
    """A node that is not in the state has no choice."""
    end = TerminateNode(id="x", node="n1", reason="")
    found = action_choice(a_state(nodes=[a_node("n1")]), end, {})
    assert found is not None
    assert (found.cost, found.runner_up_cost, found.unit) == (0.0, 4.0, "USD/hour")
    assert action_choice(a_state(), end, {}) is None


def test_a_policy_without_prices_has_no_choices() -> None:
    """There are no costs and no other width."""
    state, plan = a_state(), a_plan(widths={"a": Width("gpu", 1)}, slots={})
    assert Alternatives.of(state, plan).costs == (None, None)
    assert width_choice(state, plan, "a") is None
    start = StartJob(id="x", job="a", width=Width("gpu", 1), slots=(), generation=1, reason="")
    assert action_choice(state, start, {}) is None


def test_the_sentence_of_a_choice_says_whether_its_cost_includes_waiting() -> None:
    """USD are money and waiting together; USD per hour are money alone."""
    choice = Choice(chosen="2 x gpu", cost=4.0, runner_up="4 x gpu", runner_up_cost=5.5, unit="USD")
    assert choice.sentence == "2 x gpu, at $4.00 of money and waiting; 4 x gpu would be $5.50"
    assert replace(choice, unit="USD/hour").sentence == "2 x gpu, at $4.00/hour; 4 x gpu would be $5.50"
    assert choice.document == {
        "chosen": "2 x gpu", "cost": 4.0, "runner_up": "4 x gpu", "runner_up_cost": 5.5, "unit": "USD",
    }  # fmt: skip


@pytest.mark.parametrize("asked", ["ab", "ba"])
def test_room_for_a_wider_width_is_asked_of_each_job_whatever_was_asked_before(asked: str) -> None:
    """Of 4 GPUs a runs on 1, so 4 fit for it; b waits for 4: it may wait for as many, and never for 8."""
    cap = RoomCap(code="node-limit", name="cap", size=1.0, node_sizes={"gpu": 1.0}, gpus={"gpu": 4})
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0)})
    widths = {"a": Width("gpu", 1), "b": Width("gpu", 4)}
    plan = a_plan(widths=widths, slots={}, waiting={"b": "node-limit"}, room_caps=(cap,))
    limits = WidthLimits.of(state, plan)
    found = {
        (name, gpus): limits.allow(state.jobs[name].job, Width("gpu", gpus))
        for name in asked
        for gpus in (2, 4, 8)
    }
    assert {one for one, is_allowed in found.items() if not is_allowed} == {("a", 8), ("b", 8)}


def test_a_waiting_job_that_fits_beside_the_others_may_be_wider_within_the_cap() -> None:
    """A runs on 4 of 12 GPUs b waits for 4: its own 4 are not in its way; 8 are possible, not 9."""
    cap = RoomCap(code="node-limit", name="cap", size=3.0, node_sizes={"gpu": 1.0}, gpus={"gpu": 4})
    held = {"a": some_slots("n1", 0, 1, 2, 3)}
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("n1")], held=held)
    widths = {name: Width("gpu", 4) for name in "ab"}
    plan = a_plan(widths=widths, slots={}, waiting={"b": "nodes-to-come"}, room_caps=(cap,))
    limits = WidthLimits.of(state, plan)
    job = state.jobs["b"].job
    assert [gpus for gpus in (1, 4, 8, 9) if limits.allow(job, Width("gpu", gpus))] == [1, 4, 8]
