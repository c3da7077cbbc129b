"""Resource policies of the queues and the bucket: who may send to a queue, and that TLS is required.

The stack creates them, `boa iam --queue` and `--bucket` print them, and the doctor checks that they exist. An
ARN is a string, or the function from which CloudFormation makes one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

Queue: TypeAlias = Literal["warnings", "reports"]


def queue_policy(queue: Queue, arn: object, account: str) -> dict[str, Any]:
    """Return the policy of a queue; EventBridge may send to the queue of warnings."""
    events = {
        "Sid": "Events",
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Condition": {"StringEquals": {"aws:SourceAccount": account}},
        "Resource": [arn],
    }
    return _document([*([events] if queue == "warnings" else []), _tls_only("sqs:*", [arn])])


def bucket_policy(arn: object, below: object) -> dict[str, Any]:
    """Return the policy of the bucket; `below` is the ARN of everything in it."""
    return _document([_tls_only("s3:*", [arn, below])])


def absent_statements(wanted: Mapping[str, Any], standing: str) -> list[tuple[str, str]]:
    """Return (statement, sentence) for each wanted statement that is not in the existing policy (JSON)."""
    try:
        statements = json.loads(standing or "{}").get("Statement", ())
        # A policy of one statement may have it without a list.
        there = [
            _comparable(each) for each in ([statements] if isinstance(statements, Mapping) else statements)
        ]
    except (ValueError, AttributeError, TypeError):
        there = []
    return [
        (
            each["Sid"],
            f"{each['Action']}: {'not denied without TLS' if each['Effect'] == 'Deny' else 'not allowed'}",
        )
        for each in wanted["Statement"]
        if _comparable(each) not in there
    ]


def _document(statements: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _tls_only(action: str, resources: Sequence[object]) -> dict[str, Any]:
    """Return the statement that denies everybody access without TLS."""
    return {
        "Sid": "TlsOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": action,
        "Resource": list(resources),
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }


def _comparable(value: object) -> object:
    """Return a normal form of a part of a policy: no statement names, and one value as a list of one."""
    if isinstance(value, Mapping):
        return {key: _comparable(each) for key, each in value.items() if key != "Sid"}
    if isinstance(value, list | tuple):
        return sorted(map(str, value))
    # AWS writes the principal of everybody either way.
    return [str(value)]
