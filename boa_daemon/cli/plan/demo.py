"""``boa demo``: simulate the whole control loop on a shipped trace, and compare with other policies."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live

from boa_daemon.cli.common.daemon_client import say_next
from boa_daemon.cli.common.live_view import status_line, view
from boa_daemon.cli.common.open import OpenOption, PageOption, show_page
from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.cli.plan.gate_demo import gate_demo
from boa_daemon.cli.plan.real_demo import real_demo
from boa_daemon.errors import InputError
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.sim.simulation_result import Simulation
from boa_daemon.sim.wiring import PreparedRun, SimulationSettings, prepare, settings_for, simulate
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.traces.reader import read_trace
from boa_daemon.units import format_hours, parse_budget
from policies.model import Budget, Problem
from policies.money_text import in_dollars

LOAD_FACTOR = 1.5
"""The default budget, as a multiple of what the work costs on single GPUs."""
RIVALS = {
    "equal-width": "Renting on arrival with one width for all",
    "efficiency": "Widening each job while its GPUs stay busy enough",
    "static-equal": "A fixed fleet that all jobs share",
}
"""The policies that BOA is compared with, and what each is in words."""
LABORATORY = "boa_daemon.lab.compare.library"
FRAMES_PER_SECOND = 10.0
LINE_EVERY_HOURS = 1.0


def demo(  # noqa: PLR0917 - the parameters are the flags of the command
    budget: Annotated[
        str, typer.Option(help="60/h, 900/day, 25000/month or gpus:48. Default: 1.5 times the load.")
    ] = "",
    speed: Annotated[
        float, typer.Option(min=1.0, help="Simulated seconds per second, on a terminal.")
    ] = 1200.0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; the same seed gives the same run.")] = 0,
    real: Annotated[
        bool, typer.Option("--real", help="Run small real jobs on this machine, for about a minute.")
    ] = False,
    gate: Annotated[
        bool,
        typer.Option(
            "--gate", help="Run jobs on shared links with and without the gate; needs root and iproute2."
        ),
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, max=12, help="With --real: number of jobs.")] = 6,
    opens: OpenOption = False,
    page: PageOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Run 85 jobs of a real trace under BOA and under other policies, simulated; no account, no network."""
    chosen = output
    if real and gate:
        raise InputError("--real and --gate are two demos: choose one")
    if gate:
        gate_demo(output=chosen)
        return
    if real:
        raise typer.Exit(real_demo(_real_budget(budget), jobs=jobs, output=chosen))
    shipped = shipped_settings(budget)
    quiet = chosen is not OutputFormat.table
    # By name, because nothing but the demo and the library's comparison needs the laboratory.
    settings = import_module(LABORATORY).as_the_daemon(shipped, seed=seed)
    run = prepare(settings)
    if not quiet:
        stdout_console().print(_opening(settings, is_default=not budget))
    with _watching(run, speed, quiet=quiet) as on_tick:
        boa = run.finish(on_tick)
    rivals = run_rivals(shipped, seed=seed)
    sentences = conclusions(settings, boa, rivals)
    rows = [
        {"name": "boa", **boa.to_document(), "equal_money_jct_hours": boa.mean_jct_hours},
        *(
            {"name": r.name, **r.result.to_document(), "equal_money_jct_hours": r.equal_money_jct_hours}
            for r in rivals
        ),
    ]
    if opens or page is not None:
        show_page("boa demo", demo_answers(settings, boa, rivals, sentences), page=page, opens=opens)
    show(
        chosen,
        {"runs": rows, "sentences": sentences},
        rows=lambda: rows,
        table=lambda: _print_comparison(boa, rivals, sentences, settings.budget),
    )


def demo_answers(
    settings: SimulationSettings, boa: Simulation, rivals: list[Rival], sentences: list[str]
) -> dict[str, object]:
    """Return the data of the demo's page: the runs side by side, and the workload's cost curve."""
    from boa_daemon.dashboard.frontier import frontier_document  # noqa: PLC0415 - few ask for a page

    runs = [
        ("boa", boa, boa.mean_jct_hours),
        *((rival.name, rival.result, rival.equal_money_jct_hours) for rival in rivals),
    ]
    rows = [
        {
            "policy": name,
            "isMine": result is boa,
            "mean_jct_hours": result.mean_jct_hours,
            "p95_jct_hours": result.p95_jct_hours,
            "usd_per_hour": result.mean_usd_per_hour,
            "ratio": None if result is boa else hours / boa.mean_jct_hours,
        }
        for name, result, hours in runs
    ]
    group = {"name": "The same jobs", "bound": boa.lower_bound_mean_jct_hours, "rows": rows}
    title = f"{boa.jobs} real training jobs"
    unit = settings.budget.unit
    return {
        "page/compare": {"title": title, "sentences": sentences, "unit": unit, "groups": [group]},
        "page/frontier": frontier_document(settings.problem, budget=settings.budget.amount, title=title),
    }


def _real_budget(text: str) -> Budget | None:
    """Return the budget of --real in dollars; None for the default.

    Raises:
        InputError: when the budget is in GPUs.
    """
    if not text:
        return None
    budget = parse_budget(text)
    if budget.unit == "gpus":
        raise InputError(f"--real needs a budget in dollars; got {text}", hint="Try --budget 20/h")
    return budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another policy on the same jobs: name with setting, its run, and its mean JCT for BOA's money."""

    name: str
    result: Simulation
    equal_money_jct_hours: float


def shipped_settings(budget: str = "") -> SimulationSettings:
    """Return the settings of the shipped workload, with the given budget or the default one."""
    folder = Path(str(files("boa_daemon") / "data" / "demo"))
    file = load_problem(folder / "classes.yaml", require_rates=False)
    trace = read_trace(folder / "trace.csv")
    settings = settings_for(file, trace, parse_budget(budget) if budget else Budget(amount=1.0))
    return settings if budget else replace(settings, budget=default_budget(settings.problem))


def default_budget(problem: Problem) -> Budget:
    """Return the default budget in whole dollars per hour: `LOAD_FACTOR` times the cost on single GPUs."""
    load = sum(
        job_class.arrivals_per_hour * job_class.size_gpu_hours * _cheapest_price(problem)
        for job_class in problem.classes
    )
    return Budget(amount=float(math.ceil(LOAD_FACTOR * load)))


def _cheapest_price(problem: Problem) -> float:
    """Return the lowest price of a GPU-hour."""
    return min(problem.price_of(gpu.name) for gpu in problem.gpu_types)


def run_rivals(settings: SimulationSettings, *, seed: int) -> list[Rival]:
    """Run the other policies on the same jobs, each tuned to spend what BOA spends."""
    found = import_module(LABORATORY).at_equal_money(settings, tuple(RIVALS), seed=seed)
    return [
        Rival(name=f"{policy}, {setting}", result=simulate(tuned), equal_money_jct_hours=hours)
        for policy, (setting, tuned, hours) in zip(RIVALS, found, strict=True)
    ]


def conclusions(settings: SimulationSettings, boa: Simulation, rivals: list[Rival]) -> list[str]:
    """Return sentences about the results, computed from the figures whoever wins."""
    bound = boa.lower_bound_mean_jct_hours
    spent, budget = (
        _money(amount, settings.budget) for amount in (boa.mean_usd_per_hour, boa.budget_usd_per_hour)
    )
    return [
        f"BOA finished {boa.finished} jobs in {format_hours(boa.mean_jct_hours)} on average, from arrival to "
        f"end, and spent {spent} of {budget}, boots and idle nodes included.",
        *(_against(rival, boa) for rival in rivals),
        f"No policy can beat {format_hours(bound)} for this money, even with nodes that boot in no time and "
        f"are rented by the GPU: BOA took {boa.mean_jct_hours / bound:.2f} times that.",
    ]


def _against(rival: Rival, boa: Simulation) -> str:
    """Return a sentence that compares a policy with BOA for the same money."""
    ratio = rival.equal_money_jct_hours / boa.mean_jct_hours
    what = RIVALS[rival.name.partition(",")[0]]
    took = f"{what} takes {format_hours(rival.equal_money_jct_hours)} for the same money"
    if ratio >= 1.0:
        return f"{took}, {ratio:.2f} times as long."
    return f"{took}: BOA is slower here, by {1.0 / ratio - 1.0:.0%}."


def _money(amount: float, budget: Budget) -> str:
    """Return money per hour in the unit of the budget."""
    return f"{amount:.2f} GPUs" if budget.unit == "gpus" else f"{in_dollars(amount)} an hour"


def _opening(settings: SimulationSettings, *, is_default: bool) -> str:
    """Return the introduction: jobs, budget, and what the plan aims at."""
    classes = ", ".join(job_class.name for job_class in settings.problem.classes)
    why = f", {LOAD_FACTOR} times what the work costs on single GPUs" if is_default else ""
    amount = _money(settings.budget.amount, settings.budget)
    return (
        f"How long do jobs take if {amount} rents their GPUs, and how much depends on who shares them out?\n"
        f"{len(settings.trace.jobs)} real training jobs ({classes}) arrive over "
        f"{format_hours(settings.trace.window_hours)}; the budget is {amount}{why}. Nodes boot in "
        f"{settings.boot_seconds:.0f} s and are billed by the second. BOA runs as its daemon does: it learns "
        "sizes, rates and speed-ups from the jobs."
    )


@contextmanager
def _watching(run: PreparedRun, speed: float, *, quiet: bool) -> Iterator[Callable[[Decision], None]]:
    """Yield a callback that shows the run: live on a terminal, else a line per simulated hour."""
    console = stdout_console()
    if quiet:
        yield lambda _decision: None
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield _live_frames(run, speed, live)
    else:
        yield _plain_lines(run)


def _live_frames(run: PreparedRun, speed: float, live: Live) -> Callable[[Decision], None]:
    """Return a callback that draws frames, and sleeps so that simulated time runs at `speed`."""
    classes = {job_class.name: job_class for job_class in run.settings.problem.classes}
    began, shown_at = time.monotonic(), -math.inf

    def on_tick(decision: Decision) -> None:
        nonlocal shown_at
        state = decision.state
        ahead = (state.now - run.world.started_at) / speed - (time.monotonic() - began)
        if ahead > 0.0:
            time.sleep(ahead)
        if time.monotonic() - shown_at >= 1.0 / FRAMES_PER_SECOND:
            shown_at = time.monotonic()
            frame = view(
                state,
                classes,
                started_at=run.world.started_at,
                budget=run.settings.budget,
                finished=run.world.finished,
            )
            live.update(frame, refresh=True)

    return on_tick


def _plain_lines(run: PreparedRun) -> Callable[[Decision], None]:
    """Return a callback that prints a line per simulated hour."""
    next_line = run.world.started_at

    def on_tick(decision: Decision) -> None:
        nonlocal next_line
        if decision.state.now >= next_line:
            next_line += LINE_EVERY_HOURS * 3600.0
            line = status_line(decision.state, started_at=run.world.started_at, budget=run.settings.budget)
            stdout_console().print(line, soft_wrap=True)

    return on_tick


def _print_comparison(boa: Simulation, rivals: list[Rival], sentences: list[str], budget: Budget) -> None:
    """Print the table of runs, the sentences, and what to try next."""
    spent = "GPUs" if budget.unit == "gpus" else "$/h"
    table = a_table(
        "The same jobs",
        "policy",
        "mean JCT",
        "p95 JCT",
        spent,
        "GPUs used",
        "same money",
        right=("mean JCT", "p95 JCT", spent, "GPUs used", "same money"),
        optional=("GPUs used",),
    )
    runs = [("boa", boa, boa.mean_jct_hours), *((r.name, r.result, r.equal_money_jct_hours) for r in rivals)]
    for name, result, hours in runs:
        table.add_row(
            name,
            format_hours(result.mean_jct_hours),
            format_hours(result.p95_jct_hours),
            f"{result.mean_usd_per_hour:.2f}",
            f"{result.gpu_hours_used / result.gpu_hours_rented:.0%}",
            "" if result is boa else f"{hours / boa.mean_jct_hours:.2f} x",
        )
    console = stdout_console()
    console.print(table)
    console.print(
        "[dim]JCT: job completion time, from arrival to end; p95: 19 of 20 jobs take less. Same money: the "
        "mean JCT over BOA's if the policy spends what BOA spends, between two of its settings where none "
        "does.[/]"
    )
    for sentence in sentences:
        console.print(sentence)
    say_next("boa demo --real", "boa init", "boa plan --classes classes.yaml --budget 30/h", "boa daemon")
