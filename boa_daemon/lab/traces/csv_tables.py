"""A strict reader of public CSV and Parquet files: every error names the file and the line."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from boa_daemon.csv_text import csv_rows, delimiter_of
from boa_daemon.errors import InputError
from boa_daemon.text_files import is_parquet, open_text, parquet_cells, parquet_columns, read_whole_text
from policies.fast_dataclasses import fast_init


@fast_init
@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of a table: cells by column, with the file and the line.

    A row that is no line, but an object of JSON, has `where` to name it in errors.
    """

    cells: dict[str, str]
    path: Path
    line: int
    where: str = ""

    def text(self, column: str) -> str:
        """Return the stripped text of the cell, which must not be empty."""
        cell = self.cells[column].strip()
        if not cell:
            raise self.refuse(f"{column} is empty")
        return cell

    def number(self, column: str, *, least: float = 0.0) -> float:
        """Return the finite number in the cell, at least `least`."""
        cell = self.cells[column]
        try:
            value = float(cell)
        except ValueError:
            raise self.refuse(f"{column} must be a number; got {cell!r}") from None
        if not math.isfinite(value) or value < least:
            raise self.refuse(f"{column} must be a finite number, {least:g} or more; got {cell!r}")
        return value

    def whole(self, column: str, *, least: int = 0) -> int:
        """Return the whole number in the cell, at least `least`; 8.0 counts as 8."""
        value = self.number(column, least=least)
        if value != int(value):
            raise self.refuse(f"{column} must be a whole number; got {self.cells[column]!r}")
        return int(value)

    def refuse(self, problem: str, hint: str = "") -> InputError:
        """Return the error for a problem in this line."""
        if self.where:
            return InputError(f"{self.where}: {problem}", file=self.path, hint=hint)
        return InputError(problem, file=self.path, line=self.line, hint=hint)


def header_of(path: Path) -> list[str]:
    """Return the column names of a CSV or Parquet file, or an empty list for an empty file.

    Raises:
        InputError: when it cannot be read or is not text.
    """
    if is_parquet(path):
        return parquet_columns(path)
    delimiter = _delimiter(path)
    with open_text(path) as file:
        return next(csv_rows(file, delimiter=delimiter, strict=False), [])


def _delimiter(path: Path) -> str:
    """Return the sign between the columns of a file, by its first line."""
    with open_text(path) as file:
        return delimiter_of(file.readline())


def read_text(path: Path) -> str:
    """Return the text of a file, unpacked if it is compressed.

    Raises:
        InputError: when it cannot be read or is not UTF-8.
    """
    return read_whole_text(path)


def read_rows(
    path: Path, required: Sequence[str], *, delimiter: str = "", hint: str = "", names: Sequence[str] = ()
) -> Iterator[TableRow]:
    """Yield the rows of a CSV or Parquet file that has at least the `required` columns, and at least one row.

    Without a `delimiter` it is a comma, a semicolon or a tab, whichever the first line has most, and cells
    may stand in quotation marks; a delimiter that is given has them for commas and semicolons alone.
    `hint` is for a row with too many or too few cells; blank lines are left out. `names` are the columns of
    a file without a header. The line of a row of
    Parquet is its number, from 1. The file is read as a stream: no more than a row is in memory.

    Raises:
        InputError: when it cannot be read, is empty, lacks a column or has a row with missing cells.
    """
    if is_parquet(path):
        yield from _parquet_rows(path, required)
        return
    with open_text(path) as file:
        yield from _csv_rows(file, path, required, delimiter=delimiter, hint=hint, names=names)


def _csv_rows(
    file: IO[str], path: Path, required: Sequence[str], *, delimiter: str, hint: str, names: Sequence[str]
) -> Iterator[TableRow]:
    # What was given is a program's: it writes a quotation mark between tabs or bars as it is.
    is_quoted = not delimiter or delimiter in ",;"
    lines = csv_rows(file, delimiter=delimiter or _delimiter(path), is_quoted=is_quoted)
    try:
        header = list(names) or [name.strip() for name in next(lines, [])]
        _check_header(header, required, path)
        count, width = 0, len(header)
        for cells in lines:
            if len(cells) != width:
                if not cells:
                    continue
                raise InputError(
                    f"{len(cells)} cells where the header has {width}",
                    file=path,
                    line=lines.line_num,
                    hint=hint or "The file may be cut short: fetch it again",
                )
            count += 1
            yield TableRow(dict(zip(header, cells, strict=False)), path, lines.line_num)
    except csv.Error as error:
        raise InputError(f"not CSV: {error}", file=path, line=lines.line_num) from error
    except UnicodeDecodeError as error:
        problem = f"byte 0x{error.object[error.start]:02x} is not UTF-8 text"
        raise InputError(problem, file=path, line=lines.line_num + 1, hint="Save it as UTF-8") from error
    if not count:
        raise InputError("no rows below the header", file=path)


def _check_header(header: Sequence[str], required: Sequence[str], path: Path) -> None:
    for name in header:
        if name and header.count(name) > 1:
            raise InputError(f"column {name!r} occurs twice", file=path, line=1)
    for name in required:
        if name not in header:
            raise InputError(
                f"column {name!r} is missing", file=path, line=1, hint=f"Needed: {', '.join(required)}"
            )


def _parquet_rows(path: Path, required: Sequence[str]) -> Iterator[TableRow]:
    """Yield the rows of a Parquet file with the text of each cell."""
    names = parquet_columns(path)
    _check_header(names, required, path)
    line = 0
    for line, cells in enumerate(parquet_cells(path), start=1):
        yield TableRow(dict(zip(names, cells, strict=True)), path, line)
    if not line:
        raise InputError("no rows", file=path)


def pick_file(source: Path, patterns: Sequence[str], chosen: str | None) -> Path:
    """Return the source file: `source` itself, the chosen file in it, or the only one that matches.

    Raises:
        InputError: when no file matches, or several do and none was chosen; the error lists them.
    """
    if chosen is not None:
        for candidate in (source / chosen, Path(chosen)):
            if candidate.is_file():
                return candidate
        raise InputError(
            f"--workload {chosen!r} is no file, neither in {source} nor here", hint=_listing(source, patterns)
        )
    if source.is_file():
        return source
    if not source.is_dir():
        raise InputError("no such file or directory", file=source)
    found = _matches(source, patterns)
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"no {' or '.join(patterns)} in this directory", file=source)
    raise InputError(f"{len(found)} workloads, and none picked", file=source, hint=_listing(source, patterns))


def _matches(source: Path, patterns: Sequence[str]) -> list[Path]:
    """Return the files of the first pattern with a match, sorted by name."""
    for pattern in patterns:
        found = sorted(path for path in source.glob(pattern) if path.is_file())
        if found:
            return found
    return []


def _listing(source: Path, patterns: Sequence[str]) -> str:
    """Return a hint with the possible values of --workload."""
    names = [str(path.relative_to(source)) for path in _matches(source, patterns)]
    return f"Pick one with --workload: {', '.join(names)}" if names else ""
