"""A month's report: figures of the bills and jobs, sent once when the month is over, and as a page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.watch.month_report import (
    MonthMoney,
    instant_of_month,
    month_money,
    month_report,
    send_month_report,
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
