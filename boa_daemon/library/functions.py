"""The commands as functions: solve, plan, frontier, commit, simulate, compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from boa_daemon.dashboard.frontier import frontier_document
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import Document, read_document
from boa_daemon.library.problem import Problem
from boa_daemon.library.results import Committed, Compared, Frontier, Planned, Simulated, Solved
from boa_daemon.planning.budget_plan import budget_plan
from boa_daemon.planning.curve import Curve
from boa_daemon.planning.plan_documents import landmarks, solution_document
from boa_daemon.sim.budget_tuning import tune_planning_budget
from boa_daemon.sim.wiring import SimulationSettings, check_budget, prepare, settings_for
from boa_daemon.traces.reader import Trace, TraceFault, TraceJob, check_classes, read_trace
from policies.model import Budget
from policies.model import Problem as Model
from policies.optimum.boa import solve as solve_problem
from policies.optimum.solution import Solution, Version
from policies.registry import DEFAULT_POLICY, find_policy, parse_options

Arrivals: TypeAlias = str | PathLike[str] | Iterable[tuple[float, str]]
"""A trace file, or pairs of (seconds from the start, name of a class)."""


def solve(
    problem: Problem, budget: str | float | None = None, *, version: Version = "integer-mixed"
) -> Solved:
    """Return the widths with the least waiting within a budget, with a proof of optimality.

    Raises:
        InfeasibleBudget: when the budget cannot run every job; it names the least that can.
        InputError: when the budget is not valid.
    """
    file, asked = problem.under(budget)
    found = solve_problem(file.problem, asked.amount, version=version)
    return Solved(
        title=f"Optimum for {asked}",
        document=solution_document(found, file.problem),
        rows=_widths(found),
        **_of(found),
    )


def plan(problem: Problem, budget: str | float | None = None) -> Planned:
    """Return the optimum with the knee, the value of the next unit of budget, and quotas to ask for.

    Raises:
        InfeasibleBudget: when the budget cannot run every job; it names the least that can.
        InputError: when the budget is not valid.
    """
    file, asked = problem.under(budget)
    found = budget_plan(file, asked, "integer-mixed")
    return Planned(
        title=f"Plan for {asked}",
        document=found.to_document(),
        rows=_widths(found.solution),
        knee_budget=found.knee.budget,
        next_unit_saves_hours=found.next_unit_saves_hours,
        **_of(found.solution),
    )


def frontier(problem: Problem, *, unit: str | None = None) -> Frontier:
    """Return the least mean JCT at every budget; ``unit="gpus"`` counts GPUs even with prices."""
    model: Model = problem.file.problem
    if unit is not None:
        if unit not in ("gpus", "usd_per_hour"):
            raise InputError(f"unit is gpus or usd_per_hour; got {unit!r}")
        model = problem.under("gpus:1" if unit == "gpus" else "1/h")[0].problem
    curve = Curve.of(model, "integer-mixed")
    budgets, hours = curve.vertices()
    pairs = list(zip(budgets.tolist(), hours.tolist(), strict=True))
    own = problem.file.budget
    mark = own.amount if own is not None and own.unit == model.budget_unit else None
    document = {
        "version": "integer-mixed",
        "budget_unit": model.budget_unit,
        "cheapest_feasible_spend": curve.cheapest,
        "largest_useful_spend": curve.largest_useful,
        **landmarks(curve),
        "points": [{"budget": budget, "weighted_mean_jct_hours": jct} for budget, jct in pairs],
    }
    return Frontier(
        title="Waiting against money",
        document=document,
        rows=[{"budget": budget, "mean_jct_hours": jct} for budget, jct in pairs],
        budgets=tuple(budget for budget, _ in pairs),
        hours=tuple(jct for _, jct in pairs),
        unit=model.budget_unit,
        knee_budget=curve.knee().budget,
        cheapest_feasible_spend=curve.cheapest,
        largest_useful_spend=curve.largest_useful,
        page=frontier_document(model, budget=mark),
    )


def commit(
    problem: Problem,
    offers: str | PathLike[str] | Mapping[str, Any],
    budget: str | float | None = None,
    *,
    trace: Arrivals | None = None,
    spread: float = 0.25,
    held_out: float = 0.5,
    seed: int = 0,
    policy: str = DEFAULT_POLICY,
) -> Committed:
    """Return the commitments with the least bill at the same waiting, and how sure the saving is.

    `offers` is a file of offers, or a mapping with its keys. The load is that of the classes, with an error
    of at most `spread`. With a `trace` the load is what a run of it under `policy` rents, and the last
    fraction `held_out` of its time checks the advice from the first part.

    Raises:
        InfeasibleBudget: when the budget cannot run every job.
        InputError: when the offers or the trace are wrong, the offers cover nothing, or prices are missing.
        UnknownPolicy: when there is no policy of that name.
    """
    from boa_daemon.planning.commitment_advice import AdviceRequest  # noqa: PLC0415 - slow, and seldom needed

    if isinstance(offers, Mapping):
        document = Document(name="the offers", content=dict(offers), language="json")
    else:
        document = read_document(Path(offers))
    for name, value, most in (("spread", spread, 1.0), ("held_out", held_out, 1.0)):
        if not 0.0 <= value < most:
            raise InputError(f"{name} is a fraction from 0 to less than 1; got {value!r}")
    file, asked = problem.under(budget)
    question = AdviceRequest(
        offers=document, spread=spread, held_out=held_out, seed=seed, policy=find_policy(policy).name
    )
    if trace is None:
        found = question.from_classes(file, asked)
    else:
        arrivals, name = _arrivals(trace)
        check_classes(arrivals, [one.name for one in file.problem.classes], Path(name))
        found = question.from_trace(file, asked, arrivals, name)
    by_term = {advice.term_years: advice for advice in found.advice}
    return Committed(
        title=f"What to commit to at {asked}",
        document=found.to_document(),
        rows=found.rows(),
        usd_per_hour={years: one.likely.best.bill.committed for years, one in by_term.items()},
        saved_fraction={years: one.likely.saved_fraction for years, one in by_term.items()},
        least_saved_fraction={
            years: min(case.saved_fraction for case in (one.low, one.likely, one.high))
            for years, one in by_term.items()
        },
    )


def simulate(
    problem: Problem,
    trace: Arrivals,
    budget: str | float | None = None,
    *,
    policy: str = DEFAULT_POLICY,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    boot_seconds: float = 180.0,
    rehearse: bool = False,
) -> Simulated:
    """Replay arrivals under a policy; ``rehearse`` tunes the plan first, so that the run spends the budget.

    Raises:
        InfeasibleBudget: when the budget cannot run every job.
        InputError: when the trace is not valid, or has a class that the problem lacks.
        UnknownPolicy: when there is no policy of that name.
    """
    settings = replace(_settings(problem, trace, budget), seed=seed, boot_seconds=boot_seconds, policy=policy)
    words = {key: str(value) for key, value in (options or {}).items()}
    settings = replace(settings, options=parse_options(find_policy(policy), words))
    run = prepare(tune_planning_budget(settings) if rehearse else settings)
    check_budget(settings)
    found = run.finish()
    document = found.to_document()
    return Simulated(
        title=f"{policy}: {found.finished} of {found.jobs} jobs finished",
        document=document,
        rows=[{"figure": key, "value": value} for key, value in document.items()],
        policy=policy,
        mean_jct_hours=found.mean_jct_hours,
        p95_jct_hours=found.p95_jct_hours,
        mean_usd_per_hour=found.mean_usd_per_hour,
        lower_bound_mean_jct_hours=found.lower_bound_mean_jct_hours,
    )


def compare(
    problem: Problem,
    trace: Arrivals,
    budget: str | float | None = None,
    *,
    policies: Sequence[str] = ("equal-width", "static-fifo"),
    seeds: int = 1,
    on: str = "local:1",
) -> Compared:
    """Run policies on the same jobs, each tuned to spend what BOA spends; ``on`` is as ``--on``.

    Runs are cached in the user's cache, like those of ``boa compare``.

    Raises:
        InputError: when the trace is not valid or has a class that the problem lacks, or without workers.
        UnknownPolicy: when there is no policy of a name.
    """
    # By name, because only this function needs the laboratory.
    laboratory = import_module("boa_daemon.lab.compare.library")
    compared: Compared = laboratory.compared(_settings(problem, trace, budget), policies, seeds=seeds, on=on)
    return compared


def _settings(problem: Problem, trace: Arrivals, budget: str | float | None) -> SimulationSettings:
    """Return the settings of a simulation of arrivals under a budget."""
    file, asked = problem.under(budget)
    arrivals, name = _arrivals(trace)
    check_classes(arrivals, [one.name for one in file.problem.classes], Path(name))
    return settings_for(file, arrivals, Budget(amount=asked.amount, unit=asked.unit))


def _arrivals(trace: Arrivals) -> tuple[Trace, str]:
    if isinstance(trace, str | PathLike):
        return read_trace(Path(trace)), str(trace)
    try:
        ordered = sorted((float(at), str(name)) for at, name in trace)
        jobs = tuple(TraceJob(f"{name}-{n}", at, name) for n, (at, name) in enumerate(ordered))
        return Trace(jobs), "the arrivals"
    except (TypeError, ValueError, TraceFault) as error:
        raise InputError(f"arrivals are pairs of seconds and the name of a class: {error}") from None


def _of(found: Solution) -> dict[str, float]:
    """Return the figures of a solution that are fields of `Solved`."""
    return {
        "mean_jct_hours": found.mean_jct_hours,
        "mean_spend": found.mean_spend,
        "multiplier": found.multiplier,
        "cheapest_feasible_spend": found.cheapest_feasible_spend,
        "largest_useful_spend": found.largest_useful_spend,
    }


def _widths(found: Solution) -> list[dict[str, Any]]:
    """Return one row per class, plan and phase."""
    return [
        {
            "class": answer.name,
            "job_fraction": share.job_fraction,
            "phase": number,
            "gpu_type": step.gpu_type,
            "gpus": step.gpus,
            "hours": step.hours,
            "spend_per_job": step.spend,
        }
        for answer in found.classes
        for share in answer.plans
        for number, step in enumerate(share.steps)
    ]
