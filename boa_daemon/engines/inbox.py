"""What nodes and the cloud say through one SQS queue: statuses of units, and spot warnings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

from policies.model import NodeId

NOTICE_SECONDS = 120.0
"""A spot instance ends two minutes after its warning."""
MOST_ROUNDS = 20


class SqsClient(Protocol):
    """What is used of boto3's SQS client."""

    def receive_message(self, **request: Any) -> Mapping[str, Any]:
        """Return up to ten messages."""
        ...

    def delete_message_batch(self, **request: Any) -> Mapping[str, Any]:
        """Delete messages."""
        ...


class Inbox:
    """Reads the queue until it is empty. `interruptions` are nodes that the cloud takes back, and when."""

    def __init__(self, sqs: SqsClient, queue_url: str) -> None:
        self._sqs, self._queue_url = sqs, queue_url
        self.interruptions: dict[NodeId, float] = {}

    def receive(self) -> Iterator[dict[str, Any]]:
        """Yield the statuses that have arrived; a queue that does not answer has none now.

        A batch is deleted once it was taken in; one that comes twice says nothing new.
        """
        for _ in range(MOST_ROUNDS):
            try:
                answer = self._sqs.receive_message(
                    QueueUrl=self._queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=0
                )
            except Exception:
                return
            messages = answer.get("Messages", [])
            for message in messages:
                document = _document(message["Body"])
                if "detail-type" in document:
                    self._note_warning(document)
                elif {"job", "generation", "rank", "exit"} <= document.keys():
                    yield document
            if not messages:
                return
            entries = [{"Id": str(at), "ReceiptHandle": m["ReceiptHandle"]} for at, m in enumerate(messages)]
            self._sqs.delete_message_batch(QueueUrl=self._queue_url, Entries=entries)

    def _note_warning(self, event: Mapping[str, Any]) -> None:
        """Remember a spot interruption warning as EventBridge sends it."""
        if event["detail-type"] == "EC2 Spot Instance Interruption Warning":
            at = datetime.fromisoformat(str(event["time"])).timestamp()
            self.interruptions[str(event["detail"]["instance-id"])] = at + NOTICE_SECONDS


def _document(body: str) -> dict[str, Any]:
    """Return a message's JSON object; empty where it is none."""
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
