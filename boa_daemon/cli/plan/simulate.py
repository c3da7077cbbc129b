"""``boa simulate``: replay a trace under a policy and a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from time import monotonic
from typing import Annotated, Any

import typer
from rich.progress import Progress

from boa_daemon.cli.common.completion import complete_placers, complete_policies
from boa_daemon.cli.common.output import (
    OutputFormat,
    OutputOption,
    a_table,
    show,
    stderr_console,
    stdout_console,
)
from boa_daemon.cli.common.planning_options import (
    BestEffortOption,
    ClassesOrTraceOption,
    CommitmentsOption,
    best_effort_is_named,
    indented_lines,
    last_dollars,
    money,
)
from boa_daemon.cli.common.simulation_options import (
    BootOption,
    BootSecondsOption,
    IdleHoldOption,
    PlanSpotOption,
    SpotOption,
    StartSecondsOption,
    TraceOption,
    WarmPoolOption,
    WorldOption,
    settings_in_world,
)
from boa_daemon.errors import InputError
from boa_daemon.learning.width_trials import FRACTION, most_wasted
from boa_daemon.planning.curve import Curve
from boa_daemon.planning.paid_commitments import PaidCommitments, paid_sentence
from boa_daemon.planning.promise_text import promise_sentence, second_limit_text
from boa_daemon.planning.promises import promise_rows
from boa_daemon.planning.rentals import Rental, load_between
from boa_daemon.planning.second_limit import Limits
from boa_daemon.sim.budget_tuning import tune_planning_budget
from boa_daemon.sim.simulation_result import Simulation
from boa_daemon.sim.stopped_nodes import START_SECONDS
from boa_daemon.sim.wiring import PreparedRun, SimulationSettings, check_budget, prepare, site_of
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.state import IDLE_HOLD_SECONDS
from boa_daemon.tick.room.shortfall import shortfall_sentence
from boa_daemon.traces.rates import work_of
from boa_daemon.units import PER_HOUR, Per, format_hours, parse_budget, per_of
from policies.money_text import in_dollars, price_in_dollars
from policies.registry import DEFAULT_KAPPA, DEFAULT_POLICY, PLACERS, POLICIES, find_policy, parse_options

_POLICIES = "; ".join(f"{entry.name}: {entry.summary}" for entry in POLICIES.values())
MOST_JOBS = 100
"""With --bound auto, the bound with boots is computed for at most this many jobs, in seconds."""
OVER = 0.005
"""Overspending by more than this fraction of the budget is reported."""
PATIENCE_SECONDS = 1.0
"""Seconds after which a run shows its progress."""


class BoundChoice(StrEnum):
    """When to compute the lower bound with boots, whole nodes and the cap on nodes."""

    auto = "auto"
    boots = "boots"
    plain = "plain"


def simulate(  # noqa: PLR0917 - the parameters are the flags of the command
    trace: TraceOption,
    budget: Annotated[str, typer.Option(help="60/h, 900/day, 25000/month or gpus:48.")],
    classes: ClassesOrTraceOption = None,
    policy: Annotated[
        str, typer.Option(help=f"Policy. {_POLICIES}.", autocompletion=complete_policies)
    ] = DEFAULT_POLICY,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Option of the policy as key=value, such as gpus_per_job=4; may be repeated."
        ),
    ] = None,
    placer: Annotated[
        str,
        typer.Option(
            help=f"Placer, which chooses the GPUs of a job: {', '.join(PLACERS)}.",
            autocompletion=complete_placers,
        ),
    ] = "lwf",
    kappa: Annotated[
        float,
        typer.Option(min=1, help="With lwf: jobs of up to this many GPUs may be spread over several nodes."),
    ] = DEFAULT_KAPPA,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; the same seed gives the same run.")] = 0,
    world: WorldOption = None,
    spot: SpotOption = False,
    plan_spot: PlanSpotOption = False,
    boot: BootOption = None,
    boot_seconds: BootSecondsOption = 180.0,
    idle_hold_seconds: IdleHoldOption = IDLE_HOLD_SECONDS,
    warm_pool: WarmPoolOption = 0,
    start_seconds: StartSecondsOption = START_SECONDS,
    rehearse: Annotated[
        bool,
        typer.Option(help="First tune the planning budget in trial runs, so that the run spends the budget."),
    ] = False,
    learn: Annotated[
        bool,
        typer.Option(help="Correct the class file's figures by what jobs do, as the daemon does."),
    ] = False,
    link_order: Annotated[
        bool,
        typer.Option(help="Let jobs that share a network link send in the plan's order, or all at once."),
    ] = True,
    max_nodes: Annotated[int | None, typer.Option(min=1, help="Most nodes to rent at once.")] = None,
    best_effort: BestEffortOption = False,
    commitments: CommitmentsOption = None,
    bound: Annotated[
        BoundChoice,
        typer.Option(
            help="Bound with boots, whole nodes and the node cap. boots: compute it, for half a minute or "
            "more; auto: where it takes seconds; plain: never."
        ),
    ] = BoundChoice.auto,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Simulate a trace under a policy: job times, dollars, and a lower bound that no policy can beat."""
    settings = replace(
        settings_in_world(
            trace, classes, parse_budget(budget), world=world, spot=spot, boot=boot, plan_spot=plan_spot
        ),
        policy=policy,
        options=parse_options(find_policy(policy), _pairs(setting or ())),
        placer=placer,
        kappa=kappa,
        seed=seed,
        boot_seconds=boot_seconds,
        idle_hold_seconds=idle_hold_seconds,
        warm_pool_nodes=warm_pool,
        start_seconds=start_seconds,
        max_nodes=max_nodes,
        links_in_order=link_order,
        best_effort=best_effort,
        learns=learn,
    )
    if kappa != DEFAULT_KAPPA and placer != "lwf":
        raise InputError(f"--kappa goes with --placer lwf, not with {placer}")
    if best_effort and find_policy(policy).kind != "optimum":
        raise InputError(f"--best-effort goes with boa and boa-paced, not with {policy}")
    if best_effort and rehearse:
        raise InputError(
            "--best-effort and --rehearse exclude each other: --rehearse needs a feasible budget"
        )
    if warm_pool and settings.budget.unit == "gpus":
        raise InputError("--warm-pool needs a budget in dollars, because stopped nodes cost disk and no GPUs")
    paid = None
    if commitments is not None:
        if rehearse or best_effort or settings.budget.unit == "gpus":
            raise InputError(
                "--commitments needs a budget in dollars, and excludes --rehearse and --best-effort"
            )
        machines = tuple(settings.instance_types.values())
        paid = PaidCommitments.read(commitments, machines, datetime.now(UTC).date())
        planned = paid.planning_budget(site_of(settings).problem, settings.budget.amount)
        settings = replace(settings, planning_budget=replace(settings.budget, amount=planned))
    with best_effort_is_named(budget):
        run = prepare(tune_planning_budget(settings) if rehearse else settings)
        check_budget(settings)
    with progress_of(run) as on_tick:
        result = run.finish(on_tick)
    if bound is BoundChoice.boots or (bound is BoundChoice.auto and _is_cheap(run)):
        result = run.with_boot_bound(result)
    pool = _pool_worth(run, result, is_tuned=rehearse) if warm_pool else None
    pace, work = run.policy.pace, work_of(settings.trace, settings.problem.classes)
    promised = [] if pace is None else promise_rows(pace, work)
    bill = None if paid is None else _bill(run, paid)
    show(
        output,
        result.to_document()
        | ({"promises": promised} if promised else {})
        | ({} if pool is None else {"warm_pool": pool})
        | ({} if bill is None else {"commitments": bill}),
        rows=lambda: [_row(result)],
        table=lambda: _print_table(
            result,
            bill,
            [
                *([] if pool is None else [_pool_sentence(pool)]),
                *_worth(settings, per_of(budget)),
                *_tries(settings),
            ],
            promised,
            per=per_of(budget),
        ),
    )


def _pool_worth(run: PreparedRun, result: Simulation, *, is_tuned: bool) -> dict[str, float]:
    """Return what the warm pool cost and saved, beside a run on the same jobs without it."""
    settings = replace(run.settings, warm_pool_nodes=0)
    # A tuned plan is for the pool's spend, so the run without a pool is tuned as well.
    plain = prepare(
        tune_planning_budget(replace(settings, planning_budget=None)) if is_tuned else settings
    ).finish()
    disks = result.node_hours_stopped * run.world.cloud.stopped.disk_usd_per_hour
    return {
        "nodes": run.settings.warm_pool_nodes,
        "disk_usd_per_hour": disks / result.simulated_hours,
        "waiting_saved_fraction": 1.0 - result.mean_jct_hours / plain.mean_jct_hours,
        "spend_saved_fraction": 1.0 - result.spent_usd / plain.spent_usd,
    }


def _pool_sentence(pool: dict[str, float]) -> str:
    """Return the cost and the gain of the warm pool as a sentence."""

    def less(fraction: float) -> str:
        return f"{abs(100.0 * fraction):.1f} % {'less' if fraction >= 0.0 else 'more'}"

    saved, paid = pool["waiting_saved_fraction"], pool["spend_saved_fraction"]
    return (
        f"A warm pool of {pool['nodes']:.0f} costs "
        f"{price_in_dollars(pool['disk_usd_per_hour'])}/hour for disks; "
        f"with it jobs take {less(saved)} time and {less(paid)} money, disks included."
    )


def _worth(settings: SimulationSettings, per: Per) -> list[str]:
    """Return what the plan says of the budget's last dollars; nothing for a policy that has no plan."""
    if find_policy(settings.policy).kind != "optimum":
        return []
    curve = Curve.of(site_of(settings).problem, "integer-mixed")
    unit, amount = settings.budget.unit, settings.budget.amount
    if amount < curve.cheapest:
        return []
    found = last_dollars(curve, min(amount, curve.largest_useful), per)
    limits = Limits(nodes=settings.max_nodes, nodes_setting="--max-nodes ", machines=settings.instance_types)
    if (limit := limits.binding(curve, amount)) is not None:
        found.append(second_limit_text(limit.to_document(), unit, per))
    if amount > 1.005 * curve.largest_useful:
        found.append(f"By the plan, more than {money(curve.largest_useful, unit, per)} buys nothing.")
    return found


def _tries(settings: SimulationSettings) -> list[str]:
    """Return what trials of widths may cost beside the plan; nothing for a run that learns nothing."""
    if not settings.learns:
        return []
    work: dict[str, list[float]] = {}
    for job in settings.trace.jobs:
        work.setdefault(job.class_name, []).append(job.scale)
    sizes = {one.name: one.size_gpu_hours for one in settings.problem.classes}
    of_classes = {name: [scale * sizes[name] for scale in scales] for name, scales in work.items()}
    return [
        f"Jobs try widths to learn their speeds: of the GPU time of these {len(settings.trace.jobs):,} jobs "
        f"that may take up to {most_wasted(of_classes):.1%}, {FRACTION:.0%} and one job of each class."
    ]


def _bill(run: PreparedRun, paid: PaidCommitments) -> dict[str, Any]:
    """Return what the run cost with commitments, per hour until the last job left."""
    world = run.world
    names = tuple(machine.gpu_type for machine in paid.machines)
    rentals = [Rental(*rented) for rented in world.cloud.meter.on_demand]
    return paid.to_document(load_between(rentals, names, world.started_at, world.clock.now()))


def _row(result: Simulation) -> dict[str, object]:
    """Return the figures as one CSV row, numbers only."""
    row = result.to_document() | {"launch_refusals": sum(result.launch_refusals.values())}
    return {key: value for key, value in row.items() if key != "best_effort"}


@contextmanager
def progress_of(run: PreparedRun) -> Iterator[Callable[[Decision], None]]:
    """Yield a callback that shows on a terminal how many jobs have finished, after the first second."""
    console = stderr_console()
    with Progress(
        console=console, transient=True, disable=not console.is_terminal, auto_refresh=False
    ) as bar:
        task = bar.add_task("jobs finished", total=run.world.workload.jobs, visible=False)
        next_look = monotonic() + PATIENCE_SECONDS

        def on_tick(_decision: Decision) -> None:
            nonlocal next_look
            if monotonic() >= next_look:
                next_look = monotonic() + 0.1
                bar.update(task, completed=run.world.finished, visible=True)
                bar.refresh()

        yield on_tick


def _is_cheap(run: PreparedRun) -> bool:
    """Return whether the bound with boots takes only seconds: few jobs, of one phase each."""
    phases = max(len(job_class.phases) for job_class in run.settings.problem.classes)
    return phases == 1 and run.world.workload.jobs <= MOST_JOBS


def _pairs(settings: Sequence[str]) -> dict[str, str]:
    """Return ``key=value`` texts as a mapping."""
    pairs: dict[str, str] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text!r} is not key=value", hint="For example --set gpus_per_job=4")
        if key in pairs:
            raise InputError(f"--set {key} is given twice")
        pairs[key.strip()] = value.strip()
    return pairs


def _print_table(
    result: Simulation,
    bill: dict[str, Any] | None,
    worth: Sequence[str],
    promised: Sequence[dict[str, Any]] = (),
    *,
    per: Per = PER_HOUR,
) -> None:
    table = a_table(f"{result.policy}: {result.finished} of {result.jobs} jobs finished", "", "", right=())
    gpus = result.budget_gpus is not None
    time = "hour" if per is PER_HOUR else per.name
    hours_in = 1.0 if gpus else per.hours

    def rate(amount: float) -> str:
        return f"{amount:,.2f} GPUs" if gpus else f"{in_dollars(amount * hours_in)}/{time}"

    rows = (
        ("mean JCT", format_hours(result.mean_jct_hours)),
        ("  lower bound", f"{format_hours(result.lower_bound_mean_jct_hours)} for any policy at this spend"),
        *_boot_bound(result),
        ("  p50, p95, p99", ", ".join(format_hours(hours) for hours in _percentiles(result))),
        ("spent", f"{result.spent_usd:,.2f} GPU-hours" if gpus else in_dollars(result.spent_usd)),
        (f"  per {time} of arrivals", rate(result.mean_usd_per_hour)),
        ("  until the last job left", rate(result.spent_usd / result.simulated_hours)),
        ("  budget", rate(result.budget_usd_per_hour)),
        ("GPU-hours rented", f"{result.gpu_hours_rented:,.1f}"),
        ("  used", _share(result.gpu_hours_used, result)),
        ("  start-up and rescale", _share(result.gpu_hours_overhead, result)),
        ("  booting", _share(result.gpu_hours_booting, result)),
        ("  idle", _share(result.gpu_hours_idle, result)),
        ("nodes launched, at most", f"{result.nodes_launched}, {result.most_nodes} at once"),
        *_pool(result),
        ("rescales, interruptions", f"{result.rescales}, {result.interruptions}"),
        *_mishaps(result),
        ("simulated", f"{format_hours(result.simulated_hours)} in {result.wall_seconds:.2f} s"),
    )
    for row in rows:
        table.add_row(*row)
    stdout_console().print(table)
    if (sentence := overspend_sentence(result, per)) is not None:
        stdout_console().print(indented_lines([sentence]))
    if promised:
        stdout_console().print(indented_lines([promise_sentence(promised, is_seen=True)]))
    if worth:
        stdout_console().print(indented_lines(worth))
    if bill is not None:
        stdout_console().print(indented_lines([paid_sentence(bill)]))
    if result.shortfall is not None:
        sentence = shortfall_sentence(result.shortfall, per=time, hours=per.hours)
        stdout_console().print(indented_lines([f"{sentence[0].upper()}{sentence[1:]}."]))


def overspend_sentence(result: Simulation, per: Per = PER_HOUR) -> str | None:
    """Return a sentence on why more was spent than the budget; None if it was not."""
    over = result.mean_usd_per_hour / result.budget_usd_per_hour - 1.0
    if over <= OVER:
        return None
    more = result.mean_usd_per_hour - result.budget_usd_per_hour
    said = f"{more:,.2f} GPUs over the budget: "
    if result.budget_gpus is None:
        time = "hour" if per is PER_HOUR else per.name
        said = f"{in_dollars(more * per.hours)}/{time} over the budget: "
    tail = result.simulated_hours - result.arrival_window_hours
    if result.mean_usd_per_simulated_hour <= result.budget_usd_per_hour * (1.0 + OVER):
        return (
            f"{said}the last job ended {format_hours(tail)} after the last arrival, and that time is counted."
        )
    unplanned = (result.gpu_hours_booting + result.gpu_hours_idle + result.gpu_hours_lost) / max(
        result.gpu_hours_rented, 1e-9
    )
    said += f"boots, idle GPUs and lost work were {unplanned:.0%} of what was rented"
    return f"{said}; add --rehearse to plan for them."


def _pool(result: Simulation) -> list[tuple[str, str]]:
    """Return the row about the warm pool, if nodes were stopped."""
    if not result.node_hours_stopped:
        return []
    hours = f"{result.node_hours_stopped:,.1f} stopped node-hours"
    return [("  of these started", f"{result.nodes_started}, after {hours}")]


def _boot_bound(result: Simulation) -> list[tuple[str, str]]:
    """Return the row about the bound with boots, if it was computed."""
    hours = result.lower_bound_with_boots_mean_jct_hours
    return (
        []
        if hours is None
        else [("  with boots and whole nodes", f"{format_hours(hours)} for any policy at this spend")]
    )


def _mishaps(result: Simulation) -> list[tuple[str, str]]:
    """Return the rows about failures and refused launches, if there were any."""
    rows: list[tuple[str, str]] = []
    if result.restarts or result.node_failures or result.job_failures:
        failures = f"{result.node_failures}, {result.job_failures}"
        rows.append(("failures of nodes, of jobs", f"{failures}; {result.restarts} restarts"))
        rows.append(("  work lost", _share(result.gpu_hours_lost, result)))
    if result.launch_refusals:
        said = ", ".join(f"{count} {kind}" for kind, count in result.launch_refusals.items())
        rows.append(("launches not served", said))
    return rows


def _percentiles(result: Simulation) -> tuple[float, float, float]:
    """Return the three percentiles of the JCT, hours."""
    return result.p50_jct_hours, result.p95_jct_hours, result.p99_jct_hours


def _share(gpu_hours: float, result: Simulation) -> str:
    """Return GPU-hours with their share of those rented."""
    share = 100.0 * gpu_hours / result.gpu_hours_rented if result.gpu_hours_rented else 0.0
    return f"{gpu_hours:,.1f} ({share:.0f} %)"
