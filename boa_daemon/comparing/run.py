"""Run the cells in parallel processes, keep what is done, and run nothing twice."""

from __future__ import annotations

import copyreg
import json
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from boa_daemon.comparing.cells import Cell, Comparison, Row
from boa_daemon.comparing.tune import run_cell
from boa_daemon.errors import InputError

FILE_NAME = "cells.jsonl"
_shared: list[Comparison] = []
"""The comparison of this worker process: sent once, not with every cell."""


def _proxy_of(plain: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """Return a mapping that cannot change; pickle has no way of its own to send one to a worker."""
    return MappingProxyType(plain)


copyreg.pickle(MappingProxyType, lambda proxy: (_proxy_of, (dict(proxy),)))


class Kept:
    """Rows in a folder, one JSON line each; without a folder, nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / FILE_NAME
        self._rows: dict[str, Row] = {}
        if folder is None or self.path is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
            if text and not text.endswith("\n"):
                # A run that was killed while it wrote: the torn line is run again.
                text = text[: text.rfind("\n") + 1]
                self.path.write_text(text, encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--out: cannot use this file: {error}", file=self.path) from error
        self._rows = dict(_read(line, self.path, number) for number, line in enumerate(text.splitlines(), 1))

    def find(self, key: str) -> Row | None:
        """Return the row of a key, if it is kept."""
        return self._rows.get(key)

    def add(self, key: str, row: Row) -> None:
        """Keep a row."""
        self._rows[key] = row
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "row": row.to_document()}) + "\n")


def _read(line: str, path: Path, number: int) -> tuple[str, Row]:
    """Return the key and the row of a line."""
    try:
        document = json.loads(line)
        values = document["row"]
        names = {field.name for field in fields(Row)}
        # A row of another version has another key as well, so what it lacks is never read.
        row = Row(**{name: values.get(name) for name in names})
        return str(document["key"]), row
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            "this line is no row of a comparison",
            file=path,
            line=number,
            hint="Name another folder with --out",
        ) from error


def run_all(
    comparison: Comparison, *, kept: Kept, processes: int, on_row: Callable[[Row], None]
) -> list[Row]:
    """Return the rows of all cells: references first, because rivals are to spend what they spent."""
    references = comparison.references()
    rows = _run(comparison, references, kept=kept, processes=processes, on_row=on_row)
    targets = {(row.budget, row.max_nodes, row.seed): row.mean_usd_per_hour for row in rows}
    challenges = comparison.challenges(targets)
    return rows + _run(comparison, challenges, kept=kept, processes=processes, on_row=on_row)


def _run(
    comparison: Comparison,
    cells: Sequence[Cell],
    *,
    kept: Kept,
    processes: int,
    on_row: Callable[[Row], None],
) -> list[Row]:
    """Return the rows of cells in order; those that are kept are not run."""
    keys = [comparison.key(cell) for cell in cells]
    found = {key: row for key in keys if (row := kept.find(key)) is not None}
    for row in found.values():
        on_row(row)
    missing = [(key, cell) for key, cell in zip(keys, cells, strict=True) if key not in found]
    for key, row in _rows(comparison, missing, processes):
        kept.add(key, row)
        found[key] = row
        on_row(row)
    return [found[key] for key in keys]


def _rows(
    comparison: Comparison, cells: Sequence[tuple[str, Cell]], processes: int
) -> Iterator[tuple[str, Row]]:
    """Yield each row as it is done."""
    workers = min(processes, len(cells))
    if workers <= 1:
        for key, cell in cells:
            yield key, run_cell(comparison, cell)
        return
    # Spawned, not forked: a progress bar may have threads. Leaving the block ends the workers.
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, initializer=_begin, initargs=(comparison,)) as pool:
        yield from pool.imap_unordered(_work, cells)


def _begin(comparison: Comparison) -> None:
    """Start a worker; Ctrl-C is for the parent, which ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _shared[:] = [comparison]


def _work(item: tuple[str, Cell]) -> tuple[str, Row]:
    """Run one cell in a worker."""
    key, cell = item
    return key, run_cell(_shared[0], cell)
