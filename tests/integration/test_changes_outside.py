"""What a person or AWS changes while the daemon runs: it is told within five minutes, and nothing is lost.

One daemon lives through all rows, one after the other, without a restart: each changes something, is told in
a sentence with a cure, and is mended; the job runs on its node all the time, and nothing else is rented.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import boto3
import pytest
from aws_days import PRICE, TICK, Day, a_day, fails, make_warnings, with_credentials
from moto.ec2.models.amis import Ami

from boa_daemon.backends.aws.rights.resource_policies import queue_policy
from boa_daemon.testing.fake_cloud import IMAGE
from boa_daemon.testing.fake_terms import Lifetime

TOLD_MINUTES = 5.0
BACK_MINUTES = 11.0
"""A net that works again is told within this time: the longest time between two questions, and a look."""
HOME = "us-east-1"
Do = Callable[[Day], None]
_NO_NAME = "Could not connect to the endpoint URL: 'https://{}.us-east-1.amazonaws.com/'"


def _client(service: str) -> Any:
    return boto3.client(service, region_name=HOME)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    """A daemon with a queue of warnings and a job of many hours that runs on its one node."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        with_credentials(patch)
        yield stack.enter_context(a_day(tmp_path_factory.mktemp("day")))


@dataclass(frozen=True)
class Row:
    """A change and its end; the net that is lost, if one is; and words of the sentence that tells it."""

    do: Do
    undo: Do
    net: str
    says: str
    cure: str


def refused(
    *operations: str, code: str, net: str, cure: str, status: int = 400, said: str = "as said"
) -> Row:
    """Return the row of calls that fail with a code; of all calls if none are named."""

    def do(day: Day) -> None:
        day.hook = fails(*operations, code=code, status=status, said=said)

    def undo(day: Day) -> None:
        day.hook = None

    return Row(do, undo, net, code, cure)


def denied(*operations: str, net: str) -> Row:
    """Return the row of a role that lost the right to calls."""
    code = "UnauthorizedOperation" if operations[0].startswith("ec2:") else "AccessDeniedException"
    return refused(*operations, code=code, status=403, net=net, cure="boa iam")


def unlaunchable(code: str, said: str, cure: str) -> Row:
    """Return the row of a thing that every launch needs and that is gone."""
    return refused("ec2:RunInstances", code=code, said=said, net="launches", cure=cure)


def _life(day: Day) -> Lifetime:
    (life,) = day.rig.fake.live()
    return life


def tagged(key: str, value: str | None, says: str) -> Row:
    """Return the row of a person who changes or removes a tag of our node."""
    kept: dict[str, str] = {}

    def do(day: Day) -> None:
        tags = day.rig.fake.backend(HOME).tags[_life(day).id]
        kept.update(tags)
        tags.pop(key)
        if value is not None:
            tags[key] = value

    def undo(day: Day) -> None:
        day.rig.fake.backend(HOME).tags[_life(day).id][key] = kept[key]

    return Row(do, undo, "tags", says, "ut")


def _protect(day: Day) -> None:
    _life(day).is_protected = True


def _unprotect(day: Day) -> None:
    _life(day).is_protected = False


def _without_image(day: Day) -> None:
    amis = day.rig.fake.backend(HOME).amis
    amis["ami-11111111"] = Ami(day.rig.fake.backend(HOME), "ami-11111111", name="b", owner_id="amazon")
    day.kept = amis.pop(IMAGE)  # type: ignore[attr-defined]


def _with_image(day: Day) -> None:
    amis = day.rig.fake.backend(HOME).amis
    amis.clear()
    amis[IMAGE] = day.kept  # type: ignore[attr-defined]


def _event(code: str) -> Row:
    def do(day: Day) -> None:
        day.rig.fake.terms.events[_life(day).id] = (code, day.rig.clock.now() + 48 * 3600.0)

    return Row(do, lambda day: day.rig.fake.terms.events.clear(), "", code, "another node takes its place")


def _gone_queue(day: Day) -> None:
    _client("sqs").delete_queue(QueueUrl=day.rig.cloud.settings.queue_url)


def queue_with(**changes: Any) -> Row:
    """Return the row of another policy or key of the queue of warnings; `statement` is one beside ours."""

    def do(day: Day) -> None:
        url = day.rig.cloud.settings.queue_url
        attributes = {key: value for key, value in changes.items() if key != "statement"}
        if "statement" in changes:
            answer = _client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])
            document = json.loads(answer["Attributes"]["Policy"])
            document["Statement"].append({"Resource": "*", **changes["statement"]})
            attributes["Policy"] = json.dumps(document)
        _client("sqs").set_queue_attributes(QueueUrl=url, Attributes=attributes)

    def undo(day: Day) -> None:
        url = day.rig.cloud.settings.queue_url
        _client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"KmsMasterKeyId": ""})
        make_warnings()

    return Row(do, undo, "event rules", "the queue", "")


def _without_a_rule(day: Day) -> None:
    _client("events").remove_targets(Rule="ends", Ids=["queue"])
    _client("events").delete_rule(Name="ends")


def _with_rules(day: Day) -> None:
    make_warnings()


EVENTS = ("instance-retirement", "instance-stop", "instance-reboot", "system-reboot", "system-maintenance")
ROWS = {
    "an expired token": refused(code="ExpiredToken", net="credentials", cure="Renew the credentials"),
    "rotated keys": refused(code="InvalidClientTokenId", net="credentials", cure="Renew the credentials"),
    "a clock that is wrong": refused(
        code="RequestTimeTooSkewed", status=403, net="credentials", cure="timedatectl"
    ),
    "a region that was disabled": refused(
        code="OptInRequired", status=401, net="leak sweeps", cure="Enable the region"
    ),
    "an account that is blocked": refused(code="Blocked", status=403, net="leak sweeps", cure="AWS Support"),
    "a certificate of a proxy": refused(code="TlsFailed", status=0, net="leak sweeps", cure="AWS_CA_BUNDLE"),
    "a proxy that wants a password": refused(
        code="ProxyFailed", status=0, net="leak sweeps", cure="HTTPS_PROXY"
    ),
    "no right to end": denied("ec2:TerminateInstances", net="ends"),
    "no right to launch": denied("ec2:RunInstances", net="launches"),
    "no right to tag": denied("ec2:CreateTags", net="leases"),
    "no right to status checks": denied("ec2:DescribeInstanceStatus", net="status checks"),
    "no right to disks": denied("ec2:DescribeVolumes", net="leak sweeps"),
    "no right to interfaces": denied("ec2:DescribeNetworkInterfaces", net="leak sweeps"),
    "no right to spot requests": denied("ec2:DescribeSpotInstanceRequests", net="leak sweeps"),
    "no right to rules": denied("events:ListRuleNamesByTarget", net="event rules"),
    "no right to a rule": denied("events:DescribeRule", net="event rules"),
    "no right to the queue": denied("sqs:ReceiveMessage", net="spot warnings"),
    "no right to prices": denied("pricing:GetProducts", net="price list"),
    "no right to a list of instances": Row(
        lambda day: setattr(
            day, "hook", fails("ec2:DescribeInstances", code="UnauthorizedOperation", status=403)
        ),
        lambda day: setattr(day, "hook", None),
        "leak sweeps", "UnauthorizedOperation", "boa iam",
    ),
    "no name for the price list": refused(
        "pricing:GetProducts", code="ConnectionLost", status=0, said=_NO_NAME.format("api.pricing"),
        net="price list", cure="Check the network",
    ),
    "no name for EventBridge": refused(
        "events:ListRuleNamesByTarget", "events:DescribeRule", code="ConnectionLost", status=0,
        said=_NO_NAME.format("events"), net="event rules", cure="Check the network",
    ),
    "no name for SQS": refused(
        "sqs:ReceiveMessage", code="ConnectionLost", status=0, said=_NO_NAME.format("sqs"),
        net="spot warnings", cure="Check the network",
    ),
    "a security group that is gone": unlaunchable(
        "InvalidGroup.NotFound", "The security group 'sg-1' does not exist", "[cloud] security_groups"
    ),
    "a key pair that is gone": unlaunchable(
        "InvalidKeyPair.NotFound", "The key pair 'k' does not exist", "[cloud] key_name"
    ),
    "a profile that is gone": unlaunchable(
        "InvalidParameterValue", "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM "
        "Instance Profile name", "[cloud] instance_profile",
    ),
    "a subnet that is gone": unlaunchable(
        "InvalidSubnetID.NotFound", "The subnet ID 'subnet-1' does not exist", "[cloud] subnets"
    ),
    "a launch template that is gone": unlaunchable(
        "InvalidLaunchTemplateId.NotFound", "The template does not exist", "no launch template"
    ),
    "a tag policy": unlaunchable("TagPolicyViolation", "The tag policy forbids it", "tag policy"),
    "a queue that was deleted": Row(
        _gone_queue, _with_rules, "spot warnings", "NonExistentQueue", "boa doctor"
    ),
    "a rule that was disabled": Row(
        lambda day: _client("events").disable_rule(Name="warnings"),
        lambda day: _client("events").enable_rule(Name="warnings"),
        "event rules", "no enabled rule", "boa doctor",
    ),
    "a rule that was deleted": Row(
        _without_a_rule, _with_rules,
        "event rules", "no enabled rule", "boa doctor",
    ),
    "a queue without a policy": queue_with(Policy=""),
    "a policy that lets only another account's events in": queue_with(
        Policy=json.dumps(queue_policy("warnings", "arn:aws:sqs:us-east-1:123456789012:warnings", "9" * 12))
    ),
    "a policy that denies all": queue_with(
        statement={"Effect": "Deny", "Principal": "*", "Action": "SQS:Send*"}
    ),
    "a policy for the organisation alone": queue_with(
        statement={
            "Effect": "Deny", "Principal": "*", "Action": "sqs:*",
            "Condition": {"StringNotEquals": {"aws:PrincipalOrgID": "o-1"}},
        }
    ),
    "a queue with the key of AWS": queue_with(KmsMasterKeyId="alias/aws/sqs"),
    "no right to look at the queue": denied("sqs:GetQueueAttributes", net="event rules"),
    "a rule without targets": Row(
        lambda day: _client("events").remove_targets(Rule="warnings", Ids=["queue"]),
        _with_rules, "event rules", "no enabled rule", "boa doctor",
    ),
    "termination protection": Row(
        _protect, _unprotect, "ends", "OperationNotPermitted", "termination protection"
    ),
    "the tag of the cluster, removed": tagged("boa:cluster", None, "boa:cluster"),
    "the tag of the cluster, changed": tagged("boa:cluster", "theirs", "boa:cluster"),
    "the price in a tag": tagged("boa:usd-per-hour", "99", "boa:usd-per-hour is 99"),
    "no price in a tag": tagged("boa:usd-per-hour", None, "boa:usd-per-hour is gone"),
    "the extras in a tag": tagged("boa:extra-usd-per-hour", "nan", "boa:extra-usd-per-hour is nan"),
    "the market in a tag": tagged("boa:market", "reserved", "boa:market is reserved"),
    "the intent in a tag": tagged("boa:intent", None, "boa:intent is gone"),
    "another database in a tag": replace(tagged("boa:books", "theirs", ""), net=""),
    "the lease in a tag": Row(
        lambda day: day.rig.fake.backend(HOME).tags[_life(day).id].update({"boa:lease": "soon"}),
        lambda day: None, "", "", "",
    ),
    "a quota below what runs": Row(
        lambda day: day.rig.fake.terms.vcpu_quotas.update({"L-DB2E81BA": 0}),
        lambda day: day.rig.fake.terms.vcpu_quotas.update({"L-DB2E81BA": 64}),
        "", "", "",
    ),
    "an image that was deregistered": Row(
        _without_image, _with_image, "", "", ""
    ),
    **{
        f"a scheduled {code}": _event(code)
        for code in EVENTS
    },
}  # fmt: skip


@pytest.mark.first_set(10)
@pytest.mark.parametrize("name", ROWS)
def test_a_change_outside_is_told_and_mended_without_a_restart(day: Day, name: str) -> None:
    """Status, alert and metric tell it within five minutes and again when it is over; the job runs on."""
    row, store = ROWS[name], day.play.storage.store
    # A row that failed spoils no other.
    _until_well(day)
    before, life = len(day.alerts()), _life(day)
    row.do(day)

    def sentences() -> tuple[list[str], list[str]]:
        status, alerts = day.play.service.status(), day.alerts()
        return [*status["notes"], status["fault"]], alerts[: len(alerts) - before]

    def is_told() -> bool:
        said, new = sentences()
        is_said = any(row.says in each and row.cure in each for each in said)
        return is_said and any(row.says in each for each in new) and row.net in {"", *day.lost()}

    # What nothing tells must not be told for the whole time.
    day.until(lambda: row.says and is_told(), minutes=TOLD_MINUTES)
    said, new = sentences()
    lost = day.lost()
    row.undo(day)
    if row.says:
        assert any(row.says in each and row.cure in each for each in said), said
        assert any(row.says in each for each in new), new
    else:
        assert new == []
    assert lost >= ({row.net} if row.net else set()), (lost, said)
    day.ticks(1.0)
    _until_well(day)
    assert day.lost() == set(), day.notes()
    assert day.play.service.status()["fault"] == ""
    assert day.statuses() == ["running"]
    assert [each.id for each in day.rig.fake.live()] == [life.id]
    assert day.launched() == 1
    # Whatever a tag says, the node costs what it did.
    (node,) = (each for each in day.rig.cloud.nodes() if each.ended_at is None)
    assert node.prices[0][1] == pytest.approx(PRICE)
    assert store.unsettled() == []


SLOW = {
    "servicequotas:GetServiceQuota": 31.0,
    "ec2:DescribeInstanceTypeOfferings": 31.0,
}
"""Minutes until a call is made again whose fact is kept for an hour: its age is in the status meanwhile."""
EXEMPT = {
    "ec2:DescribeInstanceTopology": "where nodes are near each other is a wish, not a need",
    "sqs:DeleteMessageBatch": "made when a message has come; a message that stays comes again",
    "sts:GetCallerIdentity": "needs no right, and is made once",
    "ec2:DescribeSubnets": "made for launches: their rehearsal names the fault",
    "ec2:DescribeRouteTables": "made for launches: their rehearsal names the fault",
    "ec2:DescribeVpcEndpoints": "made for launches: their rehearsal names the fault",
    "ssm:GetParameter": "made for launches: their rehearsal names the fault",
    "ec2:DescribeImages": "made for launches: their rehearsal names the fault; ours, each half hour",
}


@pytest.mark.exhaustive
def test_no_call_that_the_daemon_makes_by_itself_fails_unnoticed(day: Day) -> None:
    """Each is denied in turn, and a net is lost: whoever adds a call to a quiet day names its net."""
    counts = day.rig.cloud.calls.counts
    before = counts.copy()
    day.ticks(40.0)
    made = {name for name in counts if counts[name] > before[name]}
    assert {"ec2:DescribeInstances", "ec2:TerminateInstances", "pricing:GetProducts"} <= made
    silent = set()
    for name in sorted(made - EXEMPT.keys()):
        day.hook = fails(name, code="AccessDenied", status=403)
        day.ticks(SLOW.get(name, TOLD_MINUTES))
        if not (day.lost() or day.play.service.status()["fault"]):
            silent.add(name)
        day.hook = None
        _until_well(day)
        assert day.lost() == set(), name
    assert silent == set()


def _until_well(day: Day) -> None:
    """Let time pass until no net is lost, at most `BACK_MINUTES`."""
    for _ in range(round(BACK_MINUTES * 60.0 / TICK)):
        if not day.lost():
            return
        day.step()
