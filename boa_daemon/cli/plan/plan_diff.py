"""``boa plan --diff OLD.json``: list the changes since a saved plan, one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from boa_daemon.cli.common.output import OutputFormat, a_table, plain_document, show, stdout_console
from boa_daemon.cli.common.planning_options import cell
from boa_daemon.planning.plan_diff import SIGNS, PlanChange, differences, read_plan

DiffOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--diff", metavar="OLD.json", help="Show what changed since a plan saved with -o json."),
]
_COLOURS = {"new": "green", "gone": "red", "changed": "yellow"}


def show_difference(old: Mapping[str, Any], document: Mapping[str, Any], form: OutputFormat) -> None:
    """Print what changed between a saved answer and this one."""
    changes = differences(old, plain_document(document))
    show(
        form,
        {"changes": [change.document for change in changes]},
        rows=lambda: [change.document for change in changes],
        table=lambda: _print(changes),
    )


def saved_plan(path: Path | None) -> Mapping[str, Any] | None:
    """Return the saved plan; None without a path."""
    return None if path is None else read_plan(path)


def _print(changes: Sequence[PlanChange]) -> None:
    """Print a line for each change, and how many there are."""
    console = stdout_console()
    if not changes:
        console.print("Nothing changed.")
        return
    table = a_table("What changed", "", "what", "figure", "was", "is", right=("was", "is"))
    for change in changes:
        sign = f"[{_COLOURS[change.kind]}]{SIGNS[change.kind]}[/]"
        table.add_row(sign, cell(change.what), change.figure, _text(change.old), _text(change.new))
    console.print(table)
    counts = [f"{sum(one.kind == kind for one in changes)} {kind}" for kind in SIGNS]
    console.print(f"  {', '.join(counts)}.")


def _text(value: object) -> str:
    """Return a figure as text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.6g}" if isinstance(value, int | float) else cell(str(value))
