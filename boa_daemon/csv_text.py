"""The rows of delimited text: a line ends with LF, CR LF or CR alone, and a cell may hold any other sign.

``str.splitlines`` also breaks at U+0085, U+2028, form feeds and vertical tabs, which are text of a cell.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Protocol


class Rows(Protocol):
    """The rows of a text; `line_num` is the line on which the last row ended."""

    line_num: int

    def __iter__(self) -> Iterator[list[str]]: ...

    def __next__(self) -> list[str]: ...


MAX_CELL_BYTES = 256 * 2**20
"""Longest cell, as large as the largest file: the reader's own limit of 131,072 refuses valid files."""


def delimiter_of(header: str) -> str:
    """Return the sign that ends a header's columns: a comma, semicolon, tab or bar, whichever it has most.

    Spreadsheets write semicolons where the comma is decimal.
    """
    return max(",;\t|", key=header.count)


def csv_reader(text: str, *, delimiter: str = ",", strict: bool = True, is_quoted: bool = True) -> Rows:
    """Return a reader of the rows of `text`, like `csv_rows`."""
    return csv_rows(io.StringIO(text, newline=""), delimiter=delimiter, strict=strict, is_quoted=is_quoted)


def csv_rows(
    lines: Iterable[str], *, delimiter: str = ",", strict: bool = True, is_quoted: bool = True
) -> Rows:
    """Return a reader of the rows of some lines; its `line_num` is the line on which the last row ended.

    A file is opened with ``newline=""``. With `is_quoted` false a quotation mark is a sign like others.
    """
    csv.field_size_limit(MAX_CELL_BYTES)
    if is_quoted:
        return csv.reader(lines, delimiter=delimiter, strict=strict)
    return csv.reader(lines, delimiter=delimiter, strict=strict, quoting=csv.QUOTE_NONE)
