"""Notices from the cloud through an SQS queue: spot warnings, rebalance advice and state changes.

EventBridge delivers at least once, in any order, and best effort. So a notice only adds facts: when a node
will end, or when it ended. A node that vanishes from the listing is noticed without any of this.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event, Lock, Thread
from typing import Any, Literal, TypeAlias

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.inputs.message_validation import json_object, parse_event
from boa_daemon.tick.facts.ports import WARNING_SECONDS
from policies.model import NodeId

SPOT_WARNING_SECONDS = WARNING_SECONDS
_PAUSE_SECONDS = 30.0
SOURCE = "the cloud's queue"
NoticeKind: TypeAlias = Literal["spot-warning", "rebalance", "state-change"]
_KINDS: Mapping[str, NoticeKind] = {
    "EC2 Spot Instance Interruption Warning": "spot-warning",
    "EC2 Instance Rebalance Recommendation": "rebalance",
    "EC2 Instance State-change Notification": "state-change",
}
_ENDING_STATES = frozenset({"shutting-down", "terminated", "stopping", "stopped"})


def spot_warning(node: NodeId, at: float) -> dict[str, str]:
    """Return a queue message as EC2 sends it before it takes a spot instance back."""
    document = {
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "time": datetime.fromtimestamp(at, tz=UTC).isoformat(),
        "detail": {"instance-id": node, "instance-action": "terminate"},
    }
    return {"Body": json.dumps(document)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One event of one instance; state changes have a `state`."""

    kind: NoticeKind
    node: NodeId
    at: float
    state: str = ""


class Notices:
    """The notices received so far; one thread writes them, others read them."""

    def __init__(self, keep: int = 10_000) -> None:
        self._ends_by: dict[NodeId, float] = {}
        self._ended_at: dict[NodeId, float] = {}
        self._ran_at: dict[NodeId, float] = {}
        self._keep = keep
        self.concerns: Callable[[NodeId], bool] = lambda node: True
        """Whether an instance may be ours: rules of EventBridge send the events of the whole account."""
        self.count = 0
        """How many notices have come: a new one means that something has changed."""
        self._lock = Lock()

    def add(self, notice: Notice) -> bool:
        """Record a notice; return whether it is news that requires a tick at once.

        Rebalance advice is ignored: it may come long before an interruption, or without one. So are notices
        about instances of others.
        """
        if not self.concerns(notice.node):
            return False
        with self._lock:
            self.count += 1
            if notice.kind == "spot-warning":
                return self._note(self._ends_by, notice.node, notice.at + SPOT_WARNING_SECONDS)
            if notice.kind == "state-change" and notice.state in _ENDING_STATES:
                return self._note(self._ended_at, notice.node, notice.at)
            if notice.state == "running":
                self._ran_at.pop(notice.node, None)
                self._note(self._ran_at, notice.node, notice.at)
            return notice.kind == "state-change"

    def ends_by(self, node: NodeId) -> float | None:
        """Return when the cloud takes a node back; None without a notice."""
        with self._lock:
            return self._ends_by.get(node)

    def ended_at(self, node: NodeId) -> float | None:
        """Return when a node left `running` for good; None without a notice."""
        with self._lock:
            return self._ended_at.get(node)

    def ran_at(self, node: NodeId) -> float | None:
        """Return when a node's last run began; None without a notice, which proves nothing."""
        with self._lock:
            return self._ran_at.get(node)

    def _note(self, notes: dict[NodeId, float], node: NodeId, instant: float) -> bool:
        """Keep a node's earliest instant; return whether it is the first. The oldest notes are dropped."""
        is_news = node not in notes
        notes[node] = min(instant, notes.get(node, instant))
        while len(notes) > self._keep:
            del notes[next(iter(notes))]
        return is_news


class InterruptionQueue:
    """Reads the queue; calls `wake` once for each batch with news."""

    def __init__(self, calls: AwsCalls, queue_url: str, notices: Notices, wake: Callable[[], None]) -> None:
        self._calls, self._queue_url, self._notices, self._wake = calls, queue_url, notices, wake
        self.unreadable = 0

    def poll_once(self, wait_seconds: int = 20) -> list[Notice]:
        """Read up to ten messages, record and delete them, and return their notices.

        Messages of other kinds are deleted too, or they would come back for ever.

        Raises:
            CallFailed: when the queue cannot be read.
        """
        answer = self._calls.call(
            "sqs:ReceiveMessage",
            QueueUrl=self._queue_url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=wait_seconds,
            VisibilityTimeout=20,
        )
        messages = answer.get("Messages", [])
        notices = self.take(messages)
        if messages:
            handles = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(messages)
                if message.get("ReceiptHandle")
            ]
            self._calls.call("sqs:DeleteMessageBatch", QueueUrl=self._queue_url, Entries=handles)
        return notices

    def take(self, messages: Sequence[Mapping[str, Any]]) -> list[Notice]:
        """Record the notices in messages, request a tick if there is news, and return the notices."""
        notices = [notice for message in messages if (notice := self._read(message)) is not None]
        news = [self._notices.add(notice) for notice in notices]
        if any(news):
            self._wake()
        return notices

    def _read(self, message: Mapping[str, Any]) -> Notice | None:
        """Return a message as a notice; None if it is none."""
        document = json_object(message.get("Body"), SOURCE)
        found = None if document is None else parse_event(document, SOURCE)
        if found is None:
            self.unreadable += 1
            return None
        kind = _KINDS.get(found[0])
        return None if kind is None else Notice(kind=kind, node=found[1], at=found[2], state=found[3])


class Listener:
    """Reads the queue in its own thread until closed; `say` is told once of each series of failures."""

    def __init__(
        self, queue: InterruptionQueue, say: Callable[[str], None], *, wait_seconds: int = 20
    ) -> None:
        self._queue, self._say, self._wait_seconds = queue, say, wait_seconds
        self.fault = ""
        """Why the last poll failed; empty if it succeeded."""
        self._over = Event()
        self._thread = Thread(target=self._listen, name="boa-warnings", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening after the current poll."""
        self._over.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the end of the thread."""
        self._thread.join(timeout_seconds)

    def _listen(self) -> None:
        """Poll the queue; pause after a failure, so that a deleted queue costs nothing."""
        while not self._over.is_set():
            try:
                self._queue.poll_once(self._wait_seconds)
                self.fault = ""
            except Exception as error:
                # Catch everything: if this thread ended, no warning would be received any more.
                said = f"spot warnings cannot be received: {error}"
                if not self.fault:
                    self._say(said)
                self.fault = said
                self._over.wait(_PAUSE_SECONDS)
