"""Output of answers: tables for people, one JSON document or CSV for programs."""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, NoReturn, TextIO, TypeAlias

import typer
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from boa_daemon.inputs.plain_text import plain_text

_WIDEST = 10_000
"""Columns of a terminal on which every table fits."""


class OutputFormat(StrEnum):
    """Output formats."""

    table = "table"
    json = "json"
    csv = "csv"


_JSON = "boa_daemon.cli.common.output.json"
"""Key under which the context stores whether `--json` was given."""


def _keep_json(ctx: typer.Context, is_given: bool) -> None:
    """Store whether `--json` was given; eager options are read first, wherever they stand."""
    ctx.meta[_JSON] = is_given


def _chosen(ctx: typer.Context, output: OutputFormat) -> OutputFormat:
    """Return the format asked for by --json and --output together."""
    return OutputFormat.json if ctx.meta.get(_JSON) else output


OutputOption: TypeAlias = Annotated[
    OutputFormat,
    typer.Option(
        "--output",
        "-o",
        help="Format of the answer: table, JSON or CSV.",
        case_sensitive=False,
        callback=_chosen,
    ),
]
JsonFlag: TypeAlias = Annotated[
    bool,
    typer.Option("--json", help="Same as -o json.", is_eager=True, expose_value=False, callback=_keep_json),
]
"""`cli/verbs.py` adds it to every verb with `OutputOption`, whose value then is `json`."""


def show(
    form: OutputFormat,
    document: Any,
    *,
    table: Callable[[], None],
    rows: Callable[[], Sequence[Mapping[str, object]]] | None = None,
) -> None:
    """Print an answer in the given format: its document as JSON, its rows as CSV, or what `table` prints.

    An answer without `rows` is printed by `table` also when CSV is asked for.
    """
    if form is OutputFormat.json:
        print_json(document)
    elif form is OutputFormat.csv and rows is not None:
        print_csv(rows())
    else:
        table()


_kept: list[Any] | None = None
"""While not None, consoles append here instead of printing (see `printed_by`)."""


def printed_by(table: Callable[[], None]) -> list[Any]:
    """Return what a function would print on the console, without printing it."""
    global _kept  # noqa: PLW0603 - one command at a time
    found: list[Any] = []
    _kept = found
    try:
        table()
    finally:
        _kept = None
    return found


class _Safe(Console):
    """A console that prints what jobs and clouds said without control characters; its own signs stay."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments of something that is printed, with plain text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain_text(segment.text))


class _Patient(_Safe):
    """A console that exits with 0 when its reader closes the pipe, as in `boa ... | head`."""

    def print(self, *objects: Any, **how: Any) -> None:
        """Print, or collect what would be printed for `printed_by`."""
        if _kept is None:
            super().print(*objects, **how)
        else:
            _kept.extend(objects)

    def on_broken_pipe(self) -> None:
        """Exit with 0."""
        self.quiet = True
        _leave()


def exit_quietly_without_readers() -> None:
    """Have every console exit with 0 when its reader closes the pipe: also typer's, which prints help."""
    Console.on_broken_pipe = _Patient.on_broken_pipe  # type: ignore[method-assign, assignment]


def _leave() -> NoReturn:
    """Exit with 0, and discard what is still in the buffer."""
    discard_output()
    raise SystemExit(0)


def discard_output() -> None:
    """Discard what standard output still holds, so that the end of the program does not fail at it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_text(text: str, *, is_raw: bool = False) -> None:
    """Write text to standard output and flush it; exit with 0 if the reader has closed the pipe.

    A terminal gets `plain_text`, unless it is to be `is_raw`; a pipe or a file gets the text as it is.
    """
    try:
        sys.stdout.write(plain_text(text) if not is_raw and sys.stdout.isatty() else text)
        sys.stdout.flush()
    except BrokenPipeError:
        _leave()


def stdout_console() -> Console:
    """Return a console on standard output, without colour when that is not a terminal.

    No text is an emoji code: `:a:` is part of an ARN or of a tag.
    """
    return _Patient(soft_wrap=False, highlight=False, emoji=False)


def stderr_console() -> Console:
    """Return a console on standard error, for progress and notes."""
    return _Safe(stderr=True, soft_wrap=True, highlight=False, emoji=False)


class OutputFailed(Exception):
    """Standard output cannot be written, as on a full disk. A pipe without a reader is no failure."""


@contextmanager
def streams_that_may_fail() -> Iterator[None]:
    """Raise `OutputFailed` where standard output cannot be written; forget what standard error does not take.

    No other fault is taken for a failed output, and no command ends because a note could not be printed.
    """
    before: tuple[Any, Any] = sys.stdout, sys.stderr
    out, errors = before
    sys.stdout = None if out is None else _Stream(out, _told_apart)
    sys.stderr = None if errors is None else _Stream(errors, lambda: suppress(OSError))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Stream:
    """A stream that stands for another one; `failing` is what happens where that one cannot be written."""

    def __init__(self, stream: TextIO, failing: Callable[[], AbstractContextManager[None]]) -> None:
        self._stream, self._failing = stream, failing

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the stream, such as `isatty`."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text."""
        with self._failing():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what was written."""
        with self._failing():
            self._stream.flush()


@contextmanager
def _told_apart() -> Iterator[None]:
    """Raise `OutputFailed` where a stream cannot be written, and nothing else where nobody reads it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as fault:
        raise OutputFailed(os.strerror(fault.errno) if fault.errno else str(fault)) from fault


_printed: list[bool] = []
"""Not empty once a JSON document was printed: a command prints at most one, also on errors."""


def forget_printed() -> None:
    """Reset `was_printed` at the start of a command."""
    _printed.clear()


def was_printed() -> bool:
    """Return whether this command has printed its JSON document."""
    return bool(_printed)


def print_json(document: Any) -> None:
    """Print one JSON document on one line; NaN and infinite floats become null."""
    _printed.append(True)
    print_text(json.dumps(plain_document(document), allow_nan=False) + "\n")


def plain_document(value: Any) -> Any:
    """Return the value with NaN and infinite floats replaced by None, and tuples by lists."""
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


_NARROW = 60
"""Columns of a terminal below which a table that does not fit is printed row by row."""

_READABLE = 8
"""Characters of a column below which its folded cells cannot be read."""

_SENTENCE = 16
"""Characters that a column of sentences has at least."""

_NEAREST: Mapping[str, str] = MappingProxyType(
    {
        **{"×": "x", "−": "-", "–": "-", "—": "-", "±": "+-", "…": "...", "µ": "u", "→": "->", "∞": "inf"},
        **{"≤": "<=", "≥": ">=", "·": ".", "’": "'", "“": '"', "”": '"'},
        **{"█": "#", "│": "|", "─": "-", "├": "|", "└": "`"},
    }
)
"""ASCII for the signs of our own sentences."""


def _nearest(error: UnicodeError) -> tuple[str, int]:
    """Return what is written for signs that an encoding lacks: the nearest ones, else question marks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_NEAREST.get(sign, "?") for sign in lacking), error.end


NEAREST = "boa.nearest"
"""Name of the error handler of streams: a minus that becomes a question mark changes what is said."""
codecs.register_error(NEAREST, _nearest)


class FittingTable(Table):
    """A table that leaves out columns where it would be wider than the terminal, and says which.

    `optional` are the columns that may go, the first one first. Folded cells and broken numbers are worse
    than a missing column; JSON and CSV have all. `prose` are the columns with sentences.
    """

    optional: Sequence[str] = ()
    prose: Sequence[str] = ("",)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of the table with the columns that fit."""
        whole = list(self.columns)
        names = [str(column.header) for column in whole]
        left_out: list[str] = []
        while self._natural_width(console, options) > options.max_width and len(left_out) < len(
            self.optional
        ):
            left_out.append(self.optional[len(left_out)])
            kept = [one for name, one in zip(names, whole, strict=True) if name not in left_out]
            # A column knows its own place, by which its padding is chosen.
            self.columns = [replace(one, _index=at) for at, one in enumerate(kept)]
        is_folded = self._natural_width(console, options) > options.max_width
        if is_folded and (options.max_width < _NARROW or self._has_a_crushed_column(console, options)):
            self.columns = whole
            yield from self._blocks(console)
            return
        self.columns = [self._in_room(one, console, options) for one in self.columns]
        try:
            yield from super().__rich_console__(console, options)
        finally:
            self.columns = whole
        if left_out:
            yield Text(f"left out on this width: {', '.join(left_out)}", style="dim")

    def _in_room(self, column: Column, console: Console, options: ConsoleOptions) -> Column:
        """Return a column of sentences as wide as the others leave it: names are folded after sentences."""
        if not column.min_width:
            return column
        room = options.max_width - self._natural_width(console, options)
        return replace(column, max_width=column.min_width + max(room, 0))

    def _blocks(self, console: Console) -> Iterator[Text]:
        """Yield each row as lines of a heading and a value: columns of one letter cannot be read."""
        if self.title:
            yield Text.assemble(self.title)
        names = [str(column.header) for column in self.columns]
        for row in zip(*(column.cells for column in self.columns), strict=True):
            for name, cell in zip(names, row, strict=True):
                value = console.render_str(cell) if isinstance(cell, str) else cell
                if isinstance(value, Text) and value.plain.strip():
                    yield Text.assemble((f"{name}: " if name else "", "bold"), value)
            yield Text()

    def _has_a_crushed_column(self, console: Console, options: ConsoleOptions) -> bool:
        """Return whether a number would be cut, or a name folded to nothing, as beside a long GPU type."""
        wide = options.update(width=_WIDEST, max_width=_WIDEST)
        widths = self._calculate_column_widths(console, options.update_width(options.max_width))
        wished = (self._measure_column(console, wide, one).maximum for one in self.columns)
        return any(
            width < (whole if column.no_wrap else min(whole, _READABLE))
            for width, whole, column in zip(widths, wished, self.columns, strict=True)
        )

    def _natural_width(self, console: Console, options: ConsoleOptions) -> int:
        """Return the width at which no cell is folded; prose may be."""
        wide = options.update(width=_WIDEST, max_width=_WIDEST)
        whole = self.__rich_measure__(console, wide).maximum
        columns = (one for one in self.columns if str(one.header) in self.prose)
        prose = (self._measure_column(console, wide, one) for one in columns)
        return whole - sum(one.maximum - one.minimum for one in prose)


def a_table(
    title: str,
    *columns: str,
    right: Sequence[str] = (),
    optional: Sequence[str] = (),
    prose: Sequence[str] = (),
) -> Table:
    """Return a table in the common style; the columns named in `right` hold numbers.

    Title and columns are plain text; cells are markup. Columns in `optional` are left out, the first one
    first, where the table is wider than the terminal. Columns in `prose`, and those without a name, hold
    sentences, which may take several lines.
    """
    table = FittingTable(
        title=Text(title, style="bold"),
        title_justify="left",
        header_style="bold cyan",
        box=None,
        pad_edge=False,
    )
    table.optional = tuple(name for name in optional if name in columns)
    table.prose = ("", *prose)
    for column in columns:
        # Fold long cells instead of cutting them: a cut id is useless.
        is_number = column in right
        table.add_column(
            Text(column),
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
            min_width=_SENTENCE if column in prose else None,
        )
    return table
