"""Wrong beliefs of a policy and their effect on a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from boa_daemon.errors import InputError
from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.sim.world_settings import WorldSettings, WrongBeliefs
from boa_daemon.sim.wrong_beliefs import believed_problem, wrong_size_factors
from boa_daemon.testing import a_class, a_problem, a_trace, an_instance_type
from policies.model import Budget
from policies.registry import PolicyOptions

PROBLEM = a_problem(a_class("x", arrivals_per_hour=6.0), a_class("y", arrivals_per_hour=2.0))
SETTINGS = SimulationSettings(
    trace=a_trace(0.0, 600.0, 1200.0, class_names=["x", "y", "x"]),
    problem=PROBLEM,
    instance_types={"gpu": an_instance_type()},
    budget=Budget(amount=60.0),
)


def test_true_beliefs_change_nothing() -> None:
    """The problem is the same object, and the size factors are 1."""
    assert believed_problem(PROBLEM, WrongBeliefs()) is PROBLEM
    assert wrong_size_factors(WrongBeliefs(), "x", "j", seed=0) == (1.0, 1.0)


def test_factors_apply_to_one_class_or_to_all_others() -> None:
    """The key "" stands for all classes that have no key of their own."""
    problem = believed_problem(PROBLEM, WrongBeliefs(rates={"x": 2.0, "": 0.5}, sizes={"": 3.0}))

    assert [c.arrivals_per_hour for c in problem.classes] == [12.0, 1.0]
    assert [c.size_gpu_hours for c in problem.classes] == [3.0, 3.0]


def test_an_exponent_changes_the_believed_speed_up() -> None:
    """Speeds of 1, 1.8 and 3 are raised to the power 2."""
    problem = believed_problem(PROBLEM, WrongBeliefs(speedup_exponents={"x": 2.0}))
    bent, straight = (c.phases[0].speedups["gpu"] for c in problem.classes)

    assert bent.speed_at([1, 2, 4]).tolist() == pytest.approx([1.0, 1.8**2, 9.0])
    assert straight.speed_at([1, 2, 4]).tolist() == [1.0, 1.8, 3.0]


def test_each_job_has_its_own_reproducible_size_error() -> None:
    """The logarithms of the errors have the asked spread."""
    beliefs = WrongBeliefs(sizes={"x": 2.0}, size_spread=0.4)
    errors = np.log([wrong_size_factors(beliefs, "x", f"j{n}", seed=1)[1] for n in range(4000)])

    assert errors.std() == pytest.approx(0.4, rel=0.06)
    size, scale = wrong_size_factors(beliefs, "x", "j7", seed=1)
    assert (size, scale) == wrong_size_factors(beliefs, "x", "j7", seed=1)
    assert size == 2.0 * scale


def test_wrong_beliefs_do_not_change_the_simulated_world() -> None:
    """Under a policy of one GPU per job, JCT and spend stay the same."""
    settings = replace(SETTINGS, policy="equal-width", options=PolicyOptions(gpus_per_job=1))
    wrong = WorldSettings(beliefs=WrongBeliefs(rates={"": 2.0}, sizes={"": 0.5}, size_spread=0.5))
    truth, run = prepare(settings).finish(), prepare(replace(settings, world=wrong)).finish()

    assert (run.mean_jct_hours, run.spent_usd) == (truth.mean_jct_hours, truth.spent_usd)


def test_a_believed_boot_time_changes_the_plan_but_not_the_boots() -> None:
    """The plan is that of a world with such boots, and the nodes boot at once."""
    settings = replace(SETTINGS, boot_seconds=0.0)
    slow = prepare(replace(settings, boot_seconds=600.0)).policy
    told_so = prepare(replace(settings, world=WorldSettings(beliefs=WrongBeliefs(boot_seconds=600.0))))
    run = told_so.finish()

    assert told_so.policy.planned_mean_jct_hours == slow.planned_mean_jct_hours
    assert told_so.policy.planned_mean_jct_hours != prepare(settings).policy.planned_mean_jct_hours
    assert run.gpu_hours_booting == 0.0


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_negative_or_infinite_believed_boot_time_is_refused(seconds: float) -> None:
    """NaN is refused as well."""
    with pytest.raises(InputError, match="0 seconds or more"):
        WrongBeliefs(boot_seconds=seconds)
