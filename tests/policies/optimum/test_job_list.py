"""Lists of jobs with deadlines, against listing every plan of every job."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sampling import sampled
from unnamed import by_place, hidden, hurried, unnamed

import policies.optimum
from policies.errors import InfeasibleBudget, InfeasibleDeadline, InvalidProblem
from policies.model import GpuType, JobClass, Phase, Problem
from policies.optimum import job_list
from policies.optimum.job_list import JobList, ListedJob
from policies.optimum.working_time import ALWAYS
from policies.speedup import Table

WIDTHS = (1, 2, 4)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Draw one or two classes with up to two phases, tables, and overheads now and then."""
    classes = []
    for number in range(draw(st.integers(1, 2))):
        phases = tuple(
            Phase(
                size_gpu_hours=draw(st.floats(0.1, 5.0)),
                speedups={
                    "gpu": Table(
                        gpus=WIDTHS, speeds=(1.0, draw(st.floats(0.8, 2.2)), draw(st.floats(0.8, 4.4)))
                    )
                },
            )
            for _ in range(draw(st.integers(1, 2)))
        )
        classes.append(
            JobClass(
                name=f"c{number}",
                phases=phases,
                startup_hours=draw(st.sampled_from([0.0, 0.1])),
                rescale_hours=draw(st.sampled_from([0.0, 0.2])),
            )
        )
    return Problem(classes=tuple(classes), gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=2.0),))


@st.composite
def lists(draw: st.DrawFn) -> tuple[Problem, tuple[ListedJob, ...]]:
    """Draw a problem and up to four jobs, some equal, some with a deadline."""
    problem = draw(problems())
    jobs = tuple(
        ListedJob(
            id=str(number),
            class_name=draw(st.sampled_from([c.name for c in problem.classes])),
            scale=draw(st.sampled_from([1.0, 0.5, 3.0])),
            weight=draw(st.sampled_from([1.0, 1.0, 5.0])),
            deadline_hours=draw(st.one_of(st.none(), st.floats(0.3, 12.0))),
        )
        for number in range(draw(st.integers(1, 4)))
    )
    return problem, jobs


def plans_of(problem: Problem, job: ListedJob) -> list[tuple[float, float]]:
    """Return (dollars, hours) of every plan of a job, late ones included."""
    job_class = next(c for c in problem.classes if c.name == job.class_name)
    found = []
    for widths in itertools.product(WIDTHS, repeat=len(job_class.phases)):
        hours = spend = 0.0
        before = None
        for phase, width in zip(job_class.phases, widths, strict=True):
            here = job.scale * phase.size_gpu_hours / float(phase.speedups["gpu"].speed_at(width))
            here += job_class.startup_hours if before is None else 0.0
            here += job_class.rescale_hours if before not in (None, width) else 0.0
            before = width
            hours += here
            spend += 2.0 * width * here
        found.append((spend, hours))
    return found


def timely_plans(problem: Problem, job: ListedJob) -> list[tuple[float, float]]:
    """Return the plans that end by the job's deadline."""
    limit = np.inf if job.deadline_hours is None else job.deadline_hours * (1.0 + 1e-12)
    return [plan for plan in plans_of(problem, job) if plan[1] <= limit]


def best_of_all(problem: Problem, jobs: tuple[ListedJob, ...], budget: float) -> float:
    """Return the least weighted mean JCT of all ways to pick a timely plan for each job."""
    points = np.zeros((1, 2))
    for job in jobs:
        own = np.array(timely_plans(problem, job)) * [1.0, job.weight]
        points = (points[:, None, :] + own[None]).reshape(-1, 2)
    affordable = points[points[:, 0] <= budget * (1.0 + 1e-12)]
    return float(affordable[:, 1].min()) / sum(job.weight for job in jobs)


@settings(max_examples=sampled(150), deadline=None)
@given(case=lists(), share=st.floats(0.0, 1.2))
def test_a_solution_is_within_its_gap_of_the_best_of_all_plans(
    case: tuple[Problem, tuple[ListedJob, ...]], share: float
) -> None:
    """Plans are in time and within the budget, and no plan beats the bound."""
    problem, jobs = case
    assume(all(timely_plans(problem, job) for job in jobs))
    listed = JobList.of(problem, jobs)
    frontier = listed.frontier
    least = frontier.cheapest_feasible_spend
    budget = least + share * (frontier.largest_useful_spend - least)
    solution = listed.solution_at(budget)

    assert {plan.job.id for plan in solution.jobs} == {job.id for job in jobs}
    for plan in solution.jobs:
        assert any(
            (plan.plan.spend, plan.plan.hours) == pytest.approx(own)
            for own in timely_plans(problem, plan.job)
        )
    assert solution.spend <= budget * (1.0 + 1e-9)
    best = best_of_all(problem, jobs, budget)
    assert solution.bound_weighted_mean_jct_hours <= best * (1.0 + 1e-9)
    assert solution.weighted_mean_jct_hours >= best * (1.0 - 1e-9)
    assert solution.gap == pytest.approx(
        max(0.0, 1.0 - solution.bound_weighted_mean_jct_hours / solution.weighted_mean_jct_hours)
    )


@settings(max_examples=sampled(150), deadline=None)
@given(case=lists())
def test_the_least_budget_takes_the_cheapest_timely_plan_of_each_job(
    case: tuple[Problem, tuple[ListedJob, ...]],
) -> None:
    """The sum of these plans is the least spend, and a solution at it spends it."""
    problem, jobs = case
    timely = [timely_plans(problem, job) for job in jobs]
    if not all(timely):
        fastest = [
            min(hours for _, hours in plans_of(problem, job))
            for job, plans in zip(jobs, timely, strict=True)
            if not plans
        ]
        with pytest.raises(InfeasibleDeadline) as refusal:
            JobList.of(problem, jobs)
        assert any(refusal.value.least_hours == pytest.approx(hours) for hours in fastest)
        return
    listed = JobList.of(problem, jobs)
    least = sum(min(spend for spend, _ in plans) for plans in timely)

    assert listed.frontier.cheapest_feasible_spend == pytest.approx(least)
    assert listed.solution_at(listed.frontier.cheapest_feasible_spend).spend == pytest.approx(least)
    with pytest.raises(InfeasibleBudget) as poor:
        listed.solution_at(0.99 * least)
    assert poor.value.least_spend == pytest.approx(least)


def one_class(**changes: float) -> Problem:
    """Return a problem with the class "c": one phase of 2 hours, widths 1, 2, 4."""
    table = Table(gpus=WIDTHS, speeds=(1.0, 1.6, 2.5))
    job_class = JobClass(name="c", phases=(Phase(size_gpu_hours=2.0, speedups={"gpu": table}),), **changes)
    return Problem(classes=(job_class,), gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=2.0),))


def test_more_money_never_means_more_waiting() -> None:
    """Spend is never above the budget; past the largest useful budget nothing changes."""
    listed = JobList.of(one_class(), [ListedJob(id=str(n), class_name="c") for n in range(7)])
    least, most = listed.frontier.cheapest_feasible_spend, listed.frontier.largest_useful_spend
    budgets = np.linspace(least, 1.3 * most, 50).tolist()
    solutions = [listed.solution_at(budget) for budget in budgets]

    assert all(s.spend <= b * (1 + 1e-9) for s, b in zip(solutions, budgets, strict=True))
    means = [s.mean_jct_hours for s in solutions]
    assert all(after <= before * (1 + 1e-9) for before, after in itertools.pairwise(means))
    assert solutions[-1].spend == pytest.approx(most)
    assert solutions[-1].gap == 0.0
    assert solutions[-1].multiplier == 0.0


def test_the_heavier_job_is_made_wider_first() -> None:
    """The money is enough to make one of two jobs wider."""
    jobs = [ListedJob(id="light", class_name="c"), ListedJob(id="heavy", class_name="c", weight=3.0)]
    listed = JobList.of(one_class(), jobs)
    solution = listed.solution_at(4.0 + 5.0)

    widths = {plan.job.id: plan.plan.steps[0].gpus for plan in solution.jobs}
    assert widths == {"light": 1, "heavy": 2}


@pytest.mark.parametrize(
    ("jobs", "budget", "widths"),
    [
        # Money for four of seven steps of 1 USD: four jobs at 2 GPUs save more than any job at 4.
        ([ListedJob(id=str(n), class_name="c") for n in range(7)], 28.0 + 4.0, [2, 2, 2, 2, 1, 1, 1]),
        # Money that is too little for the large job (1 USD) is enough for two small ones (0.10 USD each).
        (
            [ListedJob(id="a", class_name="c")]
            + [ListedJob(id=i, class_name="c", scale=0.1, weight=0.5) for i in "bc"],
            4.8 + 0.22,
            [1, 2, 2],
        ),
        # One step is paid to the cent, and one lacks a cent.
        ([ListedJob(id="a", class_name="c")], 5.0, [2]),
        ([ListedJob(id="a", class_name="c")], 4.99, [1]),
    ],
)
def test_the_money_left_after_whole_steps_widens_other_jobs(
    jobs: list[ListedJob], budget: float, widths: list[int]
) -> None:
    """At 1, 2, 4 GPUs a job of scale 1 takes 4, 5, 6.40 USD and 2, 1.25, 0.80 hours."""
    solution = JobList.of(one_class(), jobs).solution_at(budget)

    assert [plan.plan.steps[0].gpus for plan in solution.jobs] == widths


def test_a_deadline_forces_a_width_and_its_price() -> None:
    """2 hours of work within 1.3 hours need 2 GPUs: 2 x 2 dollars x 1.25 hours."""
    listed = JobList.of(one_class(), [ListedJob(id="a", class_name="c", deadline_hours=1.3)])

    assert listed.frontier.cheapest_feasible_spend == pytest.approx(2 * 2.0 * 2.0 / 1.6)


def test_deadlines_met_to_the_second_count_as_met() -> None:
    """A plan that takes exactly the time to its deadline is in time."""
    listed = JobList.of(one_class(), [ListedJob(id="a", class_name="c", deadline_hours=2.0 / 1.6)])

    assert listed.solution_at(100.0).jobs[0].plan.hours <= 2.0 / 1.6


@pytest.mark.parametrize(
    ("jobs", "says"),
    [
        ([], "no jobs"),
        ([ListedJob(id="a", class_name="c"), ListedJob(id="a", class_name="c")], "twice"),
        ([ListedJob(id="a", class_name="d")], "'d'"),
    ],
)
def test_an_invalid_list_is_refused(jobs: list[ListedJob], says: str) -> None:
    """Empty lists, repeated ids and unknown classes are invalid."""
    with pytest.raises(InvalidProblem, match=says):
        JobList.of(one_class(), jobs)


def test_the_error_names_the_least_budget_rounded_up() -> None:
    """The named amount is feasible when a user types it."""
    problem = replace(one_class(), gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=1.0 / 3.0),))
    listed = JobList.of(problem, [ListedJob(id="a", class_name="c")])

    with pytest.raises(InfeasibleBudget, match=r"1 job needs at least \$0\.66"):
        listed.solution_at(0.66)
    assert listed.solution_at(0.67).spend == pytest.approx(2.0 / 3.0)


def test_too_many_finer_plans_leave_the_timely_ones_of_the_hull(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the search between two vertices the list still has a plan in time, at a higher cost."""
    problem = one_class(rescale_hours=0.1)
    (single,) = problem.classes
    problem = replace(problem, classes=(replace(single, phases=single.phases * 3),))
    jobs = [ListedJob(id="a", class_name="c", deadline_hours=3.7)]
    finer = JobList.of(problem, jobs).frontier.cheapest_feasible_spend
    monkeypatch.setattr(job_list, "STATE_LIMIT", 0)
    assert JobList.of(problem, jobs).frontier.cheapest_feasible_spend > finer


@pytest.mark.parametrize(("longer", "cheaper"), [(1000.0, 0.1), (0.001, 1.0), (1.0, 1000.0)])
def test_plans_in_time_are_the_same_in_any_unit(longer: float, cheaper: float) -> None:
    """Scaling all times, or the price, by a factor scales the least spend by this factor."""

    def least(longer: float, price: float) -> float:
        problem = one_class(rescale_hours=0.1 * longer)
        (single,) = problem.classes
        phase = replace(single.phases[0], size_gpu_hours=2.0 * longer)
        problem = replace(problem, classes=(replace(single, phases=(phase,) * 3),))
        problem = replace(problem, gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=price),))
        jobs = [ListedJob(id="a", class_name="c", deadline_hours=3.7 * longer)]
        return JobList.of(problem, jobs).frontier.cheapest_feasible_spend

    assert least(longer, cheaper) == pytest.approx(longer * cheaper * least(1.0, 1.0))


def test_only_these_defaults_are_not_empty() -> None:
    """In all of `policies.optimum`: there are no default deadlines or limits."""
    found = unnamed(policies.optimum)
    assert found.pop("CalendarEntry.working") is found.pop("CalendarLimits.working") is ALWAYS
    assert found == {"DeadlineFix.factor": 1.0, "ListedJob.scale": 1.0, "ListedJob.weight": 1.0}
    assert hidden(policies.optimum) == {}
    assert by_place(policies.optimum) == []


def test_types_made_often_have_the_fast_init_and_caches_are_bounded() -> None:
    """The lists cover all of `policies.optimum`."""
    assert hurried(policies.optimum) == dict.fromkeys(
        [
            "MixedFrontier._plain",
            "MixedFrontier._plain_time",
            "MixedFrontier.arrivals_per_hour",
            "MixedFrontier.is_weighted",
            "MixedFrontier.weighted_arrivals",
            "PlanShare.widths",
        ],
        "kept",
    ) | dict.fromkeys(["Columns", "CoupledClass", "PhaseOption", "PlanHull"], "quick")
