"""``boa blocks``: EC2 Capacity Blocks, compared with the same hours on demand and in the plan."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.blocks import BlockOffering, buy, offerings
from boa_daemon.cli.common.aws_options import DEFAULT_CONFIG, ConfigOption, RegionOption, settings_of
from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.cli.common.planning_options import PricesOption, read_problem, with_budget_flag
from boa_daemon.errors import BoaError, InputError, MissingPrice
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.jobs_file import parse_instant
from boa_daemon.units import HOURS_PER_DAY
from policies.model import Budget, Problem
from policies.money_text import in_dollars
from policies.optimum.frontier import MixedFrontier


def blocks(
    instance_type: Annotated[str, typer.Argument(metavar="TYPE", help="Instance type, such as p5.48xlarge.")],
    *,
    instances: Annotated[int, typer.Option(min=1, help="Instances in the block.")] = 1,
    hours: Annotated[
        int, typer.Option(min=1, help="Length of the block in hours; EC2 sells whole days.")
    ] = 24,
    begin: Annotated[str | None, typer.Option("--from", help="Earliest begin, a date or an instant.")] = None,
    end: Annotated[str | None, typer.Option("--until", help="Latest end, a date or an instant.")] = None,
    classes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Problem file: also show what its plan pays.")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Budget of that plan, such as 40/h.")] = None,
    bought: Annotated[
        str | None, typer.Option("--buy", metavar="ID", help="Buy this offering; needs --usd.")
    ] = None,
    usd: Annotated[float | None, typer.Option(min=0.01, help="Exact price of the offering to buy.")] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    region: RegionOption = None,
    prices: PricesOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """List EC2 Capacity Blocks and compare them with on-demand prices; with --buy buy one."""
    if (bought is None) != (usd is None):
        raise InputError("--buy ID and --usd PRICE go together", hint="`boa blocks` lists both")
    if hours % HOURS_PER_DAY:
        raise InputError(f"--hours {hours}: EC2 has blocks of whole days", hint="Such as 24, 48 or 168")
    since, until = _instant("--from", begin), _instant("--until", end)
    if since is not None and until is not None and until <= since:
        raise InputError(f"--until {end} is not after --from {begin}")
    catalog = Catalog.load(*(prices or ()))
    entry = catalog.entry(instance_type)
    settings = settings_of(config, region=region)
    calls = AwsCalls(settings)
    try:
        found = offerings(
            calls,
            instance_type,
            instances=instances,
            hours=hours,
            begin=since,
            end=until,
        )
        if bought is not None and usd is not None:
            chosen = next((one for one in found if one.id == bought), None)
            if chosen is None:
                hint = "Offerings expire: list them again with the same instances, hours and dates"
                raise InputError(f"{bought!r} is not offered now: nothing was bought", hint=hint)
            _bought(chosen, buy(calls, settings, chosen, usd=usd), output)
            return
    except CallFailed as error:
        if error.operation == "ec2:PurchaseCapacityBlock" and not 400 <= error.http_status < 500:
            said = "The block may have been bought: check the account's capacity reservations first"
            raise BoaError(f"{error}. {said}") from None
        raise
    held = None if classes is None else _held(classes, budget, prices, instance_type)
    rows = [_row(one, entry.usd_per_hour, held) for one in found]
    show(
        output,
        {"instance_type": instance_type, "region": settings.region, "offerings": rows},
        rows=lambda: rows,
        table=lambda: _print(rows, instance_type, settings.region),
    )


def _instant(flag: str, text: str | None) -> datetime | None:
    """Return the instant given to a flag.

    Raises:
        InputError: when the text is not a date.
    """
    try:
        return None if text is None else parse_instant(text, is_end=flag == "--until")
    except ValueError:
        raise InputError(f"{flag} {text!r} is no date", hint="Write 2026-12-01") from None


def _held(
    classes: Path, budget: str | None, prices: list[Path] | None, instance_type: str
) -> tuple[float, float]:
    """Return the mean number of instances of a type in the plan, and the price of one per hour.

    Raises:
        InputError: when the plan does not know the type, or its budget is not in dollars.
    """
    file, money = with_budget_flag(read_problem(classes, prices), budget)
    if money.unit != "usd_per_hour":
        raise MissingPrice("a block costs dollars, and this budget counts GPUs", file=file.path)
    kind = next((name for name, one in file.instance_types.items() if one.name == instance_type), None)
    if kind is None:
        raise InputError(f"the plan has no machine {instance_type!r}", file=file.path)
    machine = file.instance_types[kind]
    return _mean_gpus(file.problem, kind, money) / machine.gpus, machine.usd_per_hour


def _mean_gpus(problem: Problem, kind: str, money: Budget) -> float:
    found = MixedFrontier.of(problem).solution_at(money.amount)
    rates = {one.name: one.arrivals_per_hour for one in problem.classes}
    return sum(
        rates[answer.name] * plan.job_fraction * step.hours * step.gpus
        for answer in found.classes
        for plan in answer.plans
        for step in plan.steps
        if step.gpu_type == kind
    )


def _row(one: BlockOffering, on_demand: float | None, held: tuple[float, float] | None) -> dict[str, Any]:
    """Return a row: an offering with the price of the same hours on demand and in the plan.

    `break_even_use` is the fraction of the block's hours at which on demand would cost the same.
    """
    hours = one.usable_hours
    there = None if on_demand is None else on_demand * one.instances * hours
    row = one.document() | {
        "usd_per_instance_hour": one.usd / (one.instances * hours) if hours else None,
        "on_demand_usd": there,
        "break_even_use": None if not there else one.usd / there,
    }
    if held is not None:
        count, price = held
        row |= {"plan_instances": count, "plan_usd": min(count, one.instances) * price * hours}
    return row


def _bought(chosen: BlockOffering, reservation: str, form: OutputFormat) -> None:
    """Print what was bought, and the setting with which the daemon uses it."""
    row = {"reservation": reservation} | chosen.document()

    def printed() -> None:
        stdout_console().print(
            f"bought {chosen.instances} x {chosen.instance_type} for "
            f"{in_dollars(chosen.usd)}: {reservation}\n"
            f'Set [cloud] reservations = {{"{chosen.instance_type}" = "{reservation}"}}: the daemon then '
            "uses the block, from its begin to half an hour before its end",
            markup=False,
        )

    show(form, row, rows=lambda: [row], table=printed)


def _print(rows: list[dict[str, Any]], instance_type: str, region: str) -> None:
    console = stdout_console()
    if not rows:
        console.print(f"EC2 offers no block of {instance_type} in {region} for these days")
        return
    heads = ("usd", "usd/node-h", "on demand", "break-even")
    has_plan = "plan_usd" in rows[0]
    more = ("the plan",) if has_plan else ()
    table = a_table(
        f"Capacity Blocks of {instance_type}, {region}",
        *("id", "zone", "nodes", "begins", "ends", *heads, *more),
        right=("nodes", *heads, *more),
    )
    for row in rows:
        table.add_row(
            row["id"],
            row["zone"],
            str(row["instances"]),
            row["begins_at"][:16],
            row["ends_at"][:16],
            f"{row['usd']:,.2f}",
            _money(row["usd_per_instance_hour"]),
            _money(row["on_demand_usd"]),
            "" if row["break_even_use"] is None else f"{row['break_even_use']:.0%}",
            *((f"{row['plan_usd']:,.2f}",) if has_plan else ()),
        )
    console.print(table)
    console.print("Paid in advance, used or not. Nothing is bought without --buy ID --usd PRICE.")


def _money(usd: float | None) -> str:
    return "" if usd is None else f"{usd:,.2f}"
