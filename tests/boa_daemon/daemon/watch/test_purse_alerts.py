"""Alerts about purses of teams, users, jobs and commitments, and over which channels they go.

The channels are a real SMTP server and a real HTTP server on this machine.
"""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.loop.assembly import open_storage
from boa_daemon.daemon.settings.config import AlertSettings, TeamSettings, UserSettings
from boa_daemon.daemon.watch.alerts import Alerts, due_alerts
from boa_daemon.daemon.watch.purse_alerts import (
    JobMoney,
    Purse,
    commitment_purses,
    due_purse_alerts,
    job_purses,
    team_and_user_purses,
)
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.testing import ManualClock, a_state
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.limits import DAY_SECONDS, Caps, FixedCost
from boa_daemon.tick.facts.state import UserMoney
from boa_daemon.tick.facts.team_money import TeamMoney

# apprise imports modules that Python is to remove.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated and slated for removal:DeprecationWarning")
FRACTIONS = (0.5, 0.8, 1.0)
NOON = 14 * DAY_SECONDS + DAY_SECONDS / 2


def purses(**teams: TeamMoney) -> list[Purse]:
    """Return the purses of teams at noon, without running jobs."""
    return team_and_user_purses(a_state(now=NOON, teams=teams), reserve_seconds=900.0)


def due(found: list[Purse]) -> list[str]:
    """Return the keys of the alerts that are due."""
    return [key for _, key, _ in due_purse_alerts(found, FRACTIONS)]


def test_a_team_is_alerted_at_each_fraction_of_both_caps() -> None:
    """49.9 of 100 USD is nothing; 80 is two alerts, the higher first; the month has its own."""
    assert due(purses(red=TeamMoney(day_cap_usd=100.0, spent_today_usd=49.9))) == []
    assert due(purses(red=TeamMoney(day_cap_usd=100.0, spent_today_usd=80.0))) == [
        "team:red:day:1970-01-15:of 100:0.8",
        "team:red:day:1970-01-15:of 100:0.5",
    ]
    assert due(purses(red=TeamMoney(month_cap_usd=100.0, spent_month_usd=50.0))) == [
        "team:red:month:1970-01:of 100:0.5"
    ]


def test_a_user_is_alerted_like_a_team() -> None:
    """The whole cap is spent: the sentence says when there is room again."""
    state = a_state(now=NOON, users={"ann": UserMoney(cap_usd=4.0, spent_usd=4.0)})
    found = list(due_purse_alerts(team_and_user_purses(state, reserve_seconds=900.0), FRACTIONS))
    assert [key for _, key, _ in found] == [
        f"user:ann:day:1970-01-15:of 4:{part}" for part in ("1", "0.8", "0.5")
    ]
    assert found[0][2] == (
        "user ann today (UTC): $4.00 spent, 100% of the cap of $4.00; "
        "there is room again at 1970-01-16 00:00 UTC"
    )


def test_a_forecast_says_when_the_cap_is_used_up() -> None:
    """60 of 100 USD, 8 USD/hour, 12 hours left: the cap lasts 5 hours."""
    purse = Purse(
        kind="team", name="red", window="day 1970-01-15", spent_usd=60.0, cap_usd=100.0, usd_per_hour=8.0,
        forecast_usd=156.0, reserved_usd=2.0,
    )  # fmt: skip
    sentences = {key: said for _, key, said in due_purse_alerts([purse], FRACTIONS)}
    assert "used up in 5.00 h" in sentences["team:red:day:1970-01-15:of 100:forecast"]
    assert "running jobs have $2.00 reserved" in sentences["team:red:day:1970-01-15:of 100:0.5"]


def test_a_job_is_alerted_at_fractions_of_its_max_usd_and_ahead_of_it() -> None:
    """A job at 6 of 10 USD that will cost 14: one fraction, and the forecast."""
    found = job_purses(
        [JobMoney(name="j-1", user="ann", spent_usd=6.0, max_usd=10.0, usd_per_hour=2.0, hours_left=4.0)]
    )
    assert due(found) == ["job:j-1:of 10:0.5", "job:j-1:of 10:forecast"]
    assert found[0].owner == "ann"


def test_a_commitment_is_alerted_as_it_runs_out() -> None:
    """Half, four fifths and all of its term; one that has not begun or has no end is silent."""
    one = FixedCost(name="plan", usd_per_hour=2.0, begins_at=0.0, ends_at=100 * 3600.0)
    assert due(commitment_purses([one], 49 * 3600.0)) == []
    assert due(commitment_purses([one], 80 * 3600.0)) == ["commitment:plan:0.8", "commitment:plan:0.5"]
    assert due(commitment_purses([one], 200 * 3600.0))[0] == "commitment:plan:1"
    open_ended = FixedCost(name="x", usd_per_hour=2.0, begins_at=0.0)
    assert commitment_purses([open_ended, FixedCost(name="y", usd_per_hour=1.0)], 1e6) == []


def at_part(kind: str, part: float) -> list[Purse]:
    """Return one purse of 100 USD, of which this part is spent and nothing more will be."""
    spent = 100.0 * part
    if kind == "team-day":
        return purses(red=TeamMoney(day_cap_usd=100.0, spent_today_usd=spent))
    if kind == "team-month":
        return purses(red=TeamMoney(month_cap_usd=100.0, spent_month_usd=spent))
    if kind == "user":
        state = a_state(now=NOON, users={"ann": UserMoney(cap_usd=100.0, spent_usd=spent)})
        return team_and_user_purses(state, reserve_seconds=900.0)
    if kind == "commitment":
        one = FixedCost(name="plan", usd_per_hour=1.0, begins_at=0.0, ends_at=100 * 3600.0)
        return commitment_purses([one], spent * 3600.0)
    return job_purses(
        [JobMoney(name="j-1", user="ann", spent_usd=spent, max_usd=100.0, usd_per_hour=1.0, hours_left=0.0)]
    )


@pytest.mark.parametrize("kind", ["team-day", "team-month", "user", "job", "commitment"])
@pytest.mark.parametrize("fraction", FRACTIONS)
def test_every_purse_speaks_at_every_fraction_and_not_before(
    kind: str, fraction: float, inbox: Inbox
) -> None:
    """A cent before it is silent; at it the sentence arrives by mail and by webhook, with the figures."""
    before = due(at_part(kind, fraction - 1e-4))
    reached = list(due_purse_alerts(at_part(kind, fraction), FRACTIONS))
    assert f"{fraction:g}" not in {key.rpartition(":")[2] for key in before}
    purse, key, sentence = reached[0]
    assert key.rpartition(":")[2] == f"{fraction:g}"
    assert f"{fraction:.0%} of" in sentence
    assert "$100.00" in sentence
    assert ("there is room again" in sentence) == (fraction == 1.0 and purse.kind in ("team", "user"))
    alerts = Alerts(None, AlertSettings())
    owners = [UserSettings(webhook=f"{inbox.webhook}/own"), UserSettings(apprise=[inbox.mail])]
    alerts.tell_owners(key, sentence, owners, at=NOON, is_site=True)
    alerts.close()
    assert inbox.posted == [("/own", f"BOA: {sentence}")]
    (mail,) = inbox.mails
    body = mail.replace("=\r\n", "").replace("\r\n", "")
    assert sentence[:40] in body


@pytest.mark.parametrize("unit", ["day", "month"])
@pytest.mark.parametrize("fraction", FRACTIONS)
def test_the_sites_caps_speak_at_every_fraction(unit: str, fraction: float) -> None:
    """A cent before it is silent, and the forecast of a quiet site too."""
    caps = Caps(usd_per_day=100.0) if unit == "day" else Caps(usd_per_month=100.0)

    def at(part: float) -> set[str]:
        amount = round(part * 100.0 * 1e6)
        field_of = {"day": "settled_today_micro_dollars", "month": "settled_month_micro_dollars"}[unit]
        state = replace(a_state(now=NOON), **{field_of: amount})
        return {key.rpartition(":")[2] for key, _ in due_alerts(state, caps, FRACTIONS)}

    assert at(fraction - 1e-4) == {f"{one:g}" for one in FRACTIONS if one < fraction}
    assert at(fraction) == {f"{one:g}" for one in FRACTIONS if one <= fraction}


@dataclass
class Inbox:
    """What a mail server and a webhook received."""

    webhook: str = ""
    mail: str = ""
    posted: list[tuple[str, str]] = field(default_factory=list)
    mails: list[str] = field(default_factory=list)


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    """Yield a mail server and a webhook server on this machine."""
    found = Inbox()

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
            found.posted.append((self.path, text))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    class Mail(socketserver.StreamRequestHandler):
        """Speaks enough SMTP (RFC 5321) to take a message."""

        def handle(self) -> None:
            self.say("220 mail.example")
            while line := self.rfile.readline().decode().strip():
                word = line.split()[0].upper()
                if word == "EHLO":
                    self.say("250 mail.example")
                elif word == "DATA":
                    self.say("354 go on")
                    body = []
                    while (row := self.rfile.readline()) not in (b".\r\n", b""):
                        body.append(row.decode())
                    found.mails.append("".join(body))
                    self.say("250 taken")
                elif word == "QUIT":
                    self.say("221 bye")
                    return
                else:
                    self.say("250 well")

        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

    with (
        HTTPServer(("127.0.0.1", 0), Hook) as hook,
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mail) as mail,
    ):
        for server in (hook, mail):
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        found.webhook = f"http://127.0.0.1:{hook.server_address[1]}"
        found.mail = f"mailto://127.0.0.1:{mail.server_address[1]}?from=boa@mail.example&to=ann@mail.example"
        yield found
        for server in (hook, mail):
            server.shutdown()


def told(inbox: Inbox, owners: list[Any], *, is_site: bool, times: int = 1) -> Inbox:
    """Send an alert to owners, and return what arrived."""
    alerts = Alerts(None, AlertSettings(webhook=f"{inbox.webhook}/site"))
    for _ in range(times):
        alerts.tell_owners("k", "team red: 80% spent", owners, at=NOON, is_site=is_site)
    alerts.close()
    return inbox


def test_an_alert_goes_over_the_owners_mail_and_webhook_once(inbox: Inbox) -> None:
    """Two members, one by mail, one by webhook; the second time nothing is sent."""
    found = told(
        inbox,
        [UserSettings(apprise=[inbox.mail]), UserSettings(webhook=f"{inbox.webhook}/bob")],
        is_site=True,
        times=2,
    )
    assert found.posted == [("/bob", "BOA: team red: 80% spent")]
    (mail,) = found.mails
    assert "Subject: BOA: team red" in mail
    assert "To: ann@mail.example" in mail
    assert "team red: 80% spent" in mail


def test_members_with_one_channel_hear_once(inbox: Inbox) -> None:
    """A channel that two members share gets one message."""
    url = f"{inbox.webhook}/shared"
    assert told(inbox, [UserSettings(webhook=url), UserSettings(webhook=url)], is_site=True).posted == [
        ("/shared", "BOA: team red: 80% spent")
    ]


def a_purse(kind: str, unit: str, *, now: float, spent: float, cap: float) -> tuple[list[Purse], list[str]]:
    """Return a purse and what is due of it; the site's has no purse."""
    if kind == "site":
        caps = Caps(usd_per_day=cap) if unit == "day" else Caps(usd_per_month=cap)
        part = "settled_today_micro_dollars" if unit == "day" else "settled_month_micro_dollars"
        state = replace(a_state(now=now), **{part: round(spent * 1e6)})
        return [], [key for key, _ in due_alerts(state, caps, FRACTIONS)]
    if kind == "user":
        state = a_state(now=now, users={"ann": UserMoney(cap_usd=cap, spent_usd=spent)})
    else:
        names = ("day_cap_usd", "spent_today_usd") if unit == "day" else ("month_cap_usd", "spent_month_usd")
        state = a_state(now=now, teams={"red": TeamMoney(**dict(zip(names, (cap, spent), strict=True)))})
    found = team_and_user_purses(state, reserve_seconds=900.0)
    return found, due(found)


@pytest.mark.parametrize(
    ("kind", "unit"),
    [("site", "day"), ("site", "month"), ("team", "day"), ("team", "month"), ("user", "day")],
)
def test_a_cap_that_is_changed_within_its_window_speaks_anew_and_each_window_once(
    tmp_path: Path, inbox: Inbox, kind: str, unit: str
) -> None:
    """Raised after all was said of it, it was silent to its end; restarts and repeats say nothing twice."""
    end_of_january = 31 * DAY_SECONDS - 60.0
    rows = [
        # (seconds since 1970, spent, cap, alerts that are new)
        (end_of_january - 3600.0, 49.0, 100.0, 0),
        (end_of_january - 2700.0, 49.0, 60.0, 2),
        (end_of_january - 1800.0, 100.0, 100.0, 3),
        (end_of_january - 900.0, 100.0, 100.0, 0),
        (end_of_january - 600.0, 110.0, 300.0, 0),
        (end_of_january - 500.0, 150.0, 300.0, 1),
        (end_of_january - 400.0, 299.0, 300.0, 1),
        (end_of_january - 300.0, 300.0, 300.0, 1),
        (end_of_january + 61.0, 0.0, 250.0, 0),
        (end_of_january + 99.0, 130.0, 250.0, 1),
        (end_of_january + DAY_SECONDS + 61.0, 130.0, 250.0, 1 if unit == "day" else 0),
    ]
    sent = 0
    for now, spent, cap, new in rows:
        storage = open_storage(sqlite_url(tmp_path / "boa.sqlite"))  # Each row is after a restart.
        alerts = Alerts(storage.store.database, AlertSettings(webhook=f"{inbox.webhook}/site"))
        found, keys = a_purse(kind, unit, now=now, spent=spent, cap=cap)
        for key in (*keys, *keys):
            alerts.say(key, key, at=now)
        alerts.close()
        storage.close()
        sent += new
        assert len(inbox.posted) == sent, (now, spent, cap, inbox.posted)
        assert not found or found[0].cap_usd == cap


@pytest.mark.parametrize(
    ("is_site", "posted"), [(True, [("/site", "BOA: team red: 80% spent")]), (False, [])]
)
def test_without_channels_of_its_own_a_purse_speaks_to_the_site(
    inbox: Inbox, is_site: bool, posted: list[tuple[str, str]]
) -> None:
    """Alerts of teams and users reach the site's channels; those of jobs are only listed."""
    assert told(inbox, [TeamSettings(), UserSettings()], is_site=is_site).posted == posted


def test_a_daemon_tells_a_team_and_a_user_of_their_caps(tmp_path: Path, inbox: Inbox) -> None:
    """A real daemon: a job of ann in team red costs money until half of both caps is spent."""
    settings = {
        "teams": {"red": {"members": ["ann"], "usd_per_day_cap": 1.0, "webhook": f"{inbox.webhook}/red"}},
        "users": {"ann": {"usd_per_day_cap": 1.0, "apprise": [inbox.mail]}},
    }
    clock = ManualClock(NOON)
    site = DaemonInAFolder(tmp_path, clock, settings)
    (job,) = site.service.submit([job_content(hours=5.0, max_usd=0.9)], user="ann")["jobs"]
    for _ in range(70):
        site.daemon.tick()
        clock.instant += 30.0
    (waits,) = site.service.submit([job_content("late", hours=5.0)], user="ann")["jobs"]
    site.daemon.tick()
    status, explained = site.service.status(), site.service.explain(waits)["text"]
    metrics = site.daemon.metrics.text().decode()
    keys = {alert["key"] for alert in site.service.alerts()["alerts"]}
    site.close()
    assert f"job:{job}:of 0.9:0.5" in keys
    assert f"job:{job}:of 0.9:forecast" in keys
    assert 'boa_purse_spent_dollars{kind="team",name="red",window="day"}' in metrics
    assert " is spent" in explained
    assert " is reserved for what runs" in explained
    assert "there is room at 1970-01-16 00:00 UTC, or sooner when running jobs end" in explained
    (day,) = [purse for purse in status["purses"] if purse["kind"] == "team"]
    assert 0.5 <= day["spent_usd"] <= 1.0
    assert {path for path, _ in inbox.posted} == {"/red"}
    assert any("team red today (UTC)" in text for _, text in inbox.posted)
    assert any("user ann today" in mail for mail in inbox.mails)
