"""The paced allocator: widths of the plan at the planned pace, and changes only where they pay."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_scenarios import PROBLEM

from policies.model import Budget, GpuType, Job, JobClass, Money, Phase, Problem, Width
from policies.money_text import in_dollars
from policies.online.cost_to_go import CostToGo, WidthColumns
from policies.online.free_usage import PRICE_FRACTIONS, FreeUsage
from policies.online.paced_optimum import PacedBudgetOptimal
from policies.online.pacing import Pace
from policies.optimum.boa import BudgetOptimal, solve
from policies.optimum.coupled_plans import best_costs
from policies.optimum.options import whole_columns
from policies.speedup import Table

POLICY = PacedBudgetOptimal.from_problem(PROBLEM, Pace(budget=60.0))
SIZES = {c.name: c.size_gpu_hours for c in PROBLEM.classes}


def a_job(class_name: str = "vision", **changes: object) -> Job:
    """Return a job at its beginning, of scale 1."""
    values: dict[str, object] = {
        "id": "a",
        "class_name": class_name,
        "arrived_at": 0.0,
        "phase": 0,
        "remaining_gpu_hours": SIZES[class_name],
    }
    return Job(**(values | changes))  # type: ignore[arg-type]


def test_at_the_planned_pace_new_jobs_get_the_planned_widths() -> None:
    """Without a ledger the widths of new jobs are those of the exact optimum."""
    solution = solve(PROBLEM, 60.0)
    for found in solution.classes:
        planned = {plan.widths[0] for plan in found.plans}
        draws = np.linspace(0.0, 0.999, 50)
        jobs = [a_job(found.name, id=str(n), draw=float(draw)) for n, draw in enumerate(draws)]
        assert set(POLICY.allocate(jobs, now=0.0).widths.values()) == planned


@pytest.mark.parametrize("multiplier", [0.01, 0.1, 1.0])
def test_the_cost_to_go_is_the_shortest_path(multiplier: float) -> None:
    """For a new job it equals the shortest path of the solver."""
    for job_class in PROBLEM.classes:
        table = CostToGo.of(WidthColumns.of(PROBLEM, job_class), scale=1.0, multiplier=multiplier)
        least = (table.rest(0, scale=1.0, left=1.0) + table.start_cost).min()
        arrays = whole_columns(PROBLEM, job_class).arrays
        assert least == pytest.approx(float(best_costs(arrays, np.array([multiplier]))[0]))


@given(
    name=st.sampled_from(sorted(SIZES)),
    left=st.floats(0.001, 1.0),
    level=st.integers(0, len(POLICY.table.multipliers) - 1),
    gpus=st.sampled_from([1, 2, 4, 8]),
)
def test_a_change_of_width_pays_for_itself(name: str, left: float, level: int, gpus: int) -> None:
    """A job that changes is better off after paying for the rescale, and then keeps its width."""
    columns = WidthColumns.of(PROBLEM, next(c for c in PROBLEM.classes if c.name == name))
    table = CostToGo.of(columns, scale=1.0, multiplier=float(POLICY.table.multipliers[level]))
    held = Width("gpu", gpus)
    chosen = table.width_for(0, scale=1.0, left=left, holds=held, margin=0.0)

    rest = table.rest(0, scale=1.0, left=left)
    if chosen != held:
        to, of = columns.index[chosen], columns.index[held]
        assert rest[to] + table.change_cost[to] < rest[of]
    assert table.width_for(0, scale=1.0, left=left, holds=chosen, margin=0.0) == chosen


def test_a_job_that_is_nearly_done_keeps_its_width() -> None:
    """The rescale takes longer than the work left."""
    running = a_job("language", remaining_gpu_hours=0.001, width=Width("gpu", 1))

    assert POLICY.allocate([running], now=0.0).widths["a"] == Width("gpu", 1)


def test_a_job_is_narrower_in_debt_than_in_credit() -> None:
    """The job is the same; only the money spent differs."""
    job = a_job("language")
    late = Money(spent=0.0, elapsed_hours=600.0, period_elapsed_hours=600.0, period_left_hours=130.0)
    policy = PacedBudgetOptimal.from_problem(PROBLEM, Pace(budget=60.0, period="month", tolerance=0.02))
    spent, saved = (
        policy.allocate([job], now=0.0, money=replace(late, spent=usd)).widths["a"].gpus
        for usd in (45_000.0, 15_000.0)
    )

    assert spent < saved


def test_short_jobs_get_fewer_gpus() -> None:
    """The start-up weighs more in a job of a hundredth of the size."""
    whole = a_job("language")
    short = replace(whole, scale=0.01, remaining_gpu_hours=whole.remaining_gpu_hours / 100.0)

    widths = [POLICY.allocate([job], now=0.0).widths["a"].gpus for job in (short, whole)]
    assert widths[0] < widths[1]


def test_alone_gives_the_width_of_a_full_allocation() -> None:
    """In every phase, with and without a width held, and with free usage."""
    free = PacedBudgetOptimal.from_problem(PROBLEM, Pace(budget=60.0), free=((frozenset({"gpu"}), 40.0),))
    fixed = BudgetOptimal.from_problem(PROBLEM, Budget(amount=60.0))
    for job_class in PROBLEM.classes:
        for phase, draw, gpus in product(range(len(job_class.phases)), (0.0, 0.5, 0.99), (None, 1, 8)):
            left = sum(one.size_gpu_hours for one in job_class.phases[phase:])
            job = a_job(job_class.name, phase=phase, draw=draw, remaining_gpu_hours=left)
            job = replace(job, width=None if gpus is None else Width("gpu", gpus))
            for policy in (POLICY, free, fixed):
                assert policy.alone(job) == policy.allocate([job], now=0.0).widths["a"]


def test_a_job_keeps_its_width_until_the_phase_from_keeps_until() -> None:
    """One of four phases scales badly; before that phase `alone` keeps the width, for any work left."""
    stiff, steep = Table(gpus=(1, 4), speeds=(1.0, 1.2)), Table(gpus=(1, 4), speeds=(1.0, 3.8))
    curves = (steep, steep, stiff, steep)
    phases = tuple(Phase(size_gpu_hours=2.0, speedups={"gpu": curve}) for curve in curves)
    job_class = JobClass(name="c", phases=phases, arrivals_per_hour=2.0, rescale_hours=0.01)
    problem = Problem(classes=(job_class,), gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=1.0),))
    policy = PacedBudgetOptimal.from_problem(problem, Pace(budget=20.0))
    found: dict[tuple[float, int, int], int] = {}
    for scale, gpus, phase in product((0.3, 1.0, 5.0), (1, 4), range(4)):
        job = replace(a_job("vision", scale=scale), class_name="c", phase=phase, width=Width("gpu", gpus))
        until = found[scale, gpus, phase] = policy.keeps_until(job)
        assert phase < until <= 4
        for later, part in product(range(phase + 1, until), (1.0, 0.4, 0.01)):
            left = scale * 2.0 * (3 - later + part)
            assert policy.alone(replace(job, phase=later, remaining_gpu_hours=left)) == job.width
    # Four GPUs are kept through the second phase and given up in the stiff one; one GPU is changed at once.
    assert {scale: (found[scale, 4, 0], found[scale, 1, 0]) for scale in (0.3, 1.0, 5.0)} == dict.fromkeys(
        (0.3, 1.0, 5.0), (2, 1)
    )
    assert policy.keeps_until(replace(job, phase=0, width=None)) == 1
    gone = replace(job, phase=0, width=Width("gone", 1))
    assert policy.keeps_until(gone) == 1
    assert policy.alone(gone).gpu_type == "gpu"
    paid = PacedBudgetOptimal.from_problem(problem, Pace(budget=20.0), free=((frozenset({"gpu"}), 40.0),))
    assert paid.keeps_until(replace(job, phase=0, width=Width("gpu", 4))) == 1


def test_every_job_gets_a_width_and_a_reason() -> None:
    """No job queues; the reason gives the price of an hour of waiting."""
    jobs = [a_job(name, id=name) for name in SIZES]
    allocation = POLICY.allocate(jobs, now=0.0, money=Money(spent=0.0, elapsed_hours=1.0))

    assert allocation.widths.keys() == allocation.reasons.keys() == set(SIZES)
    assert "counts an hour of waiting as" in allocation.reasons["vision"]


def test_few_jobs_grow_until_they_use_the_committed_usage() -> None:
    """One job takes more than its plan, within the free usage; fifty jobs have their planned widths."""
    free = PacedBudgetOptimal.from_problem(PROBLEM, Pace(budget=60.0), free=((frozenset({"gpu"}), 40.0),))
    (alone,) = free.allocate([a_job()], now=0.0).widths.values()
    (planned,) = POLICY.allocate([a_job()], now=0.0).widths.values()
    taken = free.columns["vision"].rate[free.columns["vision"].index[alone]]
    assert alone.gpus > planned.gpus
    assert taken <= 40.0
    assert "commitments pay for $40.00 per hour" in free.allocate([a_job()], now=0.0).reasons["a"]

    many = [a_job(id=str(number), draw=number / 50.0) for number in range(50)]
    assert free.allocate(many, now=0.0).widths == POLICY.allocate(many, now=0.0).widths


def test_jobs_prefer_a_committed_machine_to_cheaper_spot_until_it_is_full() -> None:
    """Spot costs 0.4 of the price; of twelve jobs, as many use the committed machine as 6 USD/h pay for."""
    curve = Table(gpus=(1, 2, 4), speeds=(1.0, 1.9, 3.4))
    phase = Phase(size_gpu_hours=2.0, speedups={"t4": curve, "t4@spot": curve})
    problem = Problem(
        classes=(JobClass(name="c", phases=(phase,), arrivals_per_hour=4.0),),
        gpu_types=(
            GpuType(name="t4", usd_per_gpu_hour=1.0),
            GpuType(name="t4@spot", usd_per_gpu_hour=0.4),
        ),
    )
    jobs = [a_job("vision", id=str(number), draw=number / 12.0) for number in range(12)]
    jobs = [replace(job, class_name="c", remaining_gpu_hours=2.0) for job in jobs]

    def gpus(kind: str, free: FreeUsage, count: int) -> int:
        policy = PacedBudgetOptimal.from_problem(problem, Pace(budget=6.0), free=free)
        widths = policy.allocate(jobs[:count], now=0.0).widths.values()
        return sum(width.gpus for width in widths if width.gpu_type == kind)

    level = ((frozenset({"t4"}), 6.0),)
    assert gpus("t4", (), 1) == gpus("t4", (), 12) == 0, "spot is cheaper at the whole price"
    assert gpus("t4", level, 1) == 4
    assert 0 <= gpus("t4", level, 12) <= 6
    assert gpus("t4", ((frozenset({"t4"}), 60.0),), 12) == 48


def test_reasons_state_the_price_of_waiting_and_how_long_the_money_lasts() -> None:
    """For the plan alone, with money, at a multiplier of zero, under a GPU budget, and with free usage."""
    job, gpus = a_job(), replace(PROBLEM, budget_unit="gpus")
    best = "the plan for the rest of a job of class vision"
    counted = 1.0 / POLICY.table.planned(60.0).multiplier

    def said(policy: PacedBudgetOptimal, money: Money | None = None) -> str:
        return policy.allocate([job], now=0.0, money=money).reasons["a"]

    assert said(POLICY) == f"{best} counts an hour of waiting as {in_dollars(counted)}"
    assert said(PacedBudgetOptimal.from_problem(gpus, Pace(budget=60.0))).endswith(" GPU-hours")
    money = Money(spent=0.0, elapsed_hours=1.0, period_elapsed_hours=1.0, period_left_hours=729.0)
    step = POLICY.step([job], money)
    load = step.load_correction * step.load_hours / step.horizon_hours
    lasts = f"so that the money lasts 30.4 days at {load:.2f} times the stated load"
    assert said(POLICY, money).endswith(f", {lasts}")
    flat = replace(POLICY.table, multipliers=np.zeros_like(POLICY.table.multipliers))
    assert said(replace(POLICY, table=flat)) == f"{best}, whatever it costs"
    free = PacedBudgetOptimal.from_problem(
        PROBLEM, Pace(budget=60.0), free=((frozenset({"gpu"}), 30.0), (frozenset({"none"}), 10.0))
    )
    part = PRICE_FRACTIONS[free._part([job], free.table.planned(60.0))]
    assert said(free) == (
        f"{best}, with committed usage planned at {part:.2g} of its price, so that the jobs use it: "
        "commitments pay for $40.00 per hour at on-demand prices, used or not"
    )


def test_a_thin_budget_gets_the_widest_widths_that_it_pays_for() -> None:
    """One step wider would exceed the money; a budget that is too small gets the cheapest widths."""
    jobs = [a_job(name, id=f"{name}-{n}") for name in SIZES for n in range(4)]

    def taken(edge: int) -> float:
        return sum(POLICY._taken(jobs, POLICY.table.at(edge)).values())

    ends = taken(0), taken(len(POLICY.table.multipliers) - 1)
    assert ends[0] < ends[1]
    for usd in (0.5 * ends[0], ends[0], *np.linspace(*ends, 7)[1:-1], 2.0 * ends[1]):
        within = POLICY.within(jobs, float(usd), None)
        edge = POLICY._widest_within(jobs, float(usd)).edge
        assert edge == 0 or taken(edge) <= usd
        assert edge == len(POLICY.table.multipliers) - 1 or taken(edge + 1) > usd
        assert within.widths == POLICY._answer(jobs, POLICY.table.at(edge), None, str).widths
        assert within.memory is None
    exact = taken(5)
    assert taken(POLICY._widest_within(jobs, exact).edge) == exact
    assert POLICY.within(jobs, 12.0, None).reasons[jobs[0].id] == (
        f"the plan for the rest of a job of class {jobs[0].class_name}, at which all jobs together take "
        "no more than the budget of $12.00 per hour, or the cheapest width if that is not possible"
    )


def test_within_takes_the_wider_of_hourly_and_monthly_widths() -> None:
    """With unspent money the month gives wider widths; after overspending the hour does."""
    jobs = [a_job(name, id=name) for name in SIZES]
    rich = Money(spent=0.0, elapsed_hours=700.0, period_elapsed_hours=700.0, period_left_hours=30.0)
    poor = replace(rich, spent=60.0 * 800.0)
    for money, usd, reason in ((rich, 8.0, "so that the money lasts"), (poor, 1e3, "all jobs together take")):
        found = POLICY.within(jobs, usd, money)
        assert reason in found.reasons[jobs[0].id]
        # The stated load counts at the multiplier that was used, which may not be the law's.
        law = POLICY.step(jobs, money)
        used = law.position if reason.startswith("so") else POLICY._widest_within(jobs, usd)
        assert found.memory == law.memory_at(used, POLICY.table)
        assert (found.memory == law.memory) == (used == law.position)
    assert POLICY.within(jobs, 8.0, rich).widths == POLICY.allocate(jobs, now=0.0, money=rich).widths
    assert POLICY.within(jobs, 1e3, poor).widths == POLICY.within(jobs, 1e3, None).widths


def test_the_work_left_is_counted_in_whole_jobs_of_its_class() -> None:
    """One and a half jobs of a class, none of the others. A learnt load of two halves the stated rates."""
    vision = SIZES["vision"]
    jobs = [a_job(id="a"), a_job(id="b", remaining_gpu_hours=0.5 * vision)]
    assert POLICY.present(jobs) == pytest.approx([1.5 if name == "vision" else 0.0 for name in SIZES])
    twice = PacedBudgetOptimal.from_problem(PROBLEM, Pace(budget=60.0), load_over_stated=2.0)
    assert twice.table.rates == pytest.approx(POLICY.table.rates / 2.0)
    assert POLICY.pace.grain_hours == POLICY.table.grain_hours(60.0)
