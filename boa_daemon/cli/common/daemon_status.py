"""``boa status``, ``instances``, ``cost``; and the daemon's part of ``boa plan --live`` and ``boa down``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from boa_daemon.cli.common.daemon_client import (
    ConfigOption,
    SocketOption,
    a_client,
    age,
    clock_time,
    say_as_of,
    say_next,
    usd,
)
from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, print_json, show, stdout_console
from boa_daemon.daemon.money.cost_groupings import grouping
from boa_daemon.errors import PARTLY_DONE, InputError
from boa_daemon.planning.promise_text import few_jobs, loss_text, second_limit_text, why_a_range
from boa_daemon.units import Per, counted, format_hours, per_of

WATCH_SECONDS = 2.0


def status(
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every two seconds.")] = False,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Show what is running, what it costs, and what is wrong."""
    with a_client(config, socket) as client:
        document = client.status()
        if output is OutputFormat.json:
            print_json(document)
            return
        if not watch:
            stdout_console().print(_status(document))
            say_next("boa jobs", "boa instances", "boa cost")
            return
        with Live(_status(document), console=stdout_console(), auto_refresh=False) as live:
            while True:
                time.sleep(WATCH_SECONDS)
                live.update(_status(client.status()), refresh=True)


def _status(document: Mapping[str, Any]) -> RenderableType:
    """Return the state of the daemon as a table."""
    table = a_table("BOA daemon", "", "")
    mood = f"[red]{escape(document['fault'])}[/]" if document["fault"] else "well"
    if document["is_observing"]:
        mood += ", observing only"
    if document["is_down"]:
        mood += ", [yellow]down: nothing is started until `boa down --resume`[/]"
    table.add_row("state", mood)
    if "tick" in document:
        asleep = document.get("stopped_nodes", 0)
        more = f", {asleep} stopped" if asleep else ""
        nodes = f"{document['nodes']} of {document['max_instances'] or 'any number'}"
        table.add_row("nodes", f"{nodes}, {document['gpus_used']} of {document['gpus']} GPUs in use{more}")
        table.add_row("jobs", f"{document['running']} running, {document['waiting']} waiting")
        budget = document["budget_usd_per_hour"]
        table.add_row("burn rate", f"{usd(document['usd_per_hour'])}/hour; budget {usd(budget)} on average")
        if document.get("pacing") is not None:
            table.add_row("pacing", _pacing(document["pacing"]))
            worth = document["pacing"].get("worth")
            per = per_of(f"1/{document['pacing'].get('per', 'hour')}")
            if worth is not None and (said := _worth(worth, per)):
                table.add_row("last dollars", said)
            if worth is not None and (limit := worth.get("second_limit")) is not None:
                table.add_row("limit", second_limit_text(limit, per=per))
        for window, figures in document["books"].items():
            cap = "" if figures["cap_usd"] is None else f" of {usd(figures['cap_usd'])}"
            forecast = f"; at this rate {usd(figures['forecast_usd'])} at its end"
            table.add_row(f"this {window}", f"{usd(figures['spent_usd'])}{cap}{forecast}")
        for purse in document.get("purses", ()):
            table.add_row(f"{purse['kind']} {escape(purse['name'])}", _purse(purse))
        for sentence in document["held"]:
            table.add_row("held back", escape(sentence))
        if document.get("ends", {}).get("jobs"):
            table.add_row("ends", _ends(document))
        for name, date in sorted(document.get("dates", {}).items(), key=lambda row: row[1]["probability"])[
            :5
        ]:
            due = f"{escape(name)} by {clock_time(date['at'])}"
            table.add_row("date", f"{due}, with a probability of {date['probability']:.1%}")
    if document.get("fact_ages_seconds"):
        table.add_row("cloud", _facts(document["fact_ages_seconds"]))
    if document.get("gate") is not None:
        table.add_row("gate", _gate(document["gate"]))
    elif document.get("why_no_gate"):
        table.add_row("gate", f"off: {escape(document['why_no_gate'])}; jobs send without asking")
    for note in document["notes"]:
        table.add_row("note", escape(note))
    for warning in document.get("setting_warnings", ()):
        table.add_row("settings", escape(warning))
    return Group(table, Text(f"as of {clock_time(document['as_of'])}", style="dim"))


def _purse(purse: Mapping[str, Any]) -> str:
    """Return the money of a team or user in one line."""
    reserved = f", {usd(purse['reserved_usd'])} reserved" if purse["reserved_usd"] >= 0.005 else ""
    when = "today" if purse["window"].startswith("day") else "this month"
    said = f"{usd(purse['spent_usd'])} of {usd(purse['cap_usd'])} {when}{reserved}"
    ahead = purse["forecast_usd"]
    return said if not purse["usd_per_hour"] else f"{said}; at this rate {usd(ahead)} at its end"


def _ends(document: Mapping[str, Any]) -> str:
    """Return when all present jobs are forecast to have ended, and what they cost until then."""
    ends, now = document["ends"], float(document["now"])
    latest = {key: format_hours(max(ends[key] - now, 0.0) / 3600.0) for key in ("at", "high")}
    return (
        f"{counted(ends['jobs'], 'job')} in {latest['at']} ({latest['high']} if jobs are long), "
        f"for {usd(ends['usd'])} more"
    )


def _pacing(document: dict[str, Any]) -> str:
    """Return the pacing window, the load correction, and what pacing costs in waiting."""
    window = f"{document['window_hours']:g} hours"
    if document["period"] is not None:
        window = f"calendar {document['period']}s"
    window += f" within {100.0 * document['tolerance']:g} %"
    said = f"by {window}; expected load: {document['load_correction']:.2f} times the stated one"
    if days := document["load_by_weekday"]:
        said += f", by weekday {' '.join(f'{day:.1f}' for day in days)} times its mean"
    if not (promised := document["promises"]):
        return said
    few = f" (few large jobs: {few_jobs(promised[0])})" if why_a_range(promised[:1]) else ""
    return f"{said}; pacing adds {loss_text(promised[0])} to the waiting{few}"


def _worth(worth: Mapping[str, Any], per: Per) -> str:
    """Return what the last dollars of the budget buy by the plan, and what of it buys nothing."""
    beyond, knee = worth["beyond_knee"], worth["knee"]["budget"]
    said = []
    if beyond["spend"] > 0.02 * knee:
        saved = format_hours(beyond["saved_mean_jct_hours"])
        said.append(f"the last {per.usd(beyond['spend'])} buy {saved} less waiting")
    if worth["not_spent"] > 0.005 * worth["largest_useful_spend"]:
        said.append(f"more than {per.usd(worth['largest_useful_spend'])} buys nothing")
    return "; ".join(said)


def _facts(ages: dict[str, float | None]) -> str:
    """Return the age of the oldest fact about the cloud, and the facts that are not known."""
    known = {name: seconds for name, seconds in ages.items() if seconds is not None}
    unknown = sorted(name for name, seconds in ages.items() if seconds is None)
    said = f"not known: {', '.join(unknown)}" if unknown else ""
    if known:
        oldest = max(known, key=lambda name: known[name])
        said = (
            f"oldest fact: {oldest}, {format_hours(known[oldest] / 3600.0)} old{'; ' + said if said else ''}"
        )
    return said


def _gate(document: dict[str, Any]) -> str:
    """Return the gate's state, and the jobs that span nodes but send without asking the gate."""
    ungated = document.get("ungated", [])
    alone = f"; without asking: {', '.join(ungated[:5])}{' …' if len(ungated) > 5 else ''}" if ungated else ""
    if not document["is_up"]:
        return f"[red]{escape(document['fault'] or 'starting')}[/]; jobs send without asking"
    if "nics" not in document:
        return f"{document['policy']}, busy"
    cards = f"{document['nics_ordered']} of {document['nics']} links ordered"
    return f"{document['policy']}, {cards}, {counted(document['jobs'], 'job')} asking{alone}"


def instances(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also list instances that ended today.")] = False,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """List the rented instances."""
    with a_client(config, socket) as client:
        document = client.instances(ended=everything)
    show(
        output,
        document,
        rows=lambda: [{**row, "jobs": " ".join(row["jobs"])} for row in document["instances"]],
        table=lambda: _print_instances(document),
    )


def _print_instances(document: Mapping[str, Any]) -> None:
    rows = document["instances"]
    if not rows:
        stdout_console().print("No instances.")
        say_as_of(document)
        return
    near = any(row["tiers"] for row in rows)
    columns = ("id", "type", *(("under",) if near else ()), "phase", "jobs", "age", "per hour", "cost")
    table = a_table("Instances", *columns, right=("per hour", "cost"), optional=("age", "jobs"))
    for row in rows:
        table.add_row(
            row["id"],
            row["instance_type"],
            *([row["tiers"][-1] if row["tiers"] else "-"] if near else []),
            row["phase"],
            " ".join(row["jobs"]) or "-",
            age(row["launched_at"], float(document["as_of"])),
            usd(row["usd_per_hour"]),
            usd(row["usd"]),
        )
    stdout_console().print(table)
    say_as_of(document)
    say_next("boa cost", "boa down")


def _checked_grouping(by: str) -> str:
    """Return what costs are grouped by, if it is known.

    Raises:
        InputError: when it is not.
    """
    try:
        return grouping(by)
    except ValueError as error:
        raise InputError(f"--by {error}") from None


def cost(
    *,
    by: Annotated[
        str,
        typer.Option(
            help="Group by job, class, user, team, market, region, machine, day or kind, or by a tag of the "
            "house.",
            metavar="job|class|user|team|market|region|machine|day|kind|tag:KEY",
            callback=_checked_grouping,
        ),
    ] = "job",
    days: Annotated[
        float | None, typer.Option(min=0.0, help="Costs of the last so many days. Default: this month.")
    ] = None,
    reconcile: Annotated[
        bool, typer.Option("--reconcile", help="Compare the ledger with Cost Explorer; exit code 6 on drift.")
    ] = False,
    tolerance: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="With --reconcile: fraction of a day's cost that may differ."),
    ] = 0.02,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Show costs by job, user, market, tag, day and more, and the forecast for this month."""
    if reconcile:
        from boa_daemon.cli.common.reconcile import reconcile as compare  # noqa: PLC0415 - AWS is slow to import

        compare(days=days, fraction=tolerance, config=config, socket=socket, form=output)
        return
    since = None if days is None else time.time() - days * 86_400.0
    with a_client(config, socket) as client:
        document: Mapping[str, Any] = client.cost(by=by, since=since)
    show(
        output,
        document,
        rows=lambda: [{name: row[name] for name in row if name != "kinds"} for row in document["rows"]],
        table=lambda: _print_cost(by, document),
    )


def _print_cost(by: str, document: Mapping[str, Any]) -> None:
    table = a_table(f"Cost by {by} since {clock_time(document['since'])}", by, "cost", right=("cost",))
    for row in document["rows"]:
        table.add_row(escape(row["name"]), usd(row["usd"]))
    table.add_row("in all", usd(document["usd"]))
    console = stdout_console()
    console.print(table)
    for window, figures in (document["books"] or {}).items():
        cap = "no cap" if figures["cap_usd"] is None else f"cap {usd(figures['cap_usd'])}"
        console.print(f"this {window}: at the present rate {usd(figures['forecast_usd'])} at its end; {cap}")
    say_as_of(document)


def show_live_plan(config: Path | None, socket: str | None, form: OutputFormat) -> None:
    """Print what the daemon would do at its next tick."""
    with a_client(config, socket) as client:
        document = client.plan()
    if form is OutputFormat.json:
        print_json(document)
        return
    console = stdout_console()
    for action in document["actions"]:
        console.print(f"{action['kind']} {action['target']}: {action['reason']}", markup=False)
    for sentence in document["held"]:
        console.print(f"held back: {sentence}", markup=False)
    if not document["actions"]:
        console.print("Nothing would change.")
    console.print(f"Nothing was started. {counted(len(document['waiting']), 'job')} would wait.")
    say_as_of(document)


def release_everything(
    *, resume: bool, wait_seconds: float, config: Path | None, socket: str | None, form: OutputFormat
) -> None:
    """Have the daemon release all instances, or resume work; exit with 4 if instances are left."""
    # The default boa.toml need not exist; a file named by --config must.
    named = None if config == Path("boa.toml") else config
    with a_client(named, socket) as client:
        answer = client.down(is_down=not resume)
        left = client.instances()["instances"]
        until = time.monotonic() + wait_seconds
        while left and not resume and time.monotonic() < until:
            time.sleep(0.5)
            left = client.instances()["instances"]
        spent = client.cost()["usd"]
    document = {**answer, "instances_left": len(left), "spent_usd_this_month": spent}
    if form is OutputFormat.json:
        print_json(document)
    elif resume:
        stdout_console().print("The daemon resumes work.")
    else:
        stdout_console().print(f"{counted(len(left), 'instance')} left; spent this month: {usd(spent)}")
        say_next("boa instances", "boa down --resume")
    if left and not resume:
        raise typer.Exit(PARTLY_DONE)
