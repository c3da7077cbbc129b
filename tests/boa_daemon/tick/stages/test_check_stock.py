"""Nothing is asked for while every offer of it is closed, and who waits for it is told why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from drafts import a_draft, a_plan, gpus

from boa_daemon.testing import a_job, a_state, an_instance_type, rules
from boa_daemon.tick.offers import Cooldown, Offer, RefusalKind
from boa_daemon.tick.stages.check_stock import check_stock
from boa_daemon.tick.state import ClusterState, Plan
from policies.model import Width

NOW = 100.0
OTHER = an_instance_type(gpu_type="other")
SITE = rules(instance_types={"gpu": an_instance_type(), "other": OTHER})
WIDTHS = {**gpus(a=8, b=4), "c": Width("other", 1)}


def closed(kind: RefusalKind = "no-capacity", *, until: float = 160.0, scope: str = "gpu-x4") -> ClusterState:
    """Return a state in which a scope is closed."""
    return a_state(*map(a_job, "abc"), now=NOW, cooldowns={scope: Cooldown(until=until, kind=kind)})


def a_row(**changes: Any) -> Plan:
    """Return a plan in which a spans two nodes, b needs one, and c one of the other type."""
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
def test_a_type_that_is_closed_is_not_asked_for_and_whoever_needs_it_knows_why(
    kind: RefusalKind, why: str
) -> None:
    """The other type is rented, and the next look is when it opens."""
    plan = checked(closed(kind))
    assert (plan.launches, plan.gangs, plan.wake_at) == ({"other-x4": 1}, {}, 160.0)
    assert plan.waiting == {"a": why, "b": why, "c": "nodes-to-come"}


def test_it_opens_at_the_instant_that_was_said() -> None:
    """Until then it is closed, and without any refusal nothing is looked at."""
    assert checked(closed(until=NOW)).launches == {"gpu-x4": 3, "other-x4": 1}
    assert checked(closed(until=NOW + 0.5)).launches == {"other-x4": 1}
    draft = a_draft(WIDTHS, site=SITE, plan=a_row())
    assert check_stock(a_state(*map(a_job, "abc"), now=NOW), draft) is draft
    assert check_stock(closed(until=NOW), draft) is draft


@pytest.mark.parametrize(("size", "launches"), [(2, 1), (3, 3)])
def test_orders_of_a_closed_size_are_left_out_and_smaller_ones_are_made(size: int, launches: int) -> None:
    """Closed to two together: a waits, b gets its node; closed to three together: nobody minds."""
    plan = checked(closed(scope=f"gpu-x4//on-demand/{size}"))
    assert plan.launches["gpu-x4"] == launches
    assert plan.waiting["a"] == ("out-of-stock" if size == 2 else "nodes-to-come")
    assert plan.waiting["b"] == "nodes-to-come"
    assert plan.wake_at == (160.0 if size == 2 else None)


def test_a_width_that_does_not_fill_its_last_node_takes_that_node_too() -> None:
    """Five GPUs are two nodes of four."""
    widths = {**WIDTHS, **gpus(a=5)}
    assert checked(closed(scope="gpu-x4//on-demand/2"), widths=widths).waiting["a"] == "out-of-stock"
    widths = {**WIDTHS, **gpus(a=4)}
    assert checked(closed(scope="gpu-x4//on-demand/2"), widths=widths).waiting["a"] == "nodes-to-come"


def test_a_quota_of_nothing_never_opens_by_itself() -> None:
    """No wake-up is set for it."""
    offers = (
        Offer(instance_type="gpu-x4", usd_per_hour=4.0, nodes_left=0),
        Offer(instance_type="other-x4", usd_per_hour=4.0),
    )
    state = a_state(*map(a_job, "abc"), now=NOW, offers=offers)
    plan = checked(state)
    assert (plan.launches, plan.wake_at, plan.waiting["b"]) == ({"other-x4": 1}, None, "quota")


@pytest.mark.parametrize(
    "waiting", [{}, {"a": "node-limit"}, {"b": "gpus-to-fall-free", "c": "nodes-to-come"}]
)
def test_whoever_waits_for_a_closed_type_is_told_though_nothing_is_launched(
    waiting: Mapping[str, Any],
) -> None:
    """With nothing to ask for there is no wake-up either."""
    plan = checked(closed(), launches={}, gangs={}, waiting=waiting)
    expected = {job: why if job == "c" else "out-of-stock" for job, why in waiting.items()}
    assert (plan.waiting, plan.wake_at) == (expected, None)


def test_in_a_fixed_fleet_jobs_wait_for_the_fleet() -> None:
    """Launches are cut all the same."""
    draft = a_draft(WIDTHS, site=SITE, plan=a_row(), policy={"nodes": {"gpu-x4": 3}})
    plan = check_stock(closed(), draft).plan
    assert plan.launches == {"other-x4": 1}
    assert set(plan.waiting.values()) == {"nodes-to-come"}
