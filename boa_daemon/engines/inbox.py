"""Messages from nodes and the cloud through one SQS queue: statuses of units, and spot warnings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from boa_daemon.inputs.message_validation import DROPPED_MESSAGES, json_object, parse_event
from policies.model import NodeId

_LOG = logging.getLogger("boa.engine")
SOURCE = "the engine's queue"

NOTICE_SECONDS = 120.0
"""Time from a spot warning to the end of the instance."""
MOST_ROUNDS = 20


class SqsClient(Protocol):
    """The part of boto3's SQS client that is used."""

    def receive_message(self, **request: Any) -> Mapping[str, Any]:
        """Return up to ten messages."""
        ...

    def delete_message_batch(self, **request: Any) -> Mapping[str, Any]:
        """Delete messages."""
        ...


class Inbox:
    """Reads the queue until it is empty. `interruptions` maps nodes that the cloud takes back to the time."""

    def __init__(
        self,
        sqs: SqsClient,
        queue_url: str,
        read_status: Callable[[Mapping[str, Any], str], dict[str, Any] | None],
    ) -> None:
        self._sqs, self._queue_url, self._read_status = sqs, queue_url, read_status
        self.interruptions: dict[NodeId, float] = {}
        self.fault = ""
        """Why the queue could not be read when last tried; empty if it could."""

    def receive(self, keep: Callable[[], None] = lambda: None) -> Iterator[dict[str, Any]]:
        """Yield the statuses that have arrived; none if the queue cannot be read.

        A batch is deleted only after `keep` has stored its statuses. A batch that comes twice does no harm.
        """
        for _ in range(MOST_ROUNDS):
            try:
                answer = self._sqs.receive_message(
                    QueueUrl=self._queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=0
                )
            except Exception as error:
                self._say_silent(error)
                return
            self.fault = ""
            messages = answer.get("Messages") or []
            for message in messages:
                status = self._read(message)
                if status is not None:
                    yield status
            if not messages:
                return
            keep()
            self._delete(messages)

    def _read(self, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the status in a message; store a spot warning; drop anything else."""
        document = json_object(message.get("Body"), SOURCE)
        if document is None:
            return None
        if "detail-type" not in document:
            return self._read_status(document, SOURCE)
        found = parse_event(document, SOURCE)
        if found is not None and found[0] == "EC2 Spot Instance Interruption Warning":
            self.interruptions[found[1]] = found[2] + NOTICE_SECONDS
        return None

    def _delete(self, messages: list[Mapping[str, Any]]) -> None:
        """Delete messages, invalid ones included, because a message that is not deleted comes again."""
        handles = [message.get("ReceiptHandle") for message in messages]
        entries = [{"Id": str(at), "ReceiptHandle": handle} for at, handle in enumerate(handles) if handle]
        try:
            self._sqs.delete_message_batch(QueueUrl=self._queue_url, Entries=entries)
        except Exception as error:
            DROPPED_MESSAGES.note(SOURCE, f"messages could not be deleted and will come again: {error}")

    def _say_silent(self, error: Exception) -> None:
        """Log that the queue cannot be read, once per series of failures."""
        said = f"{SOURCE} cannot be read; nodes are asked through SSM instead: {error}"
        if not self.fault:
            _LOG.warning("%s", said)
        self.fault = said
