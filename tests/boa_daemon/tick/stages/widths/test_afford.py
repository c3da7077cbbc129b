"""Jobs are served in order under a spending ceiling, at widths that the site's caps allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pytest
from drafts import PRICES, a_draft, gpus

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.limits import Caps
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.stages.widths.afford import afford
from policies.model import GpuSlot, Width

TWO_KINDS = {"gpu": an_instance_type(), "other": an_instance_type(gpu_type="other", usd_per_gpu_hour=2.0)}


def running(nodes: int = 0, **held: tuple[GpuSlot, ...]) -> ClusterState:
    """Return jobs a to e on nodes n1, n2, ... of 4 USD per hour; the jobs in `held` run."""
    there = [a_node(f"n{number}") for number in range(1, nodes + 1)]
    return a_state(*map(a_job, "abcde"), nodes=there, held=held)


def capped(state: ClusterState, widths: Mapping[str, Width], **changes: Any) -> Draft:
    """Return the draft after the stage, under the site's caps and a policy with node prices."""
    return afford(state, a_draft(widths, policy={"node_prices": PRICES}, site=rules(**changes)))


@pytest.mark.parametrize(("wanted", "found"), [(7, 7), (8, 8), (9, 8), (40, 8)])
def test_a_waiting_job_too_wide_for_the_caps_gets_the_widest_width_that_fits(wanted: int, found: int) -> None:
    """The caps allow two nodes of four GPUs, so job a gets at most 8 GPUs; job b keeps its width."""
    widths = gpus(a=wanted, b=3)
    for cap in ({"max_nodes": 2}, {"caps": Caps(usd_per_hour=8.0)}, {"caps": Caps(usd_per_hour=11.99)}):
        assert capped(running(), widths, **cap).allocation.widths == gpus(a=found, b=3)


def test_the_tighter_of_two_caps_counts() -> None:
    """The tighter of the caps on nodes and on USD per hour limits widths; a cap on USD per day does not."""
    eight, day = Caps(usd_per_hour=8.0), Caps(usd_per_day=1.0)
    for nodes, caps, found in ((3, eight, 8), (1, eight, 4), (3, day, 12), (None, day, 20), (None, None, 20)):
        draft = capped(running(), gpus(a=20), max_nodes=nodes, caps=caps)
        assert draft.allocation.widths == gpus(a=found)


def test_the_dearest_offer_decides_how_many_nodes_a_cap_allows() -> None:
    """At 4.01 USD per node, a cap of 8 USD per hour allows one node."""
    offers = (Offer(instance_type="gpu-x4", usd_per_hour=4.01), Offer(instance_type="gpu-x4"))
    state = a_state(a_job("a"), offers=offers)
    assert capped(state, gpus(a=20), caps=Caps(usd_per_hour=8.0)).allocation.widths == gpus(a=4)


@pytest.mark.parametrize(("held", "asked"), [(0, 8), (1, 8), (3, 8), (4, 8), (8, 8), (9, 9), (12, 12)])
def test_a_running_job_too_wide_for_the_caps_asks_for_what_fits_whatever_it_holds(
    held: int, asked: int
) -> None:
    """Nine GPUs never fit on two nodes, eight do. Lent GPUs do not raise its share; what is wider stays."""
    slots = tuple(slot for node in ("n1", "n2", "n3") for slot in some_slots(node, 0, 1, 2, 3))[:held]
    state = running(3, a=slots) if held else running(3)
    assert capped(state, gpus(a=9), max_nodes=2).allocation.widths == gpus(a=asked)


def test_a_job_without_any_width_that_fits_waits_and_delays_no_other_job() -> None:
    """Job a waits for the cap that excludes it; b keeps its width on a type that the settings do not name."""
    widths = {"a": Width("other", 1), "b": Width("gone", 9), "c": Width("gpu", 1)}
    draft = capped(running(), widths, caps=Caps(usd_per_hour=7.0), instance_types=TWO_KINDS)
    assert draft.allocation.widths == {"b": Width("gone", 9), "c": Width("gpu", 1)}
    assert draft.left_out == {"a": "cap-hour"}
    none = capped(running(), widths, max_nodes=0, instance_types=TWO_KINDS)
    assert none.left_out == {"a": "cap-instances", "c": "cap-instances"}


def test_widths_stay_without_node_prices_and_in_a_fixed_fleet() -> None:
    """The stage returns the same draft if there are no node prices, or if the policy sets the nodes."""
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
    """Return the names of the served jobs, in order; assert that all other jobs wait for money."""
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
def test_jobs_are_served_in_order_until_their_nodes_cost_more_than_the_ceiling(
    ceiling: float, who: str
) -> None:
    """Each of the three jobs needs one node of 4 USD per hour."""
    assert served(running(), ceiling, a=4, b=4, c=4) == who


def test_jobs_are_served_in_the_order_of_the_policy_and_share_nodes() -> None:
    """Two jobs fit on the one node that the ceiling pays for; the policy's order decides which two."""
    assert served(running(), 4.0, a=2, b=2, c=1) == "ab"
    assert served(running(), 4.0, order="cz", a=2, b=2, c=1) == "ca"


def test_no_node_is_rented_for_others_while_a_job_waits_for_money() -> None:
    """Job a (12 GPUs) waits for money; b starts on the node that is here, and c would need a new one."""
    assert served(running(1), 8.0, a=12, b=4, c=4) == "b"
    assert served(running(1), 8.0, b=4, c=4) == "bc"


def test_a_running_job_that_cannot_grow_does_not_stop_others_from_renting() -> None:
    """Job a runs and is left out: b and c are served. If a waits instead, c has no node rented."""
    assert served(running(1, a=some_slots("n1", 0)), 8.0, a=12, b=4, c=4) == "bc"
    assert served(running(1, b=some_slots("n1", 0)), 8.0, a=12, b=8, c=1) == "b"


def test_the_policy_says_which_jobs_may_use_nodes_above_the_ceiling() -> None:
    """`use` starts waiting jobs on present nodes, `finish` lets running jobs go on, `leave` does neither."""
    there = running(3, a=some_slots("n1", 0, 1, 2, 3), c=some_slots("n3", 0, 1, 2, 3))
    widths = {"a": 4, "b": 4, "c": 4}
    assert served(there, 8.0, above="use", **widths) == "abc"
    assert served(there, 8.0, above="finish", **widths) == "ac"
    assert served(there, 8.0, above="leave", **widths) == "ab"
    assert served(there, 4.0, above="finish", **widths) == "ac"


def test_a_job_that_must_stay_is_served_first_and_above_the_ceiling_under_use() -> None:
    """With "leave" a job that must stay has to leave like all others."""
    there = running(1, c=some_slots("n1", 0, 1, 2, 3))
    assert served(there, 4.0, a=4, b=4, c=4) == "a"
    assert served(there, 4.0, stay="c", a=4, b=4, c=4) == "c"
    assert served(there, 4.0, stay="c", a=4, b=4, c=8) == "c"
    assert served(there, 3.0, stay="c", above="leave", a=4, c=4) == ""


@pytest.mark.parametrize(("ceiling", "who"), [(8.0, "abc"), (7.9, "bc"), (4.0, "bc"), (3.9, "")])
def test_the_first_node_vacated_is_the_one_whose_first_job_comes_last_in_order(
    ceiling: float, who: str
) -> None:
    """In the order b, a, c, node n1 (job a) is vacated before n2 (jobs b and c)."""
    held = {"a": some_slots("n1", 0), "b": some_slots("n2", 0), "c": some_slots("n2", 1)}
    found = served(running(2, **held), ceiling, above="leave", order="bac", a=1, b=1, c=1)
    assert sorted(found) == sorted(who)


def test_a_job_on_two_nodes_leaves_both_of_them() -> None:
    """Without job c, node n2 is empty and the ceiling covers n1, where job a goes on."""
    held = {"a": some_slots("n1", 0), "c": some_slots("n1", 1) + some_slots("n2", 0)}
    assert served(running(2, **held), 4.0, above="leave", a=1, c=2) == "a"


def test_a_node_that_a_shrinking_job_leaves_does_not_count_against_the_ceiling() -> None:
    """Job c shrinks to its GPU on n1, so n2 becomes empty and no job has to leave."""
    held = {"a": some_slots("n1", 0), "c": some_slots("n1", 1) + some_slots("n2", 0)}
    assert served(running(2, **held), 4.0, above="leave", a=1, c=1) == "ac"


def test_a_node_counts_at_the_mean_price_of_present_nodes_or_the_cheapest_offer() -> None:
    """Nodes of 4 and 8 USD count as 6 USD each; without nodes the offer of 5 USD counts."""
    dear = an_instance_type(usd_per_gpu_hour=2.0)
    here = a_state(*map(a_job, "abc"), nodes=[a_node("n1"), a_node("n2", kind=dear)])
    assert served(here, 17.9, a=4, b=4, c=4) == "ab"
    assert served(here, 18.0, a=4, b=4, c=4) == "abc"
    offers = tuple(Offer(instance_type="gpu-x4", zone=z, usd_per_hour=u) for z, u in (("a", 6.0), ("b", 5.0)))
    offered = a_state(*map(a_job, "abc"), offers=offers)
    assert served(offered, 9.9, a=4, b=4) == "a"
    assert served(offered, 10.0, a=4, b=4) == "ab"


def test_a_job_on_a_type_that_the_settings_do_not_name_uses_none_of_the_ceiling() -> None:
    """The job keeps its width, and the job behind it is served."""
    widths = {"a": Width("gone", 8), **gpus(b=4)}
    draft = afford(running(), a_draft(widths, policy={"most_usd_per_hour": 4.0}))
    assert draft.allocation.widths == widths
