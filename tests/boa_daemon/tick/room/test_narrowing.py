"""Widths are narrowed under every kind of cap: nodes, dollars, a type's quota, and a type without stock."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest
from followers import Known, plan_of
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots
from boa_daemon.tick.decide.decision import decide
from boa_daemon.tick.facts.limits import Caps
from boa_daemon.tick.facts.offers import Cooldown, Offer
from boa_daemon.tick.facts.state import ClusterState, Rules
from boa_daemon.tick.room.narrowing import caps_on_room, shared_room
from policies.answer import Allocation
from policies.model import Job, JobId, Money, Width
from policies.placement.first_fit import FirstFit

NOW = 1000.0
NAMES = "abc"
LEFT = {"a": 3.0, "b": 2.0, "c": 1.0}


def known() -> Known:
    """Return node prices that plan eight GPUs for each of three jobs; the last has the least work left."""
    return Known(widths=dict.fromkeys(NAMES, 8), left_hours=LEFT)


def state_of(**changes: object) -> ClusterState:
    """Return three waiting jobs."""
    return a_state(*(a_job(name) for name in NAMES), now=NOW, **changes)  # type: ignore[arg-type]


def gpus_within(state: ClusterState, site: Rules) -> dict[JobId, int]:
    """Return the GPUs of each job, and assert that less work left comes first in the order."""
    asked = known().allocate([job.job for job in state.jobs.values()], now=NOW)
    found = shared_room(state, asked, caps_on_room(state, asked, site))
    assert found.order in ((), ("c", "b", "a"))
    return {job: width.gpus for job, width in found.widths.items()}


def test_without_a_binding_cap_the_widths_stay() -> None:
    """Six nodes hold three times eight GPUs."""
    for site in (rules(), rules(max_nodes=6), rules(caps=Caps(usd_per_hour=1e6))):
        assert gpus_within(state_of(), site) == {"a": 8, "b": 8, "c": 8}


def test_all_kinds_of_caps_with_the_same_room_give_the_same_widths() -> None:
    """Room for three nodes is shared as in heSRPT: 1/9, 3/9 and 5/9."""
    price = rules().instance_types["gpu"].usd_per_hour
    name = rules().instance_types["gpu"].name
    offers = (Offer(instance_type=name, usd_per_hour=price, nodes_left=3),)
    by_nodes = gpus_within(state_of(), rules(max_nodes=3))

    assert [by_nodes[name] for name in NAMES] == pytest.approx([12 / 9, 12 * 3 / 9, 12 * 5 / 9], abs=1.0)
    assert sum(by_nodes.values()) == 12
    assert gpus_within(state_of(), rules(caps=Caps(usd_per_hour=3.9 * price))) == by_nodes
    assert gpus_within(state_of(), rules(caps=Caps(usd_per_hour=3.0 * price))) == by_nodes
    assert gpus_within(state_of(offers=offers), rules()) == by_nodes


def test_without_stock_all_jobs_share_the_present_node() -> None:
    """The job on it shrinks to one GPU."""
    name = rules().instance_types["gpu"].name
    state = state_of(
        nodes=[a_node("n1")],
        held={"a": some_slots("n1", 0, 1, 2, 3)},
        cooldowns={name: Cooldown(until=NOW + 60.0)},
    )

    assert gpus_within(state, rules())["a"] == 1
    plan = plan_of(state, known())
    assert len(plan.jobs.slots["a"]) == 1
    assert sum(len(slots) for slots in plan.jobs.slots.values()) == 4


def test_without_stock_and_nodes_every_job_is_planned_on_one_gpu() -> None:
    """The shortest job comes first in the order."""
    name = rules().instance_types["gpu"].name
    state = state_of(cooldowns={name: Cooldown(until=NOW + 60.0)})

    assert gpus_within(state, rules()) == {"a": 1, "b": 1, "c": 1}


def test_the_policys_ceiling_in_dollars_limits_the_launches() -> None:
    """Three jobs want eight GPUs each, and the ceiling pays for two nodes: two are launched."""

    class Thrifty(Known):
        """The same node prices under a ceiling."""

        def allocate(self, jobs: list[Job], *, now: float, money: Money | None = None) -> Allocation:  # type: ignore[override]
            """Return the widths and the ceiling."""
            asked = Known.allocate(self, jobs, now=now, money=money)
            price = rules().instance_types["gpu"].usd_per_hour
            return replace(asked, most_usd_per_hour=2.0 * price)

    policy = Thrifty(widths=dict.fromkeys(NAMES, 8), left_hours=LEFT)
    plan = decide(state_of(), allocator=policy, placer=FirstFit(), rules=rules()).plan

    assert sum(plan.launches.values()) == 2
    assert (
        sum(width.gpus for job, width in plan.jobs.widths.items() if plan.jobs.waiting[job] != "cap-hour")
        <= 8
    )


@given(
    planned=st.lists(st.tuples(st.sampled_from(("gpu", "big")), st.integers(1, 16)), min_size=1, max_size=6),
    max_nodes=st.sampled_from((None, 2, 5)),
    nodes_for_dollars=st.sampled_from((None, 3.0, 6.5)),
)
def test_the_nodes_for_all_served_jobs_fit_under_every_cap(
    planned: list[tuple[str, int]], max_nodes: int | None, nodes_for_dollars: float | None
) -> None:
    """Two GPU types have nodes of four and of eight GPUs."""
    kinds = {
        "gpu": an_instance_type(),
        "big": replace(an_instance_type(gpus=8), name="big-x8", gpu_type="big", usd_per_hour=30.0),
    }
    ceiling = None if nodes_for_dollars is None else nodes_for_dollars * 30.0
    caps = None if ceiling is None else Caps(usd_per_hour=ceiling)
    site = rules(instance_types=kinds, max_nodes=max_nodes, caps=caps)
    names = [f"j{number}" for number in range(len(planned))]
    state = a_state(*(a_job(name) for name in names), now=NOW)
    asked = Allocation(
        widths={name: Width(*width) for name, width in zip(names, planned, strict=True)},
        node_prices=Known(widths={}),
    )
    found = shared_room(state, asked, caps_on_room(state, asked, site))
    assert found.widths.keys() == asked.widths.keys()
    assert all(found.widths[name].gpus <= asked.widths[name].gpus for name in names)

    gpus = dict.fromkeys(kinds, 0)
    for name in found.order or names:
        width = found.widths[name]
        before = dict(gpus)
        gpus[width.gpu_type] += width.gpus
        nodes = {kind: ceil(count / kinds[kind].gpus) for kind, count in gpus.items()}
        usd = sum(kinds[kind].usd_per_hour * count for kind, count in nodes.items())
        if (max_nodes is not None and sum(nodes.values()) > max_nodes) or (
            ceiling is not None and usd > ceiling
        ):
            # Only jobs that are planned on one GPU behind the others may be over the cap.
            assert width.gpus == 1
            gpus = before
