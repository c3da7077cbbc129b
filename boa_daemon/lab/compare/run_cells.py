"""Run the cells of a comparison: first each reference, then its rivals at the reference's spend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from boa_daemon.lab.compare.cells import Cell, CellResult, Comparison
from boa_daemon.lab.compare.tune import run_cell
from boa_daemon.tasks.tasks import Tasks


def rival_cells(comparison: Comparison, cell: Cell, row: CellResult) -> list[Cell]:
    """Return the cells to run after a cell: after a reference its rivals, at the reference's spend."""
    if cell.target is not None:
        return []
    on_spend = replace(cell, target=row.mean_usd_per_hour)
    return [replace(on_spend, policy=rival) for rival in comparison.rivals]


def whole_part(
    comparison: Comparison, rows: Sequence[CellResult]
) -> tuple[Comparison, list[CellResult]] | None:
    """Return what can be reported so far: finished seeds of budgets whose seed 0 is finished at all caps."""
    policies: dict[tuple[float, int | None, int], set[str]] = {}
    for row in rows:
        policies.setdefault((row.budget, row.max_nodes, row.seed), set()).add(row.policy)
    whole = {key for key, own in policies.items() if len(own) == 1 + len(comparison.rivals)}
    ready = {key[:2] for key in whole if key[2] == 0}
    budgets = tuple(b for b in comparison.budgets if all((b.amount, cap) in ready for cap in comparison.caps))
    if not budgets:
        return None
    amounts = {budget.amount for budget in budgets}
    kept = [row for row in rows if row.budget in amounts and (row.budget, row.max_nodes, row.seed) in whole]
    return replace(comparison, budgets=budgets), kept


def run_all(
    comparison: Comparison, tasks: Tasks, *, on_row: Callable[[CellResult], None] = lambda row: None
) -> list[CellResult]:
    """Return the rows of all cells, references first, in the order of the command."""
    rows: dict[Cell, CellResult] = {}
    references = comparison.references()
    for cell, row in tasks.each(
        lambda cell: run_cell(comparison, cell, tasks),
        references,
        then=lambda cell, row: rival_cells(comparison, cell, row),
    ):
        rows[cell] = row
        on_row(row)
    rivals = [rival for cell in references for rival in rival_cells(comparison, cell, rows[cell])]
    return [rows[cell] for cell in (*references, *rivals)]
