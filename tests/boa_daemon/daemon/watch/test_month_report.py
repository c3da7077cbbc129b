"""A month's report: figures of the bills and jobs, sent once when the month is over, and as a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from accessibility import faults_of
from browsers import Tab, a_browser

from boa_daemon.daemon.money.purses import Purses, TeamTerms
from boa_daemon.daemon.watch.month_report import (
    MonthMoney,
    MonthReport,
    instant_of_month,
    month_money,
    month_report,
    send_month_report,
    send_team_reports,
    team_month_report,
)
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

NOVEMBER, DECEMBER = instant_of_month("2026-11"), instant_of_month("2026-12")
MONEY = MonthMoney(usd_per_hour=1.0, cap_usd=800.0)


@pytest.fixture
def play(tmp_path: Path) -> Iterator[DaemonInAFolder]:
    """Yield a daemon on whose last evening of November jobs ran, now early in December."""
    found = DaemonInAFolder(tmp_path, ManualClock(DECEMBER - 6 * 3600.0))
    found.daemon.tick()
    found.service.submit([job_content(hours=1.0) for _ in range(3)], user="ann")
    while found.clock.instant < DECEMBER + 3600.0:
        found.daemon.tick()
        found.clock.instant += 300.0
    yield found
    found.close()


def sent(
    play: DaemonInAFolder, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> tuple[list[str], Path | None]:
    """Try to send the report; return what was said on the channels, and the page."""
    said: list[str] = []
    monkeypatch.setattr(play.daemon.alerts, "shout", lambda sentence, **_: said.append(sentence))
    path = send_month_report(
        play.storage, play.daemon.alerts, folder, MONEY, made_by="by a test", now=play.clock.instant
    )
    return said, path


def test_the_figures_are_those_of_the_bills_and_of_the_jobs_that_ended(play: DaemonInAFolder) -> None:
    """Every grouping adds up to the month, and the month to the bills."""
    report = month_report(play.storage, NOVEMBER, MONEY, now=play.clock.instant)
    document = report.to_document()
    billed = sum(row["usd"] for row in play.service.cost(by="day", since=NOVEMBER)["rows"])

    assert document["usd"] == pytest.approx(billed)
    assert document["usd"] > 0.0
    for by, rows in document["groups"].items():
        assert sum(row["usd"] for row in rows) == pytest.approx(document["usd"]), by
    assert document["jobs"] == {"finished": 3}
    assert 0.9 < document["mean_jct_hours"] < 4.0
    assert document["budget_usd"] == pytest.approx(30 * 24.0)
    assert report.lead.startswith(f"November 2026: ${document['usd']:,.2f} spent")
    assert "against the month before" not in report.lead
    empty = month_report(play.storage, DECEMBER, MONEY, now=play.clock.instant)
    assert (empty.usd, "December 2026 so far" in empty.lead) == (0.0, True)
    assert "of the budget of $1.00 so far" in empty.lead
    assert "so far" not in report.lead


@pytest.mark.first_set(5)
@pytest.mark.parametrize("usd", [0.004, 0.7, 3.0, 42.0, 665.65, 1008.0, 24_000.0, 1.2e6])
def test_amounts_beside_the_drawing_are_round_and_differ(play: DaemonInAFolder, usd: float) -> None:
    """At most six, from 0 up, whatever was spent."""
    report = replace(
        month_report(
            play.storage, NOVEMBER, MonthMoney(usd_per_hour=None, cap_usd=None), now=play.clock.instant
        ),
        days={"2026-11-13": usd},
    )
    labels = re.findall(r">(\$[\d,.]+)</text>", report.page(made_by="by a test"))
    amounts = [float(label[1:].replace(",", "")) for label in labels]
    assert 2 <= len(amounts) <= 6
    assert amounts == sorted(set(amounts))
    assert amounts[0] == 0.0
    assert all(f"{amount:.3e}"[:5] in ("1.000", "2.000", "2.500", "5.000") for amount in amounts[1:2])


def test_what_happens_after_a_month_is_not_in_its_report(tmp_path: Path) -> None:
    """A job that runs on, and nodes, boots and jobs of December, change nothing of November."""
    teams = {"red": {"members": ["ann"]}, "blue": {"members": ["bob"]}}
    found = DaemonInAFolder(tmp_path, ManualClock(DECEMBER - 3.0 * 3600.0), {"teams": teams})
    reports = []
    try:
        found.service.submit([job_content(hours=20.0)], user="ann")
        while found.clock.instant < DECEMBER + 30.0 * 3600.0:
            found.daemon.tick()
            now = found.clock.instant
            if now == DECEMBER:
                reports.append([month_report(found.storage, NOVEMBER, MONEY, now=now)])
                reports[0] += [
                    team_month_report(found.storage, NOVEMBER, one, None, now=now) for one in teams
                ]
            if now == DECEMBER + 3600.0:
                for user in ("ann", "bob"):
                    found.service.submit([job_content(hours=2.0)], user=user)
            found.clock.instant += 300.0
        reports.append([month_report(found.storage, NOVEMBER, MONEY, now=now)])
        reports[1] += [team_month_report(found.storage, NOVEMBER, one, None, now=now) for one in teams]
    finally:
        found.close()
    for then, later in zip(*reports, strict=True):
        assert later.usd == pytest.approx(then.usd), then.team
        for by, rows in then.groups.items():
            assert dict(later.groups[by]) == pytest.approx(dict(rows), abs=1e-6), (then.team, by)
    assert reports[0][0].usd > 0.0


def test_the_report_is_sent_once_after_the_month(
    play: DaemonInAFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The page is one file; a daemon that started this month has nothing to tell."""
    said, path = sent(play, monkeypatch, tmp_path / "reports")
    assert path == tmp_path / "reports" / "2026-11.html"
    assert len(said) == 1
    assert said[0].startswith("November 2026: $")
    page = path.read_text()
    assert "<svg" in page
    assert "http" not in page.partition("</style>")[2].replace("http-equiv", "")
    assert sent(play, monkeypatch, tmp_path / "reports") == ([], None)

    play.storage.store.reopen_books(DECEMBER + 60.0)
    play.clock.instant = DECEMBER + 7200.0
    assert sent(play, monkeypatch, tmp_path / "reports") == ([], None)


LONG = "a-team-of-the-large-language-models-of-the-whole-organisation-xyz"
NAMES = (LONG, "צוות-ראייה", "فريق-الرؤية", "日本語", "O'Brien & <b>Sons</b>", "a\nb", "\u202eevil", "ann")
"""Names as an organisation may bring them."""


def of_many(report: MonthReport, **more: Any) -> MonthReport:
    """Return a report in which thousands have spent something, the first of them under any names."""
    rows = [(name, 1000.0 / (n + 1)) for n, name in enumerate([*NAMES, *(f"u{n}" for n in range(3000))])]
    days = {f"2026-11-{day:02d}": 300.0 for day in range(1, 31)}
    groups = {by: list(reversed(rows[:8])) + rows[8:] for by in ("user", "team", "class", "job", "kind")}
    return replace(report, days=days, groups=groups, ends={"finished": 4123, "failed": 77}, **more)


@pytest.mark.parametrize("team", ["", "צוות-ראייה", LONG])
def test_the_message_is_short_lines_of_plain_text(play: DaemonInAFolder, team: str) -> None:
    """A chat takes 2,000 letters; a name ends its line, so that it turns no amount around."""
    report = of_many(month_report(play.storage, NOVEMBER, MONEY, now=play.clock.instant), team=team)
    lines = report.message.splitlines()
    rows = [line for line in lines if line.startswith("- $")]
    assert len(report.message) < 2000
    assert lines[0] == report.lead
    assert lines[2] == "What is not well:"
    assert len(rows) == 5 * (2 if team else 3) + sum("more than the budget" in one for one in report.bad)
    assert all(re.match(r"- \$[\d,.]+ (\(\d+%\) .|more than)", line) for line in rows), rows
    assert max(len(line) for line in rows) < 70
    assert "3,004 others" in report.message
    assert lines[-1] == "Jobs that ended: 77 failed, 4,123 finished."
    assert "\u202e" not in report.message


def test_the_budget_is_told_below_the_drawing(play: DaemonInAFolder) -> None:
    """Over the bars it could not be read, and on a phone it was outside of the picture."""
    page = month_report(play.storage, NOVEMBER, MONEY, now=play.clock.instant).page(made_by="by a test")
    drawing, _, after = page.partition("<svg")[2].partition("</svg>")
    assert "budget" not in drawing.partition(">")[2]
    assert "Dashed: the budget, $24.00 a day." in after


def test_what_was_not_well_is_said_first(play: DaemonInAFolder) -> None:
    """Spent above the budget, a cap that was reached, jobs that failed, GPUs that nobody used."""
    report = month_report(
        play.storage, NOVEMBER, MonthMoney(usd_per_hour=0.0001, cap_usd=0.01), now=play.clock.instant
    )
    object.__setattr__(report, "ends", {"finished": 3, "failed": 1})
    said = " ".join(report.bad)

    for words in ("more than the budget were spent", "cap of $0.01 was reached", "1 job failed, 25% of"):
        assert words in said
        assert report.page(made_by="").index(words) < report.page(made_by="").index("<svg")


def test_a_month_is_compared_with_a_month_that_was_seen_whole(play: DaemonInAFolder) -> None:
    """October's first dollars came on its second day, or on its tenth."""
    report = month_report(play.storage, NOVEMBER, MONEY, now=play.clock.instant)
    for first, is_compared in (("2026-10-02", True), ("2026-10-10", False)):
        object.__setattr__(report, "days", {**report.days, first: 2.0})
        assert ("against the month before" in report.lead) is is_compared
        object.__setattr__(report, "days", {d: usd for d, usd in report.days.items() if d != first})


@pytest.mark.parametrize("text", ["2026", "2026-13", "November", "2026-11-01", ""])
def test_no_month_is_refused(text: str) -> None:
    """The hint shows how to write one."""
    with pytest.raises(InputError, match="is no month"):
        instant_of_month(text)


def test_the_service_answers_for_months_that_have_begun(play: DaemonInAFolder) -> None:
    """The budget is that of the settings."""
    report: Any = play.service.month("2026-11")
    assert report.money == month_money(play.daemon.settings.budget, ())
    assert datetime.fromtimestamp(report.until, UTC).month == 12
    with pytest.raises(InputError, match="has not begun"):
        play.service.month("2027-01")


TEAMS = {
    "red": {"members": ["ann", "bob"], "usd_per_month_cap": 2000.0, "webhook": "https://red.example/hook"},
    "blue": {"members": ["carol"], "usd_per_month_cap": 9000.0},
    "idle": {"members": ["dora"]},
}


@pytest.fixture
def teams(tmp_path: Path) -> Iterator[DaemonInAFolder]:
    """Yield a daemon with three teams, of which two had jobs on the last evening of November."""
    users = {"carol": {"webhook": "https://carol.example/hook"}}
    found = DaemonInAFolder(tmp_path, ManualClock(DECEMBER - 8 * 3600.0), {"teams": TEAMS, "users": users})
    found.daemon.tick()
    for user, hours in (("ann", 1.0), ("bob", 0.5), ("carol", 1.5)):
        found.service.submit([job_content(hours=hours)], user=user)
    while found.clock.instant < DECEMBER + 3600.0:
        found.daemon.tick()
        found.clock.instant += 300.0
    yield found
    found.close()


def test_a_teams_report_is_its_row_of_the_sites_report(teams: DaemonInAFolder) -> None:
    """Verdict with its cap first; by user, class and job; nothing of other teams."""
    site = month_report(teams.storage, NOVEMBER, MONEY, now=teams.clock.instant)
    rows = dict(site.groups["team"])
    for name, users in (("red", {"ann", "bob"}), ("blue", {"carol"})):
        report = team_month_report(teams.storage, NOVEMBER, name, 2000.0, now=teams.clock.instant)
        document = report.to_document()
        assert document["usd"] == pytest.approx(rows[name])
        assert (document["team"], document["cap_usd"]) == (name, 2000.0)
        for by, found in document["groups"].items():
            assert sum(row["usd"] for row in found) == pytest.approx(document["usd"]), by
        assert {row["name"] for row in document["groups"]["user"]} == users
        assert document["jobs"] == {"finished": len(users)}
        assert report.lead.startswith(f"Team {name}, November 2026: ${document['usd']:,.2f} spent, ")
        assert "of its cap of $2,000.00" in report.lead
        assert teams.service.month("2026-11", team=name).usd == pytest.approx(report.usd)
    with pytest.raises(InputError, match="there is no team 'rad'"):
        teams.service.month("2026-11", team="rad")


def test_a_teams_cap_that_was_reached_is_said(teams: DaemonInAFolder) -> None:
    """Before the figures, as what was not well."""
    report = team_month_report(teams.storage, NOVEMBER, "red", 0.01, now=teams.clock.instant)
    assert "The team's cap of $0.01 was reached." in report.bad
    assert "The team&#x27;s cap of $0.01 was reached." in report.page(made_by="by a test")


def test_a_cap_that_only_boots_exceed_was_not_reached(teams: DaemonInAFolder) -> None:
    """The purse counts GPUs from claim to release, and so does what is said of the cap."""
    now = teams.clock.instant
    whole = team_month_report(teams.storage, NOVEMBER, "red", None, now=now)
    purses = Purses(queue=teams.storage.queue).money(
        {"red": TeamTerms(usd_per_month_cap=1.0)}, now=DECEMBER - 1.0, usd_per_hour=1.0, half_life_hours=24.0
    )
    assert whole.boots_usd > 0.0
    assert whole.capped_usd == pytest.approx(purses["red"].spent_month_usd, rel=1e-3)
    cap = whole.usd - 0.5 * whole.boots_usd
    report = team_month_report(teams.storage, NOVEMBER, "red", cap / 0.98, now=now)
    assert not any("was reached" in said for said in report.bad)
    assert f"does not count ${whole.boots_usd:,.2f} of boots" in report.lead
    assert report.to_document()["boots_usd"] == whole.boots_usd


def test_teams_hear_of_their_own_month_once_over_their_own_channels(
    teams: DaemonInAFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A team's webhook, else its members'; the site's channels hear nothing; an idle team gets no report."""
    said: list[tuple[str, str]] = []
    monkeypatch.setattr(
        teams.daemon.alerts._sender,
        "send",
        lambda channels, sentence, *_: said.extend((one[1], sentence) for one in channels),
    )
    settings, folder = teams.daemon.settings, tmp_path / "reports"

    def send() -> list[Path]:
        return send_team_reports(
            teams.storage, teams.daemon.alerts, folder, settings.teams, settings.users,
            made_by="by a test", now=teams.clock.instant,
        )  # fmt: skip

    assert [path.name for path in send()] == ["2026-11-red.html", "2026-11-blue.html"]
    assert [url for url, _ in said] == ["https://red.example/hook", "https://carol.example/hook"]
    assert said[0][1].startswith("Team red, November 2026: $")
    assert "carol" not in said[0][1] + (folder / "2026-11-red.html").read_text()
    assert send() == []


@pytest.mark.parametrize("name", ["nlp/eu", "../x", "ml vision", "größe", "é" * 200, 'a"b', "a\nb", "con"])
def test_a_team_of_any_name_gets_its_report_and_keeps_no_other_from_it(tmp_path: Path, name: str) -> None:
    """The file is in the folder of reports, and its name goes into a header."""
    teams = {name: {"members": ["ann"]}, "last": {"members": ["bob"]}}
    play = DaemonInAFolder(tmp_path, ManualClock(DECEMBER - 3600.0), {"teams": teams})
    folder = tmp_path / "reports"
    try:
        for user in ("ann", "bob"):
            play.service.submit([job_content(hours=0.2)], user=user)
        while play.clock.instant < DECEMBER + 600.0:
            play.daemon.tick()
            play.clock.instant += 300.0
        settings = play.daemon.settings
        paths = send_team_reports(
            play.storage, play.daemon.alerts, folder, settings.teams, settings.users,
            made_by="by a test", now=play.clock.instant,
        )  # fmt: skip
        report = play.service.month("2026-11", team=name)
    finally:
        play.close()
    assert len(paths) == 2
    assert sorted(paths) == sorted(folder.iterdir())
    assert paths[1].name == "2026-11-last.html"
    assert report.file_name == paths[0].name
    assert re.fullmatch(r"[A-Za-z0-9_.~%-]+", report.file_name)


@pytest.mark.first_set(1)
@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (768, "light"), (1280, "dark")])
def test_a_month_is_read_on_a_phone_and_printed(
    teams: DaemonInAFolder, tmp_path: Path, width: int, scheme: str
) -> None:
    """Verdict first; nothing scrolls the page sideways, nothing is asked of others; two pages of paper."""
    pages = {
        "site": month_report(teams.storage, NOVEMBER, MONEY, now=teams.clock.instant),
        "team": team_month_report(teams.storage, NOVEMBER, "red", 2000.0, now=teams.clock.instant),
    }
    pages["many"] = of_many(pages["site"])
    with a_browser() as browser:
        for name, report in pages.items():
            file = tmp_path / f"{name}.html"
            file.write_text(report.page(made_by="by a test"))
            tab = Tab(browser, width=width, scheme=scheme)
            tab.page.goto(file.as_uri())
            assert faults_of(tab.page) == [], name
            assert tab.asked == [file.as_uri()]
            assert str(tmp_path) not in file.read_text()
            lead = tab.page.locator("p.lead").bounding_box()
            assert lead is not None
            assert lead["y"] < 200
            paper = tab.page.pdf(format="A4")
            assert 1 <= paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page ") <= 4
            tab.close()
