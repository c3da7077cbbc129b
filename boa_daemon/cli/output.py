"""How answers leave: tables for people, one JSON document for programs, errors in one sentence."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, NoReturn, TypeAlias

import typer
from rich.console import Console
from rich.table import Table


class OutputFormat(StrEnum):
    """How to print an answer."""

    table = "table"
    json = "json"
    csv = "csv"


_JSON = "boa_daemon.cli.output.json"
"""Where a command line keeps that `--json` was given."""


def _keep_json(ctx: typer.Context, is_given: bool) -> None:
    """Keep whether `--json` was given; it is read first, wherever it stands."""
    ctx.meta[_JSON] = is_given


def _chosen(ctx: typer.Context, output: OutputFormat) -> OutputFormat:
    """Return the form that both flags ask for together."""
    return OutputFormat.json if ctx.meta.get(_JSON) else output


OutputOption: TypeAlias = Annotated[
    OutputFormat,
    typer.Option(
        "--output", "-o", help="Print a table, JSON or CSV.", case_sensitive=False, callback=_chosen
    ),
]
JsonFlag: TypeAlias = Annotated[
    bool,
    typer.Option("--json", help="Short for -o json.", is_eager=True, expose_value=False, callback=_keep_json),
]
"""Every verb with `OutputOption` has it (`cli/verbs.py`), and finds its answer in the value of that."""


def show(
    form: OutputFormat,
    document: Any,
    *,
    table: Callable[[], None],
    rows: Callable[[], Sequence[Mapping[str, object]]] | None = None,
) -> None:
    """Print an answer in the form asked for: its document, its rows as CSV, or what `table` prints.

    An answer without `rows` is no list; asked for as CSV it comes as people read it.
    """
    if form is OutputFormat.json:
        print_json(document)
    elif form is OutputFormat.csv and rows is not None:
        print_csv(rows())
    else:
        table()


_kept: list[Any] | None = None
"""What is printed goes there, where somebody wants it for a page."""


def printed_by(table: Callable[[], None]) -> list[Any]:
    """Return what a function prints for people, which is not printed."""
    global _kept  # noqa: PLW0603 - one command at a time
    found: list[Any] = []
    _kept = found
    try:
        table()
    finally:
        _kept = None
    return found


class _Patient(Console):
    """A console whose reader may go away: `boa ... | head` has done what it was asked."""

    def print(self, *objects: Any, **how: Any) -> None:
        """Print, or keep what would be printed (`printed_by`)."""
        if _kept is None:
            super().print(*objects, **how)
        else:
            _kept.extend(objects)

    def on_broken_pipe(self) -> None:
        """Leave with 0."""
        self.quiet = True
        _leave()


def _leave() -> NoReturn:
    """End with 0; what is still in the buffer goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(0)


def print_text(text: str) -> None:
    """Write text to standard output at once; a reader that has gone has had enough."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _leave()


def stdout_console() -> Console:
    """Return a console on standard output, without colour when that is not a terminal."""
    return _Patient(soft_wrap=False, highlight=False)


def stderr_console() -> Console:
    """Return a console on standard error, for progress and notes."""
    return Console(stderr=True, soft_wrap=True, highlight=False)


_printed: list[bool] = []
"""Whether a document was printed: there is one at most, also where something is wrong."""


def forget_printed() -> None:
    """Begin a command."""
    _printed.clear()


def was_printed() -> bool:
    """Whether a document was printed already: there is one at most."""
    return bool(_printed)


def print_json(document: Any) -> None:
    """Print one JSON document on one line; a float that JSON cannot say becomes null."""
    _printed.append(True)
    print_text(json.dumps(plain_document(document), allow_nan=False) + "\n")


def plain_document(value: Any) -> Any:
    """Return the value with floats that JSON lacks replaced by None, and tuples by lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain_document(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_document(item) for item in value]
    return value


def print_csv(rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows as CSV with a header; nothing for no rows."""
    if not rows:
        return
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    print_text(buffer.getvalue())


def a_table(title: str, *columns: str, right: Sequence[str] = ()) -> Table:
    """Return a table in the house's look; the columns named in `right` hold numbers."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold cyan",
        box=None,
        pad_edge=False,
    )
    for column in columns:
        # What is too long goes on in the next line: half an id is nobody's id.
        is_number = column in right
        table.add_column(column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    return table
