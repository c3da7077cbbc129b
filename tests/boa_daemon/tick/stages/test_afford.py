"""Who is served under a ceiling on dollars, and how wide under the site's own caps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pytest
from drafts import PRICES, a_draft, gpus

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.draft import Draft
from boa_daemon.tick.limits import Caps
from boa_daemon.tick.offers import Offer
from boa_daemon.tick.stages.afford import afford
from boa_daemon.tick.state import ClusterState
from policies.model import GpuSlot, Width

TWO_KINDS = {"gpu": an_instance_type(), "other": an_instance_type(gpu_type="other", usd_per_gpu_hour=2.0)}


def running(nodes: int = 0, **held: tuple[GpuSlot, ...]) -> ClusterState:
    """Return jobs a to e, some of which run on nodes n1, n2, ... of 4 USD an hour."""
    there = [a_node(f"n{number}") for number in range(1, nodes + 1)]
    return a_state(*map(a_job, "abcde"), nodes=there, held=held)


def capped(state: ClusterState, widths: Mapping[str, Width], **changes: Any) -> Draft:
    """Return the draft of a policy with node prices under the site's caps."""
    return afford(state, a_draft(widths, policy={"node_prices": PRICES}, site=rules(**changes)))


@pytest.mark.parametrize(("wanted", "found"), [(7, 7), (8, 8), (9, 8), (40, 8)])
def test_a_waiting_job_that_no_cap_ever_holds_gets_the_widest_width_that_fits(
    wanted: int, found: int
) -> None:
    """Two nodes of four, or 8 USD an hour for nodes of 4; b is not touched."""
    widths = gpus(a=wanted, b=3)
    for cap in ({"max_nodes": 2}, {"caps": Caps(usd_per_hour=8.0)}, {"caps": Caps(usd_per_hour=11.99)}):
        assert capped(running(), widths, **cap).allocation.widths == gpus(a=found, b=3)


def test_the_tighter_of_two_caps_counts() -> None:
    """Three nodes or 8 USD; one node or 8 USD. A cap on dollars a day is no cap on width."""
    eight, day = Caps(usd_per_hour=8.0), Caps(usd_per_day=1.0)
    for nodes, caps, found in ((3, eight, 8), (1, eight, 4), (3, day, 12), (None, day, 20), (None, None, 20)):
        draft = capped(running(), gpus(a=20), max_nodes=nodes, caps=caps)
        assert draft.allocation.widths == gpus(a=found)


def test_a_dear_offer_makes_the_cap_hold_fewer_nodes() -> None:
    """At 4.01 USD a node 8 USD hold one."""
    offers = (Offer(instance_type="gpu-x4", usd_per_hour=4.01), Offer(instance_type="gpu-x4"))
    state = a_state(a_job("a"), offers=offers)
    assert capped(state, gpus(a=20), caps=Caps(usd_per_hour=8.0)).allocation.widths == gpus(a=4)


def test_a_running_job_keeps_what_it_holds_instead() -> None:
    """It is on three GPUs, and nine never fit."""
    state = running(1, a=some_slots("n1", 0, 1, 2))
    assert capped(state, gpus(a=9), max_nodes=2).allocation.widths == gpus(a=3)


def test_a_job_without_any_width_that_fits_waits_and_keeps_nobody_else_waiting() -> None:
    """A node of "other" costs 8 USD and the cap is 7: a waits; b's type is not in the settings any more."""
    widths = {"a": Width("other", 1), "b": Width("gone", 9), "c": Width("gpu", 1)}
    draft = capped(running(), widths, caps=Caps(usd_per_hour=7.0), instance_types=TWO_KINDS)
    assert draft.allocation.widths == {"b": Width("gone", 9), "c": Width("gpu", 1)}
    assert draft.left_out == {"a": "cap-hour"}
    none = capped(running(), widths, max_nodes=0, instance_types=TWO_KINDS)
    assert none.left_out == {"a": "cap-instances", "c": "cap-instances"}


def test_without_node_prices_or_with_a_fixed_fleet_nothing_is_made_narrower() -> None:
    """Others decide then."""
    for policy in ({}, {"node_prices": PRICES, "nodes": {"gpu-x4": 1}, "most_usd_per_hour": 1.0}):
        draft = a_draft(gpus(a=9), policy=policy, site=rules(max_nodes=1))
        assert afford(running(), draft) is draft


def served(
    state: ClusterState,
    ceiling: float,
    *,
    above: Literal["use", "finish", "leave"] = "use",
    stay: str = "",
    order: str = "",
    **widths: int,
) -> str:
    """Return who is served under a ceiling, in order; the others wait for money."""
    policy = {
        "most_usd_per_hour": ceiling,
        "above_ceiling": above,
        "stay": frozenset(stay),
        "order": tuple(order),
    }
    draft = afford(state, a_draft(gpus(**widths), policy=policy))
    assert draft.left_out == dict.fromkeys(widths.keys() - draft.allocation.widths.keys(), "budget")
    return "".join(draft.allocation.widths)


@pytest.mark.parametrize(
    ("ceiling", "who"), [(3.99, ""), (4.0, "a"), (7.99, "a"), (8.0, "ab"), (11.9, "ab"), (12.0, "abc")]
)
def test_jobs_are_served_in_order_as_long_as_whole_nodes_cost_no_more(ceiling: float, who: str) -> None:
    """Three jobs of four GPUs: a node of 4 USD each."""
    assert served(running(), ceiling, a=4, b=4, c=4) == who


def test_jobs_share_nodes_and_the_policy_says_the_order() -> None:
    """Two of two GPUs are one node; with c first, a is the second on it and b the first on the next."""
    assert served(running(), 4.0, a=2, b=2, c=1) == "ab"
    assert served(running(), 4.0, order="cz", a=2, b=2, c=1) == "ca"


def test_once_a_job_saves_for_its_nodes_no_other_has_one_rented() -> None:
    """a of twelve waits at 8 USD. One node is here: b goes on that, c would need another and waits."""
    assert served(running(1), 8.0, a=12, b=4, c=4) == "b"
    assert served(running(1), 8.0, b=4, c=4) == "bc"


def test_a_running_job_that_is_left_out_saves_nothing() -> None:
    """a is to grow to twelve on two nodes and cannot; b and c are served as if it were not there."""
    assert served(running(1, a=some_slots("n1", 0)), 8.0, a=12, b=4, c=4) == "bc"
    assert served(running(1, b=some_slots("n1", 0)), 8.0, a=12, b=8, c=1) == "b"


def test_above_the_ceiling_jobs_may_use_what_is_here_finish_or_leave() -> None:
    """Three nodes at 12 USD and a ceiling of 8: a new job on the third, one that runs there, none at all."""
    there = running(3, a=some_slots("n1", 0, 1, 2, 3), c=some_slots("n3", 0, 1, 2, 3))
    widths = {"a": 4, "b": 4, "c": 4}
    assert served(there, 8.0, above="use", **widths) == "abc"
    assert served(there, 8.0, above="finish", **widths) == "ac"
    assert served(there, 8.0, above="leave", **widths) == "ab"
    assert served(there, 4.0, above="finish", **widths) == "ac"


def test_a_job_that_may_not_be_moved_is_served_first_and_beyond_the_ceiling_where_nodes_may_be_used() -> None:
    """c stays; above the ceiling it has to leave like all others where the policy says so."""
    there = running(1, c=some_slots("n1", 0, 1, 2, 3))
    assert served(there, 4.0, a=4, b=4, c=4) == "a"
    assert served(there, 4.0, stay="c", a=4, b=4, c=4) == "c"
    assert served(there, 4.0, stay="c", a=4, b=4, c=8) == "c"
    assert served(there, 3.0, stay="c", above="leave", a=4, c=4) == ""


@pytest.mark.parametrize(("ceiling", "who"), [(8.0, "abc"), (7.9, "bc"), (4.0, "bc"), (3.9, "")])
def test_jobs_leave_the_node_whose_most_urgent_job_is_the_least_urgent(ceiling: float, who: str) -> None:
    """n1 has a, n2 has b and c; b comes first in the order, then a, then c: n1 is emptied, then n2."""
    held = {"a": some_slots("n1", 0), "b": some_slots("n2", 0), "c": some_slots("n2", 1)}
    found = served(running(2, **held), ceiling, above="leave", order="bac", a=1, b=1, c=1)
    assert sorted(found) == sorted(who)


def test_a_job_across_two_nodes_leaves_both_and_others_go_on() -> None:
    """c is the last, on n1 with a and on n2 alone: without it n2 is empty, and n1 costs 4."""
    held = {"a": some_slots("n1", 0), "c": some_slots("n1", 1) + some_slots("n2", 0)}
    assert served(running(2, **held), 4.0, above="leave", a=1, c=2) == "a"


def test_only_the_gpus_that_a_job_keeps_count_where_it_has_to_leave() -> None:
    """c is to shrink to the one on n1: n2 is empty then, and nobody has to go."""
    held = {"a": some_slots("n1", 0), "c": some_slots("n1", 1) + some_slots("n2", 0)}
    assert served(running(2, **held), 4.0, above="leave", a=1, c=1) == "ac"


def test_what_a_node_costs_is_what_those_here_cost_on_average_else_its_cheapest_offer() -> None:
    """Nodes of 4 and 8 USD: 6 each. With none here an offer of 5, which two of do not fit under 9.9."""
    dear = an_instance_type(usd_per_gpu_hour=2.0)
    here = a_state(*map(a_job, "abc"), nodes=[a_node("n1"), a_node("n2", kind=dear)])
    assert served(here, 17.9, a=4, b=4, c=4) == "ab"
    assert served(here, 18.0, a=4, b=4, c=4) == "abc"
    offers = tuple(Offer(instance_type="gpu-x4", zone=z, usd_per_hour=u) for z, u in (("a", 6.0), ("b", 5.0)))
    offered = a_state(*map(a_job, "abc"), offers=offers)
    assert served(offered, 9.9, a=4, b=4) == "a"
    assert served(offered, 10.0, a=4, b=4) == "ab"


def test_jobs_on_machines_that_the_settings_no_longer_name_cost_nothing_of_the_ceiling() -> None:
    """They keep what they hold, and those behind them are served."""
    widths = {"a": Width("gone", 8), **gpus(b=4)}
    draft = afford(running(), a_draft(widths, policy={"most_usd_per_hour": 4.0}))
    assert draft.allocation.widths == widths
