"""What each promise about money costs in waiting: the chosen one, and others beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from policies.model import Problem
from policies.online.foretold import PromisePrice, promises
from policies.online.multiplier_table import MultiplierTable
from policies.online.pacing import Pace
from policies.online.rhythm import SeenLoad
from policies.optimum.frontier import MixedFrontier
from policies.speedup import Floats


def pace_of(problem: Problem, budget: float) -> Pace:
    """Return the default promise for a plan without boots and whole nodes."""
    table = MultiplierTable.of(problem)
    price = PromisePrice(table=table, frontier=MixedFrontier.of(problem)).loss
    return Pace(budget=budget, grain_hours=table.grain_hours(budget), price=price)


def promise_rows(pace: Pace, loads: Floats | SeenLoad | None) -> list[dict[str, Any]]:
    """Return the promises with what each costs, the chosen one first; without those that have no price.

    Who keeps a tighter promise keeps a looser one: none costs more than one as tight in both.
    The loads of each are drawn for its own period, so the figures alone need not say so.
    """
    losses = [(one, loss) for one in promises(pace) if (loss := one.loss(loads)) is not None]
    return [
        {
            "period": one.period if one.is_calendar else f"{one.period_hours:g} h",
            "tolerance": one.tolerance,
            "pacing_loss_fraction": min(loss for other, loss in losses if _keeps(other, one)),
        }
        for one, _ in losses
    ]


def _keeps(one: Pace, other: Pace) -> bool:
    """Return whether the promise `one` contains the other: months make up quarters, and quarters a year."""
    if not (one.is_calendar and other.is_calendar):
        return one is other
    return one.period_hours <= other.period_hours and one.tolerance <= other.tolerance


def promise_sentence(rows: Sequence[dict[str, Any]], *, is_seen: bool) -> str:
    """Return the prices as a sentence; `is_seen` says that they are of a load that was seen."""
    names = [f"each {row['period']} within {100.0 * row['tolerance']:.3g} %" for row in rows]
    costs = [_percent(row["pacing_loss_fraction"]) for row in rows]
    load = "on this load" if is_seen else "if jobs come singly and at random (bursts and weekends cost more)"
    chosen = " (chosen)" if len(rows) > 1 else ""
    if set(costs) == {_NOTHING}:
        others = "".join(f", {name}" for name in names[1:])
        return f"Even money costs {_NOTHING} more waiting {load}: {names[0]}{chosen}{others}."
    said = [f"{name} costs {cost}" for name, cost in zip(names, costs, strict=True)]
    return f"Even money costs waiting: {said[0]}{chosen}{''.join(f'; {one}' for one in said[1:])}, {load}."


_NOTHING = "less than 0.1 %"


def _percent(part: float) -> str:
    return _NOTHING if part < 0.0005 else f"{100.0 * part:.2g} %"
