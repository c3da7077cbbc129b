"""Under every policy and workload, jobs, work and money are conserved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from sampling import sampled

from boa_daemon.sim.simulation_result import Simulation
from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.testing import a_class, a_problem, a_trace, an_instance_type
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.units import dollars
from policies.model import Budget
from policies.registry import POLICIES, PolicyOptions
from policies.speedup import Amdahl, Table

CURVES = (
    Table(gpus=(1, 2, 4), speeds=(1.0, 1.8, 3.0)),
    Table(gpus=(2, 3, 8), speeds=(1.9, 2.5, 4.0)),
    Amdahl(parallel_fraction=0.9, max_gpus=9),
)


@st.composite
def runs(draw: DrawFn, policies: Sequence[str] = tuple(sorted(POLICIES))) -> SimulationSettings:
    """Return a small workload under some policy, on nodes of some size, with and without a cap."""
    names = "xyz"[: draw(st.integers(1, 3))]
    classes = tuple(
        a_class(
            name,
            sizes=draw(st.lists(st.sampled_from((0.01, 0.3, 2.0)), min_size=1, max_size=3)),
            curve=draw(st.sampled_from(CURVES)),
            startup_hours=draw(st.sampled_from((0.0, 0.05))),
            rescale_hours=draw(st.sampled_from((0.0, 0.05))),
        )
        for name in names
    )
    gaps = draw(st.lists(st.sampled_from((0.0, 10.0, 600.0, 7200.0)), min_size=1, max_size=12))
    arrivals = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    trace = a_trace(
        *arrivals,
        class_names=[draw(st.sampled_from(names)) for _ in arrivals],
        scales=[draw(st.sampled_from((0.5, 1.0))) for _ in arrivals],
    )
    policy = draw(st.sampled_from(policies))
    return SimulationSettings(
        trace=trace,
        problem=a_problem(*classes),
        instance_types={"gpu": an_instance_type(gpus=draw(st.sampled_from((1, 3, 4))))},
        budget=Budget(amount=draw(st.sampled_from((30.0, 60.0)))),
        policy=policy,
        options=PolicyOptions(nodes=draw(st.integers(9, 12))) if "static" in policy else PolicyOptions(),
        placer=draw(st.sampled_from(("first-fit", "lwf"))),
        boot_seconds=draw(st.sampled_from((0.0, 180.0))),
        idle_hold_seconds=draw(st.sampled_from((0.0, 60.0, 1000.0))),
        warm_pool_nodes=draw(st.sampled_from((0, 0, 2))),
        max_nodes=draw(st.sampled_from((None, 12))),
        seed=draw(st.integers(0, 3)),
    )


def checked(decision: Decision) -> None:
    """Check that nodes and jobs agree on the GPUs held, and that no GPU is held twice."""
    state = decision.state
    by_node = {
        (node.id, index): job
        for node in state.nodes.values()
        for index, job in enumerate(node.gpus)
        if job is not None
    }
    by_job = {(slot.node, slot.index): name for name, job in state.jobs.items() for slot in job.slots}
    assert by_node == by_job
    assert sum(len(job.slots) for job in state.jobs.values()) == len(by_job)
    for node in state.nodes.values():
        assert node.phase == "ready" or node.free_gpus == len(node.gpus)


@settings(max_examples=sampled(120), deadline=None)
@given(run_settings=runs())
def test_every_run_conserves_jobs_work_and_money(run_settings: SimulationSettings) -> None:
    """All jobs finish; GPU-hours, bill and meter agree; the JCT bound and the node cap hold."""
    run = prepare(run_settings)
    result = run.finish(checked)
    world = run.world

    assert result.finished == result.jobs == len(set(world.jobs.totals.finished))
    parts = result.gpu_hours_used + result.gpu_hours_overhead + result.gpu_hours_booting
    assert parts <= result.gpu_hours_rented + 1e-9
    assert world.cloud.meter.micro_dollars == run.controller.ports.store.settled_micro_dollars()
    assert result.spent_usd == dollars(world.cloud.meter.micro_dollars)
    # A node costs 1 USD per GPU-hour, at least for a minute, to half a micro-dollar.
    least_bills = result.nodes_launched * run_settings.instance_types["gpu"].gpus / 60.0
    rounding = result.nodes_launched * 1e-6
    assert result.gpu_hours_rented - rounding <= result.spent_usd
    assert result.spent_usd <= result.gpu_hours_rented + least_bills + rounding
    assert result.mean_jct_hours >= result.lower_bound_mean_jct_hours * (1 - 1e-9)
    if run_settings.max_nodes is not None:
        assert result.most_nodes <= run_settings.max_nodes


def without_wall(result: Simulation) -> Simulation:
    """Return the figures without the wall time, which depends on the machine."""
    return replace(result, wall_seconds=0.0)


@settings(max_examples=sampled(25), deadline=None)
@given(run_settings=runs())
def test_the_same_seed_gives_the_same_run_to_the_bit(run_settings: SimulationSettings) -> None:
    """Every figure is equal, not only nearly equal."""
    first, second = prepare(run_settings).finish(), prepare(run_settings).finish()

    assert without_wall(first) == without_wall(second)


# A paced policy reads the money spent whenever it decides, so for it one more tick is one more correction.
NOT_PACED = tuple(sorted(name for name, entry in POLICIES.items() if not entry.reads_progress))


@settings(max_examples=sampled(40), deadline=None)
@given(run_settings=runs(NOT_PACED))
def test_phases_that_change_no_width_need_no_tick(run_settings: SimulationSettings) -> None:
    """Deciding at every end of a phase gives the same run as deciding only where a width may change."""
    shortcut = prepare(run_settings)
    full = prepare(run_settings)
    every_phase = replace(full.controller, is_job_by_job=False, is_round_by_round=False)
    full = replace(full, controller=every_phase)

    assert replace(without_wall(shortcut.finish()), ticks=0) == replace(without_wall(full.finish()), ticks=0)


@settings(max_examples=sampled(40), deadline=None)
@given(run_settings=runs())
def test_the_work_of_every_job_is_done(run_settings: SimulationSettings) -> None:
    """At width 1 and speed 1, GPU-hours used are the sum of the sizes of all jobs."""
    classes = tuple(
        a_class(
            job_class.name,
            sizes=[phase.size_gpu_hours for phase in job_class.phases],
            curve=Table(gpus=(1,), speeds=(1.0,)),
            rescale_hours=job_class.rescale_hours,
        )
        for job_class in run_settings.problem.classes
    )
    result = prepare(replace(run_settings, problem=a_problem(*classes))).finish()
    sizes = {job_class.name: job_class.size_gpu_hours for job_class in classes}
    work = sum(sizes[job.class_name] * job.scale for job in run_settings.trace.jobs)

    assert result.gpu_hours_used == pytest.approx(work, rel=1e-9)
