"""The one reader of tables: CSV with any common separator, packed or not, and Parquet, as a stream.

Rows come in batches, which give whole columns: a million rows take seconds, since most of the work on a cell
is done by functions of C. A cell that they do not take is read by itself, and an error names its line.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, islice
from operator import itemgetter
from pathlib import Path
from typing import IO, TypeVar

from boa_daemon.csv_text import csv_rows, delimiter_of
from boa_daemon.errors import InputError
from boa_daemon.number_text import NotOneNumber, number_of, number_readings
from boa_daemon.text_files import is_parquet, open_text, parquet_cells, parquet_columns
from boa_daemon.time_text import duration_seconds
from policies.fast_dataclasses import fast_init

Value = TypeVar("Value")

_BATCH = 8192
_MOST_TEXTS = 100_000
"""Most texts of a column whose values are kept."""
_CUT_SHORT = "The file may be cut short: fetch it again"
_NOT_WHOLE = "It was not written whole, as before a crash: fetch it again"
_LINE_END = re.compile(r"\r\n|\r|\n")
_JSON = re.compile(r"\s*(\{|\[\s*([\[{]|$))")
_SEPARATOR = re.compile(r"sep=(?P<mark>.)\s*", re.IGNORECASE)
"""The first line that Excel reads as the separator of a file."""
_RULE = re.compile(r"\s*:?[-=]{2,}:?\s*|\s*")
"""A cell of the line below the header of a table in Markdown."""
_TITLES = 10
"""Lines in which a header is looked for, to say where it is."""


def _is_infinite(cell: str) -> bool:
    """Return whether a cell is a number, and not finite."""
    try:
        return not math.isfinite(float(cell))
    except ValueError:
        return False


class BadCell(ValueError):
    """The problem of a cell, for `Rows.each`; `hint` says what to try."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.hint = hint


@fast_init
@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of a table: stripped cells by column, with the file and the line.

    A row that is no line, but an object of JSON, has `where` to name it in errors. `has_decimal_commas` is
    true where columns end at semicolons.
    """

    cells: Mapping[str, str]
    path: Path
    line: int
    where: str = ""
    has_decimal_commas: bool = False

    def text(self, column: str) -> str:
        """Return the text of the cell, which must not be empty."""
        cell = self.cells[column].strip()
        if not cell:
            raise self.refuse(f"{column} is empty")
        return cell

    def number(self, column: str, *, least: float = 0.0, most: float = math.inf) -> float:
        """Return the finite number in the cell, `least` to `most`."""
        cell = self.cells[column]
        try:
            value = number_of(cell, has_decimal_commas=self.has_decimal_commas)
        except NotOneNumber as error:
            if not _is_infinite(cell):
                problem = f"{column} must be a number; got {cell!r}{error.reason}"
                raise self.refuse(problem, hint=error.hint) from None
            value = math.inf
        if not least <= value <= most or value == math.inf:
            said = f"{least:g} or more" if most == math.inf else f"{least:g} to {most:g}"
            raise self.refuse(f"{column} must be a finite number, {said}; got {cell!r}")
        return value

    def whole(self, column: str, *, least: int = 0) -> int:
        """Return the whole number in the cell, at least `least`; 8.0 counts as 8."""
        value = self.number(column, least=least)
        if value != int(value):
            raise self.refuse(f"{column} must be a whole number; got {self.cells[column]!r}")
        return int(value)

    def duration(self, column: str) -> float:
        """Return the seconds in the cell: a number of them, or a run time such as 01:30:00, P1DT2H or 90m."""
        cell = self.cells[column]
        if not cell or number_readings(cell) or _is_infinite(cell):
            return self.number(column)
        try:
            return duration_seconds(cell)
        except ValueError as error:
            reason = "" if str(error) == "no run time" else f": {error}"
            problem = f"{column} must be seconds, or a run time such as 01:30:00 or 90m; got {cell!r}{reason}"
            raise self.refuse(problem) from None

    def refuse(self, problem: str, hint: str = "") -> InputError:
        """Return the error for a problem in this line."""
        if self.where:
            return InputError(f"{self.where}: {problem}", file=self.path, hint=hint)
        return InputError(problem, file=self.path, line=self.line, hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows that follow each other, as columns: `places` by name, and the `lines` of the rows.

    Rows that are no lines have a `noun`, by which errors name them: ``job 3``.
    """

    path: Path
    places: Mapping[str, int]
    rows: Sequence[Sequence[str]]
    lines: Sequence[int]
    has_decimal_commas: bool = False
    noun: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, index: int) -> TableRow:
        """Return one row."""
        cells = self.rows[index]
        named = {name: cells[place].strip() for name, place in self.places.items()}
        line = self.lines[index]
        where = f"{self.noun} {line}" if self.noun else ""
        return TableRow(named, self.path, line, where, self.has_decimal_commas)

    def where(self, keeps: Sequence[object]) -> Rows:
        """Return the rows for which `keeps` is true."""
        if all(keeps):
            return self
        kept = list(compress(self.rows, keeps))
        return replace(self, rows=kept, lines=list(compress(self.lines, keeps)))

    def cells(self, column: str) -> list[str]:
        """Return the stripped cells of a column."""
        return list(map(str.strip, map(itemgetter(self.places[column]), self.rows)))

    def texts(self, column: str) -> list[str]:
        """Return the cells of a column, none of which may be empty."""
        found = self.cells(column)
        if not all(found):
            self.row(next(i for i, cell in enumerate(found) if not cell)).text(column)
        return found

    def durations(self, column: str, *, empty: float | None = None) -> list[float]:
        """Return the run times of a column in seconds; `empty` is that of empty cells, if allowed."""
        return self.numbers(column, empty=empty, read=TableRow.duration)

    def numbers(
        self,
        column: str,
        *,
        empty: float | None = None,
        read: Callable[[TableRow, str], float] = TableRow.number,
    ) -> list[float]:
        """Return the finite numbers of a column, 0 or more; `empty` is that of empty cells, if allowed.

        `read` is asked for each cell of a column that has one which is not a plain number.
        """
        found = self.cells(column)
        if not self.has_decimal_commas:
            try:
                values = list(map(float, found))
            except ValueError:
                pass
            else:
                # A sum is finite only if each of its terms is.
                if min(values, default=0.0) >= 0.0 and sum(values) < math.inf:
                    return values
        return [
            empty if empty is not None and not cell else read(self.row(i), column)
            for i, cell in enumerate(found)
        ]

    def wholes(self, column: str, *, empty: int | None = None) -> list[int]:
        """Return the whole numbers of a column, 0 or more."""
        values = self.numbers(column, empty=empty)
        found = list(map(int, values))
        if found != values:
            self.row(next(i for i, value in enumerate(values) if value != int(value))).whole(column)
        return found

    def each(self, column: str, value_of: Callable[[str], Value], memo: dict[str, Value]) -> list[Value]:
        """Return the value of each cell of a column; `memo` keeps those of texts that repeat.

        `value_of` raises `ValueError` with the problem of a cell, perhaps with a `hint`.
        """
        found = self.cells(column)
        if len(memo) > _MOST_TEXTS:
            memo.clear()
        for text in set(found) - memo.keys():
            try:
                memo[text] = value_of(text)
            except ValueError:
                break
        else:
            return list(map(memo.__getitem__, found))
        # The first line with a fault is named.
        for index, text in enumerate(found):
            try:
                value_of(text)
            except ValueError as error:
                raise self.row(index).refuse(str(error), hint=getattr(error, "hint", "")) from None
        raise AssertionError(f"the values of {column} change")


def delimiter_in(path: Path) -> str:
    """Return the sign between the columns of a CSV file; empty for Parquet."""
    return "" if is_parquet(path) else _begin(path)[1]


def header_of(path: Path) -> list[str]:
    """Return the column names of a CSV or Parquet file, or an empty list for an empty file.

    Raises:
        InputError: when it cannot be read or is not text.
    """
    if is_parquet(path):
        return parquet_columns(path)
    skipped, delimiter = _begin(path)
    with open_text(path) as file:
        _skip(file, skipped)
        header = next(csv_rows(file, delimiter=delimiter, strict=False, is_quoted=delimiter in ",;\t"), [])
    return [name.strip() for name in header]


def read_rows(
    path: Path,
    required: Sequence[str],
    *,
    delimiter: str = "",
    hint: str = "",
    header_hint: str = "",
    names: Sequence[str] = (),
    column_of: Callable[[str], str] = str,
) -> Iterator[TableRow]:
    """Yield the rows of a table, one by one; arguments and errors are those of `read_batches`."""
    for batch in read_batches(
        path,
        required,
        delimiter=delimiter,
        hint=hint,
        header_hint=header_hint,
        names=names,
        column_of=column_of,
    ):
        for index in range(len(batch)):
            yield batch.row(index)


def read_batches(
    path: Path,
    required: Sequence[str],
    *,
    delimiter: str = "",
    hint: str = "",
    header_hint: str = "",
    names: Sequence[str] = (),
    column_of: Callable[[str], str] = str,
) -> Iterator[Rows]:
    """Yield the rows of a CSV or Parquet file that has at least the `required` columns, and at least one row.

    Without a `delimiter` it is a comma, a semicolon, a tab or a bar, whichever the first line has most, and
    cells may stand in quotation marks; a delimiter that is given has them for commas and semicolons alone.
    Above the header may stand blank lines, lines that begin with ``#``, and Excel's ``sep=;``. Blank rows are
    left out. `hint` is for a row with too many or too few cells, `header_hint` for a column that is missing.
    `names` are the columns of a file without a header; `column_of` gives a column another name. The line of a
    row of Parquet is its number, from 1. No more than a batch is in memory.

    Raises:
        InputError: when it cannot be read, is empty, lacks a column or has one twice, or a row lacks cells.
    """
    if is_parquet(path):
        yield from _parquet_batches(path, required, header_hint, column_of)
        return
    skipped, own = _begin(path)
    with open_text(path) as file:
        _skip(file, skipped)
        reader = _Reader(file, path, delimiter or own, is_given=bool(delimiter), skipped=skipped)
        yield from reader.batches(required, names, hint, header_hint, column_of)


def _begin(path: Path) -> tuple[int, str]:
    """Return the number of lines above the header of a text, and the sign between its columns."""
    skipped, stated = 0, ""
    with open_text(path) as file:
        for line in file:
            separator = _SEPARATOR.fullmatch(line.strip("\r\n"))
            if separator is not None:
                stated = separator["mark"]
            elif line.strip() and not line.lstrip().startswith("#"):
                if _JSON.match(line):
                    hint = "Write it as CSV: pandas.read_json(FILE).to_csv(OUT, index=False)"
                    raise InputError("this is JSON, not a table", file=path, hint=hint)
                return skipped, stated or delimiter_of(line)
            skipped += 1
    return 0, stated or ","


def _skip(file: IO[str], lines: int) -> None:
    for _ in range(lines):
        file.readline()


class _Reader:
    """The batches of an open CSV file."""

    def __init__(self, file: IO[str], path: Path, delimiter: str, *, is_given: bool, skipped: int) -> None:
        # What was given is a program's: it writes a quotation mark between tabs or bars as it is.
        is_quoted = delimiter in ",;" or (delimiter == "\t" and not is_given)
        self._lines = csv_rows(self._whole_lines(file), delimiter=delimiter, is_quoted=is_quoted)
        self._path, self._skipped = path, skipped
        self._has_decimal_commas = delimiter == ";"
        self._is_ruled = delimiter == "|" and not is_given

    def _whole_lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines of the file; in a cell a zero byte would become a part of a name.

        Raises:
            InputError: for a line with a zero byte.
        """
        for line in lines:
            if "\0" in line:
                raise InputError(
                    "zero bytes in its text", file=self._path, line=self._line + 1, hint=_NOT_WHOLE
                )
            yield line

    @property
    def _line(self) -> int:
        return self._lines.line_num + self._skipped

    def batches(
        self,
        required: Sequence[str],
        names: Sequence[str],
        hint: str,
        header_hint: str,
        column_of: Callable[[str], str],
    ) -> Iterator[Rows]:
        """Yield the rows below the header."""
        count = 0
        try:
            raw = [] if names else next(self._lines, [])
            header = list(names) or _as_required([column_of(name.strip()) for name in raw], required)
            self._check(header, required, header_hint)
            places = {name: place for place, name in enumerate(header) if name}
            is_open = True
            while is_open:
                begin, rows = self._line, list[list[str]]()
                fault: Exception | None = None
                try:
                    # What came before a fault is kept: its own errors are of earlier lines.
                    rows.extend(islice(self._lines, _BATCH))
                except (csv.Error, UnicodeDecodeError, InputError) as error:
                    fault = error
                is_open = len(rows) == _BATCH and fault is None
                kept, lines = self._whole(rows, begin, len(header), hint, raw)
                count += len(kept)
                if kept:
                    yield Rows(
                        path=self._path,
                        places=places,
                        rows=kept,
                        lines=lines,
                        has_decimal_commas=self._has_decimal_commas,
                    )
                if fault is not None:
                    raise fault
        except csv.Error as error:
            problem = f"not CSV: {error}"
            raise InputError(problem, file=self._path, line=self._line, hint=_CUT_SHORT) from error
        except UnicodeDecodeError as error:
            problem = f"byte 0x{error.object[error.start]:02x} is not UTF-8 text"
            raise InputError(
                problem, file=self._path, line=self._line + 1, hint="Save it as UTF-8"
            ) from error
        if not count:
            raise InputError("no rows below the header", file=self._path)

    def _check(self, header: Sequence[str], required: Sequence[str], hint: str) -> None:
        try:
            _check_header(header, required, self._path, hint)
        except InputError as error:
            for cells in islice(self._lines, _TITLES):
                if required and set(required) <= {cell.strip() for cell in cells}:
                    error.hint = f"Line {self._line} looks like the header: remove the lines above it"
                    raise InputError(error.problem, file=self._path, line=1, hint=error.hint) from None
            raise

    def _whole(
        self, rows: list[list[str]], begin: int, width: int, hint: str, header: list[str]
    ) -> tuple[list[list[str]], Sequence[int]]:
        """Return the rows that are data, with their lines; refuse rows with other numbers of cells.

        Blank rows, comments, and the header of a further file that was put behind the first are none.
        """
        end = begin + len(rows)
        is_plain = self._line == end and header not in rows
        if width and is_plain and set(map(len, rows)) == {width} and all(map(itemgetter(0), rows)):
            return rows, range(begin + 1, end + 1)
        kept: list[list[str]] = []
        lines: list[int] = []
        line = begin
        for cells in rows:
            line += 1 + sum(len(_LINE_END.findall(cell)) for cell in cells)
            if not any(map(str.strip, cells)) or (self._is_ruled and all(map(_RULE.fullmatch, cells))):
                continue
            if header and cells == header:
                continue
            if len(cells) != width:
                if cells[0].lstrip().startswith("#"):
                    continue
                problem = f"{len(cells)} cells where the header has {width}"
                # A hint is about signs within cells, which make more of them.
                hint = hint if len(cells) > width else ""
                if width == 1 < len(cells) and not kept and line <= _TITLES:
                    hint = f"Line {line} looks like the header: remove the lines above it"
                raise InputError(problem, file=self._path, line=line, hint=hint or _CUT_SHORT)
            kept.append(cells)
            lines.append(line)
        return kept, lines


def _as_required(header: list[str], required: Sequence[str]) -> list[str]:
    """Return the header with the names that a reader requires where theirs differ in large letters alone."""
    lacks = {name.lower(): name for name in required if name not in header}
    folded = [name.lower() for name in header]
    return [
        lacks[low] if low in lacks and folded.count(low) == 1 else name
        for name, low in zip(header, folded, strict=True)
    ]


def _check_header(header: Sequence[str], required: Sequence[str], path: Path, hint: str = "") -> None:
    for name in dict.fromkeys(header):
        if name and header.count(name) > 1:
            raise InputError(f"column {name!r} occurs twice", file=path, line=1)
    for name in required:
        if name not in header:
            raise InputError(
                f"column {name!r} is missing",
                file=path,
                line=1,
                hint=hint or f"Needed: {', '.join(required)}",
            )


def _parquet_batches(
    path: Path, required: Sequence[str], header_hint: str, column_of: Callable[[str], str]
) -> Iterator[Rows]:
    """Yield the rows of a Parquet file with the text of each cell."""
    header = [column_of(name) for name in parquet_columns(path)]
    _check_header(header, required, path, header_hint)
    places = {name: place for place, name in enumerate(header)}
    cells, line = parquet_cells(path), 1
    while rows := list(islice(cells, _BATCH)):
        for index, row in enumerate(rows):
            if any("\0" in cell for cell in row):
                raise InputError("zero bytes in a cell", file=path, line=line + index, hint=_NOT_WHOLE)
        yield Rows(path=path, places=places, rows=rows, lines=range(line, line + len(rows)))
        line += len(rows)
    if line == 1:
        raise InputError("no rows", file=path)
