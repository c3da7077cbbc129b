"""Problems for programs: from a file, a mapping, or a table with one row per class and width."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from boa_daemon.csv_text import MAX_CELL_BYTES
from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.problem_file import ProblemFile, load_problem, parse_problem, with_budget
from boa_daemon.units import parse_budget
from policies.model import Budget

COLUMNS = ("class", "arrivals_per_hour", "size_gpu_hours", "gpu_type", "gpus", "speedup")
_ALSO = ("weight",)
_FACTS = ("arrivals_per_hour", "size_gpu_hours", "weight")
"""Columns that must be equal in all rows of a class."""


@dataclass(frozen=True)
class Problem:
    """Job classes, the GPU types that they may run on with prices, and optionally a budget."""

    file: ProblemFile

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Problem:
        """Return the problem in a YAML, JSON or TOML file.

        Raises:
            InputError: when the file holds no valid problem, with file and line.
        """
        return cls(load_problem(Path(path), require_rates=False))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Problem:
        """Return the problem that a mapping holds, with the keys of a problem file.

        Raises:
            InputError: when the mapping is not a valid problem, with the key.
        """
        whole = Document(name="the problem", content=dict(document), language="json")
        return cls(parse_problem(whole, require_rates=False))

    @classmethod
    def from_csv(cls, path: str | PathLike[str], *, prices: Mapping[str, float] | None = None) -> Problem:
        """Return the problem in a CSV file with the columns of `from_rows`.

        Raises:
            InputError: when the file cannot be read, or holds no valid problem.
        """
        try:
            csv.field_size_limit(MAX_CELL_BYTES)
            with Path(path).open(encoding="utf-8-sig", newline="") as file:
                rows = list(csv.DictReader(file))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"cannot be read: {error}", file=Path(path)) from None
        return cls.from_rows(rows, prices=prices, name=str(path))

    @classmethod
    def from_frame(cls, frame: Any, *, prices: Mapping[str, float] | None = None) -> Problem:
        """Return the problem in a pandas data frame with the columns of `from_rows`.

        Raises:
            InputError: when the frame holds no valid problem.
        """
        return cls.from_rows(frame.to_dict("records"), prices=prices, name="the data frame")

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Mapping[str, Any]],
        *,
        prices: Mapping[str, float] | None = None,
        name: str = "the rows",
    ) -> Problem:
        """Return the problem of rows, one per class, GPU type and width.

        Columns: `class`, `arrivals_per_hour`, `size_gpu_hours` (hours on one reference GPU), `gpu_type`,
        `gpus`, `speedup` (times as fast as one reference GPU), and optionally `weight`. `prices` are dollars
        per GPU-hour by GPU type; without them a budget counts GPUs, and only one type is allowed.

        Raises:
            InputError: when a column is missing or a class contradicts itself, with the row.
        """
        classes: dict[str, dict[str, Any]] = {}
        for number, row in enumerate(rows, start=2):
            _check_columns(row, name)
            one = {
                key: _number(row[key], key, name, number) for key in row if key not in ("class", "gpu_type")
            }
            label, kind = str(row["class"]), str(row["gpu_type"])
            facts = {key: one[key] for key in _FACTS if key in one}
            found = classes.setdefault(label, {"facts": facts, "tables": {}})
            if facts != found["facts"]:
                raise InputError(
                    f"class {label!r} has another rate, size or weight than in an earlier row",
                    file=name,
                    line=number,
                )
            table = found["tables"].setdefault(kind, {})
            gpus = _whole(one["gpus"], row["gpus"], name, number)
            if gpus in table:
                problem = f"class {label!r} has {gpus} x {kind} in an earlier row as well"
                raise InputError(problem, file=name, line=number)
            table[gpus] = one["speedup"]
        if not classes:
            raise InputError("there are no rows", file=name, hint=f"Its columns are {', '.join(COLUMNS)}")
        document: dict[str, Any] = {"classes": [_class(label, one, prices) for label, one in classes.items()]}
        if prices is not None:
            document["gpu_types"] = {kind: {"usd_per_gpu_hour": usd} for kind, usd in prices.items()}
        return cls.from_dict(document)

    def under(self, budget: str | float | None) -> tuple[ProblemFile, Budget]:
        """Return the problem and its budget: ``"40/h"``, ``"gpus:48"``, a number in its unit, or its own.

        Raises:
            InputError: when there is no budget, or it is not valid.
        """
        if budget is None:
            if self.file.budget is None:
                raise InputError("no budget", hint='Give one, such as "40/h" or "gpus:48"')
            return self.file, self.file.budget
        asked = (
            parse_budget(budget, name="the budget") if isinstance(budget, str) else _plain(budget, self.file)
        )
        return with_budget(self.file, asked), asked


def _plain(amount: float, file: ProblemFile) -> Budget:
    """Return a number as a budget in the problem's own unit."""
    try:
        return Budget(amount=float(amount), unit=file.problem.budget_unit)
    except ValueError as error:
        raise InputError(f"a budget is a positive number: {error}") from None


def _check_columns(row: Mapping[str, Any], name: str) -> None:
    """Refuse a row with a missing or unknown column."""
    lacks = [column for column in COLUMNS if row.get(column) in (None, "")]
    if lacks:
        raise InputError(f"column {lacks[0]!r} is missing", file=name, hint=f"Columns: {', '.join(COLUMNS)}")
    for column in row:
        if column not in (*COLUMNS, *_ALSO):
            hint = did_you_mean(str(column), (*COLUMNS, *_ALSO)) or f"Columns: {', '.join(COLUMNS)}"
            raise InputError(f"column {column!r} is not a column of a problem", file=name, hint=hint)


def _number(value: Any, key: str, name: str, line: int) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{key} is a number; got {value!r}", file=name, line=line) from None


def _whole(gpus: float, value: Any, name: str, line: int) -> int:
    """Return a width; infinity and not-a-number are none."""
    if not gpus.is_integer():
        raise InputError(f"gpus is a whole number; got {value!r}", file=name, line=line)
    return int(gpus)


def _class(label: str, one: Mapping[str, Any], prices: Mapping[str, float] | None) -> dict[str, Any]:
    """Return a class as an entry of a problem file."""
    tables = {kind: {"table": table} for kind, table in one["tables"].items()}
    if prices is None and len(tables) > 1:
        raise InputError(
            f"class {label!r} has several GPU types", hint="Give prices, dollars per GPU-hour by type"
        )
    speedup = tables if prices is not None else next(iter(tables.values()))
    facts = {key: value for key, value in one["facts"].items() if key != "size_gpu_hours"}
    phase = {"size_gpu_hours": one["facts"]["size_gpu_hours"], "speedup": speedup}
    return {"name": label, **facts, "phases": [phase]}
