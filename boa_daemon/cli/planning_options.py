"""What the planning verbs share: problem files with prices, budgets from flags, how plans are said."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from boa_daemon.cli.output import stderr_console
from boa_daemon.errors import InputError, MissingPrice
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.price_age import stale_prices
from boa_daemon.inputs.problem_file import ProblemFile, load_problem, with_budget
from boa_daemon.planning.paid_commitments import PaidCommitments
from boa_daemon.sim.spot_market import on_both_markets
from boa_daemon.sim.world_file import load_world
from boa_daemon.sim.world_settings import Checkpoints, Spot, WorldSettings
from boa_daemon.units import parse_budget
from policies.errors import InfeasibleBudget
from policies.model import Budget
from policies.optimum.options import PhaseOption
from policies.optimum.solution import PlanShare, Solution

ClassesOrTraceOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--classes", metavar="FILE", help="Classes and prices. Default: classes.yaml beside the trace."
    ),
]

PricesOption: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option("--prices", metavar="FILE", help="Your prices and discounts; may be repeated."),
]

CommitmentsOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--commitments", metavar="FILE", help="What is paid anyway: below it a GPU costs nothing."),
]

MarketOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--world",
        metavar="FILE",
        help="Plan on the spot market of a world file as well: its price, interruptions and checkpoints.",
    ),
]


class MarketName(StrEnum):
    """Where a plan may rent."""

    on_demand = "on-demand"
    spot = "spot"


_NO_PRICES = "Add gpu_types: {NAME: {usd_per_gpu_hour: PRICE}}"

BestEffortOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--best-effort",
        help="Below the least budget that runs every job: what the money does, not a refusal.",
    ),
]


@contextmanager
def best_effort_is_named() -> Iterator[None]:
    """Say in a refusal for lack of money that there is a flag for that."""
    try:
        yield
    except InfeasibleBudget as error:
        said = f"{error}. What this budget does all the same: --best-effort"
        raise InfeasibleBudget(said, least_spend=error.least_spend) from error


def read_problem(
    path: Path,
    prices: Sequence[Path] | None,
    *,
    require_rates: bool = True,
    market: Path | None = None,
) -> ProblemFile:
    """Return the problem file; with a `market`, spot and on demand.

    Its warnings are said on standard error, and that its prices are old.
    """
    file = load_problem(path, catalog=Catalog.load(*(prices or ())), require_rates=require_rates)
    for warning in filter(None, (*file.warnings, stale_prices(file.prices, datetime.now(UTC).date()))):
        stderr_console().print(f"[yellow]note[/] {escape(warning)}")
    return file if market is None else on_both_markets(file, read_market(market, file))


def read_market(path: Path, file: ProblemFile) -> WorldSettings:
    """Return the world of a file that says what the spot market is like.

    Raises:
        InputError: when it says nothing of one.
    """
    names = [job_class.name for job_class in file.problem.classes]
    world = load_world(path, tuple(file.instance_types.values()), names)
    if world.spot is None:
        raise InputError("the world has no spot market", file=path, hint="Add spot: {price_fraction: 0.3}")
    if not file.has_prices:
        raise MissingPrice("a spot market needs prices", file=file.path, hint=_NO_PRICES)
    return world


def chosen_market(name: MarketName | None, world: Path | None, file: ProblemFile) -> WorldSettings | None:
    """Return the terms of the spot market that flags ask for; None for on demand alone.

    Raises:
        InputError: when a file says nothing of a spot market, or flags contradict each other.
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
    """Return the file under the budget of the flag, or its own.

    A bare number counts GPUs, or is in the unit of the file's own budget; a plan is of whole months, so there
    bare dollars are refused whatever the file says.

    Raises:
        InputError: when neither says a budget, or dollars are said without a time.
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
    """Return the commitments that are paid today.

    Raises:
        InputError: when the budget is not in dollars, or the file of commitments is wrong.
    """
    if budget.unit == "gpus":
        raise InputError("--commitments needs a budget in dollars", hint="For example --budget 40/h")
    return PaidCommitments.read(path, tuple(file.instance_types.values()), datetime.now(UTC).date())


def _is_bare(text: str) -> bool:
    """Whether a budget is a number alone."""
    try:
        return math.isfinite(float(text)) and float(text) > 0.0
    except ValueError:
        return False


def a_budget(text: str, file: ProblemFile, *, name: str = "--budget") -> Budget:
    """Return the budget that a flag says; a bare number is in the file's own unit."""
    try:
        amount = float(text)
    except ValueError:
        return parse_budget(text, name=name)
    if not (math.isfinite(amount) and amount > 0.0):
        raise InputError(f"{name} {text!r} is not a positive number", hint="For example 40/h or gpus:48")
    return Budget(amount=amount, unit=file.problem.budget_unit)


def curve_answers(file: ProblemFile, budget: Budget | None) -> dict[str, Any]:
    """Return what the page of a plan needs, by the path that it asks."""
    from boa_daemon.dashboard.frontier import frontier_document  # noqa: PLC0415 - few ask for a page

    amount = None if budget is None else budget.amount
    return {"page/frontier": frontier_document(file.problem, budget=amount, title=str(file.path))}


def money(amount: float, unit: str) -> str:
    """Return an amount of budget as a person says it."""
    return f"{amount:,.4g} GPUs" if unit == "gpus" else f"${amount:,.2f}/h"


def money_up(amount: float, unit: str) -> str:
    """Return the least amount that would do, rounded up: typed back in, it is enough."""
    digits = 2 if unit != "gpus" else max(0, 3 - math.floor(math.log10(amount)))
    # A hair of slack keeps 8.06 from becoming 8.061 where rounding put it a trifle above.
    return money(math.ceil(amount * 10**digits * (1.0 - 1e-12)) / 10**digits, unit)


def print_heading(console: Console, text: str) -> None:
    """Print the line over a table; unlike a table's own title it may be wider, and brackets in it stay."""
    console.print(Text(text, style="bold"), soft_wrap=True)


def indented_lines(sentences: Iterable[str]) -> Padding:
    """Return sentences as lines of their own, set in from the left, also where they wrap."""
    return Padding("\n".join(sentences), (0, 0, 0, 2))


def stretch_rows(solution: Solution, spend: str) -> list[dict[str, Any]]:
    """Return one row per class and stretch of phases at one width; `spend` names the column of its cost."""
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
    """Return the stretches of phases at one width as (first phase, last phase, step summed over them)."""
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
    """Return ``8 x a100``; a real width with two decimals."""
    gpus = f"{step.gpus:.2f}" if isinstance(step.gpus, float) else str(step.gpus)
    return f"{gpus} x {step.gpu_type}"


def cell(text: str) -> str:
    """Return a name from a file as a table shows it: brackets in it are no markup."""
    return escape(text)


def share_text(plan: PlanShare) -> str:
    """Return the share of jobs that follow a plan, or nothing where all do."""
    return "" if plan.job_fraction == 1.0 else f"{100.0 * plan.job_fraction:.1f} %"


def phases_text(first: int, last: int, of: int) -> str:
    """Return which phases a stretch covers, counted from 1 as people do; nothing where there is only one."""
    if of == 1:
        return ""
    return f"{first + 1}" if first == last else f"{first + 1}-{last + 1}"


def price_document(file: ProblemFile) -> dict[str, Any]:
    """Return of which day the prices of a plan are."""
    return {"prices": [note.to_document() for note in file.prices]}
