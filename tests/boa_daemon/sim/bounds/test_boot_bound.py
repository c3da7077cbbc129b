"""The lower bound on mean JCT for policies that rent whole nodes with boots."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from sampling import sampled

from boa_daemon.sim.bounds.boot_bound import NodeSupply, SearchEffort, lower_bound_with_boots_hours
from boa_daemon.sim.bounds.lower_bound import lower_bound_hours
from boa_daemon.sim.bounds.stint_paths import Resolution
from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.testing import a_class, a_problem, a_trace, an_instance_type
from policies.model import Budget
from policies.registry import PolicyOptions
from policies.speedup import Amdahl, Table

COARSE = Resolution(steps_per_overhead=3.0, most_steps=300, units_per_overhead=2.0, most_units=20)
QUICK = SearchEffort(steps=6, search=COARSE, final=COARSE)
FINER = SearchEffort(
    steps=5,
    search=COARSE,
    final=Resolution(steps_per_overhead=20.0, most_steps=4_000, units_per_overhead=10.0, most_units=200),
)
ONE_GPU = Table(gpus=(1,), speeds=(1.0,))


def renting(*, gpus: int = 1, boot_hours: float = 0.0, max_nodes: int | None = None) -> NodeSupply:
    """Return a supply of one type of node."""
    return NodeSupply(
        instance_types={"gpu": an_instance_type(gpus=gpus)}, boot_hours=boot_hours, max_nodes=max_nodes
    )


@st.composite
def runs(draw: DrawFn) -> SimulationSettings:
    """Return a small workload with some policy, boot time and cap on nodes."""
    policy = draw(st.sampled_from(("boa", "pollux", "equal-width", "efficiency", "static-srsf")))
    cap = draw(st.sampled_from((None, None, 4, 8)))
    curves = (Table(gpus=(1, 2, 4), speeds=(1.0, 1.8, 3.0)), Amdahl(parallel_fraction=0.9, max_gpus=4))
    classes = tuple(
        a_class(
            name,
            sizes=draw(st.lists(st.sampled_from((0.05, 0.3, 2.0)), min_size=1, max_size=2)),
            curve=draw(st.sampled_from(curves)),
            startup_hours=draw(st.sampled_from((0.0, 0.02, 0.05))),
            rescale_hours=draw(st.sampled_from((0.0, 0.02))),
        )
        for name in "xy"
    )
    gaps = draw(st.lists(st.sampled_from((0.0, 10.0, 600.0, 7200.0)), min_size=1, max_size=8))
    arrivals = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    return SimulationSettings(
        trace=a_trace(
            *arrivals,
            class_names=[draw(st.sampled_from("xy")) for _ in arrivals],
            scales=[draw(st.sampled_from((0.5, 1.0))) for _ in arrivals],
        ),
        problem=a_problem(*classes),
        instance_types={"gpu": an_instance_type(gpus=draw(st.sampled_from((1, 3, 4))))},
        budget=Budget(amount=draw(st.sampled_from((10.0, 40.0)))),
        policy=policy,
        options=PolicyOptions(nodes=4) if policy in {"pollux", "static-srsf"} else PolicyOptions(),
        boot_seconds=draw(st.sampled_from((0.0, 60.0, 180.0, 420.0))),
        max_nodes=cap,
    )


@settings(max_examples=sampled(12), deadline=None)
@given(run_settings=runs())
def test_no_run_beats_the_bound_with_boots(run_settings: SimulationSettings) -> None:
    """The bound also is at least the bound without boots."""
    run = prepare(run_settings)
    result = run.with_boot_bound(run.finish(), effort=QUICK)

    assert result.lower_bound_with_boots_mean_jct_hours is not None
    assert result.lower_bound_with_boots_mean_jct_hours <= result.mean_jct_hours * (1.0 + 1e-9)
    assert result.lower_bound_with_boots_mean_jct_hours >= result.lower_bound_mean_jct_hours * (1.0 - 1e-9)


def test_with_one_gpu_nodes_and_no_boots_it_equals_the_plain_bound() -> None:
    """The two agree within 1 %: varying prices gain nothing in this case."""
    problem = a_problem(a_class(sizes=[1.0], startup_hours=0.01, rescale_hours=0.01))
    trace = a_trace(*(600.0 * number for number in range(12)))
    plain = lower_bound_hours(trace, problem, 18.0)

    assert lower_bound_with_boots_hours(trace, problem, 18.0, renting()) == pytest.approx(plain, rel=0.01)


def test_the_bound_of_one_job_includes_its_boot() -> None:
    """An hour of work after a boot of half an hour takes 1.5 hours, whatever the budget."""
    problem = a_problem(a_class(sizes=[1.0], curve=ONE_GPU))

    found = lower_bound_with_boots_hours(a_trace(0.0), problem, 100.0, renting(boot_hours=0.5))

    assert found == pytest.approx(1.5, rel=0.01)


def _best_with_two_jobs(arrival: float, boot: float, money: float) -> float:
    """Return the least mean JCT of two jobs of one hour on one GPU, by trying every sensible schedule.

    Each job has a node of its own, ready when the job arrives (the first after its boot), or both share one
    node.
    """
    first = boot + 1.0
    own = first, max(arrival, boot) + 1.0 - arrival, 2.0 * (1.0 + boot)
    begins = max(arrival, first)
    shared = first, begins + 1.0 - arrival, boot + (begins + 1.0 - boot)
    return min((a + b) / 2.0 for a, b, spent in (own, shared) if spent <= money)


@pytest.mark.parametrize(
    ("arrival", "boot", "money"), list(product((0.0, 0.5, 0.9), (0.25, 0.5), (2.3, 2.55, 3.5)))
)
def test_the_bound_of_two_jobs_is_close_below_the_best_schedule(
    arrival: float, boot: float, money: float
) -> None:
    """The search over orders finds the best schedule, but for the tolerance of its programs."""
    problem = a_problem(a_class(sizes=[1.0], curve=ONE_GPU))
    best = _best_with_two_jobs(arrival, boot, max(money, boot + 2.0))

    found = lower_bound_with_boots_hours(
        a_trace(0.0, 3600.0 * arrival), problem, max(money, boot + 2.0), renting(boot_hours=boot)
    )

    assert 0.998 * best <= found <= best * (1.0 + 1e-9)


def test_a_cap_on_nodes_raises_the_bound() -> None:
    """Four simultaneous jobs of an hour take 2.5 hours on average on one node of one GPU."""
    problem = a_problem(a_class(sizes=[1.0], curve=ONE_GPU))
    trace = a_trace(0.0, 0.0, 0.0, 0.0)

    free = lower_bound_with_boots_hours(trace, problem, 100.0, renting())
    capped = lower_bound_with_boots_hours(trace, problem, 100.0, renting(max_nodes=1))

    assert free == pytest.approx(1.0, rel=0.01)
    assert 2.4 <= capped <= 2.5


def test_a_lone_narrow_job_pays_for_its_whole_node() -> None:
    """On nodes of four GPUs a job of any width pays for four, so a tight budget raises the bound."""
    curve = Table(gpus=(1, 2, 4), speeds=(1.0, 1.5, 2.0))
    problem = a_problem(a_class(sizes=[4.0], curve=curve))
    plain = lower_bound_hours(a_trace(0.0), problem, 8.0)

    assert lower_bound_with_boots_hours(a_trace(0.0), problem, 8.0, renting(gpus=4)) == pytest.approx(
        2.0, rel=0.02
    )
    assert plain <= 2.0
    tight = lower_bound_hours(a_trace(0.0), problem, 6.0)
    assert lower_bound_with_boots_hours(a_trace(0.0), problem, 6.0, renting(gpus=4)) > 1.2 * tight


def test_the_bound_of_two_phases_is_boot_start_up_and_both_phases() -> None:
    """The bound is lower by what rounding loses, at most 3 %."""
    problem = a_problem(a_class(sizes=[0.5, 0.5], curve=ONE_GPU, startup_hours=0.05, rescale_hours=0.05))

    found = lower_bound_with_boots_hours(a_trace(0.0), problem, 100.0, renting(boot_hours=0.5), effort=FINER)

    assert 0.97 * 1.55 <= found <= 1.55


def test_the_bound_never_grows_with_the_budget() -> None:
    """Three growing budgets give falling bounds."""
    problem = a_problem(a_class(sizes=[1.0]))
    trace = a_trace(*(900.0 * number for number in range(8)))
    bounds = [
        lower_bound_with_boots_hours(trace, problem, money, renting(gpus=4, boot_hours=0.05))
        for money in (9.0, 11.0, 14.0)
    ]

    assert bounds == sorted(bounds, reverse=True)


@pytest.mark.parametrize("beyond", [10.0**-power for power in (9, 8, 7, 6.5, 6, 5.5, 5, 4.5, 4, 3)])
@pytest.mark.parametrize("hours", [0.001, 0.05, 5.0, 500.0])
def test_a_little_more_money_than_a_job_costs_does_not_raise_its_bound(hours: float, beyond: float) -> None:
    """The tolerances of a solver are absolute; money is only just enough, whatever the size of the job."""
    job = a_class("x", sizes=[3.0 * hours], curve=Table(gpus=(1, 2, 4), speeds=(1.0, 1.8, 3.0)))
    least_hours = hours + 1.0 / 60.0
    supply, problem = renting(gpus=4, boot_hours=1.0 / 60.0), a_problem(job)
    money = 4.0 * least_hours * (1.0 + beyond)

    bound = lower_bound_with_boots_hours(a_trace(0.0, class_names=["x"]), problem, money, supply)

    assert least_hours * (1.0 - 1e-5) <= bound <= least_hours * (1.0 + 1e-9)
