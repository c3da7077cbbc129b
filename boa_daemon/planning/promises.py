"""What each promise about money costs in waiting: the chosen one, and others beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from policies.model import Problem
from policies.online.foretold import PromisePrice, promises
from policies.online.multiplier_table import MultiplierTable
from policies.online.pacing import Pace
from policies.online.rhythm import SeenLoad
from policies.optimum.frontier import MixedFrontier
from policies.speedup import Floats

SMALL = 0.005
"""A price that is nowhere above this is no range."""


def pace_of(problem: Problem, budget: float) -> Pace:
    """Return the default promise for a plan without boots and whole nodes."""
    table = MultiplierTable.of(problem)
    price = PromisePrice(table=table, frontier=MixedFrontier.of(problem))
    return Pace(budget=budget, grain_hours=table.grain_hours(budget), price=price)


def promise_rows(pace: Pace, loads: Floats | SeenLoad | None) -> list[dict[str, Any]]:
    """Return the promises with what each costs, the chosen one first; without those that have no price.

    Who keeps a tighter promise keeps a looser one: none costs more than one as tight in both.
    The loads of each are drawn for its own period, so the figures alone need not say so. Where few large jobs
    make the load of a period, `is_coarse` is true and the range is wide.
    """
    losses = [(one, loss) for one in promises(pace) if (loss := one.foretell(loads)) is not None]
    return [
        {
            "period": one.period if one.is_calendar else f"{one.period_hours:g} h",
            "tolerance": one.tolerance,
            "pacing_loss_fraction": min(other.mean for other in as_tight),
            "least_pacing_loss_fraction": min(other.least for other in as_tight),
            "most_pacing_loss_fraction": min(other.most for other in as_tight),
            "equal_jobs_per_period": loss.jobs,
            "is_coarse": loss.is_coarse,
        }
        for one, loss in losses
        for as_tight in [[found for other, found in losses if _keeps(other, one)]]
    ]


def _keeps(one: Pace, other: Pace) -> bool:
    """Return whether the promise `one` contains the other: months make up quarters, and quarters a year."""
    if not (one.is_calendar and other.is_calendar):
        return one is other
    return one.period_hours <= other.period_hours and one.tolerance <= other.tolerance


def promise_sentence(rows: Sequence[dict[str, Any]], *, is_seen: bool) -> str:
    """Return the prices as a sentence; `is_seen` says that they are of a load that was seen.

    Where few large jobs make the load, prices are ranges, and another sentence says why.
    """
    names = [f"each {row['period']} within {100.0 * row['tolerance']:.3g} %" for row in rows]
    costs = [loss_text(row) for row in rows]
    load = "on this load" if is_seen else "if jobs come singly and at random (bursts and weekends cost more)"
    chosen = " (chosen)" if len(rows) > 1 else ""
    if set(costs) == {_NOTHING}:
        others = "".join(f", {name}" for name in names[1:])
        return f"Even money costs {_NOTHING} more waiting {load}: {names[0]}{chosen}{others}."
    said = [f"{name} costs {cost}" for name, cost in zip(names, costs, strict=True)]
    sentence = (
        f"Even money costs waiting: {said[0]}{chosen}{''.join(f'; {one}' for one in said[1:])}, {load}."
    )
    return " ".join([sentence, *why_a_range(rows)])


def why_a_range(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence on the promise with the fewest jobs in its period, among those with a range."""
    ranges = [row for row in rows if _is_range(row)]
    if not ranges:
        return []
    row = min(ranges, key=lambda one: float(one["equal_jobs_per_period"]))
    return [
        f"A range, because few large jobs make the load: {few_jobs(row)} would spread it as much, and "
        f"by chance alone bring {100.0 / math.sqrt(_jobs(row)):.2g} % more or less than the mean."
    ]


def few_jobs(row: Mapping[str, Any]) -> str:
    """Return how many equal jobs would spread the load of a period as much as its jobs do."""
    return f"about {float(f'{_jobs(row):.2g}'):,.0f} equal ones in a {row['period']}"


def loss_text(row: Mapping[str, Any]) -> str:
    """Return what a promise costs, in percent: a range where the load is too coarse for one figure."""
    if not _is_range(row):
        return _percent(row["pacing_loss_fraction"])
    least, most = _ends(row)
    return f"up to {most}" if least == _NOTHING else f"{least.removesuffix(' %')} to {most}"


_NOTHING = "less than 0.1 %"


def _is_range(row: Mapping[str, Any]) -> bool:
    """Return whether the figure is a range that matters; a daemon of an earlier version sends none."""
    return (
        bool(row.get("is_coarse")) and row["most_pacing_loss_fraction"] > SMALL and len(set(_ends(row))) > 1
    )


def _ends(row: Mapping[str, Any]) -> tuple[str, str]:
    return _percent(row["least_pacing_loss_fraction"]), _percent(row["most_pacing_loss_fraction"])


def _jobs(row: Mapping[str, Any]) -> float:
    return max(float(row["equal_jobs_per_period"]), 1.0)


def _percent(part: float) -> str:
    return _NOTHING if part < 0.0005 else f"{100.0 * part:.2g} %"
