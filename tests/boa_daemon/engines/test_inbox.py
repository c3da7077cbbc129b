"""`engines/inbox.py`: what nodes and the cloud say arrives once it is stored, and nothing is lost."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from boa_daemon.engines.inbox import MOST_ROUNDS, NOTICE_SECONDS, Inbox


class Queue:
    """A queue that notes what happens to its messages, in order."""

    def __init__(self, *bodies: str) -> None:
        self.messages = [{"Body": body, "ReceiptHandle": f"h{n}"} for n, body in enumerate(bodies)]
        self.events: list[str] = []
        self.fails: set[str] = set()

    def receive_message(self, **request: Any) -> Mapping[str, Any]:
        """Return the first messages."""
        if "receive" in self.fails:
            raise OSError("no network")
        self.events.append("received")
        return {"Messages": self.messages[: request["MaxNumberOfMessages"]]} if self.messages else {}

    def delete_message_batch(self, **request: Any) -> Mapping[str, Any]:
        """Delete messages."""
        if "delete" in self.fails:
            raise OSError("no network")
        handles = {entry["ReceiptHandle"] for entry in request["Entries"]}
        assert len({entry["Id"] for entry in request["Entries"]}) == len(handles) <= 10
        self.messages = [each for each in self.messages if each["ReceiptHandle"] not in handles]
        self.events.append(f"deleted {len(handles)}")
        return {}

    def kept(self) -> None:
        """Note that the statuses are stored."""
        self.events.append("stored")


def an_inbox(queue: Queue) -> Inbox:
    """Return an inbox that takes every document with a job for a status."""
    return Inbox(queue, "url", lambda document, _source: dict(document) if "job" in document else None)


def test_a_batch_is_deleted_only_after_its_statuses_are_stored() -> None:
    """A daemon that dies in between reads it again."""
    queue = Queue('{"job": "a"}', '{"job": "b"}')
    assert [each["job"] for each in an_inbox(queue).receive(queue.kept)] == ["a", "b"]
    assert queue.events == ["received", "stored", "deleted 2", "received"]


def test_the_queue_is_read_until_it_is_empty() -> None:
    """Ten messages at a time, but no more than so many rounds."""
    queue = Queue(*['{"job": "a"}'] * 25)
    assert len(list(an_inbox(queue).receive())) == 25
    assert queue.messages == []

    endless = Queue(*['{"job": "a"}'] * 10 * (MOST_ROUNDS + 1))
    assert len(list(an_inbox(endless).receive())) == 10 * MOST_ROUNDS


def test_a_message_that_is_no_status_is_deleted_as_well() -> None:
    """Otherwise it would come again for days."""
    queue = Queue("no json", "[]", '{"other": 1}', '{"job": "a"}')
    assert [each["job"] for each in an_inbox(queue).receive()] == ["a"]
    assert queue.messages == []


def test_a_spot_warning_says_when_the_node_ends() -> None:
    """Two minutes after the instant of the event; other events say nothing."""
    event = {
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "detail": {"instance-id": "i-0123456789abcdef0"},
        "time": "1970-01-01T01:00:00Z",
    }
    other = {**event, "detail-type": "EC2 Instance Rebalance Recommendation"}
    queue = Queue(json.dumps(other), json.dumps(event))
    inbox = an_inbox(queue)
    assert list(inbox.receive()) == []
    assert inbox.interruptions == {"i-0123456789abcdef0": 3600.0 + NOTICE_SECONDS}


def test_messages_that_cannot_be_deleted_come_again() -> None:
    """Their statuses are told all the same; a status twice does no harm."""
    queue = Queue('{"job": "a"}')
    queue.fails = {"delete"}
    inbox = an_inbox(queue)
    assert {each["job"] for each in inbox.receive()} == {"a"}
    queue.fails = set()
    assert [each["job"] for each in inbox.receive()] == ["a"]
    assert queue.messages == []


def test_a_queue_that_cannot_be_read_is_said_once_and_again_after_it_could(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not at every tick."""
    queue = Queue()
    inbox = an_inbox(queue)
    said = []
    with caplog.at_level(logging.WARNING, logger="boa.engine"):
        for fails in (True, True, False, True):
            queue.fails = {"receive"} if fails else set()
            assert list(inbox.receive()) == []
            said.append(len(caplog.records))
    assert said == [1, 1, 1, 2]
