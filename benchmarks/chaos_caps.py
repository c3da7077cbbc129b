"""Caps that `benchmarks/chaos.py` lowers during a run to just above what is spent.

Running work may go on for at most `ROOM_SECONDS`. Running jobs and new submissions would spend more, so a cap
that does not hold is noticed. The spend is read from two ledgers, the daemon's and the benchmark's own.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PRICE, RATE = 1.006, 1.05
"""Dollars per hour of a node: its list price, and the most that it may cost with its disk."""
ROOM_SECONDS = 100.0
"""Running work may go on for this long: a tick, a checkpoint and a node's end (`Caps.keep_seconds`)."""
CAP_USD = 2.5
SITE, TEAM = "site", "thin"
TEAMS = """
[teams.wide]
members = ["{user}"]
share = 1
[teams.thin]
members = ["{user}"]
usd_per_day_cap = {cap:.6f}
share = 1
"""


def user() -> str:
    """Return the user who submits the jobs."""
    return pwd.getpwuid(os.getuid()).pw_name


@dataclass(slots=True)
class Spent:
    """A lowered cap, the day's spend before it was set, and the day's largest spend since, in USD."""

    cap: float
    before: float
    booked: float = 0.0
    measured: float = 0.0

    @property
    def is_broken(self) -> bool:
        """Whether the daemon's ledger or ours shows more spend than allowed."""
        return max(self.booked, self.measured) > self.cap

    def __str__(self) -> str:
        room = self.cap - self.before
        used = max(self.booked, self.measured) - self.before
        return f"{used / room:.0%} of the room"


@dataclass(slots=True)
class DrawnCaps:
    """The present caps: the site's cap per day, and the cap per day of one team's purse."""

    drawn: dict[str, Spent] = field(default_factory=dict)
    _is_over: bool = False

    def sections(self) -> tuple[float, str]:
        """Return the site's cap, and the tables of the teams."""
        caps = dict.fromkeys((SITE, TEAM), CAP_USD)
        if not self._is_over:
            caps |= {name: spent.cap for name, spent in self.drawn.items()}
        return caps[SITE], TEAMS.format(user=user(), cap=caps[TEAM])

    def draw(self, name: str, *, booked: float, measured: float, running: int) -> None:
        """Set a cap to the present spend and a little more."""
        spent = max(booked, measured)
        room = max(running, 1) * RATE * ROOM_SECONDS / 3600.0
        self.drawn[name] = Spent(cap=spent + room, before=spent)

    def look(self, name: str, *, booked: float, measured: float) -> None:
        """Record the spend under a cap; the largest counts."""
        spent = self.drawn.get(name)
        if spent is not None and not self._is_over:
            spent.booked, spent.measured = max(spent.booked, booked), max(spent.measured, measured)

    def let_go(self) -> None:
        """Restore all caps."""
        self._is_over = True

    @property
    def breaches(self) -> int:
        """The number of lowered caps that were broken."""
        return sum(spent.is_broken for spent in self.drawn.values())


def booked(status: Mapping[str, Any], cost_by_team: Mapping[str, Any]) -> dict[str, float]:
    """Return today's spend by the daemon's ledger."""
    # A purse pays for GPUs from the claim on; boots are charged to no team.
    teams = {row["name"]: float(row["usd"]) - float(row["boot_usd"]) for row in cost_by_team["rows"]}
    return {SITE: float(status["books"]["day"]["spent_usd"]), TEAM: teams.get(TEAM, 0.0)}
