"""Random worlds with many faults at once: jobs finish once, nodes end and are paid, runs repeat."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from sampling import sampled
from worlds import WORLDS

from boa_daemon.sim.simulation_result import Simulation
from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.sim.world_settings import WorldSettings
from boa_daemon.testing import a_class, a_problem, a_trace, an_instance_type
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.units import dollars
from policies.model import Budget
from policies.registry import PolicyOptions
from policies.speedup import Table

CURVES = (
    Table(gpus=(1, 2, 4), speeds=(1.0, 1.8, 3.0)),
    Table(gpus=(2, 3, 8), speeds=(1.9, 2.5, 4.0)),
)
RENTING = ("boa", "boa-paced", "efficiency", "equal-width", "greedy-marginal")


@st.composite
def chaos(draw: DrawFn) -> SimulationSettings:
    """Return a small workload in a random world."""
    names = "xy"[: draw(st.integers(1, 2))]
    classes = tuple(
        a_class(
            name,
            sizes=draw(st.sampled_from(((0.3,), (0.01, 1.0), (2.0,)))),
            curve=draw(st.sampled_from(CURVES)),
            startup_hours=draw(st.sampled_from((0.0, 0.02))),
            rescale_hours=draw(st.sampled_from((0.0, 0.02))),
        )
        for name in names
    )
    gaps = draw(st.lists(st.sampled_from((0.0, 10.0, 600.0, 7200.0)), min_size=1, max_size=12))
    arrivals = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    return SimulationSettings(
        trace=a_trace(*arrivals, class_names=[draw(st.sampled_from(names)) for _ in arrivals]),
        problem=a_problem(*classes),
        instance_types={"gpu": an_instance_type(gpus=draw(st.sampled_from((2, 4))))},
        budget=Budget(amount=60.0),
        policy=draw(st.sampled_from(RENTING)),
        options=PolicyOptions(),
        placer=draw(st.sampled_from(("first-fit", "lwf"))),
        boot_seconds=draw(st.sampled_from((0.0, 180.0))),
        idle_hold_seconds=draw(st.sampled_from((0.0, 60.0))),
        max_nodes=draw(st.sampled_from((None, 12))),
        seed=draw(st.integers(0, 5)),
        world=draw(WORLDS),
    )


class Watch:
    """Checks of every tick."""

    def __init__(self, run_settings: SimulationSettings) -> None:
        self.settings = run_settings
        self.bills: dict[str, float] = {}

    def __call__(self, decision: Decision) -> None:
        """Check that nodes and jobs agree, that jobs stay in one zone, and that caps and quotas hold."""
        state, world = decision.state, self.settings.world
        held = {
            (node.id, index): job
            for node in state.nodes.values()
            for index, job in enumerate(node.gpus)
            if job is not None
        }
        assert held == {(s.node, s.index): name for name, job in state.jobs.items() for s in job.slots}
        for job in state.jobs.values():
            assert len({state.nodes[slot.node].zone for slot in job.slots}) <= 1
        listed = [node for node in state.nodes.values() if not node.id.startswith("t")]
        if self.settings.max_nodes is not None:
            assert len(listed) <= self.settings.max_nodes
        if world.quotas:
            assert len(listed) <= world.quotas[""]


@settings(max_examples=sampled(150), deadline=None)
@given(run_settings=chaos())
def test_every_job_finishes_once_and_every_node_is_paid(run_settings: SimulationSettings) -> None:
    """Every node ends, the ledger equals the cloud's meter, and used GPU-hours are at most rented ones."""
    run = prepare(run_settings)
    run.world.run(run.controller, Watch(run_settings), until_empty=True)
    meter, totals = run.world.cloud.meter, run.world.jobs.totals

    assert sorted(totals.finished) == sorted(job.id for job in run_settings.trace.jobs)
    assert len(run.world.cloud) == 0
    assert meter.micro_dollars == run.controller.ports.store.settled_micro_dollars()
    parts = (
        totals.used_gpu_seconds
        + totals.overhead_gpu_seconds
        + totals.lost_gpu_seconds
        + meter.booting_gpu_seconds
    )
    assert parts <= meter.rented_gpu_seconds * (1.0 + 1e-9) + 1e-6
    assert totals.used_gpu_seconds >= 0.0
    assert meter.rented_gpu_seconds < math.inf


@settings(max_examples=sampled(40), deadline=None)
@given(run_settings=chaos())
def test_no_policy_beats_the_bound_in_any_world(run_settings: SimulationSettings) -> None:
    """The mean JCT is at least the bound for the money spent; GPU-hours by use add up to those rented."""
    result = prepare(run_settings).finish()

    assert result.finished == result.jobs
    assert result.mean_jct_hours >= result.lower_bound_mean_jct_hours * (1.0 - 1e-9)
    parts = result.gpu_hours_used + result.gpu_hours_overhead + result.gpu_hours_booting
    parts += result.gpu_hours_idle + result.gpu_hours_lost
    assert parts == pytest.approx(result.gpu_hours_rented, rel=1e-6, abs=1e-9)
    assert result.spent_usd == dollars(round(result.spent_usd * 1e6))


@settings(max_examples=sampled(30), deadline=None)
@given(run_settings=chaos())
def test_the_same_seed_gives_the_same_run_to_the_bit(run_settings: SimulationSettings) -> None:
    """Every figure is equal, not only nearly equal."""
    first, second = (_without_wall(prepare(run_settings).finish()) for _ in range(2))

    assert first == second


@settings(max_examples=sampled(30), deadline=None)
@given(run_settings=chaos())
def test_used_gpu_hours_are_the_sizes_of_the_jobs(run_settings: SimulationSettings) -> None:
    """At width 1 and full speed this holds however often jobs fall back to a checkpoint."""
    world = run_settings.world
    faults = replace(world.faults, slow_speed=1.0)
    problem = a_problem(
        *(
            a_class(
                c.name,
                sizes=[p.size_gpu_hours for p in c.phases],
                curve=Table(gpus=(1,), speeds=(1.0,)),
                rescale_hours=c.rescale_hours,
            )
            for c in run_settings.problem.classes
        )
    )
    changed = replace(run_settings, problem=problem, world=replace(world, faults=faults))
    result = prepare(changed).finish()
    sizes = {c.name: c.size_gpu_hours for c in problem.classes}

    work = sum(sizes[job.class_name] * job.scale for job in changed.trace.jobs)
    assert result.gpu_hours_used == pytest.approx(work, rel=1e-6)


def test_a_world_without_settings_has_no_faults() -> None:
    """No launch is refused, nothing fails, and no work is lost."""
    result = prepare(
        SimulationSettings(
            trace=a_trace(0.0, 10.0),
            problem=a_problem(),
            instance_types={"gpu": an_instance_type()},
            budget=Budget(amount=60.0),
            world=WorldSettings(),
        )
    ).finish()

    assert (result.launch_refusals, result.node_failures, result.job_failures) == ({}, 0, 0)
    assert (result.gpu_hours_lost, result.interruptions, result.restarts) == (0.0, 0, 0)


def _without_wall(result: Simulation) -> Simulation:
    """Return the figures without the wall time, which depends on the machine."""
    return replace(result, wall_seconds=0.0)
