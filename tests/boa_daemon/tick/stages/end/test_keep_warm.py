"""Released nodes enter the warm pool, and stopped nodes leave it; `test_warm_pool.py` has whole ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from drafts import a_draft, a_plan

from boa_daemon.testing import a_node, a_state, an_instance_type, rules
from boa_daemon.tick.facts.limits import Caps
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import NodeState, WarmPool
from boa_daemon.tick.stages.end.keep_warm import keep_warm

NOW = 50_000.0
HOLD = 12_000.0
"""60 s at 4 USD an hour are 12,000 s at a disk's 0.02."""
DISK = (("disk", 0.02),)


def asleep(name: str, *, age: float = 100.0) -> NodeState:
    """Return a node that was stopped `age` seconds ago."""
    node = a_node(name, phase="stopped", launched_at=NOW - age)
    return replace(node, gpus=(), prices=((NOW - age, 0.0),), extras=DISK)


def idle(name: str, **changes: Any) -> NodeState:
    """Return an idle node."""
    return replace(a_node(name, idle_since=0.0), **({"extras": DISK} | changes))


def warmed(
    nodes: Sequence[NodeState], *, pool: int | None = 2, caps: Caps | None = None, **plan: Any
) -> Plan:
    """Return the plan at NOW."""
    site = rules(caps=caps, warm_pool=None if pool is None else WarmPool(nodes=pool))
    names = {"gpu-x4": an_instance_type()}
    draft = a_draft(site=site, plan=a_plan(**({"instance_types": names} | plan)))
    return keep_warm(a_state(nodes=nodes, now=NOW), draft).plan


def test_without_a_pool_no_node_is_stopped_and_stopped_nodes_end() -> None:
    """A stopped node that is already released is released once."""
    assert warmed([idle("i")], pool=None, releases=("i",)).stopping == ()
    assert warmed([asleep("s")], pool=None, releases=("s",)).releases == ("s",)
    assert warmed([asleep("s")], pool=None).releases == ("s",)


@pytest.mark.parametrize(("pool", "stopping"), [(0, ()), (1, ("a",)), (2, ("a", "b")), (5, ("a", "b", "c"))])
def test_released_nodes_are_stopped_in_order_until_the_pool_is_full(
    pool: int, stopping: tuple[str, ...]
) -> None:
    """They stay in the releases, and the plan wakes up when their disks no longer pay."""
    plan = warmed([idle("a"), idle("b"), idle("c")], pool=pool, releases=("a", "b", "c"))
    assert (plan.stopping, plan.releases) == (stopping, ("a", "b", "c"))
    assert plan.wake_at == (NOW + HOLD if stopping else None)


@pytest.mark.parametrize(("there", "stopping"), [(0, ("a", "b")), (1, ("a",)), (2, ())])
def test_stopped_nodes_count_against_the_size_of_the_pool(there: int, stopping: tuple[str, ...]) -> None:
    """The pool holds two nodes."""
    nodes = [idle("a"), idle("b"), *(asleep(f"s{at}") for at in range(there))]
    assert warmed(nodes, releases=("a", "b")).stopping == stopping


@pytest.mark.parametrize(
    ("age", "releases", "wake_at"),
    [(HOLD - 1.0, (), NOW + 1.0), (HOLD, ("s",), None), (HOLD + 1.0, ("s",), None)],
)
def test_a_stopped_node_ends_exactly_when_its_disk_no_longer_pays(
    age: float, releases: tuple[str, ...], wake_at: float | None
) -> None:
    """A launch of its type keeps the node, because that launch starts it."""
    plan = warmed([asleep("s", age=age)])
    assert (plan.releases, plan.wake_at) == (releases, wake_at)
    launched = warmed([asleep("s", age=age)], launches={"gpu-x4": 1})
    assert (launched.releases, launched.wake_at) == ((), None)
    assert warmed([asleep("s", age=age)], launches={"other-x4": 1}).releases == releases


def test_launches_keep_the_youngest_stopped_nodes_for_starting() -> None:
    """Three stopped nodes are too old; one launch keeps one of them, and two end."""
    nodes = [asleep("s1", age=HOLD + 3.0), asleep("s2", age=HOLD + 2.0), asleep("s3", age=HOLD + 1.0)]
    assert set(warmed(nodes, pool=5, launches={"gpu-x4": 1}).releases) == {"s1", "s2"}
    assert set(warmed(nodes, pool=5, launches={"gpu-x4": 2}).releases) == {"s1"}
    assert warmed(nodes, pool=5, launches={"gpu-x4": 9}).releases == ()


def test_a_stopped_node_that_a_launch_starts_still_takes_a_place_in_the_pool() -> None:
    """The pool has one place, so no released node is stopped."""
    plan = warmed([asleep("s"), idle("a")], pool=1, launches={"gpu-x4": 1}, releases=("a",))
    assert (plan.stopping, plan.releases) == ((), ("a",))


def test_releases_of_the_plan_come_before_ends_of_stopped_nodes() -> None:
    """The order of the plan's releases is kept, and a spot node is not stopped."""
    plan = warmed([asleep("s", age=HOLD), idle("a", market="spot")], releases=("a",))
    assert (plan.releases, plan.stopping) == (("a", "s"), ())


@pytest.mark.parametrize(("disks", "stopping"), [(-1.0, 0), (0.9, 0), (1.1, 1), (2.1, 2), (9.0, 3)])
def test_nodes_are_stopped_only_as_far_as_the_caps_pay_for_their_disks(disks: float, stopping: int) -> None:
    """The day's cap pays for the nodes until their end, and for some disks at 0.02 USD per hour for 900 s."""
    nodes = [idle(name) for name in "abc"]
    gone = 3 * (4.0 + 0.02) * (NOW + Caps().end_seconds) / 3600.0
    caps = Caps(usd_per_day=gone + disks * 0.02 * 900.0 / 3600.0)
    assert len(warmed(nodes, pool=9, caps=caps, releases=("a", "b", "c")).stopping) == stopping


def test_launches_are_paid_before_disks_of_stopped_nodes() -> None:
    """The launch uses up the money for the disk; with money for both the node is stopped."""
    caps = Caps(usd_per_day=4.02 * (NOW + Caps().end_seconds) / 3600.0 + 1.1 * 0.02 * 900.0 / 3600.0)
    richer = replace(caps, usd_per_day=(caps.usd_per_day or 0.0) + 4.0 * 900.0 / 3600.0)
    other = {"instance_types": {"new-x4": an_instance_type(gpu_type="new")}, "launches": {"new-x4": 1}}
    for money, plan, stopping in ((caps, {}, ("a",)), (caps, other, ()), (richer, other, ("a",))):
        assert warmed([idle("a")], caps=money, releases=("a",), **plan).stopping == stopping
