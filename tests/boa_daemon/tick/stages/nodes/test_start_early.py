"""Waiting jobs start narrow on free GPUs if that pays until their nodes come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from drafts import a_plan, asking, gpus
from followers import Known

from boa_daemon.testing import a_job, a_node, a_state, rules, some_slots
from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.limits import Steady
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.stages.nodes.start_early import start_early
from policies.answer import Allocation
from policies.model import Job, Width

NOW = 1000.0
WISHES = gpus(a=4, b=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting(Known):
    """Node prices that start jobs early on up to two GPUs, and record each question."""

    asked: list[tuple[str, int, float]] = field(default_factory=list)

    def head_start(self, job: Job, then: Width, *, most_gpus: int, wait_hours: float) -> Width | None:
        """Record the question, and return up to two GPUs."""
        self.asked.append((job.id, most_gpus, wait_hours))
        return Width("gpu", min(2, most_gpus)) if wait_hours > 0.0 else None


def waiting(*, free: int = 3, launched_at: float | None = None, now: float = NOW) -> ClusterState:
    """Return waiting jobs a and b, a node with `free` GPUs, and maybe a booting node."""
    nodes = [a_node("n1")]
    if launched_at is not None:
        nodes += [a_node("n2", phase="requested", launched_at=launched_at)]
    held = {"x": some_slots("n1", *range(4 - free))}
    return a_state(a_job("x"), a_job("a"), a_job("b"), nodes=nodes, held=held, now=now)


def a_wait(state: ClusterState, prices: Known | None, **changes: Any) -> Draft:
    """Return a draft in which jobs a and b wait for nodes that are launched."""
    plan = a_plan(widths=WISHES, launches={"gpu-x4": 2}, waiting=dict.fromkeys(WISHES, "nodes-to-come"))
    allocation = Allocation(widths=WISHES, node_prices=prices)
    return asking(state, WISHES, **({"plan": plan, "allocation": allocation} | changes))


def test_waiting_jobs_start_early_in_their_order_on_free_gpus() -> None:
    """Job a takes two of three GPUs and b the last; neither waits any more."""
    prices = Starting(widths={})
    plan = start_early(waiting(), a_wait(waiting(), prices)).plan

    assert prices.asked == [("a", 3, 0.05), ("b", 1, 0.05)]
    assert plan.jobs.widths == gpus(a=2, b=1)
    assert plan.jobs.slots == {"a": some_slots("n1", 1, 2), "b": some_slots("n1", 3)}
    assert plan.jobs.intended == WISHES
    assert plan.jobs.waiting == {}


def test_a_job_keeps_waiting_if_no_gpu_is_free_for_it() -> None:
    """Job a takes both free GPUs, and the policy is not asked about b."""
    prices = Starting(widths={})
    plan = start_early(waiting(free=2), a_wait(waiting(free=2), prices)).plan
    assert (plan.jobs.intended, plan.jobs.waiting) == (gpus(a=4), {"b": "nodes-to-come"})
    assert [job for job, _, _ in prices.asked] == ["a"]


@pytest.mark.parametrize(
    ("launched_at", "hours"), [(NOW, 0.05), (NOW - 90.0, 0.025), (NOW - 180.0, 0.0), (None, 0.0)]
)
def test_without_launches_the_wait_is_the_rest_of_the_boot(launched_at: float | None, hours: float) -> None:
    """A boot takes 180 s; without a coming node the wait is zero."""
    prices, state = Starting(widths={}), waiting(launched_at=launched_at)
    draft = a_wait(state, prices)
    start_early(state, replace(draft, plan=replace(draft.plan, launches={})))
    assert prices.asked[0][2] == pytest.approx(hours, abs=1e-12)


def test_the_last_coming_node_decides_how_long_the_wait_is() -> None:
    """One node began to boot 90 s ago, the other 60 s ago: the wait is 120 s."""
    state = waiting(launched_at=NOW - 90.0)
    nodes = {**state.nodes, "n3": a_node("n3", phase="requested", launched_at=NOW - 60.0)}
    state, prices = replace(state, nodes=nodes), Starting(widths={})
    draft = a_wait(state, prices)
    start_early(state, replace(draft, plan=replace(draft.plan, launches={})))
    assert prices.asked[0][2] == pytest.approx(120.0 / 3600.0)


@pytest.mark.parametrize(("hold_seconds", "starts"), [(179.0, True), (180.0, True), (181.0, False)])
def test_no_job_starts_early_if_its_minimum_hold_exceeds_the_wait(hold_seconds: float, starts: bool) -> None:
    """The wait is a boot of 180 s."""
    site = rules(steady=Steady(minimum_hold_seconds=hold_seconds))
    draft = a_wait(waiting(), Starting(widths={}), rules=site)
    assert bool(start_early(waiting(), draft).plan.jobs.intended) == starts


@pytest.mark.parametrize(
    "changes",
    [
        {"room": None},
        {"is_at_node_limit": True},
        {"allocation": Allocation(widths=WISHES)},
        {"allocation": Allocation(widths=WISHES, node_prices=Starting(widths={}), nodes={"gpu-x4": 3})},
        {"plan": a_plan(widths=WISHES)},
    ],
)
def test_no_job_starts_early_without_room_or_node_prices_or_at_the_node_limit(
    changes: Mapping[str, Any],
) -> None:
    """The same holds in a fixed fleet, and if no job waits."""
    draft = a_wait(waiting(), Starting(widths={}), **changes)
    assert start_early(waiting(), draft) is draft


def test_a_running_job_that_waits_to_grow_does_not_start_early() -> None:
    """The draft stays the same."""
    held = {"a": some_slots("n1", 0)}
    state = a_state(a_job("a"), a_job("b"), nodes=[a_node("n1")], held=held, now=NOW)
    draft = a_wait(state, Starting(widths={}), plan=a_plan(widths=WISHES, waiting={"a": "nodes-to-come"}))
    assert start_early(state, draft) is draft


def test_no_job_starts_early_if_the_policy_declines() -> None:
    """The draft stays the same."""
    draft = a_wait(waiting(), Known(widths={}))
    assert start_early(waiting(), draft) is draft
