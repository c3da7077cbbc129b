"""Files of values over time: CSV with two columns, or a spot availability trace as published by SkyPilot.

    at_seconds,nodes      at_seconds,price_fraction      {"metadata": {"gap_seconds": 195}, "data": [0, 1]}

The JSON form gives the number of available instances at each tick. Seconds count from the first arrival of
the run. Before the first row the first value holds, after the last row the last one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Literal, TypeAlias

from boa_daemon.csv_text import csv_reader
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import read_document
from boa_daemon.number_text import number_of

Column: TypeAlias = Literal["nodes", "price_fraction"]
Steps: TypeAlias = tuple[tuple[float, float], ...]


def read_steps(path: Path, column: Column) -> Steps:
    """Return the steps (seconds, value) of a file; equal neighbours of a stock are merged.

    Raises:
        InputError: naming file and line, when it is not one of the two forms, is empty, not in order of time,
            or a value is out of range.
    """
    is_json = path.suffix == ".json"
    steps = _from_json(path) if is_json else _from_csv(path, column)
    for number, (_, value) in enumerate(steps):
        line = None if is_json else number + 2
        if column == "nodes" and (value < 0 or value != int(value)):
            raise InputError(f"nodes must be a whole number, 0 or more; got {value:g}", file=path, line=line)
        if column == "price_fraction" and not 0.0 < value <= 1.0:
            problem = f"price_fraction must be more than 0 and at most 1; got {value:g}"
            raise InputError(problem, file=path, line=line, hint="It is a share of the on-demand price")
    if column == "price_fraction":
        # A mean over time needs the time of the last row, whatever its value.
        return tuple(steps)
    return tuple(next(same) for _, same in groupby(steps, key=lambda step: step[1]))


def _from_csv(path: Path, column: Column) -> list[tuple[float, float]]:
    """Return the rows of a CSV file."""
    header = ["at_seconds", column]
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv_reader(file.read(), strict=False))
    except OSError as error:
        raise InputError(f"cannot read it: {error.strerror}", file=path) from error
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is not UTF-8 text", file=path) from error
    if len(rows) < 2 or rows[0] != header:
        raise InputError(
            "not a file of values over time", file=path, line=1, hint=f"It begins with {','.join(header)}"
        )
    steps: list[tuple[float, float]] = []
    for line, row in enumerate(rows[1:], start=2):
        try:
            at, value = (number_of(cell) for cell in row)
        except ValueError:
            raise InputError(f"two numbers expected; got {','.join(row)!r}", file=path, line=line) from None
        if not (math.isfinite(value) and 0.0 <= at < math.inf) or (steps and at <= steps[-1][0]):
            raise InputError(f"at_seconds must rise from 0; got {row[0]}", file=path, line=line)
        steps.append((at, value))
    return steps


def _from_json(path: Path) -> list[tuple[float, float]]:
    """Return the ticks of a spot availability trace."""
    content = read_document(path).content
    metadata = content.get("metadata") if isinstance(content, Mapping) else None
    gap = metadata.get("gap_seconds") if isinstance(metadata, Mapping) else None
    data = content.get("data") if isinstance(content, Mapping) else None
    if isinstance(content, Mapping) and "SpotPriceHistory" in content:
        problem = (
            "this is AWS's spot price history, in dollars: a world holds fractions of the price on demand"
        )
        hint = f"`boa prices import --from spot-history {path.name} --world world.yaml` makes a world of it"
        raise InputError(problem, file=path, hint=hint)
    gap = None if isinstance(gap, bool) else gap
    if not isinstance(gap, int | float) or gap <= 0 or not isinstance(data, list) or not data:
        raise InputError(
            "not a spot trace", file=path, hint='It holds {"metadata": {"gap_seconds": 195}, "data": [0, 1]}'
        )
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in data):
        raise InputError("data must be whole numbers: instances that can be had at each tick", file=path)
    return [(tick * float(gap), float(value)) for tick, value in enumerate(data)]
