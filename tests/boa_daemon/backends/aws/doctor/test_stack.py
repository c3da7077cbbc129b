"""`aws/doctor/stack.py`: the doctor names a missing part of the stack and its remedy."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.doctor.check import DoctorCheck
from boa_daemon.backends.aws.doctor.stack import CLOSED, ENCRYPTION, UNFINISHED, StackDoctor
from boa_daemon.backends.aws.instances.event_rules import PATTERNS, lets_through
from boa_daemon.backends.settings import AwsSettings

BUCKET = "boa-lab-bucket"
QUEUE = "arn:aws:sqs:us-east-1:123456789012:boa-lab-warnings"
OLD = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 90}}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Return a maker of clients for an account that has every part of the stack."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():

        def client(service: str) -> Any:
            return boto3.client(service, region_name="us-east-1")

        s3, events = client("s3"), client("events")
        s3.create_bucket(Bucket=BUCKET)
        s3.put_public_access_block(Bucket=BUCKET, PublicAccessBlockConfiguration=dict.fromkeys(CLOSED, True))
        s3.put_bucket_encryption(
            Bucket=BUCKET,
            ServerSideEncryptionConfiguration={"Rules": [{"ApplyServerSideEncryptionByDefault": ENCRYPTION}]},
        )
        s3.put_bucket_lifecycle_configuration(
            Bucket=BUCKET, LifecycleConfiguration={"Rules": [dict(UNFINISHED), OLD]}
        )
        for about, pattern in PATTERNS.items():
            events.put_rule(Name=about, EventPattern=json.dumps(pattern))
            events.put_targets(Rule=about, Targets=[{"Id": "queue", "Arn": QUEUE}])
        yield client


def checks() -> dict[str, DoctorCheck]:
    """Return the doctor's checks of queue and bucket by name."""
    doctor = StackDoctor(AwsCalls(AwsSettings(cluster="lab", instance_types=("g5.xlarge",))))
    return {check.name: check for check in (*doctor.rules(QUEUE), *doctor.bucket(BUCKET))}


def do(client: Callable[[str], Any], fix: str) -> None:
    """Run the command that a check suggests, as the AWS command line would."""
    typed = re.findall(r"`([^`]*)`", fix)[0]
    for command in typed.split(" && "):
        _, service, verb, *words = shlex.split(command)
        given = dict(zip(words[::2], words[1::2], strict=True))
        arguments = {
            "".join(part.capitalize() for part in key.strip("-").split("-")): _value(value)
            for key, value in given.items()
        }
        if "Targets" in arguments:
            arguments["Targets"] = [arguments["Targets"]]
        if "EventPattern" in arguments:
            arguments["EventPattern"] = json.dumps(arguments["EventPattern"])
        getattr(client("s3" if service == "s3api" else service), verb.replace("-", "_"))(**arguments)


def _value(text: str) -> Any:
    """Return a command-line word as JSON, as key-value pairs or as text."""
    if text.startswith("{"):
        return json.loads(text)
    if "=" in text:
        pairs = (pair.split("=", 1) for pair in text.split(","))
        return {key: True if value == "true" else value for key, value in pairs}
    return text


def _without_lifecycle(client: Callable[[str], Any]) -> None:
    client("s3").put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": [OLD]})


def _untargeted(about: str) -> Callable[[Callable[[str], Any]], None]:
    return lambda client: client("events").remove_targets(Rule=about, Ids=["queue"])


TAKEN_AWAY: dict[str, tuple[str, Callable[[Callable[[str], Any]], None]]] = {
    "no rule for warnings": ("rule of warnings", _untargeted("warnings")),
    "no rule for ends": ("rule of ends", _untargeted("ends")),
    "a rule that is disabled": ("rule of ends", lambda client: client("events").disable_rule(Name="ends")),
    "a rule that is too narrow": (
        "rule of ends",
        lambda client: client("events").put_rule(
            Name="ends",
            EventPattern=json.dumps({**PATTERNS["ends"], "detail": {"state": ["terminated"]}}),
        ),
    ),
    "no encryption": (
        "bucket encryption", lambda client: client("s3").delete_bucket_encryption(Bucket=BUCKET)
    ),
    "open to the public": (
        "bucket public access", lambda client: client("s3").delete_public_access_block(Bucket=BUCKET)
    ),
    "no rule for uploads": ("bucket lifecycle", _without_lifecycle),
    "no lifecycle at all": (
        "bucket lifecycle", lambda client: client("s3").delete_bucket_lifecycle(Bucket=BUCKET)
    ),
}  # fmt: skip


def test_a_complete_stack_passes_every_check(account: Callable[[str], Any]) -> None:
    """The checks are two event rules and three properties of the bucket."""
    found = checks()
    assert {name: check.status for name, check in found.items()} == dict.fromkeys(
        ("rule of warnings", "rule of ends", "bucket encryption", "bucket public access", "bucket lifecycle"),
        "ok",
    )
    assert account("s3").head_bucket(Bucket=BUCKET)


@pytest.mark.parametrize("what", TAKEN_AWAY)
def test_the_missing_part_is_named_and_the_suggested_command_restores_it(
    account: Callable[[str], Any], what: str
) -> None:
    """Only the check of that part fails, and the other lifecycle rules are still present after the repair."""
    name, take_away = TAKEN_AWAY[what]
    before = account("s3").get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"]
    take_away(account)
    wrong = [check for check in checks().values() if check.status != "ok"]
    assert [check.name for check in wrong] == [name]

    do(account, wrong[0].fix)
    assert [check.name for check in checks().values() if check.status != "ok"] == []
    if what != "no lifecycle at all":
        after = account("s3").get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"]
        assert sorted(rule["ID"] for rule in after) == sorted(rule["ID"] for rule in before)


@pytest.mark.parametrize(
    ("standing", "is_wide"),
    [
        ({"source": ["aws.ec2"]}, True),
        ({"source": ["aws.ec2", "aws.s3"], "detail-type": PATTERNS["ends"]["detail-type"]}, True),
        ({"source": ["aws.s3"]}, False),
        ({**PATTERNS["ends"], "region": ["us-east-1"]}, False),
        ([], False),
    ],
)
def test_a_wider_event_rule_is_accepted_and_a_narrower_one_is_not(standing: object, is_wide: bool) -> None:
    """One more key narrows a pattern; one more value widens it."""
    assert lets_through(json.dumps(standing), PATTERNS["ends"]) == is_wide
    assert not lets_through("no json", PATTERNS["ends"])
