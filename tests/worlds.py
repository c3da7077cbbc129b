"""Builders and strategies of simulated worlds for tests of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from boa_daemon.clock import VirtualClock
from boa_daemon.sim.capacity_pools import CapacityPools
from boa_daemon.sim.draws import Draws
from boa_daemon.sim.event_queue import EventQueue
from boa_daemon.sim.simulated_cloud import SimulatedCloud
from boa_daemon.sim.world_settings import Boot, Checkpoints, Faults, Spot, Stock, WorldSettings, WrongBeliefs
from boa_daemon.testing import an_instance_type
from policies.model import InstanceType


def a_simulated_cloud(
    clock: VirtualClock,
    events: EventQueue,
    *,
    world: WorldSettings | None = None,
    kinds: Sequence[InstanceType] = (),
    boot_seconds: float = 0.0,
    wants_tick: Callable[[], None] = lambda: None,
) -> SimulatedCloud:
    """Return a cloud with one type of four GPUs and no failures by default."""
    world = world or WorldSettings()
    return SimulatedCloud(
        clock,
        events,
        shelves=CapacityPools(world, kinds or (an_instance_type(),), seed=0, start=0.0),
        draws=Draws(world, boot_seconds=boot_seconds, seed=0),
        wants_tick=wants_tick,
    )


def run_until(clock: VirtualClock, events: EventQueue, instant: float) -> None:
    """Run all events that are due until an instant."""
    while (at := events.next_at) is not None and at <= instant:
        clock.advance_to(at)
        events.happen(at)
    clock.advance_to(instant)


def _or_off(off: float, *values: float) -> st.SearchStrategy[float]:
    return st.sampled_from((off, *values))


FAULTS = st.builds(
    Faults,
    boot_failure_fraction=_or_off(0.0, 0.1),
    throttled_fraction=_or_off(0.0, 0.1),
    lost_answer_fraction=_or_off(0.0, 0.2),
    short_grant_fraction=_or_off(0.0, 0.5),
    slow_node_fraction=_or_off(0.0, 0.3),
    slow_speed=_or_off(1.0, 0.5),
    mean_node_failure_hours=_or_off(float("inf"), 3.0),
    mean_job_failure_hours=_or_off(float("inf"), 5.0),
)
STOCK = st.builds(
    Stock,
    nodes=st.sampled_from((None, 6, 20)),
    mean_in_hours=_or_off(float("inf"), 2.0),
    mean_out_hours=st.sampled_from((0.3, 1.0)),
)
SPOT = st.builds(
    Spot,
    mean_interruption_hours=st.sampled_from((0.5, 5.0)),
    notice_seconds=st.sampled_from((0.0, 120.0, 600.0)),
    unannounced_fraction=_or_off(0.0, 0.3),
    stock=STOCK,
)
BELIEFS = st.builds(
    WrongBeliefs,
    rates=st.sampled_from(({}, {"": 2.0})),
    sizes=st.sampled_from(({}, {"": 0.5}, {"x": 2.0})),
    speedup_exponents=st.sampled_from(({}, {"": 1.3}, {"": 0.7})),
    size_spread=_or_off(0.0, 0.5),
    boot_seconds=st.sampled_from((None, 0.0, 600.0)),
)
WORLDS = st.builds(
    WorldSettings,
    zones=st.sampled_from(((), ("a",), ("a", "b"))),
    boots=st.sampled_from(({}, {"": Boot(median_seconds=180.0, p99_seconds=900.0)})),
    stock=st.one_of(st.just({}), st.builds(lambda stock: {"": stock}, STOCK)),
    quotas=st.sampled_from(({}, {"": 12})),
    spot=st.one_of(st.none(), SPOT),
    faults=FAULTS,
    checkpoints=st.sampled_from(
        (None, Checkpoints(every_seconds=300.0), Checkpoints(every_seconds=600.0, cost_seconds=20.0))
    ),
    beliefs=BELIEFS,
)
"""Worlds with any of the faults, and all of them at once."""
