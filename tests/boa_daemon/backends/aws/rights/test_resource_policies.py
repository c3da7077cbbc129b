"""`aws/rights/resource_policies.py`: who may use queues and bucket, and what a policy lacks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from boa_daemon.backends.aws.rights.resource_policies import absent_statements, bucket_policy, queue_policy

ARN = "arn:aws:sqs:us-east-1:1:q"
WANTED = queue_policy("warnings", ARN, "1")
EVENTS, TLS = WANTED["Statement"]


def absent(*statements: Any) -> list[str]:
    """Return the statements that a policy lacks."""
    return [sid for sid, _ in absent_statements(WANTED, json.dumps({"Statement": list(statements)}))]


def test_events_of_our_account_may_enter_the_queue_of_warnings_alone() -> None:
    """Nobody may do anything without TLS, anywhere in the bucket."""
    assert EVENTS["Condition"] == {"StringEquals": {"aws:SourceAccount": "1"}}
    assert (EVENTS["Principal"], EVENTS["Action"]) == ({"Service": "events.amazonaws.com"}, "sqs:SendMessage")
    assert [each["Sid"] for each in queue_policy("reports", ARN, "1")["Statement"]] == ["TlsOnly"]
    (bucket,) = bucket_policy("arn:b", "arn:b/*")["Statement"]
    assert (bucket["Effect"], bucket["Principal"], bucket["Resource"]) == ("Deny", "*", ["arn:b", "arn:b/*"])
    assert bucket["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


@pytest.mark.parametrize(
    "there",
    [
        [EVENTS, TLS],
        [TLS, EVENTS | {"Sid": "mine"}, {"Effect": "Allow", "Action": "x"}],
        [EVENTS | {"Resource": ARN, "Action": ["sqs:SendMessage"]}, TLS | {"Principal": ["*"]}],
    ],
)
def test_a_statement_is_there_whatever_its_name_and_its_lists(there: list[Any]) -> None:
    """AWS writes one value with and without a list."""
    assert absent(*there) == []


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ([], ["Events", "TlsOnly"]),
        ([EVENTS], ["TlsOnly"]),
        ([EVENTS | {"Condition": {"StringEquals": {"aws:SourceAccount": "2"}}}, TLS], ["Events"]),
        ([EVENTS, TLS | {"Effect": "Allow"}], ["TlsOnly"]),
        ([{**EVENTS, "Principal": {"Service": "sns.amazonaws.com"}}, TLS], ["Events"]),
    ],
)
def test_what_differs_in_any_part_is_missing(there: list[Any], missing: list[str]) -> None:
    """Another account, effect or service is another statement."""
    assert absent(*there) == missing


def test_a_policy_of_one_statement_may_have_it_without_a_list() -> None:
    """IAM's grammar allows both forms, and S3 and SQS keep what they were given."""
    wanted = bucket_policy("arn:b", "arn:b/*")
    alone = json.dumps({"Version": "2012-10-17", "Statement": wanted["Statement"][0]})
    assert absent_statements(wanted, alone) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", "null", '{"Statement": null}', '{"Statement": 5}', "{}"]
)
def test_a_policy_that_cannot_be_read_has_no_statement(text: str) -> None:
    """The sentences say what that means."""
    assert absent_statements(WANTED, text) == [
        ("Events", "sqs:SendMessage: not allowed"),
        ("TlsOnly", "sqs:*: not denied without TLS"),
    ]
