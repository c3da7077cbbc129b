"""No nodes are requested while all their offers are closed, and waiting jobs get the cause as wait reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from drafts import a_draft, a_plan, gpus

from boa_daemon.testing import a_job, a_state, an_instance_type, rules
from boa_daemon.tick.facts.offers import Cooldown, Offer, RefusalKind
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.stages.nodes.check_stock import check_stock
from policies.model import Width

NOW = 100.0
OTHER = an_instance_type(gpu_type="other")
SITE = rules(instance_types={"gpu": an_instance_type(), "other": OTHER})
WIDTHS = {**gpus(a=8, b=4), "c": Width("other", 1)}


def closed(kind: RefusalKind = "no-capacity", *, until: float = 160.0, scope: str = "gpu-x4") -> ClusterState:
    """Return a state in which the offers of one scope are closed."""
    return a_state(*map(a_job, "abc"), now=NOW, cooldowns={scope: Cooldown(until=until, kind=kind)})


def a_row(**changes: Any) -> Plan:
    """Return a plan in which job a spans two nodes, b needs one, and c one of the other type."""
    values: dict[str, Any] = {
        "widths": WIDTHS,
        "launches": {"gpu-x4": 3, "other-x4": 1},
        "gangs": {"gpu-x4": (2,)},
        "waiting": dict.fromkeys("abc", "nodes-to-come"),
    }
    return a_plan(**(values | changes))


def checked(state: ClusterState, **changes: Any) -> Plan:
    """Return the plan after the stage."""
    return check_stock(state, a_draft(WIDTHS, site=SITE, plan=a_row(**changes))).plan


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("no-capacity", "out-of-stock"),
        ("busy", "out-of-stock"),
        ("quota", "quota"),
        ("denied", "denied"),
        ("throttled", "throttled"),
        ("bad-request", "bad-request"),
        ("no-price", "no-price"),
    ],
)
def test_a_closed_type_is_not_requested_and_its_jobs_wait_for_the_cause(kind: RefusalKind, why: str) -> None:
    """The other type is rented, and the plan wakes up when the closed type opens."""
    plan = checked(closed(kind))
    assert (plan.launches, plan.gangs, plan.wake_at) == ({"other-x4": 1}, {}, 160.0)
    assert plan.jobs.waiting == {"a": why, "b": why, "c": "nodes-to-come"}


def test_a_closed_type_opens_at_the_end_of_its_cooldown() -> None:
    """Without a current refusal the stage returns the same draft."""
    assert checked(closed(until=NOW)).launches == {"gpu-x4": 3, "other-x4": 1}
    assert checked(closed(until=NOW + 0.5)).launches == {"other-x4": 1}
    draft = a_draft(WIDTHS, site=SITE, plan=a_row())
    assert check_stock(a_state(*map(a_job, "abc"), now=NOW), draft) is draft
    assert check_stock(closed(until=NOW), draft) is draft


@pytest.mark.parametrize(("size", "launches"), [(2, 1), (3, 3)])
def test_orders_of_a_closed_size_are_dropped_and_smaller_orders_stay(size: int, launches: int) -> None:
    """If orders of two are closed, job a waits and b gets its node; closed orders of three change nothing."""
    plan = checked(closed(scope=f"gpu-x4//on-demand/{size}"))
    assert plan.launches["gpu-x4"] == launches
    assert plan.jobs.waiting["a"] == ("out-of-stock" if size == 2 else "nodes-to-come")
    assert plan.jobs.waiting["b"] == "nodes-to-come"
    assert plan.wake_at == (160.0 if size == 2 else None)


def test_a_width_that_only_partly_fills_its_last_node_needs_that_node() -> None:
    """Five GPUs need two nodes of four, so the closed order of two nodes affects them."""
    widths = {**WIDTHS, **gpus(a=5)}
    assert checked(closed(scope="gpu-x4//on-demand/2"), widths=widths).jobs.waiting["a"] == "out-of-stock"
    widths = {**WIDTHS, **gpus(a=4)}
    assert checked(closed(scope="gpu-x4//on-demand/2"), widths=widths).jobs.waiting["a"] == "nodes-to-come"


def test_no_wake_up_is_set_for_a_quota_of_zero() -> None:
    """The job waits for the quota, and the other type is rented."""
    offers = (
        Offer(instance_type="gpu-x4", usd_per_hour=4.0, nodes_left=0),
        Offer(instance_type="other-x4", usd_per_hour=4.0),
    )
    state = a_state(*map(a_job, "abc"), now=NOW, offers=offers)
    plan = checked(state)
    assert (plan.launches, plan.wake_at, plan.jobs.waiting["b"]) == ({"other-x4": 1}, None, "quota")


@pytest.mark.parametrize(
    "waiting", [{}, {"a": "node-limit"}, {"b": "gpus-to-fall-free", "c": "nodes-to-come"}]
)
def test_jobs_that_wait_for_a_closed_type_get_the_reason_without_any_launch(
    waiting: Mapping[str, Any],
) -> None:
    """Without launches no wake-up is set."""
    plan = checked(closed(), launches={}, gangs={}, waiting=waiting)
    expected = {job: why if job == "c" else "out-of-stock" for job, why in waiting.items()}
    assert (plan.jobs.waiting, plan.wake_at) == (expected, None)


def test_in_a_fixed_fleet_launches_are_cut_and_wait_reasons_stay() -> None:
    """The jobs keep waiting for coming nodes."""
    draft = a_draft(WIDTHS, site=SITE, plan=a_row(), policy={"nodes": {"gpu-x4": 3}})
    plan = check_stock(closed(), draft).plan
    assert plan.launches == {"other-x4": 1}
    assert set(plan.jobs.waiting.values()) == {"nodes-to-come"}
