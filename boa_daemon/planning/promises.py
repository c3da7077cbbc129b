"""What each promise about money costs in waiting: the chosen one, and others beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from policies.model import Problem
from policies.online.foretold import PromisePrice, promises
from policies.online.multiplier_table import MultiplierTable
from policies.online.pacing import Pace
from policies.optimum.frontier import MixedFrontier
from policies.speedup import Floats


def pace_of(problem: Problem, budget: float) -> Pace:
    """Return the default promise for a plan without boots and whole nodes."""
    table = MultiplierTable.of(problem)
    price = PromisePrice(table=table, frontier=MixedFrontier.of(problem)).loss
    return Pace(budget=budget, grain_hours=table.grain_hours(budget), price=price)


def promise_rows(pace: Pace, loads: Floats | None) -> list[dict[str, Any]]:
    """Return the promises with what each costs, the chosen one first; without those that have no price."""
    rows = [
        {
            "period": one.period if one.is_calendar else f"{one.period_hours:g} h",
            "tolerance": one.tolerance,
            "pacing_loss_fraction": one.loss(loads),
        }
        for one in promises(pace)
    ]
    return [row for row in rows if row["pacing_loss_fraction"] is not None]


def promise_sentence(rows: Sequence[dict[str, Any]], *, is_seen: bool) -> str:
    """Return the prices as a sentence; `is_seen` says that they are of a load that was seen."""
    said = [
        f"each {row['period']} within {100.0 * row['tolerance']:.3g} % costs {_percent(row)}" for row in rows
    ]
    load = "on this load" if is_seen else "if jobs come singly and at random (bursts and weekends cost more)"
    return (
        f"Even money costs waiting: {said[0]}{' (chosen)' if len(said) > 1 else ''}"
        f"{''.join(f'; {one}' for one in said[1:])}, {load}."
    )


def _percent(row: dict[str, Any]) -> str:
    part = row["pacing_loss_fraction"]
    return "less than 0.1 %" if part < 0.0005 else f"{100.0 * part:.2g} %"
