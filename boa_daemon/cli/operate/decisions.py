"""``boa decisions`` lists the daemon's decisions; ``boa replay`` decides again from a record."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer
from rich.markup import escape

from boa_daemon.api.answers import DecisionKind
from boa_daemon.cli.common.completion import complete_jobs
from boa_daemon.cli.common.daemon_client import (
    ConfigOption,
    SocketOption,
    a_client,
    clock_time,
    say_next,
    usd,
)
from boa_daemon.cli.common.output import OutputFormat, OutputOption, print_json, stdout_console
from boa_daemon.errors import InputError, not_one_of
from boa_daemon.tick.facts.reasons import SENTENCES, text_of
from boa_daemon.units import counted

KINDS = [kind for kind in get_args(DecisionKind) if kind]


def _checked_kind(kind: str) -> str:
    """Return a kind of action or order, if there is such a one.

    Raises:
        InputError: when there is none.
    """
    if kind and kind not in KINDS:
        raise InputError(f"--kind {not_one_of(kind, KINDS)}")
    return kind


def _complete_kinds(incomplete: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(incomplete)]


def decisions(
    *,
    acting: Annotated[bool, typer.Option("--acting", help="Only decisions that did something.")] = False,
    limit: Annotated[int, typer.Option("--last", min=1, max=1000, help="Number of decisions to show.")] = 10,
    job: Annotated[str, typer.Option(help="Only those about this job.", autocompletion=complete_jobs)] = "",
    user: Annotated[str, typer.Option(help="Only those about jobs of this user.")] = "",
    node: Annotated[str, typer.Option(help="Only those about this node.")] = "",
    kind: Annotated[
        str,
        typer.Option(
            help=f"Only those with such an action or order: {', '.join(KINDS)}.",
            metavar="KIND",
            callback=_checked_kind,
            autocompletion=_complete_kinds,
        ),
    ] = "",
    record: Annotated[int | None, typer.Option(help="Print the record of this tick for boa replay.")] = None,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """List the daemon's decisions, each with its alternative and the cost of both."""
    with a_client(config, socket) as client:
        if record is not None:
            print_json(client.decision(record))
            return
        document = client.decisions(
            limit=limit, acting=acting, job=job, user=user, node=node, kind=cast(DecisionKind, kind)
        )
    if output is OutputFormat.json:
        print_json(document)
        return
    # Orders of people stand among the ticks that are listed, or alone where no tick is.
    ticks = list(reversed(document["decisions"]))
    since = ticks[0]["at"] if len(ticks) >= limit else float("-inf")
    orders = [order for order in reversed(document["orders"]) if order["at"] >= since]
    for kind_of, rows in groupby(sorted([*ticks, *orders], key=lambda row: row["at"]), key=_form):
        _PRINTERS[kind_of](list(rows))
    if not ticks and not orders:
        if any((job, user, node, kind)):
            said = "No decision is about that."
        else:
            said = "No tick has done anything yet." if acting else "No tick is done yet."
        stdout_console().print(said)
        return
    say_next("boa decisions --record TICK > decision.json", "boa replay decision.json")


def _form(row: dict[str, Any]) -> str:
    """Return the form of a row: an order, a tick that did something or held it back, or a quiet one."""
    if "what" in row:
        return "order"
    return "acting" if row["actions"] or row["held"] else "quiet"


def _print_orders(rows: list[dict[str, Any]]) -> None:
    """Print orders of people."""
    for row in rows:
        stdout_console().print(
            f"[bold]{row['what']}[/] by {escape(row['user'])} {clock_time(row['at'])}: {escape(row['said'])}"
        )


def _print_quiet(rows: list[dict[str, Any]]) -> None:
    """Print a run of ticks that changed nothing, in one line."""
    first, last = rows[0], rows[-1]
    ticks = f"tick {first['tick']}" if len(rows) == 1 else f"ticks {first['tick']} to {last['tick']}"
    stdout_console().print(
        f"[dim]{ticks} {clock_time(last['at'])}: nothing changed; {usd(last['usd_per_hour'])}/hour, "
        f"{counted(last['jobs'], 'job')}[/]"
    )


def _print_decisions(rows: Iterable[dict[str, Any]]) -> None:
    """Print ticks that took an action or held one back."""
    console = stdout_console()
    for row in rows:
        console.print(f"[bold]tick {row['tick']}[/] {clock_time(row['at'])}, {_options(row)}")
        for action in row["actions"]:
            console.print(f"  {action['kind']} {action['target']}: {action['reason']}", markup=False)
            if choice := action.get("choice"):
                console.print(f"    {_choice(choice)}", markup=False)
        more = sum(row.get("action_counts", {}).values()) - len(row["actions"])
        if more > 0:
            counts = ", ".join(f"{count} {kind}" for kind, count in row["action_counts"].items())
            console.print(f"  and {more} more ({counts} in all): --job, --user, --node or --kind names them")
        for held in row["held"]:
            console.print(f"  held back: {held['what']}: {text_of(held['code'], SENTENCES)}", markup=False)
        counts = row.get("held_counts", {})
        if (more := sum(counts.values()) - len(row["held"])) > 0:
            said = ", ".join(f"{count} {code}" for code, count in counts.items())
            console.print(f"  and {more} more held back ({said} in all): --job or --node names them")


_PRINTERS = {"order": _print_orders, "acting": _print_decisions, "quiet": _print_quiet}


def _options(row: dict[str, Any]) -> str:
    """Return the chosen option and its alternative."""
    chosen, other = row["chosen"], row["runner_up"]
    return (
        f"chose: {_option(chosen)}; alternative: {other['name']}, {_option(other)}{_weighed(chosen, other)}"
    )


def _option(one: dict[str, Any]) -> str:
    """Return an option: its GPUs, their cost, the work left, and the jobs without GPUs."""
    left_out = one["jobs_without_gpus"]
    wait = f", {counted(left_out, 'job')} wait{'s' if left_out == 1 else ''}" if left_out else ""
    left = f", {one['job_hours_left']:.2f} job-hours left to run" if one["gpus"] else ""
    return f"{counted(one['gpus'], 'GPU')} ({usd(one['usd_per_hour'])}/hour){left}{wait}"


def _weighed(chosen: dict[str, Any], other: dict[str, Any]) -> str:
    """Return both options' cost in money and waiting; empty where that was not computed."""
    cost, other_cost = chosen.get("usd_of_money_and_waiting"), other.get("usd_of_money_and_waiting")
    if cost is None or other_cost is None:
        return ""
    return f"; money and waiting: {usd(cost)} and {usd(other_cost)}"


def _choice(choice: dict[str, Any]) -> str:
    """Return an action's choice and its alternative, with their costs."""
    return (
        f"{choice['chosen']} at {_cost(choice['cost'], choice['unit'])}, "
        f"not {choice['runner_up']} at {_cost(choice['runner_up_cost'], choice['unit'])}"
    )


def _cost(amount: float, unit: str) -> str:
    """Return a cost as people write it: dollars with their sign, and what they are paid for."""
    money, _, per = unit.partition("/")
    return f"{amount:.4g} {unit}" if money != "USD" else f"{usd(amount)}{'/' if per else ''}{per}"


def replay(
    record: Annotated[Path, typer.Argument(help="A record of `boa decisions --record TICK`.")],
    output: OutputOption = OutputFormat.table,
) -> None:
    """Decide again from a decision's record, and check that the actions are the same."""
    from boa_daemon.daemon.service.replay import replay as decide_again  # noqa: PLC0415 - slow to import
    from boa_daemon.errors import DRIFT_FOUND  # noqa: PLC0415
    from boa_daemon.inputs.document_file import read_text  # noqa: PLC0415

    try:
        document = json.loads(read_text(record))
    except ValueError as error:
        raise InputError(f"not JSON: {error}", file=record) from None
    if not isinstance(document, dict):
        raise InputError("this is not the record of a decision", file=record)
    again = decide_again(document)
    answer = {
        "tick": again.tick,
        "is_same": again.is_same,
        "inputs_hash": again.inputs_hash,
        "outputs_hash": again.outputs_hash,
        "actions": [{"id": action.id, "reason": action.reason} for action in again.decision.actions],
    }
    if output is OutputFormat.json:
        print_json(answer)
    else:
        said = "the same" if again.is_same else "NOT the same"
        stdout_console().print(
            f"tick {again.tick}: {counted(len(again.decision.actions), 'action')}, {said} as recorded"
        )
        for action in again.decision.actions:
            stdout_console().print(f"  {action.id}: {action.reason}", markup=False)
    if not again.is_same:
        raise typer.Exit(DRIFT_FOUND)
