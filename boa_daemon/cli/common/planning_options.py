"""Shared by the planning verbs: options, problem files with prices, budgets, formatting of plans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from boa_daemon.cli.common.output import stderr_console
from boa_daemon.errors import InputError, MissingPrice
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.price_age import spot_priced, stale_prices
from boa_daemon.inputs.problem_file import ProblemFile, load_problem, with_budget
from boa_daemon.planning.curve import BeyondKnee, Curve
from boa_daemon.planning.paid_commitments import PaidCommitments
from boa_daemon.sim.spot_market import on_both_markets
from boa_daemon.sim.world_file import load_world
from boa_daemon.sim.world_settings import Checkpoints, Spot, WorldSettings
from boa_daemon.units import PER_HOUR, Per, format_hours, parse_budget, per_of
from policies.errors import InfeasibleBudget
from policies.model import Budget
from policies.optimum.options import PhaseOption
from policies.optimum.solution import PlanShare, Solution

ClassesOrTraceOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--classes", metavar="FILE", help="Job classes and prices. Default: classes.yaml beside the trace."
    ),
]

PricesOption: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option("--prices", metavar="FILE", help="File of your prices and discounts; may be repeated."),
]

CommitmentsOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--commitments",
        metavar="FILE",
        help="Commitments that you pay in any case; GPUs they cover cost nothing extra.",
    ),
]

MarketOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--world",
        metavar="FILE",
        help="World file: plan on its spot market as well, with its price, interruptions and checkpoints.",
    ),
]


class MarketName(StrEnum):
    """Markets that a plan may rent on."""

    on_demand = "on-demand"
    spot = "spot"


MarketNameOption: TypeAlias = Annotated[
    MarketName | None,
    typer.Option(
        "--market",
        help="spot: plan on spot as well, with default terms or those of --world.",
        show_default=False,
    ),
]


_NO_PRICES = "Add gpu_types: {NAME: {usd_per_gpu_hour: PRICE}}"

BestEffortOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--best-effort",
        help="If the budget cannot run every job, plan for as many as it can, instead of an error.",
    ),
]


@contextmanager
def best_effort_is_named(asked: str | None = None) -> Iterator[None]:
    """Add a hint at --best-effort to an infeasible-budget error, and say it in the unit that was asked."""
    try:
        with in_unit_asked(asked):
            yield
    except InfeasibleBudget as error:
        said = f"{error}. To see what this budget can do, add --best-effort"
        raise InfeasibleBudget(said, least_spend=error.least_spend) from error


@contextmanager
def in_unit_asked(asked: str | None) -> Iterator[None]:
    """Say an infeasible budget in the unit of time in which it was typed, such as dollars per month."""
    try:
        yield
    except InfeasibleBudget as error:
        said = said_in(error, per_of(asked))
        if said is error:
            raise
        raise said from error


def said_in(error: InfeasibleBudget, per: Per) -> InfeasibleBudget:
    """Return the error with its dollars in a unit of time; the same error for dollars per hour and GPUs."""
    if per is PER_HOUR or error.budget is None:
        return error
    least = money_up(error.least_spend, "usd", per)
    said = (
        f"{per.usd(error.budget)} is too small: the jobs need at least {least} "
        f"({money_up(error.least_spend, 'usd')}). Raise the budget, or allow widths that cost less per "
        "unit of work"
    )
    return InfeasibleBudget(said, least_spend=error.least_spend, budget=error.budget)


def read_problem(
    path: Path,
    prices: Sequence[Path] | None,
    *,
    require_rates: bool = True,
    market: Path | None = None,
) -> ProblemFile:
    """Return the problem file; with the world file `market`, planned on spot and on demand.

    The file's warnings, and a note if its prices are old, go to standard error.
    """
    file = load_problem(path, catalog=Catalog.load(*(prices or ())), require_rates=require_rates)
    today = datetime.now(UTC).date()
    for warning in filter(None, (*file.warnings, stale_prices(file.prices, today), spot_priced(file.prices))):
        stderr_console().print(f"[yellow]note[/] {escape(warning)}")
    return file if market is None else on_both_markets(file, read_market(market, file))


def read_market(path: Path, file: ProblemFile) -> WorldSettings:
    """Return the world of a file with a spot market.

    Raises:
        InputError: when the world has no spot market.
    """
    names = [job_class.name for job_class in file.problem.classes]
    world = load_world(path, tuple(file.instance_types.values()), names)
    if world.spot is None:
        raise InputError("the world has no spot market", file=path, hint="Add spot: {price_fraction: 0.3}")
    if not file.has_prices:
        raise MissingPrice("a spot market needs prices", file=file.path, hint=_NO_PRICES)
    return world


def chosen_market(name: MarketName | None, world: Path | None, file: ProblemFile) -> WorldSettings | None:
    """Return the spot market that the flags ask for; None for on demand only.

    Raises:
        InputError: when the world has no spot market, or the flags contradict each other.
    """
    if name is MarketName.on_demand and world is not None:
        raise InputError("--market on-demand and --world exclude each other", hint="Leave one out")
    if world is not None:
        return read_market(world, file)
    if name is not MarketName.spot:
        return None
    if not file.has_prices:
        raise MissingPrice("a spot market needs prices", file=file.path, hint=_NO_PRICES)
    return WorldSettings(spot=Spot(), checkpoints=Checkpoints())


def with_budget_flag(
    file: ProblemFile, text: str | None, *, is_plan: bool = False
) -> tuple[ProblemFile, Budget]:
    """Return the problem file and its budget: that of the flag, or the file's own.

    A bare number is in GPUs, or in the unit of the file's own budget. With `is_plan`, bare dollars are an
    error whatever the file says.

    Raises:
        InputError: when neither gives a budget, or dollars are given without a time.
    """
    if text is not None:
        is_open = is_plan or file.budget is None
        if is_open and file.problem.budget_unit != "gpus" and _is_bare(text):
            hint = f"Type {text}/h, {text}/day or {text}/month"
            raise InputError(f"--budget {text} does not say for how long", hint=hint)
        budget = a_budget(text, file)
        return with_budget(file, budget), budget
    if file.budget is None:
        raise InputError(
            "no budget", file=file.path, hint="Add budget: {usd_per_hour: 40} to the file, or --budget 40/h"
        )
    return file, file.budget


def commitments_today(file: ProblemFile, budget: Budget, path: Path) -> PaidCommitments:
    """Return the commitments in force today.

    Raises:
        InputError: when the budget is not in dollars, or the file of commitments is wrong.
    """
    if budget.unit == "gpus":
        raise InputError("--commitments needs a budget in dollars", hint="For example --budget 40/h")
    return PaidCommitments.read(path, tuple(file.instance_types.values()), datetime.now(UTC).date())


def _is_bare(text: str) -> bool:
    """Return whether a budget is a bare positive number."""
    try:
        return math.isfinite(float(text)) and float(text) > 0.0
    except ValueError:
        return False


def a_budget(text: str, file: ProblemFile, *, name: str = "--budget") -> Budget:
    """Return the budget given to a flag; a bare number is in the file's own unit."""
    try:
        amount = float(text)
    except ValueError:
        return parse_budget(text, name=name)
    if not (math.isfinite(amount) and amount > 0.0):
        raise InputError(f"{name} {text!r} is not a positive number", hint="For example 40/h or gpus:48")
    return Budget(amount=amount, unit=file.problem.budget_unit)


def curve_answers(file: ProblemFile, budget: Budget | None) -> dict[str, Any]:
    """Return the data of a plan's page, by the path that the page requests."""
    from boa_daemon.dashboard.frontier import frontier_document  # noqa: PLC0415 - few ask for a page

    amount = None if budget is None else budget.amount
    return {"page/frontier": frontier_document(file.problem, budget=amount, title=Path(file.path).name)}


def money(amount: float, unit: str, per: Per = PER_HOUR) -> str:
    """Return a budget as text: dollars in the unit of time that was asked for, or GPUs."""
    return per.budget(amount, unit)


def money_up(amount: float, unit: str, per: Per = PER_HOUR) -> str:
    """Return a least budget as text, rounded up so that it is feasible when typed back in."""
    if unit != "gpus" and per is not PER_HOUR:
        return Per(per.name, 1.0).usd(math.ceil(amount * per.hours * 100.0 * (1.0 - 1e-12)) / 100.0)
    digits = 2 if unit != "gpus" else max(0, 3 - math.floor(math.log10(amount)))
    # The slack of 1e-12 keeps 8.06 from becoming 8.061 through a rounding error.
    return money(math.ceil(amount * 10**digits * (1.0 - 1e-12)) / 10**digits, unit)


def last_dollars(curve: Curve, spend: float, per: Per = PER_HOUR) -> list[str]:
    """Return what the part of a spend above the knee buys; empty for a spend that is not above it."""
    knee, unit = curve.knee(), curve.problem.budget_unit
    if spend <= 1.02 * knee.budget:
        return []
    hours = float(curve.weighted_hours_at(np.array([spend]))[0])
    bought = beyond_text(BeyondKnee.of(knee, spend=spend, hours=hours), unit, per)
    at_knee = f"at the knee, {money(knee.budget, unit, per)}, jobs take {format_hours(knee.hours)}"
    return [f"{bought}: {at_knee}."]


def beyond_text(beyond: BeyondKnee, unit: str, per: Per = PER_HOUR) -> str:
    """Return what the part of a spend above the knee buys, without a full stop."""
    return (
        f"The last {money(beyond.spend, unit, per)} of it buy {format_hours(beyond.saved_hours)} less "
        f"waiting ({beyond.saved_fraction:.1%})"
    )


def print_heading(console: Console, text: str) -> None:
    """Print a heading above a table; it may be wider than the table, and keeps brackets."""
    console.print(Text(text, style="bold"), soft_wrap=True)


def indented_lines(sentences: Iterable[str]) -> Padding:
    """Return each sentence as an indented line; wrapped lines are indented too."""
    return Padding("\n".join(sentences), (0, 0, 0, 2))


def stretch_rows(solution: Solution, spend: str) -> list[dict[str, Any]]:
    """Return a CSV row per class and run of phases at one width; `spend` names the cost column."""
    return [
        {
            "class": answer.name,
            "job_fraction": share.job_fraction,
            "first_phase": first,
            "last_phase": last,
            "gpu_type": step.gpu_type,
            "gpus": step.gpus,
            "hours": step.hours,
            spend: step.spend,
        }
        for answer in solution.classes
        for share in answer.plans
        for first, last, step in runs(share.steps)
    ]


def runs(steps: Sequence[PhaseOption]) -> list[tuple[int, int, PhaseOption]]:
    """Return the runs of phases at one width as (first phase, last phase, summed step)."""
    found: list[tuple[int, int, PhaseOption]] = []
    for number, step in enumerate(steps):
        if found and (found[-1][2].gpu_type, found[-1][2].gpus) == (step.gpu_type, step.gpus):
            first, _, before = found[-1]
            joined = PhaseOption(
                gpu_type=step.gpu_type,
                gpus=step.gpus,
                hours=before.hours + step.hours,
                spend=before.spend + step.spend,
            )
            found[-1] = (first, number, joined)
        else:
            found.append((number, number, step))
    return found


def width_text(step: PhaseOption) -> str:
    """Return a width such as ``8 x a100``; a real width has two decimals."""
    gpus = f"{step.gpus:.2f}" if isinstance(step.gpus, float) else str(step.gpus)
    return f"{gpus} x {step.gpu_type}"


def cell(text: str) -> str:
    """Return a name escaped for a table, so that brackets are not read as markup."""
    return escape(text)


def share_text(plan: PlanShare) -> str:
    """Return the share of jobs that follow a plan; empty for all jobs."""
    return "" if plan.job_fraction == 1.0 else f"{100.0 * plan.job_fraction:.1f} %"


def phases_text(first: int, last: int, of: int) -> str:
    """Return the phases of a run, counted from 1; empty if there is only one phase."""
    if of == 1:
        return ""
    return f"{first + 1}" if first == last else f"{first + 1}-{last + 1}"


def price_document(file: ProblemFile) -> dict[str, Any]:
    """Return the prices of a plan with their dates."""
    return {"prices": [note.to_document() for note in file.prices]}
