"""What each promise about money costs in waiting: the chosen one, and others beside it."""

from __future__ import annotations

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
