"""Random fault schedules on the in-process cloud: in the end exactly the wanted instances run.

`BOA_FAULT_SCHEDULES=2000 pytest tests/integration/test_aws_faults.py` tries 2,000 schedules.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from aws_rigs import START, AwsRig, a_rig
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sampling import sampled

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.store.memory import MemoryStore
from boa_daemon.testing import NoJobs, Wishes
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.decide.controller import Controller, Ports
from boa_daemon.tick.facts.actions import TerminateNode
from boa_daemon.tick.facts.state import Rules
from policies.placement.first_fit import FirstFit

EXAMPLES = int(os.environ.get("BOA_FAULT_SCHEDULES", sampled(12)))
TYPE = "g5.xlarge"
MUTATING = ("RunInstances", "TerminateInstances", "CreateTags")
READING = ("DescribeInstances", "DescribeSubnets", "DescribeImages", "DescribeInstanceTypeOfferings")
CODES = (
    "InsufficientInstanceCapacity",
    "RequestLimitExceeded",
    "InternalError",
    "UnauthorizedOperation",
    "InsufficientFreeAddressesInSubnet",
    "ExpiredToken",
    "InvalidInstanceID.NotFound",
)
SETTLING_SECONDS = 3 * 3600.0
"""Cool-downs grow to half an hour, and those of denied calls and full subnets are as long."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault of a schedule."""

    operation: str
    what: str
    skip: int
    times: int


faults = st.builds(
    Planned,
    st.sampled_from([*MUTATING, *MUTATING, *READING]),
    st.one_of(
        st.sampled_from(["lost", "drop", "lost"]), st.sampled_from(CODES).map(lambda code: f"error:{code}")
    ),
    st.integers(0, 4),
    st.integers(1, 6),
)
wishes = st.lists(st.integers(0, 3), min_size=3, max_size=7)


def a_controller(rig: AwsRig, store: MemoryStore, wanted: int) -> Controller:
    """Return a controller that wants this number of nodes."""
    kind = rig.cloud._kinds[TYPE]
    return Controller(
        allocator=Wishes(widths={}, nodes={TYPE: wanted}),
        placer=FirstFit(),
        rules=Rules(instance_types={kind.gpu_type: kind}, idle_hold_seconds=0.0),
        ports=Ports(clock=rig.clock, cloud=rig.cloud, jobs=NoJobs(), engine=NoJobs(), store=store),  # type: ignore[arg-type]
    )


def tick(rig: AwsRig, store: MemoryStore, wanted: int) -> None:
    """Run a tick; a tick that cannot list the nodes does nothing."""
    try:
        a_controller(rig, store, wanted).run_once()
    except CallFailed:
        assert rig.fake.faults.planned, "nothing was planned to fail"


def check(rig: AwsRig, store: MemoryStore, most: int) -> None:
    """Check that every instance is tagged and that never more run than the largest number wanted.

    A node whose order to end was lost does not count: it runs until the order is repeated, beside the nodes
    that were wanted since.
    """
    told = {action.node for action, _, _ in store.outcomes if isinstance(action, TerminateNode)}
    assert all(life.tags.get("boa:intent") for life in rig.fake.history())
    assert len([life for life in rig.fake.live() if life.id not in told]) <= most


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    schedule=st.lists(faults, max_size=8),
    wanted=wishes,
    restarts=st.sets(st.integers(0, 6)),
    invisible=st.sampled_from([0.0, 5.0, 70.0]),
    stock=st.one_of(st.none(), st.integers(0, 2)),
)
@example(
    schedule=[Planned("TerminateInstances", "drop", 0, 1)],
    wanted=[3, 3, 0, 1, 1],
    restarts=set(),
    invisible=0.0,
    stock=None,
)
def test_no_schedule_loses_or_doubles_an_instance(
    schedule: list[Planned], wanted: list[int], restarts: set[int], invisible: float, stock: int | None
) -> None:
    """After faults, restarts, lagging listings and low stock, the wanted nodes run and are billed once."""
    terms = Terms(boot_seconds=60.0, shutdown_seconds=45.0, invisible_seconds=invisible)
    if stock is not None:
        terms.stock[TYPE, "us-east-1a", "on-demand"] = stock
    with a_rig("process", terms, instance_types=(TYPE,)) as rig:
        for each in schedule:
            rig.fake.faults.plan(each.operation, each.what, skip=each.skip, times=each.times)
        store = MemoryStore()
        for number, nodes in enumerate(wanted):
            tick(rig, store, nodes)
            check(rig, store, max(wanted))
            rig.pass_time(45.0)
            if number in restarts:
                rig.cloud = rig.another()
        rig.fake.faults.planned.clear()
        settle(rig, store, wanted[-1])
        assert len(rig.fake.live()) == wanted[-1]
        settle(rig, store, 0)
        assert rig.fake.live() == []
        assert bills(store) == lives(rig)
        assert rig.fake.forbidden == []


def settle(rig: AwsRig, store: MemoryStore, wanted: int) -> None:
    """Run ticks without faults until the wanted nodes run, at most until the longest cool-down is over."""
    until = rig.clock.now() + SETTLING_SECONDS
    while rig.clock.now() < until:
        tick(rig, store, wanted)
        is_done = len(rig.fake.live()) == wanted and not store.unsettled()
        rig.pass_time(60.0 if is_done else 301.0)
        if is_done:
            break
    tick(rig, store, wanted)
    rig.pass_time(60.0)
    tick(rig, store, wanted)


def bills(store: MemoryStore) -> list[tuple[str, float, float]]:
    """Return the final bills."""
    return sorted((each.node, each.started_at, each.ended_at) for each in store.charges)


def lives(rig: AwsRig) -> list[tuple[str, float, float]]:
    """Return the fake cloud's own history of instances."""
    assert all(life.launched_at >= START for life in rig.fake.history())
    return sorted((life.id, life.launched_at, life.ended_at or 0.0) for life in rig.fake.history())


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    zone=st.sampled_from(["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d", "us-east-1f"]),
    market=st.sampled_from(["spot", "on-demand"]),
)
def test_the_one_offer_that_a_policy_allows_is_rented_within_a_minute(zone: str, market: str) -> None:
    """Nine of ten offers are denied; the daemon looks again a second after each launch."""
    terms = Terms(spot_fraction=0.4, allows=(TYPE, zone, market))
    with a_rig("process", terms, instance_types=(TYPE,), zones=(), market="spot-then-on-demand") as rig:
        store, began = MemoryStore(), rig.clock.now()
        while not rig.fake.live():
            assert rig.clock.now() - began <= 60.0, store.cooldowns(rig.clock.now())
            tick(rig, store, 1)
            rig.pass_time(1.0)
        (life,) = rig.fake.live()
        assert (life.zone, life.market) == (zone, market)
