"""Measurements in CSV: ``machine,gpus,step_seconds``, and ``class_name`` for several classes.

A machine is a GPU type or an instance type. Rows for the same machine and width are averaged; their spread
is the fraction by which a job's hours may differ.
"""

from __future__ import annotations

import math
from pathlib import Path

from boa_daemon.csv_text import csv_reader
from boa_daemon.errors import InputError, column_hint
from boa_daemon.inputs.document_file import read_text
from boa_daemon.number_text import NotOneNumber, number_of

CLASS, MACHINE, GPUS = "class_name", "machine", "gpus"


def read_measurements(path: Path, value: str, class_name: str) -> tuple[dict[str, dict[str, float]], float]:
    """Return a class's means of a column by machine and width, and the largest relative deviation.

    Raises:
        InputError: naming file and line, when the file cannot be read or a row is not a measurement.
    """
    rows = csv_reader(read_text(path), strict=False)
    header = [cell.strip() for cell in next(rows, [])]
    known = (CLASS, MACHINE, GPUS, value)
    for name in header:
        if name not in known:
            raise InputError(f"unknown column {name!r}", file=path, line=1, hint=column_hint(name, known))
    for name in (MACHINE, GPUS, value):
        if header.count(name) != 1:
            hint = f"The first line names the columns: {MACHINE},{GPUS},{value}, and {CLASS} of several"
            raise InputError(f"column {name!r} must occur exactly once", file=path, line=1, hint=hint)
    found: dict[str, dict[str, list[float]]] = {}
    for cells in rows:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            problem = f"{len(cells)} cells where the header has {len(header)}"
            raise InputError(problem, file=path, line=rows.line_num, hint="Is the file whole?")
        row = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        if row.get(CLASS, class_name) != class_name:
            continue
        found.setdefault(row[MACHINE], {}).setdefault(row[GPUS], []).append(
            _number(value, row[value], path, rows.line_num)
        )
    if not found:
        raise InputError(f"no row is about class {class_name!r}", file=path, hint=f"Check {CLASS}")
    means = {
        machine: {gpus: sum(each) / len(each) for gpus, each in widths.items()}
        for machine, widths in found.items()
    }
    apart = max(
        max(abs(one / means[machine][gpus] - 1.0) for one in each)
        for machine, widths in found.items()
        for gpus, each in widths.items()
    )
    return means, apart


def _number(name: str, cell: str, path: Path, line: int) -> float:
    """Return a positive finite number."""
    number, reason, hint = math.nan, "", ""
    try:
        number = number_of(cell)
    except NotOneNumber as error:
        reason, hint = error.reason, error.hint
    if not (math.isfinite(number) and number > 0.0):
        problem = f"{name} must be a number, more than zero; got {cell!r}{reason}"
        raise InputError(problem, file=path, line=line, hint=hint)
    return number
