"""``boa demo``: simulate the whole control loop on a shipped trace, and compare with other policies."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live

from boa_daemon.cli.common.live_view import status_line, view
from boa_daemon.cli.common.open import OpenOption, PageOption, show_page
from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.cli.plan.gate_demo import gate_demo
from boa_daemon.cli.plan.real_demo import real_demo
from boa_daemon.errors import InputError
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.sim.budget_tuning import tune_planning_budget
from boa_daemon.sim.simulation_result import Simulation
from boa_daemon.sim.wiring import PreparedRun, SimulationSettings, prepare, settings_for, simulate
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.traces.reader import read_trace
from boa_daemon.units import format_hours, parse_budget
from policies.model import Budget, Problem
from policies.registry import PolicyOptions

LOAD_FACTOR = 1.5
"""The default budget, as a multiple of what the work costs on single GPUs."""
EQUAL_WIDTHS = (1, 2, 4, 8, 16)
"""Widths tried for the static fleet; the best one is compared with BOA."""
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
    settings = replace(shipped_settings(budget), seed=seed)
    quiet = chosen is not OutputFormat.table
    settings = tune_planning_budget(settings)
    run = prepare(settings)
    if not quiet:
        stdout_console().print(_opening(settings, is_default=not budget))
    with _watching(run, speed, quiet=quiet) as on_tick:
        boa = run.finish(on_tick)
    rivals = run_rivals(settings, boa)
    sentences = conclusions(settings, boa, rivals)
    rows = [
        {"name": "boa", **boa.to_document()},
        *({"name": r.name, **r.result.to_document()} for r in rivals),
    ]
    if opens or page is not None:
        show_page("boa demo", demo_answers(settings, boa, rivals, sentences), page=page, opens=opens)
    show(
        chosen,
        {"runs": rows, "sentences": sentences},
        rows=lambda: rows,
        table=lambda: _print_comparison(boa, rivals, sentences),
    )


def demo_answers(
    settings: SimulationSettings, boa: Simulation, rivals: list[Rival], sentences: list[str]
) -> dict[str, object]:
    """Return the data of the demo's page: the runs side by side, and the workload's cost curve."""
    from boa_daemon.dashboard.frontier import frontier_document  # noqa: PLC0415 - few ask for a page

    runs = [("boa", boa), *((rival.name, rival.result) for rival in rivals)]
    rows = [
        {
            "policy": name,
            "isMine": result is boa,
            "mean_jct_hours": result.mean_jct_hours,
            "p95_jct_hours": result.p95_jct_hours,
            "usd_per_hour": result.mean_usd_per_hour,
            "ratio": None if result is boa else result.mean_jct_hours / boa.mean_jct_hours,
        }
        for name, result in runs
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
    """A baseline run on the same jobs: its name with settings, and its result."""

    name: str
    result: Simulation
    is_static: bool


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


def run_rivals(settings: SimulationSettings, boa: Simulation) -> list[Rival]:
    """Run the baselines: fixed fleets that cost at least what BOA spent per hour, and rent-on-arrival."""
    instance_type = next(iter(settings.instance_types.values()))
    nodes = max(1, math.ceil(boa.mean_usd_per_hour / instance_type.usd_per_hour))
    fifo = [
        Rival(
            name=f"static-fifo, {nodes} nodes, {gpus} GPUs per job",
            result=simulate(
                replace(settings, policy="static-fifo", options=PolicyOptions(nodes=nodes, gpus_per_job=gpus))
            ),
            is_static=True,
        )
        for gpus in EQUAL_WIDTHS
        if gpus <= nodes * instance_type.gpus
    ]
    equal = Rival(
        name=f"static-equal, {nodes} nodes",
        result=simulate(replace(settings, policy="static-equal", options=PolicyOptions(nodes=nodes))),
        is_static=True,
    )
    rented = Rival(
        name="equal-width, rented on arrival",
        result=simulate(tune_planning_budget(replace(settings, policy="equal-width", planning_budget=None))),
        is_static=False,
    )
    return [min(fifo, key=_mean_jct), equal, rented]


def _mean_jct(rival: Rival) -> float:
    return rival.result.mean_jct_hours


def conclusions(settings: SimulationSettings, boa: Simulation, rivals: list[Rival]) -> list[str]:
    """Return sentences about the results, computed from the figures whoever wins."""
    unit = "GPU-hours" if boa.budget_gpus is not None else "USD"
    bound = boa.lower_bound_mean_jct_hours
    best = min((rival for rival in rivals if rival.is_static), key=_mean_jct)
    return [
        f"BOA finished {boa.finished} jobs with a mean JCT of {format_hours(boa.mean_jct_hours)} for "
        f"{boa.spent_usd:,.0f} {unit}: {boa.mean_usd_per_hour:.2f} per hour of arrivals, booting and idle "
        f"nodes included, on a budget of {boa.budget_usd_per_hour:.2f}.",
        _against(best, boa, unit, "The best static fleet that costs as much per hour"),
        *(
            _against(rival, boa, unit, "Renting on arrival, one width for all,")
            for rival in rivals
            if not rival.is_static
        ),
        f"No policy could do better than {format_hours(bound)} with BOA's money, even if nodes booted in no "
        f"time and were rented by the GPU; BOA took {boa.mean_jct_hours / bound:.2f} times that.",
    ]


def _against(rival: Rival, boa: Simulation, unit: str, what: str) -> str:
    """Return a sentence that compares a baseline with BOA in time and money."""
    result = rival.result
    ratio = result.mean_jct_hours / boa.mean_jct_hours
    money = result.spent_usd / boa.spent_usd - 1.0
    spent = f"{result.spent_usd:,.0f} {unit}, {abs(money):.0%} {'more' if money >= 0 else 'less'} than BOA"
    took = f"{what} ({rival.name}) took {format_hours(result.mean_jct_hours)} for {spent}"
    if ratio >= 1.0:
        return f"{took}: BOA is {ratio:.2f} times as fast."
    return f"{took}: it beats BOA, which is {1.0 / ratio:.2f} times slower here."


def _opening(settings: SimulationSettings, *, is_default: bool) -> str:
    """Return the introduction: jobs, budget, and what the plan aims at."""
    classes = ", ".join(job_class.name for job_class in settings.problem.classes)
    planned = settings.planning_budget or settings.budget
    why = f", {LOAD_FACTOR} times what the work costs on single GPUs" if is_default else ""
    return (
        f"{len(settings.trace.jobs)} real training jobs ({classes}) arrive over "
        f"{format_hours(settings.trace.window_hours)}. Budget: {settings.budget}{why}. Nodes boot in "
        f"{settings.boot_seconds:.0f} s and are billed by the second. The plan aims at {planned}, tuned on a "
        "rehearsal: booting, idle and partly used nodes take the rest."
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


def _print_comparison(boa: Simulation, rivals: list[Rival], sentences: list[str]) -> None:
    """Print the table of runs, the sentences, and what to try next."""
    unit = "GPU-hours" if boa.budget_gpus is not None else "USD"
    table = a_table(
        "The same jobs",
        "policy",
        "mean JCT",
        "p95 JCT",
        unit,
        "GPUs used",
        right=("mean JCT", "p95 JCT", unit),
    )
    for name, result in [("boa", boa), *((rival.name, rival.result) for rival in rivals)]:
        table.add_row(
            name,
            format_hours(result.mean_jct_hours),
            format_hours(result.p95_jct_hours),
            f"{result.spent_usd:,.0f}",
            f"{result.gpu_hours_used / result.gpu_hours_rented:.0%}",
        )
    console = stdout_console()
    console.print(table)
    for sentence in sentences:
        console.print(sentence)
    console.print("Next: boa plan --classes FILE --budget 60/h, and boa simulate --help", soft_wrap=True)
