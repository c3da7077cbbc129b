"""Where a month's money ends at the pace of the last days: one forecast for every view.

The present rate jumps with each node, so a month is forecast by the mean of the last three days, with a band
of twice the standard error of a day's mean. What the site pays without nodes comes on top, and the cap of a
day holds what the days that are left may cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean, variance
from typing import Any

from boa_daemon.tick.facts.limits import day_of, month_of
from boa_daemon.units import SECONDS_PER_HOUR

PACE_HOURS, PACE_POINTS, LEAST_POINTS = 72.0, 360, 3
_DAY_POINTS = PACE_POINTS // 3


def month_pace(
    past: Mapping[str, Any],
    books: Mapping[str, Mapping[str, float | None]],
    *,
    now: float,
    beside_usd_per_hour: float = 0.0,
) -> dict[str, Any] | None:
    """Return the forecast of the month in dollars, low, likely and high; None before half an hour was seen.

    `past` is the history of the last `PACE_HOURS` in `PACE_POINTS` intervals, `books` are the figures of the
    day and the month. `is_held` says that the day's cap ends the likely forecast.
    """
    series = past["series"].get("usd_per_hour") or [0.0] * len(past["minutes"])
    # An interval without a minute was not seen; one in which nothing was rented cost nothing.
    seen = [usd or 0.0 for usd, minutes in zip(series, past["minutes"], strict=True) if minutes]
    if len(seen) < LEAST_POINTS:
        return None
    mean = fmean(seen)
    days = [fmean(seen[first : first + _DAY_POINTS]) for first in range(0, len(seen), _DAY_POINTS)]
    spread = 2.0 * math.sqrt(variance(days) / len(days)) if len(days) > 1 else 0.0
    left = (month_of(now).ends_at - now) / SECONDS_PER_HOUR
    spent, most = books["month"]["spent_usd"] or 0.0, _most(books, now)
    rates = (mean - spread, mean, mean + spread)
    ends = [spent + (max(rate, 0.0) + beside_usd_per_hour) * left for rate in rates]
    return {
        "seconds_seen": len(seen) * past["step_seconds"],
        "usd_per_hour": mean,
        "ends_usd": [min(end, most) for end in ends],
        "is_held": ends[1] > most,
    }


def _most(books: Mapping[str, Mapping[str, float | None]], now: float) -> float:
    """Return what the month has cost at its end if every day that is left costs its cap."""
    cap = books["day"]["cap_usd"]
    if cap is None:
        return math.inf
    days = round((month_of(now).ends_at - day_of(now).ends_at) / 86_400.0)
    today = max(cap - (books["day"]["spent_usd"] or 0.0), 0.0)
    return (books["month"]["spent_usd"] or 0.0) + today + cap * days
