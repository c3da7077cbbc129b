"""What a team may spend, what it has spent, and whether it is ahead of its share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from boa_daemon.tick.facts.limits import Window, day_of, month_of

TeamCap: TypeAlias = Literal["team-day-cap", "team-month-cap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamMoney:
    """A team's purse: hard caps per day and month (UTC), None for none, and what the team has spent so far.

    `ahead_usd` is how much more the team has spent than its share of the budget; spending and share both
    decay with `half_life_seconds`, so old loans and old unspent money are forgotten. None: the team has no
    share.
    """

    day_cap_usd: float | None = None
    month_cap_usd: float | None = None
    spent_today_usd: float = 0.0
    spent_month_usd: float = 0.0
    ahead_usd: float | None = None
    half_life_seconds: float = 86_400.0

    def left(self, now: float) -> Iterator[tuple[TeamCap, Window, float, float]]:
        """Yield (code, window, cap, money left) of each cap, for its current window and the next one."""
        if self.day_cap_usd is not None:
            day = day_of(now)
            yield "team-day-cap", day, self.day_cap_usd, self.day_cap_usd - self.spent_today_usd
            yield "team-day-cap", day_of(day.ends_at), self.day_cap_usd, self.day_cap_usd
        if self.month_cap_usd is not None:
            month = month_of(now)
            yield "team-month-cap", month, self.month_cap_usd, self.month_cap_usd - self.spent_month_usd
            yield "team-month-cap", month_of(month.ends_at), self.month_cap_usd, self.month_cap_usd
