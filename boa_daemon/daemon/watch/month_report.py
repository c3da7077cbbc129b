"""A month's report: what was spent against the budget and the month before, by whom, and how jobs fared.

It is a page like those of `--report`, and a few sentences for the channels of alerts. It is made from bills
and jobs alone, so the report of an old month can be made again while they are kept. A team gets one of its
own jobs' cost: GPUs from claim to release and the boots before them, and no part of what nobody used.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import select

from boa_daemon.daemon.money.cost_labels import JOBS_PER_QUERY, UNUSED_ROW
from boa_daemon.daemon.money.costs import cost_rows, team_costs, with_fixed_costs
from boa_daemon.daemon.settings.config import BudgetSettings, TeamSettings, UserSettings
from boa_daemon.daemon.settings.daemon_paths import make_folder
from boa_daemon.daemon.watch.alerts import Alerts
from boa_daemon.errors import InputError
from boa_daemon.inputs.plain_text import one_line
from boa_daemon.job.whole_files import write_whole
from boa_daemon.planning.report_page import PageTable, Picture, Report
from boa_daemon.store.storage import Storage
from boa_daemon.store.tables import JOBS
from boa_daemon.tick.facts.limits import DAY_SECONDS, FixedCost, Window, month_of
from boa_daemon.units import SECONDS_PER_HOUR, counted, format_hours
from policies.money_text import in_dollars

GROUPS = ("team", "user", "class", "market", "kind")
OF_A_TEAM = ("user", "class", "job")
"""What a team's report groups by."""
IN_MESSAGE, IN_MESSAGE_OF_A_TEAM = ("user", "team", "kind"), ("user", "job")
"""What the message has of the groups."""
MOST_NAME_CHARACTERS = 100
"""Most characters of a team's name in the name of a file."""
MOST_LETTERS = 48
"""Letters of a name in a message."""
MOST_ROWS = 12
"""Rows of a table; the rest is one row."""
SEEN_SECONDS = 3 * DAY_SECONDS
"""A month whose first dollars came later was not seen whole: nothing is compared with it."""
OVER = 0.02
"""Spend above the budget is told from this fraction on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthMoney:
    """The budget of a month: dollars per hour, None without one; and its cap in dollars.

    A team has no budget of its own in dollars, and its cap counts what `Purses` count.
    """

    usd_per_hour: float | None
    cap_usd: float | None
    fixed: Sequence[FixedCost] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthReport:
    """The figures of a calendar month (UTC); `until` is before its end for the present month.

    `days` are dollars by date, of the month before too; `groups` are rows of name and dollars by kind of
    group; `ends` counts the jobs that ended by status; `hours` are those of finished jobs from submission to
    end, with their ids.
    """

    window: Window
    until: float
    money: MonthMoney
    days: Mapping[str, float]
    groups: Mapping[str, Sequence[tuple[str, float]]]
    ends: Mapping[str, int]
    hours: Sequence[tuple[float, str]]
    team: str = ""
    boots_usd: float = 0.0
    """Of a team: what of its cost its cap does not count."""

    @property
    def name(self) -> str:
        """The month, as in ``2026-11``."""
        return f"{_date(self.window.begins_at):%Y-%m}"

    @property
    def file_name(self) -> str:
        """The name of the page's file. A team's name may have any characters, a file's may not."""
        team = quote(self.team, safe="")[:MOST_NAME_CHARACTERS]
        return f"{'-'.join(part for part in (self.name, team) if part)}.html"

    @property
    def usd(self) -> float:
        """Dollars spent in the month."""
        return sum(usd for day, usd in self.days.items() if day.startswith(self.name))

    @property
    def capped_usd(self) -> float:
        """Dollars of the month that its cap counts."""
        return self.usd - self.boots_usd

    @property
    def usd_before(self) -> float:
        """Dollars spent in the month before; 0 for a present month or one before that was not seen whole."""
        first = f"{_date(month_of(self.window.begins_at - 1.0).begins_at + SEEN_SECONDS):%Y-%m-%d}"
        if self.until < self.window.ends_at or min(self.days, default="9") > first:
            return 0.0
        return sum(usd for day, usd in self.days.items() if not day.startswith(self.name))

    @property
    def budget_usd(self) -> float | None:
        """The budget of the part of the month that is over."""
        if self.money.usd_per_hour is None:
            return None
        return self.money.usd_per_hour * (self.until - self.window.begins_at) / SECONDS_PER_HOUR

    @property
    def lead(self) -> str:
        """The verdict in a sentence."""
        so_far = self._so_far
        whose = f"Team {self.team}, " if self.team else ""
        said = f"{whose}{_date(self.window.begins_at):%B %Y}{so_far}: {in_dollars(self.usd)} spent"
        if self.team and self.money.cap_usd:
            said += (
                f", {self.capped_usd / self.money.cap_usd:.0%} of its cap of {in_dollars(self.money.cap_usd)}"
            )
            if self.boots_usd >= 0.005:
                said += f", which does not count {in_dollars(self.boots_usd)} of boots"
        budget = self.budget_usd
        if budget:
            said += f", {self.usd / budget:.0%} of the budget of {in_dollars(budget)}{so_far}"
        if self.usd_before > 0.0:
            said += f" and {self.usd / self.usd_before - 1.0:+.0%} against the month before"
        finished = self.ends.get("finished", 0)
        said += f"; {counted(finished, 'job')} finished"
        if self.hours:
            said += f", {format_hours(self._mean_hours)} from submission to end on average"
        return f"{said}."

    @property
    def bad(self) -> list[str]:
        """What was not well, in sentences."""
        said, budget, cap = [], self.budget_usd, self.money.cap_usd
        if budget and self.usd > (1.0 + OVER) * budget:
            said.append(f"{in_dollars(self.usd - budget)} more than the budget were spent.")
        if cap is not None and self.capped_usd >= 0.98 * cap:
            whose = "team's" if self.team else "month's"
            said.append(f"The {whose} cap of {in_dollars(cap)} was reached.")
        if failed := self.ends.get("failed", 0):
            share = failed / max(sum(self.ends.values()), 1)
            said.append(f"{counted(failed, 'job')} failed, {share:.0%} of those that ended.")
        unused = sum(usd for name, usd in self.groups.get("team", ()) if name == UNUSED_ROW)
        if self.usd > 0.0 and unused > 0.1 * self.usd:
            said.append(
                f"{in_dollars(unused)}, {unused / self.usd:.0%} of the money, went to GPUs that no job used."
            )
        return said

    @property
    def sentences(self) -> str:
        """The verdict and what was not well in a few sentences, for the list of alerts."""
        return " ".join([self.lead, *self.bad])

    @property
    def message(self) -> str:
        """The report as plain text of short lines: mail readers and chats show it as it is.

        Each name ends its line, so that one written from right to left turns nothing around but itself.
        """
        parts = [self.lead]
        if self.bad:
            parts.append("\n".join(["What is not well:", *(f"- {one}" for one in self.bad)]))
        for by in IN_MESSAGE_OF_A_TEAM if self.team else IN_MESSAGE:
            rows = [row for row in self.groups.get(by, ()) if row[1] >= 0.005]
            if rows:
                lines = (
                    f"- {_money_of(usd, self.usd)} {_shortened(name)}" for name, usd in _largest(rows, 4)
                )
                parts.append("\n".join([f"By {'use' if by == 'kind' else by}:", *lines]))
        if self.ends:
            ends = ", ".join(f"{count:,} {status}" for status, count in sorted(self.ends.items()))
            parts.append(f"Jobs that ended: {ends}.")
        return "\n\n".join(parts)

    @property
    def _so_far(self) -> str:
        return "" if self.until >= self.window.ends_at else " so far"

    @property
    def _mean_hours(self) -> float:
        return sum(hours for hours, _ in self.hours) / len(self.hours)

    def to_document(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "month": self.name,
            **({"team": self.team, "boots_usd": self.boots_usd} if self.team else {}),
            "since": self.window.begins_at,
            "until": self.until,
            "usd": self.usd,
            "usd_before": self.usd_before,
            "budget_usd": self.budget_usd,
            "cap_usd": self.money.cap_usd,
            "days": [{"day": day, "usd": usd} for day, usd in self.days.items() if day.startswith(self.name)],
            "groups": {
                by: [{"name": name, "usd": usd} for name, usd in rows] for by, rows in self.groups.items()
            },
            "jobs": dict(self.ends),
            "mean_jct_hours": self._mean_hours if self.hours else None,
        }

    def page(self, *, made_by: str) -> str:
        """Return the report as one HTML file."""
        facts = {"spent": in_dollars(self.usd)}
        if self.budget_usd is not None:
            facts[f"budget{self._so_far}"] = in_dollars(self.budget_usd)
        if self.team and self.money.cap_usd is not None:
            facts["cap"] = in_dollars(self.money.cap_usd)
        if self.usd_before > 0.0:
            facts["month before"] = in_dollars(self.usd_before)
        facts["jobs finished"] = f"{self.ends.get('finished', 0):,}"
        parts: list[Picture | PageTable] = [self._picture()]
        parts += [_table(by, rows, self.usd) for by, rows in self.groups.items() if rows]
        if self.ends:
            rows = tuple((status, f"{count:,}") for status, count in sorted(self.ends.items()))
            parts.append(
                PageTable(title="Jobs that ended", columns=("how", "jobs"), rows=rows, right=frozenset({1}))
            )
        if self.hours:
            longest = tuple((job, format_hours(hours)) for hours, job in sorted(self.hours, reverse=True)[:5])
            parts.append(
                PageTable(
                    title="The longest from submission to end",
                    columns=("job", "hours"),
                    rows=longest,
                    right=frozenset({1}),
                )
            )
        return Report(
            title=f"{f'Team {self.team}, ' if self.team else ''}{_date(self.window.begins_at):%B %Y}",
            lead=self.lead,
            bad=self.bad,
            facts=facts,
            parts=parts,
            answer=self.to_document(),
            made_by=made_by,
        ).html

    def _picture(self) -> Picture:
        """Return a drawing of the dollars of each day, with the budget's day as a line."""
        days = round((self.window.ends_at - self.window.begins_at) / DAY_SECONDS)
        spent = [self.days.get(f"{self.name}-{day:02d}", 0.0) for day in range(1, days + 1)]
        line = None if self.money.usd_per_hour is None else 24.0 * self.money.usd_per_hour
        top = 1.1 * max([*spent, line or 0.0, 0.04])
        wide, tall, left, bottom = 720.0, 220.0, 64.0, 190.0
        step, scale = (wide - left) / days, (bottom - 14.0) / top
        parts = [
            f'<rect x="{left + step * (day + 0.12):.1f}" y="{bottom - scale * usd:.1f}" '
            f'width="{0.76 * step:.1f}" height="{scale * usd:.1f}" fill="#1769aa"><title>'
            f"{self.name}-{day + 1:02d}: {in_dollars(usd)}</title></rect>"
            for day, usd in enumerate(spent)
        ]
        text = 'font-size="12" fill="#1f2933"'
        parts += [
            f'<text x="{left + step * (day + 0.5):.1f}" y="{bottom + 18:.0f}" text-anchor="middle" {text}>'
            f"{_date(self.window.begins_at + day * DAY_SECONDS):%d %b}</text>"
            for day in range(0, days, 7)
        ]
        for usd, label in _round_dollars(top):
            y = bottom - scale * usd
            parts.append(f'<line x1="{left}" x2="{wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e7eb"/>')
            parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" {text}>{label}</text>')
        if line is not None:
            y = bottom - scale * line
            parts.append(
                f'<line x1="{left}" x2="{wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="#c2410c" '
                f'stroke-width="2" stroke-dasharray="6 4"/>'
            )
        drawn = (
            f'<svg viewBox="0 0 {wide:g} {tall:g}" font-family="system-ui, sans-serif">{"".join(parts)}</svg>'
        )
        most = max(range(days), key=lambda day: spent[day])
        said = f"most on {self.name}-{most + 1:02d}, {in_dollars(spent[most])}"
        budget = "" if line is None else f" Dashed: the budget, {in_dollars(line)} a day."
        words = f"Dollars a day: {said if self.usd > 0.0 else 'nothing was spent'}.{budget}"
        return Picture(svg=drawn, words=words)


def _round_dollars(top: float) -> list[tuple[float, str]]:
    """Return round amounts from 0 up to a drawing's top, at most five, with their labels."""
    power = 10.0 ** math.floor(math.log10(top / 4.0))
    step = next(power * n for n in (1.0, 2.0, 2.5, 5.0, 10.0) if power * n >= 0.999 * top / 4.0)
    digits = 0 if step >= 1.0 and step % 1.0 == 0.0 else 2
    return [(step * n, f"${step * n:,.{digits}f}") for n in range(int(top / step) + 1)]


def month_report(storage: Storage, at: float, money: MonthMoney, *, now: float) -> MonthReport:
    """Return the report of the month (UTC) that holds the instant `at`, up to `now`."""
    window = month_of(at)
    until = min(now, window.ends_at)
    before = month_of(window.begins_at - 1.0).begins_at

    def rows(by: Any, since: float) -> list[dict[str, Any]]:
        found = cost_rows(storage.queue, by=by, since=since, now=until)
        return with_fixed_costs(found, money.fixed, by=by, since=since, now=until)

    last = f"{_date(until - 1.0):%Y-%m-%d}"
    days = {row["name"]: row["usd"] for row in rows("day", before) if row["name"] <= last}
    ends, hours = _ends(storage, window.begins_at, until)
    return MonthReport(
        window=window,
        until=until,
        money=money,
        days=days,
        groups={by: [(row["name"], row["usd"]) for row in rows(by, window.begins_at)] for by in GROUPS},
        ends=ends,
        hours=hours,
    )


def team_month_report(
    storage: Storage, at: float, team: str, cap_usd: float | None, *, now: float
) -> MonthReport:
    """Return a team's report of the month (UTC) that holds the instant `at`, up to `now`."""
    window = month_of(at)
    until = min(now, window.ends_at)
    costs = team_costs(storage.queue, team, since=month_of(window.begins_at - 1.0).begins_at, now=until)
    begins = f"{_date(window.begins_at):%Y-%m}"
    jobs = _jobs_of(storage, {job for job, *_ in costs})
    days: Counter[str] = Counter()
    groups: dict[str, Counter[str]] = {by: Counter() for by in OF_A_TEAM}
    boots = 0.0
    for job, day, usd, gpu_hours in costs:
        days[day] += usd  # type: ignore[assignment]
        if day >= begins:
            boots += usd if gpu_hours == 0.0 else 0.0
            user, class_name = jobs.get(job, ("", ""))
            for by, name in (("user", user), ("class", class_name.partition("[")[0]), ("job", job)):
                groups[by][name] += usd  # type: ignore[assignment]
    ends, hours = _ends(storage, window.begins_at, until, team=team)
    return MonthReport(
        window=window,
        until=until,
        money=MonthMoney(usd_per_hour=None, cap_usd=cap_usd),
        days=dict(sorted(days.items())),
        groups={by: counts.most_common() for by, counts in groups.items()},
        ends=ends,
        hours=hours,
        team=team,
        boots_usd=boots,
    )


def send_team_reports(
    storage: Storage,
    alerts: Alerts,
    folder: Path,
    teams: Mapping[str, TeamSettings],
    users: Mapping[str, UserSettings],
    *,
    made_by: str,
    now: float,
) -> list[Path]:
    """Write last month's report of each team that spent something, and send it to the team's channels, once.

    A team without channels is told by those of its members; nobody else hears of it. Returns the new pages.
    """
    begins = month_of(now).begins_at
    found: list[Path] = []
    if storage.store.books_opened_at(now) >= begins:
        return found
    for name, team in teams.items():
        key = f"month-report:{_date(begins - 1.0):%Y-%m}:{name}"
        if alerts.was_sent(key):
            continue
        report = team_month_report(storage, begins - 1.0, name, team.usd_per_month_cap, now=now)
        if report.usd <= 0.0 and not report.ends:
            continue
        make_folder(folder)
        path = folder / report.file_name
        write_whole(path, report.page(made_by=made_by))
        has_own = team.webhook or team.apprise
        owners = [team] if has_own else [users[one] for one in team.members if one in users]
        alerts.tell_owners(
            key, report.sentences, owners, at=now, is_site=False, page=path, message=report.message
        )
        found.append(path)
    return found


def send_month_report(
    storage: Storage, alerts: Alerts, folder: Path, money: MonthMoney, *, made_by: str, now: float
) -> Path | None:
    """Write last month's report to `folder` and send its sentences, once; return the page, None if not now.

    Nothing is sent about a month in which the books were not open yet.
    """
    begins = month_of(now).begins_at
    key = f"month-report:{_date(begins - 1.0):%Y-%m}"
    if storage.store.books_opened_at(now) >= begins or alerts.was_sent(key):
        return None
    report = month_report(storage, begins - 1.0, money, now=now)
    make_folder(folder)
    path = folder / report.file_name
    write_whole(path, report.page(made_by=made_by))
    if alerts.once(key, f"{report.sentences} The page: {path}", at=now):
        alerts.shout(f"{report.message}\n\nThe page: {path}", key=key, page=path)
    return path


def month_money(budget: BudgetSettings, fixed: Sequence[FixedCost]) -> MonthMoney:
    """Return the budget of the settings, for a month."""
    return MonthMoney(
        usd_per_hour=budget.mean_usd_per_hour, cap_usd=budget.usd_per_month_cap, fixed=tuple(fixed)
    )


def instant_of_month(text: str) -> float:
    """Return the first instant (UTC) of a month such as ``2026-11``.

    Raises:
        InputError: when the text names no month.
    """
    try:
        return datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise InputError(f"{text!r} is no month", hint="Write 2026-11") from None


def _jobs_of(storage: Storage, names: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return the user and the class of jobs."""
    found: dict[str, tuple[str, str]] = {}
    ordered = sorted(names)
    with storage.store.database.read() as connection:
        for begin in range(0, len(ordered), JOBS_PER_QUERY):
            part = ordered[begin : begin + JOBS_PER_QUERY]
            query = select(JOBS.c.id, JOBS.c.user_name, JOBS.c.class_name).where(JOBS.c.id.in_(part))
            found |= {row[0]: (row[1], row[2]) for row in connection.execute(query)}
    return found


def _ends(
    storage: Storage, since: float, until: float, *, team: str = ""
) -> tuple[dict[str, int], list[tuple[float, str]]]:
    """Return how many jobs (of a team, if named) ended how, and the hours of the finished ones with ids."""
    columns = JOBS.c
    query = select(columns.id, columns.status, columns.arrived_at, columns.ended_at).where(
        columns.ended_at >= since, columns.ended_at < until
    )
    if team:
        query = query.where(columns.team_name == team)
    with storage.store.database.read() as connection:
        found = list(connection.execute(query))
    hours = [
        ((row.ended_at - row.arrived_at) / SECONDS_PER_HOUR, row.id)
        for row in found
        if row.status == "finished"
    ]
    return dict(Counter(row.status for row in found)), hours


def _table(by: str, rows: Sequence[tuple[str, float]], total: float) -> PageTable:
    """Return the largest rows of a group, and the rest as one row."""
    return PageTable(
        title=f"By {'use' if by == 'kind' else by}",
        columns=(by, "dollars", "share"),
        rows=tuple(
            (name, in_dollars(usd), f"{usd / total:.1%}" if total > 0.0 else "")
            for name, usd in _largest(rows, MOST_ROWS)
        ),
        right=frozenset({1, 2}),
    )


def _largest(rows: Sequence[tuple[str, float]], most: int) -> list[tuple[str, float]]:
    """Return the first rows, and the others as one."""
    if len(rows) <= most:
        return list(rows)
    return [*rows[:most], (f"{len(rows) - most:,} others", sum(usd for _, usd in rows[most:]))]


def _money_of(usd: float, total: float) -> str:
    """Return dollars and their share of all."""
    return f"{in_dollars(usd)} ({usd / total:.0%})" if total > 0.0 else in_dollars(usd)


def _shortened(name: str) -> str:
    """Return a name in one line; of a long one the begin and the end, in which jobs of a group differ."""
    plain = one_line(name)
    return plain if len(plain) <= MOST_LETTERS else f"{plain[:28]}…{plain[-19:]}"


def _date(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
