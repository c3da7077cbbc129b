"""A policy that learns in the simulator from a class file that is wrong or right."""

from __future__ import annotations

from dataclasses import replace

import pytest
from load_scenarios import PROBLEM, SCENARIOS, settings_of

from boa_daemon.learning.speedups import measured_class
from boa_daemon.sim.learning_policy import LearningPolicy
from boa_daemon.sim.simulation_result import Simulation
from boa_daemon.sim.wiring import SimulationSettings, prepare, simulate, site_of
from boa_daemon.sim.world_settings import WorldSettings, WrongBeliefs
from boa_daemon.testing import a_class, a_problem, a_trace, an_instance_type
from boa_daemon.tick.decide.decision import Decision
from policies.model import Budget
from policies.speedup import Table

WRONG = WrongBeliefs(
    rates={"": 2.0}, sizes={"vision": 0.5, "language": 2.0}, speedup_exponents={"stiff": 1.5}, size_spread=0.3
)


def settings_with(beliefs: WrongBeliefs) -> SimulationSettings:
    """Return eight hours of the usual load under the fixed plan, with some beliefs."""
    settings = settings_of(SCENARIOS[0], hours=8.0, seed=1)
    return replace(settings, world=replace(WorldSettings(), beliefs=beliefs))


def taught_run(settings: SimulationSettings) -> tuple[Simulation, LearningPolicy]:
    """Run a policy that learns, and return the result and the policy."""
    run = prepare(settings)
    taught = LearningPolicy(settings.policy, site_of(settings), settings.options, jobs=run.world.jobs)
    run = replace(run, controller=replace(run.controller, allocator=taught))
    return run.finish(taught.watch), taught


@pytest.mark.exhaustive
def test_a_learning_policy_corrects_wrong_rates_sizes_and_speed_ups() -> None:
    """The spend comes closer to the budget, and jobs end sooner."""
    wrong = simulate(settings_with(WRONG))
    corrected, taught = taught_run(settings_with(WRONG))
    truth = {c.name: c for c in PROBLEM.classes}

    for name, belief in taught.learning.beliefs.known.items():
        assert belief.rate.mean == pytest.approx(truth[name].arrivals_per_hour, rel=0.3)
        assert belief.size.mean == pytest.approx(truth[name].size_gpu_hours, rel=0.35)
    widest = max(
        (w for w in taught.classes.curves["stiff", "gpu"].widths if w.measurements), key=lambda w: w.gpus
    )
    real = truth["stiff"].phases[0].speedups["gpu"]
    assert widest.speedup == pytest.approx(float(real.speed_at(widest.gpus)), rel=0.1)
    assert abs(corrected.mean_usd_per_hour - 60.0) < 0.7 * abs(wrong.mean_usd_per_hour - 60.0)
    assert corrected.mean_jct_hours < 0.8 * wrong.mean_jct_hours


@pytest.mark.exhaustive
def test_learning_from_a_correct_class_file_changes_little() -> None:
    """The policy plans at most four times, and mean JCT stays within 10 %."""
    right = simulate(settings_with(WrongBeliefs()))
    learned, taught = taught_run(settings_with(WrongBeliefs()))

    assert taught.plans <= 4
    assert learned.mean_jct_hours == pytest.approx(right.mean_jct_hours, rel=0.1)


def test_phases_with_different_speed_ups_are_learnt_apart() -> None:
    """Four GPUs are 1.2 times as fast in the first phase and 3.6 times in the second.

    The learnt speed-ups of each phase stay within 10 % of the true ones.
    """
    early, late = (Table(gpus=(1, 2, 4), speeds=speeds) for speeds in ((1.0, 1.1, 1.2), (1.0, 1.9, 3.6)))
    one = a_class(sizes=[0.5, 1.0], curve=early, arrivals_per_hour=4.0)
    second = replace(one.phases[1], speedups={"gpu": late})
    job_class = replace(one, phases=(one.phases[0], second))
    settings = SimulationSettings(
        trace=a_trace(*(400.0 * n for n in range(60)), class_names=["c"] * 60),
        problem=a_problem(job_class),
        instance_types={"gpu": an_instance_type()},
        budget=Budget(amount=20.0),
        policy="boa-paced",
        boot_seconds=0.0,
    )
    _, taught = taught_run(settings)

    assert taught.learning.learner.samples
    found = measured_class(job_class, list(taught.classes.curves.values()))
    for believed, true in zip(found.phases, job_class.phases, strict=True):
        for gpus in (2, 4):
            real = float(true.speedups["gpu"].speed_at(gpus))
            assert float(believed.speedups["gpu"].speed_at(gpus)) == pytest.approx(real, rel=0.1)


@pytest.mark.exhaustive
def test_learns_gives_the_same_run_as_a_learning_policy_set_by_hand() -> None:
    """Spend and mean JCT are equal to the bit."""
    settings = replace(settings_with(WRONG), seed=0)
    by_hand, _ = taught_run(settings)
    found = simulate(replace(settings, learns=True))

    assert (found.mean_usd_per_hour, found.mean_jct_hours) == (
        by_hand.mean_usd_per_hour,
        by_hand.mean_jct_hours,
    )


def test_a_phase_that_changes_no_width_needs_no_look() -> None:
    """Of forty alike phases none is looked at; the widths that a job would get by itself are the same."""
    one = a_class(
        sizes=[0.05] * 40, curve=Table(gpus=(1, 2, 4), speeds=(1.0, 1.8, 3.0)), arrivals_per_hour=4.0
    )
    settings = SimulationSettings(
        trace=a_trace(*(900.0 * n for n in range(20)), class_names=["c"] * 20),
        problem=a_problem(one),
        instance_types={"gpu": an_instance_type()},
        budget=Budget(amount=20.0),
        policy="boa-paced",
        learns=True,
    )
    run = prepare(settings)
    taught, looks = run.controller.allocator, list[tuple[int, int]]()
    assert isinstance(taught, LearningPolicy)

    def look(decision: Decision) -> None:
        for state in decision.state.jobs.values():
            if state.slots and not taught.learning.tries.explorations:
                looks.append((state.job.phase, taught.keeps_until(state.job)))
                alone = taught.allocate((state.job,), now=decision.state.now).widths[state.job.id]
                assert taught.alone(state.job) == alone

    run.finish(look)

    assert looks
    assert all(phase < until <= 40 for phase, until in looks)
    assert max(until - phase for phase, until in looks) > 20
