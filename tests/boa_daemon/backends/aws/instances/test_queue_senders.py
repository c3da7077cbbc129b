"""`aws/instances/queue_senders.py`: whether EventBridge may send to a queue, as IAM decides it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from boa_daemon.backends.aws.instances.queue_senders import why_events_cannot_send
from boa_daemon.backends.aws.rights.resource_policies import queue_policy

QUEUE = "arn:aws:sqs:us-east-1:123456789012:warnings"
RULE = "arn:aws:events:us-east-1:123456789012:rule/warnings"
OWN = queue_policy("warnings", QUEUE, "123456789012")["Statement"]
EVENTS = {"Service": "events.amazonaws.com"}
ALLOW = {"Effect": "Allow", "Principal": EVENTS, "Action": "sqs:SendMessage", "Resource": QUEUE}


def deny(condition: dict[str, Any] | None = None, **changes: Any) -> list[dict[str, Any]]:
    """Return our policy with a deny beside it."""
    found = {"Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": "*", **changes}
    return [*OWN, found | ({"Condition": condition} if condition else {})]


TAKES: dict[str, Any] = {
    "ours": OWN,
    "no condition": [ALLOW],
    "one statement, no list": ALLOW,
    "the rule by its ARN": [ALLOW | {"Condition": {"ArnEquals": {"aws:SourceArn": RULE}}}],
    "rules by a pattern": [
        ALLOW | {"Condition": {"ArnLike": {"AWS:SourceArn": RULE.replace("warnings", "*")}}}
    ],
    "everybody in the account": [
        ALLOW | {"Principal": "*", "Condition": {"StringEquals": {"aws:SourceAccount": ["123456789012"]}}}
    ],
    "any AWS": [ALLOW | {"Principal": {"AWS": "*"}}],
    "action and resource with patterns": [ALLOW | {"Action": ["SQS:Send*"], "Resource": ["arn:aws:sqs:*"]}],
    "a deny without TLS": deny({"Bool": {"aws:SecureTransport": "false"}}),
    "a deny of reading": deny(Action=["sqs:ReceiveMessage"]),
    "a deny of a user": deny(Principal={"AWS": "arn:aws:iam::123456789012:user/ann"}),
    "a deny of all but services and the organisation": deny(
        {
            "StringNotEquals": {"aws:PrincipalOrgID": "o-1"},
            "BoolIfExists": {"aws:PrincipalIsAWSService": "false"},
        }
    ),
    "a deny that depends on what nobody knows": deny({"StringEquals": {"aws:SourceOrgID": "o-2"}}),
    "a deny of all principals but EventBridge": deny(NotPrincipal=EVENTS),
    "a deny for the internet": deny({"StringNotEqualsIfExists": {"aws:SourceAccount": "123456789012"}}),
}  # fmt: skip
TAKES["a deny of all principals but EventBridge"][-1].pop("Principal")
REFUSES: dict[str, Any] = {
    "no statement": [],
    "TLS alone": OWN[1:],
    "another account": queue_policy("warnings", QUEUE, "9" * 12)["Statement"],
    "another rule": [ALLOW | {"Condition": {"ArnEquals": {"aws:SourceArn": f"{RULE}-2"}}}],
    "another service": [ALLOW | {"Principal": {"Service": ["sns.amazonaws.com"]}}],
    "another queue": [ALLOW | {"Resource": f"{QUEUE}-2"}],
    "another action": [ALLOW | {"Action": "sqs:ReceiveMessage"}],
    "a deny of all": deny(),
    "a deny of all but another action": deny(Action=None, NotAction="sqs:ReceiveMessage"),
    "a deny outside of the organisation": deny({"StringNotEquals": {"aws:PrincipalOrgID": "o-1"}}),
    "a deny outside of the network": deny({"StringNotEquals": {"aws:sourceVpce": "vpce-1"}}),
    "a deny by the address": deny({"NotIpAddress": {"aws:SourceIp": "10.0.0.0/8"}}),
    "a deny without an organisation": deny({"Null": {"aws:PrincipalOrgID": "true"}}),
}
del REFUSES["a deny of all but another action"][-1]["Action"]


@pytest.mark.parametrize("name", [*TAKES, *REFUSES])
def test_a_policy_is_judged_as_iam_does(name: str) -> None:
    """What cannot be known is no alert."""
    statements = TAKES[name] if name in TAKES else REFUSES[name]
    text = json.dumps({"Version": "2012-10-17", "Statement": statements})
    why = why_events_cannot_send({"Policy": text}, queue=QUEUE, rule=RULE)

    assert bool(why) == (name in REFUSES), why


@pytest.mark.parametrize("text", ["", "{}", '{"Statement": []}'])
def test_a_queue_without_a_policy_takes_nothing(text: str) -> None:
    """SQS starts with none."""
    assert "does not let EventBridge" in why_events_cannot_send({"Policy": text}, queue=QUEUE, rule=RULE)


def test_the_key_of_aws_is_named_with_what_mends_it() -> None:
    """EventBridge may not use it, whatever the policy says."""
    attributes = {"Policy": json.dumps({"Statement": OWN}), "KmsMasterKeyId": "alias/aws/sqs"}

    assert "SqsManagedSseEnabled" in why_events_cannot_send(attributes, queue=QUEUE, rule=RULE)
    attributes["KmsMasterKeyId"] = "arn:aws:kms:us-east-1:123456789012:key/1"
    assert why_events_cannot_send(attributes, queue=QUEUE, rule=RULE) == ""
