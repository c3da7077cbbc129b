"""Alerts: each one is sent once per period, and a failing channel does not stop the other channels."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import boto3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws
from sqlalchemy.exc import OperationalError

from boa_daemon.daemon.settings.config import AlertSettings
from boa_daemon.daemon.watch import alerts
from boa_daemon.daemon.watch.alerts import Alerts, budget_figures, due_alerts
from boa_daemon.testing import a_node, a_state
from boa_daemon.tick.facts.limits import DAY_SECONDS, Caps
from boa_daemon.tick.facts.state import ClusterState

FRACTIONS = (0.5, 0.8, 1.0)
NOON = 14 * DAY_SECONDS + DAY_SECONDS / 2
"""Noon of 15 January 1970."""


def spent(usd: float, *, now: float = NOON, nodes: int = 0) -> ClusterState:
    """Return a state in which `usd` was spent today and this month."""
    micro = round(usd * 1e6)
    return a_state(
        nodes=[a_node(f"n{n}", launched_at=now) for n in range(nodes)],
        now=now,
        settled_today_micro_dollars=micro,
        settled_month_micro_dollars=micro,
    )


def keys(state: ClusterState, caps: Caps) -> list[str]:
    """Return the keys of the alerts that are due."""
    return [key for key, _ in due_alerts(state, caps, FRACTIONS)]


def test_an_alert_is_due_at_each_fraction_of_a_cap() -> None:
    """With a cap of 100 USD, alerts are due at 50, 80 and 100 USD, and none is due at 49.999999 USD."""
    caps = Caps(usd_per_day=100.0)

    assert keys(spent(49.999999), caps) == []
    assert keys(spent(50.0), caps) == ["day:1970-01-15:of 100:0.5"]
    assert keys(spent(80.0), caps) == ["day:1970-01-15:of 100:0.5", "day:1970-01-15:of 100:0.8"]
    assert len(keys(spent(100.0), caps)) == 3


def test_a_forecast_extends_the_spend_rate_to_the_end_of_the_period() -> None:
    """8 USD/hour add 3168 USD in the 16.5 days left of January and 96 USD in the 12 hours left of the day."""
    state = spent(10.0, nodes=2)
    figures = budget_figures(state, Caps(usd_per_day=200.0, usd_per_month=3000.0))

    assert figures["month"]["forecast_usd"] == pytest.approx(10.0 + 8.0 * 24.0 * 16.5)
    assert figures["day"]["forecast_usd"] == pytest.approx(10.0 + 96.0)
    assert keys(state, Caps(usd_per_day=200.0, usd_per_month=3000.0)) == ["month:1970-01:of 3000:forecast"]
    assert keys(state, Caps(usd_per_month=4000.0)) == []


def test_each_day_has_its_own_alert_keys() -> None:
    """Alerts of today and of tomorrow have different keys, and without a cap no alert is due."""
    today, tomorrow = spent(60.0), spent(60.0, now=NOON + DAY_SECONDS)

    assert set(keys(today, Caps(usd_per_day=100.0))).isdisjoint(keys(tomorrow, Caps(usd_per_day=100.0)))
    assert keys(today, Caps()) == []


@settings(deadline=None)
@given(first=st.floats(0.0, 200.0), more=st.floats(0.0, 200.0))
def test_alerts_stay_due_when_more_is_spent(first: float, more: float) -> None:
    """More spending never removes an alert that was due."""
    caps = Caps(usd_per_day=100.0)

    assert set(keys(spent(first), caps)) <= set(keys(spent(first + more), caps))


class Slack(BaseHTTPRequestHandler):
    """A webhook that records posted documents and answers with `status`."""

    heard: list[dict[str, str]]
    status = 200

    def do_POST(self) -> None:
        """Record the posted document."""
        self.heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def slack() -> Iterator[tuple[str, type[Slack]]]:
    """Yield the address of a webhook and its handler class, which records what was posted."""

    class Here(Slack):
        heard: list[dict[str, str]] = []  # noqa: RUF012 - a fresh list for each test

    with HTTPServer(("127.0.0.1", 0), Here) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/services/s3cret", Here
        server.shutdown()
        thread.join()


def told(settings: AlertSettings, *sentences: str) -> list[bool]:
    """Send the sentences, each one as its own key, and return for each whether it was new."""
    found = Alerts(None, settings)
    said = [found.say(sentence, sentence, at=NOON) for sentence in sentences]
    found.close()
    return said


def test_a_webhook_gets_each_sentence_once(slack: tuple[str, type[Slack]]) -> None:
    """A repeated sentence is not posted again; each post is a Slack document."""
    url, here = slack

    assert told(AlertSettings(webhook=url), "half", "half", "whole") == [True, False, True]
    assert here.heard == [{"text": "BOA: half"}, {"text": "BOA: whole"}]


def test_an_alert_command_runs_without_a_shell(tmp_path: Path) -> None:
    """Shell syntax in the sentence or in the command is passed on as text."""
    seen = tmp_path / "seen"
    code = f"import os, sys; open({str(seen)!r}, 'w').write(os.environ['BOA_ALERT'] + sys.argv[1])"
    command = f'{sys.executable} -c "{code}" "$(id); |"'

    told(AlertSettings(command=command), "80% of $HOME; rm -rf /")

    assert seen.read_text(encoding="utf-8") == "80% of $HOME; rm -rf /$(id); |"


@mock_aws
def test_an_sns_topic_gets_the_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that subscribes to the topic in eu-west-1 receives the subject and the sentence."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    sns, sqs = (boto3.client(name, region_name="eu-west-1") for name in ("sns", "sqs"))
    topic = sns.create_topic(Name="boa")["TopicArn"]
    queue = sqs.create_queue(QueueName="boa")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)

    told(AlertSettings(sns_topic=topic), "the month will be over its cap")

    message = json.loads(sqs.receive_message(QueueUrl=queue)["Messages"][0]["Body"])
    assert (message["Subject"], message["Message"]) == ("BOA", "the month will be over its cap")
    sns.close()
    sqs.close()


@pytest.mark.parametrize(
    "trouble", ["refused", "answer 500", "bad address", "no such command", "exit code 3", "slow"]
)
def test_a_failing_channel_does_not_stop_the_others(
    trouble: str,
    slack: tuple[str, type[Slack]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The failure is logged without the secret of the address, and the other channel gets the alert."""
    url, here = slack
    seen = tmp_path / "seen"
    touch = f"{sys.executable} -c \"open('{seen}', 'w').close()\""
    settings = {
        "refused": AlertSettings(webhook="http://127.0.0.1:9/services/s3cret", command=touch),
        "answer 500": AlertSettings(webhook=url, command=touch),
        "bad address": AlertSettings(webhook="s3cret", sns_topic="not-an-arn", command=touch),
        "no such command": AlertSettings(webhook=url, command="/no/such/program"),
        "exit code 3": AlertSettings(webhook=url, command=f'{sys.executable} -c "raise SystemExit(3)"'),
        "slow": AlertSettings(webhook=url, command=f'{sys.executable} -c "import time; time.sleep(60)"'),
    }[trouble]
    here.status = 500 if trouble == "answer 500" else 200
    if trouble == "slow":
        monkeypatch.setattr(alerts, "SEND_SECONDS", 1.0)
    with caplog.at_level(logging.WARNING, "boa.alerts"):
        assert told(settings, "half") == [True]

    failures = [
        record.getMessage() for record in caplog.records if "could not be sent" in record.getMessage()
    ]
    assert failures
    assert "s3cret" not in caplog.text
    assert seen.exists() or here.heard == [{"text": "BOA: half"}]


def test_an_alert_is_sent_when_the_database_cannot_be_written(
    caplog: pytest.LogCaptureFixture, slack: tuple[str, type[Slack]]
) -> None:
    """With a full disk, the alert is still sent and the failed write is logged."""

    class Full:
        """A database on a full disk."""

        def write(self) -> object:
            """Fail."""
            raise OperationalError("insert", {}, Exception("database or disk is full"))

    url, here = slack
    found = Alerts(None, AlertSettings(webhook=url))
    found._database = Full()  # type: ignore[assignment]
    assert found.say("k", "half", at=NOON)
    found.close()

    assert "could not be written down" in caplog.text
    assert here.heard == [{"text": "BOA: half"}]
