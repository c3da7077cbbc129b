"""Run the cells of a comparison: each reference before its rivals, who are to spend what it spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from boa_daemon.comparing.cells import Cell, Comparison, Row
from boa_daemon.comparing.tasks import Tasks
from boa_daemon.comparing.tune import run_cell


def challenges(comparison: Comparison, cell: Cell, row: Row) -> list[Cell]:
    """Return the cells that follow one: of a reference its rivals, on what it spent."""
    if cell.target is not None:
        return []
    on_spend = replace(cell, target=row.mean_usd_per_hour)
    return [replace(on_spend, policy=rival) for rival in comparison.rivals]


def run_all(
    comparison: Comparison, tasks: Tasks, *, on_row: Callable[[Row], None] = lambda row: None
) -> list[Row]:
    """Return the rows of all cells, references first, in the order of the command."""
    rows: dict[Cell, Row] = {}
    references = comparison.references()
    for cell, row in tasks.each(
        lambda cell: run_cell(comparison, cell, tasks),
        references,
        then=lambda cell, row: challenges(comparison, cell, row),
    ):
        rows[cell] = row
        on_row(row)
    rivals = [rival for cell in references for rival in challenges(comparison, cell, rows[cell])]
    return [rows[cell] for cell in (*references, *rivals)]
