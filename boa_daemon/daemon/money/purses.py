"""Spending by team: ended generations by the hour, from the database, and running generations.

A job's cost goes to the team that it was submitted to: its GPUs' share of the nodes' bills, from claim to
release. The hourly sums are written in the transaction that releases the GPUs, so a crash neither counts
twice nor loses a cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log

from boa_daemon.store.purses import hourly_costs, read_purses
from boa_daemon.store.queue import JobQueue
from boa_daemon.tick.facts.limits import day_of, month_of
from boa_daemon.tick.facts.team_money import TeamMoney
from boa_daemon.units import SECONDS_PER_HOUR, dollars
from policies.model import JobId

HALF_LIVES = 8.0
"""Age in half-lives from which spending is ignored: less than half a percent of it counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamTerms:
    """A team's caps in dollars and its share of the budget, from the settings."""

    usd_per_day_cap: float | None = None
    usd_per_month_cap: float | None = None
    share: float | None = None


@dataclass(slots=True, kw_only=True)
class Purses:
    """The money of teams; the past hours of running generations are cached in memory."""

    queue: JobQueue
    _known: dict[tuple[JobId, int], dict[int, int]] = field(default_factory=dict)

    def money(
        self, teams: Mapping[str, TeamTerms], *, now: float, usd_per_hour: float, half_life_hours: float
    ) -> dict[str, TeamMoney]:
        """Return the money of each team; shares are parts of `usd_per_hour`."""
        if not teams:
            return {}
        spent = {name: Counter[int]() for name in teams}
        day, month = day_of(now).begins_at, month_of(now).begins_at
        since = min(month, now - HALF_LIVES * half_life_hours * SECONDS_PER_HOUR)
        for team, hour, amount in read_purses(self.queue.database, since=int(since // SECONDS_PER_HOUR)):
            if team in spent:
                spent[team][hour] += amount
        self._add_running(spent, now)
        shares = sum(terms.share or 0.0 for terms in teams.values())
        found = {}
        for name, terms in teams.items():
            ahead = None
            if terms.share is not None and shares > 0.0:
                its = usd_per_hour * terms.share / shares
                ahead = _faded(spent[name], now, half_life_hours) - its * half_life_hours / log(2.0)
            found[name] = TeamMoney(
                day_cap_usd=terms.usd_per_day_cap,
                month_cap_usd=terms.usd_per_month_cap,
                spent_today_usd=_since(spent[name], day),
                spent_month_usd=_since(spent[name], month),
                ahead_usd=ahead,
                half_life_seconds=half_life_hours * SECONDS_PER_HOUR,
            )
        return found

    def _add_running(self, spent: Mapping[str, Counter[int]], now: float) -> None:
        """Add the cost so far of running generations."""
        known: dict[tuple[JobId, int], dict[int, int]] = {}
        for job in list(self.queue.active.values()):
            if not job.slots or job.team not in spent:
                continue
            key = (job.id, job.generation)
            hours = self._known.get(key, {})
            nodes = self.queue.nodes_of(job)
            hours |= hourly_costs(job, nodes, until=now, since=max(hours, default=0) * SECONDS_PER_HOUR)
            known[key] = hours
            spent[job.team].update(hours)
        self._known = known


def _since(hours: Counter[int], begins_at: float) -> float:
    """Return the dollars spent since an instant."""
    return dollars(sum(amount for hour, amount in hours.items() if hour * SECONDS_PER_HOUR >= begins_at))


def _faded(hours: Counter[int], now: float, half_life_hours: float) -> float:
    """Return the dollars spent, discounted by age with the half-life."""
    ages = ((max(now / SECONDS_PER_HOUR - hour - 0.5, 0.0), amount) for hour, amount in hours.items())
    return sum(dollars(amount) * float(0.5 ** (age / half_life_hours)) for age, amount in ages)
