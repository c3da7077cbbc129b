"""Words for what promises about money cost, and for a limit beside the budget; `boa status` needs no more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from boa_daemon.units import PER_HOUR, Per, format_hours

SMALL = 0.005
"""A price that is nowhere above this is no range."""


def second_limit_text(limit: Mapping[str, Any], unit: str = "usd", per: Per = PER_HOUR) -> str:
    """Return what a limit beside the budget costs in waiting (`SecondLimit.to_document`)."""
    setting, under, floor = limit["setting"], limit["mean_jct_hours"], limit["floor_mean_jct_hours"]
    leaves = ""
    if (spend := limit["spend"]) is not None:
        leaves = f", which leaves {per.budget(spend, unit)} to jobs,"
    without, short = limit["without_mean_jct_hours"], limit.get("short_fraction")
    often = "" if short is None else f"; the plan needs more nodes for {short:.0%} of the time"
    if under is None:
        said = f"Under {setting}{leaves} more and more jobs wait, where they take {format_hours(without)} "
        said += "without it"
    elif under <= 1.001 * without:
        return f"Under {setting} jobs wait longer than the plan says when many are there at once{often}."
    else:
        said = f"Under {setting}{leaves} jobs take at least {format_hours(under)}, without it "
        said += f"{format_hours(without)}{often}"
    if floor is not None and (under is None or floor < 0.99 * under):
        return f"{said}; more money under it brings them to {format_hours(floor)} at best."
    return f"{said}; more money under it buys nothing."


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
