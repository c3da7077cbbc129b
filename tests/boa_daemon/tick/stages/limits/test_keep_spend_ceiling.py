"""Under a ceiling on USD per hour launches are cut and idle nodes go back, while served jobs go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest
from drafts import a_draft, a_plan
from followers import Known
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type, rules, some_slots, states
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.facts.draft import SOON_SECONDS
from boa_daemon.tick.facts.limits import Caps
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.reasons import WaitReason
from boa_daemon.tick.facts.state import ClusterState, Rules
from boa_daemon.tick.stages.limits.keep_spend_ceiling import keep_spend_ceiling
from policies.answer import Allocation
from policies.capacity_claims import PhaseWidths
from policies.model import Job, Money, Width
from policies.placement.first_fit import FirstFit
from policies.protocols import Allocator

Above = Literal["use", "finish", "leave"]
ONES = rules(instance_types={"gpu": an_instance_type(gpus=1)})


@dataclass(frozen=True, kw_only=True)
class Under:
    """An allocator that adds a ceiling to another allocator's answer."""

    base: Allocator
    ceiling: float | None
    above: Above = "use"
    asked: list[Allocation] = field(default_factory=list)

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the answer with the ceiling."""
        found = self.base.allocate(jobs, now=now, money=money)
        return replace(found, most_usd_per_hour=self.ceiling, above_ceiling=self.above)


def decided(
    state: ClusterState,
    widths: dict[str, int],
    ceiling: float | None,
    *,
    above: Above = "use",
    site: Rules = ONES,
) -> Decision:
    """Return the decision about jobs of these widths."""
    allocator = Under(base=Known(widths=widths), ceiling=ceiling, above=above)
    return decide(state, allocator=allocator, placer=FirstFit(), rules=site)


@given(case=states(), ceiling=st.floats(1e-6, 100.0), above=st.sampled_from(["use", "finish", "leave"]))
def test_no_node_is_rented_beyond_the_ceiling_in_any_cluster(
    case: tuple[ClusterState, Allocator], ceiling: float, above: Above
) -> None:
    """A job that waits for money does not start either."""
    state, wishes = case
    site = rules(max_nodes=5)
    plan = decide(
        state,
        allocator=Under(base=wishes, ceiling=ceiling, above=above),
        placer=FirstFit(),
        rules=site,
    ).plan
    rented = sum(node.usd_per_hour for node in state.nodes.values() if node.phase in ("ready", "requested"))
    asked = sum(count * plan.instance_types[name].usd_per_hour for name, count in plan.launches.items())

    assert asked == 0.0 or rented + asked <= ceiling * (1.0 + 1e-6)
    left_out = {job for job, reason in plan.jobs.waiting.items() if reason == "budget"}
    assert not left_out & plan.jobs.slots.keys()


def test_nodes_are_rented_for_the_first_jobs_up_to_the_ceiling() -> None:
    """The ceiling pays for two of three nodes: the third job waits for money, and the plan wakes up again."""
    plan = decided(a_state(a_job("a"), a_job("b"), a_job("c")), {"a": 1, "b": 1, "c": 1}, 2.5).plan

    assert plan.launches == {"gpu-x1": 2}
    assert plan.jobs.waiting == {"a": "nodes-to-come", "b": "nodes-to-come", "c": "budget"}
    assert plan.wake_at is not None


def test_nothing_is_rented_if_the_ceiling_is_below_the_price_of_a_node() -> None:
    """At 0.9 USD per hour the job waits for money."""
    plan = decided(a_state(a_job("a")), {"a": 1}, 0.9).plan

    assert plan.launches == {}
    assert plan.jobs.waiting == {"a": "budget"}


def test_no_node_is_rented_ahead_of_the_first_job_that_waits_for_money() -> None:
    """The first job needs four nodes and the ceiling pays for two; the second job gets no new node."""
    wide_first = {"a": 4, "b": 1}
    plan = decided(a_state(a_job("a"), a_job("b")), wide_first, 2.0).plan

    assert plan.launches == {}
    # The second job may use a node that is already rented, because that costs nothing more.
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("n1", gpus=1, idle_since=0.0)])
    assert decided(state, wide_first, 2.0).plan.jobs.slots.keys() == {"b"}


@pytest.mark.parametrize(("above", "stops"), [("use", ()), ("finish", ()), ("leave", ("b",))])
def test_running_jobs_above_the_ceiling_stop_only_if_the_policy_says_leave(
    above: Above, stops: tuple[str, ...]
) -> None:
    """The ceiling pays for one of two nodes; with "leave" the later job is stopped."""
    nodes = [a_node("n1", gpus=1), a_node("n2", gpus=1)]
    state = a_state(
        a_job("a"),
        a_job("b"),
        nodes=nodes,
        held={"a": some_slots("n1", 0), "b": some_slots("n2", 0)},
    )
    plan = decided(state, {"a": 1, "b": 1}, 1.0, above=above).plan

    assert plan.jobs.stops == stops


@pytest.mark.parametrize(("above", "starts"), [("use", {"b"}), ("finish", set())])
def test_a_node_above_the_ceiling_takes_a_new_job_only_under_use(above: Above, starts: set[str]) -> None:
    """The node has free GPUs beside a running job."""
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0)})
    plan = decided(state, {"a": 1, "b": 1}, 2.0, above=above, site=rules()).plan

    assert plan.jobs.slots.keys() == starts


def test_whole_nodes_are_vacated() -> None:
    """The ceiling pays for one of two nodes with two jobs each: both jobs of one node stop."""
    state = a_state(
        *(a_job(name) for name in "abcd"),
        nodes=[a_node("n1"), a_node("n2")],
        held={
            "a": some_slots("n1", 0),
            "b": some_slots("n2", 0),
            "c": some_slots("n1", 1),
            "d": some_slots("n2", 1),
        },
    )
    plan = decided(state, dict.fromkeys("abcd", 1), 4.0, above="leave", site=rules()).plan

    assert set(plan.jobs.stops) == {"b", "d"}


def test_an_idle_node_above_the_ceiling_is_released_at_once() -> None:
    """The policy's node prices would keep it."""
    state = a_state(nodes=[a_node("n1", gpus=1, idle_since=0.0)])
    allocator = Under(base=Known(widths={}, nodes=3), ceiling=0.5, above="finish")
    plan = decide(state, allocator=allocator, placer=FirstFit(), rules=ONES).plan

    assert plan.releases == ("n1",)


@pytest.mark.parametrize(
    ("site", "reason", "says"),
    [
        (
            replace(ONES, caps=Caps(usd_per_hour=3.0)),
            "cap-hour",
            "narrowest width cost more than that ceiling",
        ),
        (replace(ONES, max_nodes=3), "cap-instances", "narrowest width takes more nodes than that cap"),
    ],
)
def test_a_job_that_never_fits_under_a_cap_waits_for_that_cap_and_others_go_on(
    site: Rules, reason: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job needs eight nodes where three are allowed; the next job gets its node."""

    def rigid(_: Known, planned: Width) -> PhaseWidths:
        return PhaseWidths(widths=(planned,), speeds=(1.0,))

    monkeypatch.setattr(Known, "menu_of", rigid)
    found = decided(a_state(a_job("wide"), a_job("b")), {"wide": 8, "b": 1}, None, site=site)

    assert found.plan.launches == {"gpu-x1": 1}
    assert found.plan.jobs.waiting == {"wide": reason, "b": "nodes-to-come"}
    assert says in found.explain("wide")


def test_a_job_too_wide_for_a_cap_on_usd_per_hour_gets_the_widest_width_that_fits() -> None:
    """Eight nodes are planned and 3 USD per hour are allowed: the job gets three GPUs."""
    site = replace(ONES, caps=Caps(usd_per_hour=3.0))
    found = decided(a_state(a_job("wide")), {"wide": 8}, None, site=site)

    assert found.plan.jobs.widths["wide"].gpus == 3
    assert found.plan.launches == {"gpu-x1": 3}


NOW = 5000.0
TYPES = {name: an_instance_type(gpu_type=name, gpus=1) for name in ("old", "new")}
"""Nodes of one GPU at a dollar an hour."""


def paid(
    state: ClusterState,
    ceiling: float | None,
    *,
    above: Above = "use",
    plan: Plan | None = None,
    **changes: Any,
) -> Plan:
    """Return the plan after the stage alone."""
    policy = {"most_usd_per_hour": ceiling, "above_ceiling": above}
    site = rules(instance_types=TYPES)
    return keep_spend_ceiling(
        replace(state, now=NOW), a_draft(site=site, policy=policy, plan=plan or a_plan(), **changes)
    ).plan


@pytest.mark.parametrize(
    ("ceiling", "launches", "waiting"),
    [
        (4.0, {"old-x1": 2, "new-x1": 2}, ""),
        (3.9, {"old-x1": 2, "new-x1": 1}, "bc"),
        (2.0, {"old-x1": 2}, "bc"),
        (1.5, {"old-x1": 1}, "abc"),
        (0.0, {}, "abc"),
    ],
)
def test_launches_are_cut_in_their_order_to_the_ceiling(
    ceiling: float, launches: dict[str, int], waiting: str
) -> None:
    """Jobs that need a cut node wait for money; other wait reasons and jobs without a width stay the same."""
    reasons: dict[str, WaitReason] = dict.fromkeys("abcd", "nodes-to-come") | {"e": "gpus-to-fall-free"}
    plan = a_plan(
        widths={job: Width("old" if job == "a" else "new", 1) for job in "abce"},
        launches={"old-x1": 2, "new-x1": 2},
        instance_types={kind.name: kind for kind in TYPES.values()},
        waiting=reasons,
    )
    found = paid(a_state(*(a_job(name) for name in "abcde")), ceiling, plan=plan)
    assert dict(found.launches) == launches
    assert found.jobs.waiting == reasons | dict.fromkeys(waiting, "budget")
    assert found.wake_at == NOW + 300.0


def test_present_nodes_count_against_the_ceiling_before_launches() -> None:
    """With one node here, a ceiling for two leaves one of two launches."""
    state = a_state(nodes=[a_node("n1", kind=TYPES["old"])])
    plan = a_plan(launches={"old-x1": 2}, instance_types={"old-x1": TYPES["old"]})
    assert dict(paid(state, 2.0, plan=plan).launches) == {"old-x1": 1}


@pytest.mark.parametrize(
    ("ceiling", "above", "releases"),
    [
        (1.0, "use", ("gone",)),
        (5.0, "finish", ("gone",)),
        (4.0, "finish", ("gone",)),
        (3.0, "finish", ("gone", "i1")),
        (2.0, "leave", ("gone", "i1", "i2")),
        (0.5, "leave", ("gone", "i1", "i2")),
    ],
)
def test_idle_nodes_above_the_ceiling_are_released_unless_a_job_starts_on_them(
    ceiling: float, above: Above, releases: tuple[str, ...]
) -> None:
    """Of five nodes one is already released, one is wanted, one is busy, and two are idle."""
    nodes = [a_node(name, kind=TYPES["old"]) for name in ("gone", "wanted", "busy", "i1", "i2")]
    state = a_state(a_job("a"), a_job("b"), nodes=nodes, held={"b": some_slots("busy", 0)})
    plan = a_plan(slots={"a": some_slots("wanted", 0)}, releases=("gone",))
    assert paid(state, ceiling, above=above, plan=plan).releases == releases


def test_the_plan_wakes_up_while_nodes_are_rented_or_jobs_wait_for_money() -> None:
    """It wakes up after five minutes, or soon if a job stops; without nodes or waiting jobs it does not."""
    empty, node = a_state(a_job("a")), a_state(nodes=[a_node("n1", kind=TYPES["old"])])
    waits = a_plan(waiting={"a": "budget"})
    assert paid(empty, 9.0).wake_at is None
    assert paid(empty, 9.0, plan=waits).wake_at == NOW + 300.0
    assert paid(node, 9.0).wake_at == NOW + 300.0
    assert paid(node, 9.0, plan=a_plan(stops=("a",))).wake_at == NOW + SOON_SECONDS
    assert paid(node, None, plan=waits) is waits


def test_a_job_left_out_of_service_waits_for_money_unless_it_is_set_aside() -> None:
    """The reason for setting a job aside counts more: money alone would not start it."""
    state, plan = a_state(*(a_job(name) for name in "abc")), a_plan(waiting={"a": "nodes-to-come"})
    found = paid(state, None, plan=plan, left_out={"b": "budget", "c": "budget"}, set_aside={"c": "after"})
    assert found.jobs.waiting == {"a": "nodes-to-come", "b": "budget", "c": "after"}
