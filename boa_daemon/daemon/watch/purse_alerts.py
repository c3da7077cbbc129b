"""Alerts about every purse besides the site's: teams, users, jobs with `max_usd`, and commitments.

An alert is due when a fraction of a purse is spent, and when the purse would not last at the present rate.
It goes to whom the purse belongs: a team's channels, else those of its members; a user's; the user of a job.
Where they have no channels, alerts about teams and users go to the site's, so that somebody hears of them.
Commitments belong to the site. `boa_daemon.daemon.watch.alerts` has the alerts about the site's caps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from boa_daemon.tick.facts.limits import FixedCost, Window, day_of, month_of
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.money.team_caps import usd_per_hour
from boa_daemon.units import SECONDS_PER_HOUR, format_hours
from policies.money_text import in_dollars

PurseKind: TypeAlias = Literal["team", "user", "job", "commitment"]
_SMALLEST = 1e-9


def cap_key(cap_usd: float) -> str:
    """Return a cap as the keys of alerts have it, such as ``of 100``."""
    return f"of {cap_usd:.10g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Purse:
    """Money of a team, a user, a job or a commitment, in dollars.

    `window` says when the purse is filled again: ``day 2026-11-28``, ``month 2026-11``, or empty for never.
    `reserved_usd` is what running jobs may cost until they can have been stopped. `forecast_usd` is what will
    be spent at the end of the window, or of the job, at the present rate; None if that is not known.
    `owner` is the user of a job.
    """

    kind: PurseKind
    name: str
    window: str
    spent_usd: float
    cap_usd: float
    usd_per_hour: float = 0.0
    reserved_usd: float = 0.0
    forecast_usd: float | None = None
    refills_at: float | None = None
    owner: str = ""

    @property
    def key(self) -> str:
        """The name under which alerts are remembered: the purse, its window and its cap.

        What was said of a cap is said anew of another one that takes its place within the window.
        """
        cap = "" if self.kind == "commitment" else cap_key(self.cap_usd)
        return ":".join(part for part in (self.kind, self.name, self.window.replace(" ", ":"), cap) if part)

    @property
    def whose(self) -> str:
        """The purse in words."""
        when = {"day": " today (UTC)", "month": " this month (UTC)"}.get(self.window.partition(" ")[0], "")
        return f"{self.kind} {self.name}{when}"

    def to_document(self) -> dict[str, Any]:
        """Return the purse as JSON."""
        return {
            "kind": self.kind,
            "name": self.name,
            "window": self.window,
            "spent_usd": self.spent_usd,
            "reserved_usd": self.reserved_usd,
            "cap_usd": self.cap_usd,
            "usd_per_hour": self.usd_per_hour,
            "forecast_usd": self.forecast_usd,
            "refills_at": self.refills_at,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMoney:
    """What a running job, or its group, has cost, may cost, and would cost if it goes on as it does."""

    name: str
    user: str
    spent_usd: float
    max_usd: float
    usd_per_hour: float
    hours_left: float | None = None


def team_and_user_purses(state: ClusterState, *, reserve_seconds: float) -> list[Purse]:
    """Return the purses of teams and users with caps; running jobs reserve `reserve_seconds` each."""
    found: list[Purse] = []
    rates: dict[tuple[str, str], float] = {}
    if state.teams or state.users:
        for job in state.all_jobs.values():
            if job.slots:
                rate = usd_per_hour(state, job.slots)
                for owner in (("team", job.terms.team), ("user", job.terms.user)):
                    rates[owner] = rates.get(owner, 0.0) + rate
    for name, money in state.teams.items():
        rate = rates.get(("team", name), 0.0)
        if money.day_cap_usd is not None:
            row = (day_of(state.now), money.spent_today_usd, money.day_cap_usd)
            found.append(_windowed(("team", name, "day"), row, rate, state.now, reserve_seconds))
        if money.month_cap_usd is not None:
            row = (month_of(state.now), money.spent_month_usd, money.month_cap_usd)
            found.append(_windowed(("team", name, "month"), row, rate, state.now, reserve_seconds))
    for name, user in state.users.items():
        rate = rates.get(("user", name), 0.0)
        row = (day_of(state.now), user.spent_usd, user.cap_usd)
        found.append(_windowed(("user", name, "day"), row, rate, state.now, reserve_seconds))
    return found


def _windowed(
    which: tuple[PurseKind, str, str],
    money: tuple[Window, float, float],
    rate: float,
    now: float,
    reserve_seconds: float,
) -> Purse:
    (kind, name, unit), (window, spent, cap) = which, money
    form = "%Y-%m-%d" if unit == "day" else "%Y-%m"
    return Purse(
        kind=kind,
        name=name,
        window=f"{unit} {datetime.fromtimestamp(now, UTC).strftime(form)}",
        spent_usd=spent,
        cap_usd=cap,
        usd_per_hour=rate,
        reserved_usd=rate * window.overlap_seconds(now, now + reserve_seconds) / SECONDS_PER_HOUR,
        forecast_usd=spent + rate * (window.ends_at - now) / SECONDS_PER_HOUR,
        refills_at=window.ends_at,
    )


def job_purses(jobs: Iterable[JobMoney]) -> list[Purse]:
    """Return the purses of jobs with `max_usd`."""
    return [
        Purse(
            kind="job",
            name=job.name,
            window="",
            spent_usd=job.spent_usd,
            cap_usd=job.max_usd,
            usd_per_hour=job.usd_per_hour,
            forecast_usd=None
            if job.hours_left is None
            else job.spent_usd + job.usd_per_hour * job.hours_left,
            owner=job.user,
        )
        for job in jobs
    ]


def commitment_purses(fixed: Iterable[FixedCost], now: float) -> list[Purse]:
    """Return the purses of commitments with a begin and an end: what of their money is paid so far."""
    return [
        Purse(
            kind="commitment",
            name=one.name,
            window="",
            spent_usd=one.usd_between(one.begins_at, now),
            cap_usd=one.usd_between(one.begins_at, one.ends_at),
            usd_per_hour=one.usd_per_hour,
            refills_at=one.ends_at,
        )
        for one in fixed
        if one.begins_at is not None and one.ends_at is not None and one.begins_at <= now
    ]


def due_purse_alerts(purses: Iterable[Purse], fractions: Sequence[float]) -> Iterator[tuple[Purse, str, str]]:
    """Yield (purse, key, sentence) of each alert that is due, for each fraction that was reached.

    The highest fraction comes first: a caller that sends it need not send the lower ones.
    """
    for purse in purses:
        for fraction in sorted(fractions, reverse=True):
            if purse.spent_usd >= fraction * purse.cap_usd - _SMALLEST:
                yield purse, f"{purse.key}:{fraction:g}", _spent_sentence(purse)
        ahead = purse.forecast_usd
        if ahead is not None and ahead > purse.cap_usd + _SMALLEST and purse.spent_usd < purse.cap_usd:
            yield purse, f"{purse.key}:forecast", _forecast_sentence(purse, ahead)


def _spent_sentence(purse: Purse) -> str:
    part = purse.spent_usd / purse.cap_usd
    if purse.kind == "commitment":
        return (
            f"commitment {purse.name}: {part:.0%} of its {in_dollars(purse.cap_usd)} is paid; it ends at "
            f"{_at(purse.refills_at)}, and nodes that it covers cost their full price then"
        )
    what = "max_usd" if purse.kind == "job" else "the cap"
    said = (
        f"{purse.whose}: {in_dollars(purse.spent_usd)} spent, {part:.0%} "
        f"of {what} of {in_dollars(purse.cap_usd)}"
    )
    if purse.reserved_usd >= 0.005:
        said += f"; running jobs have {in_dollars(purse.reserved_usd)} reserved"
    if purse.spent_usd >= purse.cap_usd and purse.refills_at is not None:
        said += f"; there is room again at {_at(purse.refills_at)}"
    return said


def _forecast_sentence(purse: Purse, ahead: float) -> str:
    if purse.kind == "job":
        return (
            f"job {purse.name}: at {in_dollars(purse.usd_per_hour)}/hour it "
            f"would cost {in_dollars(ahead)} in all, "
            f"by what is known of its class; it is stopped at its max_usd of {in_dollars(purse.cap_usd)}"
        )
    left = (purse.cap_usd - purse.spent_usd) / purse.usd_per_hour if purse.usd_per_hour else 0.0
    return (
        f"{purse.whose}: at {in_dollars(purse.usd_per_hour)}/hour the cap "
        f"of {in_dollars(purse.cap_usd)} is used "
        f"up in {format_hours(left)}; without it {in_dollars(ahead)} would be spent at the end"
    )


def _at(instant: float | None) -> str:
    return "" if instant is None else datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%d %H:%M UTC")


def purse_document(purses: Iterable[Purse]) -> list[dict[str, Any]]:
    """Return the purses of teams and users as JSON, for the status and the page."""
    return [purse.to_document() for purse in purses if purse.kind in ("team", "user")]
