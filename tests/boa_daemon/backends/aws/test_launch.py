"""`backends/aws/cloud.py` launching: what the call says, and what each of EC2's answers becomes."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from aws_rigs import AwsRig, RigMaker, a_launch, ends

from boa_daemon.backends.aws.errors import MEANINGS
from boa_daemon.backends.aws.launch_request import LaunchTarget, client_token, run_request
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.offers import Offer, covers
from boa_daemon.tick.ports import Launched, Refused, Unknown

GANG_OFFER = Offer(instance_type="p4d.24xlarge", zone="us-east-1a", usd_per_hour=21.9576)
SITE = LaunchTarget(image="ami-1", root_device="/dev/sda1", subnet="subnet-1", efa_interfaces=4)
EXPECTED = {
    "no-capacity": "no-capacity",
    "price": "no-capacity",
    "subnet-full": "no-capacity",
    "not-offered": "bad-request",
    "quota": "quota",
    "throttled": "throttled",
    "denied": "denied",
    "credentials": "denied",
    "token-reused": "bad-request",
    "not-found": "bad-request",
    "wrong-state": "bad-request",
    "protected": "bad-request",
    "dry-run": "bad-request",
}


def test_a_gang_is_asked_for_whole() -> None:
    """MinCount = MaxCount; a group that is no gang takes what there is, from one node on."""
    settings = AwsSettings()
    gang = run_request(
        a_launch(GANG_OFFER, 4, is_gang=True), GANG_OFFER, SITE, settings, ledger_id="b", lease=0.0
    )
    group = run_request(a_launch(GANG_OFFER, 4), GANG_OFFER, SITE, settings, ledger_id="b", lease=0.0)

    assert (gang["MinCount"], gang["MaxCount"]) == (4, 4)
    assert (group["MinCount"], group["MaxCount"]) == (1, 4)


def test_everything_is_in_the_one_call() -> None:
    """Tags, IMDSv2, encrypted disks that go with the node, powering off ends it, one-time spot."""
    offer = Offer(instance_type="p4d.24xlarge", zone="us-east-1a", market="spot", usd_per_hour=8.0)
    settings = AwsSettings(
        security_groups=("sg-1",), placement_groups={"us-east-1a": "close"}, instance_profile="node"
    )
    launch = replace(a_launch(offer, 2, is_gang=True), for_jobs=(("train", 3), ("other", 1)))
    request = run_request(launch, offer, SITE, settings, ledger_id="b", lease=1234.5)

    tagged = {
        each["ResourceType"]: {tag["Key"]: tag["Value"] for tag in each["Tags"]}
        for each in request["TagSpecifications"]
    }
    assert set(tagged) == {"instance", "volume", "network-interface", "spot-instances-request"}
    assert all(tags["boa:cluster"] == "boa" and tags["boa:lease"] == "1234" for tags in tagged.values())
    assert tagged["instance"]["boa:intent"] == "t1-launch-p4d.24xlarge-0"
    assert tagged["instance"]["boa:usd-per-hour"] == "8"
    assert (tagged["instance"]["boa:job"], tagged["instance"]["boa:generation"]) == ("train", "3")
    assert request["MetadataOptions"]["HttpTokens"] == "required"
    assert request["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert request["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] is True
    assert request["BlockDeviceMappings"][0]["Ebs"]["DeleteOnTermination"] is True
    assert request["InstanceMarketOptions"]["SpotOptions"]["SpotInstanceType"] == "one-time"
    assert [each["InterfaceType"] for each in request["NetworkInterfaces"]] == ["efa", *["efa-only"] * 3]
    assert request["Placement"] == {"GroupName": "close"}
    assert request["IamInstanceProfile"] == {"Name": "node"}
    assert len(request["UserData"].encode()) < 16384


def test_tokens_tell_apart_what_are_different_questions() -> None:
    """At most 64 characters; another zone, attempt or database is another question."""
    token = client_token("t1-launch-0", ledger_id="b", attempt=0, place="a")
    others = [
        client_token("t1-launch-0", ledger_id="b", attempt=0, place="b"),
        client_token("t1-launch-0", ledger_id="b", attempt=1, place="a"),
        client_token("t1-launch-0", ledger_id="c", attempt=0, place="a"),
        client_token("t2-launch-0", ledger_id="b", attempt=0, place="a"),
    ]

    assert token == client_token("t1-launch-0", ledger_id="b", attempt=0, place="a")
    assert len({token, *others}) == 5
    assert len(token) <= 64


@pytest.mark.parametrize("code", sorted(MEANINGS))
def test_every_code_has_an_outcome(rig: AwsRig, code: str) -> None:
    """A code means what the table says; a refusal says what is out of reach, and nothing was launched."""
    offer = rig.offer()
    rig.fake.faults.plan("RunInstances", f"error:{code}", times=3)

    outcome = rig.cloud.launch(a_launch(offer))

    assert rig.fake.live() == []
    if MEANINGS[code] == "unknown":
        assert isinstance(outcome, Unknown)
        assert rig.fake.faults.counts["RunInstances"] == 3
        return
    assert isinstance(outcome, Refused)
    assert outcome.kind == EXPECTED[MEANINGS[code]]
    assert rig.fake.faults.counts["RunInstances"] == 1
    assert all(covers(scope, offer.key) for scope in outcome.scopes)
    assert code in outcome.reason or outcome.reason.endswith("is full")


def test_throttling_says_nothing_about_capacity(rig: AwsRig) -> None:
    """Everything rests for seconds, and all of it."""
    rig.fake.faults.plan("RunInstances", "error:RequestLimitExceeded")
    outcome = rig.cloud.launch(a_launch(rig.offer()))

    assert isinstance(outcome, Refused)
    assert (outcome.kind, outcome.scopes) == ("throttled", ("*",))
    assert outcome.retry_after_seconds is not None
    assert 5.0 <= outcome.retry_after_seconds <= 10.0


def test_a_quota_closes_its_whole_family(make_rig: RigMaker) -> None:
    """Every type that counts against it, in every zone, on that market; the message's limit is learnt."""
    rig = make_rig(instance_types=("p4d.24xlarge", "p5.48xlarge", "g5.xlarge"))
    offer = rig.offer("p4d.24xlarge")
    rig.fake.faults.plan("RunInstances", "error:VcpuLimitExceeded")

    outcome = rig.cloud.launch(a_launch(offer))

    assert isinstance(outcome, Refused)
    assert set(outcome.scopes) == {"p4d.24xlarge/*/on-demand", "p5.48xlarge/*/on-demand"}
    assert rig.cloud.market.quota("L-417A185B") == 32.0
    assert rig.offer("p4d.24xlarge").nodes_left == 0


def test_a_lost_answer_makes_no_second_instance(rig: AwsRig) -> None:
    """It is asked for again with the same token."""
    rig.fake.faults.plan("RunInstances", "lost", times=2)
    outcome = rig.cloud.launch(a_launch(rig.offer(), 2))

    assert isinstance(outcome, Launched)
    assert sorted(outcome.nodes) == sorted(life.id for life in rig.fake.live())


def test_after_a_lost_answer_a_refusal_settles_nothing(rig: AwsRig) -> None:
    """The refusal may be about the second question alone, so nobody knows."""
    rig.fake.faults.plan("RunInstances", "lost")
    rig.fake.faults.plan("RunInstances", "error:RequestLimitExceeded")
    outcome = rig.cloud.launch(a_launch(rig.offer()))

    assert isinstance(outcome, Unknown)
    assert [node.launched_by for node in rig.cloud.nodes()] == ["t1-launch-g5.xlarge-0"]


def test_the_same_order_after_a_restart_is_the_same_launch(rig: AwsRig) -> None:
    """The token is made from the order, so a process without memory is answered with the same nodes."""
    offer = rig.offer()
    first = rig.cloud.launch(a_launch(offer, 2))
    second = rig.another().launch(a_launch(offer, 2))

    assert isinstance(first, Launched)
    assert isinstance(second, Launched)
    assert first.nodes == second.nodes


def test_a_token_reused_for_something_else_stops_that_order(rig: AwsRig) -> None:
    """The next tick has another id; nothing is launched here."""
    rig.cloud.launch(a_launch(rig.offer(), 1, name="same"))
    outcome = rig.cloud.launch(a_launch(rig.offer(), 2, name="same"))

    assert isinstance(outcome, Refused)
    assert outcome.kind == "bad-request"
    assert len(rig.fake.live()) == 1


def test_a_group_takes_what_there_is_and_a_gang_nothing(make_rig: RigMaker) -> None:
    """Of a stock of two, a group of three gets two and the reason for the third."""
    terms = Terms(stock={("g5.xlarge", "us-east-1a", "on-demand"): 2})
    rig = make_rig(terms)
    gang = rig.cloud.launch(a_launch(rig.offer(), 3, name="gang", is_gang=True))
    group = rig.cloud.launch(a_launch(rig.offer(), 3, name="group"))

    assert isinstance(gang, Refused)
    assert isinstance(group, Launched)
    assert len(group.nodes) == 2
    assert group.short is not None
    assert group.short.kind == "no-capacity"


def test_the_clock_stops_launching_before_the_signatures_fail(rig: AwsRig) -> None:
    """From four minutes on; ending goes on."""
    launched = rig.cloud.launch(a_launch(rig.offer()))
    assert isinstance(launched, Launched)
    rig.cloud.nodes()
    rig.cloud.calls.clock_skew_seconds = -300.0

    outcome = rig.cloud.launch(a_launch(rig.offer(), name="later"))
    assert isinstance(outcome, Refused)
    assert outcome.kind == "denied"
    assert "300 s" in outcome.reason
    rig.cloud.terminate(ends(*launched.nodes))
    assert rig.fake.live() == []


def test_a_silent_zone_is_left_alone(rig: AwsRig) -> None:
    """After three launches without an answer the zone rests, other zones do not."""
    rig.fake.faults.plan("RunInstances", "error:InternalError", times=9, zone="us-east-1a")
    said = [rig.cloud.launch(a_launch(rig.offer(), name=f"n{number}")) for number in range(4)]

    assert [isinstance(each, Unknown) for each in said] == [True, True, True, False]
    assert isinstance(said[3], Refused)
    assert said[3].scopes == ("*/us-east-1a",)
    assert isinstance(rig.cloud.launch(a_launch(rig.offer(zone="us-east-1b"), name="b")), Launched)


def test_a_full_subnet_is_passed_over(make_rig: RigMaker) -> None:
    """The zone rests once all its subnets are full."""
    terms = Terms()
    rig = make_rig(terms)
    [subnet] = rig.cloud.launcher.open_subnets("us-east-1a")
    terms.free_addresses[subnet] = 0
    outcome = rig.cloud.launch(a_launch(rig.offer()))

    assert isinstance(outcome, Refused)
    assert outcome.scopes == ("*/us-east-1a",)
    again = rig.cloud.launch(a_launch(rig.offer(), name="again"))
    assert isinstance(again, Refused)
    assert "every subnet" in again.reason


def test_an_unknown_image_says_what_to_set(make_rig: RigMaker) -> None:
    """Before any launch is tried."""
    rig = make_rig(image="ami-00000000")
    outcome = rig.cloud.launch(a_launch(rig.offer()))

    assert isinstance(outcome, Refused)
    assert outcome.kind == "bad-request"
    assert "[cloud] image" in outcome.reason
    assert rig.fake.faults.counts["RunInstances"] == 0


def test_one_image_does_not_fit_all_families() -> None:
    """V100 needs the closed driver; a family's own image wins over the common one."""
    settings = AwsSettings(images={"g5": "ami-5"})

    assert "proprietary" in settings.image_of("p3dn.24xlarge")
    assert "oss" in settings.image_of("p4d.24xlarge")
    assert settings.image_of("g5.xlarge") == "ami-5"
    assert AwsSettings(image="ami-all").image_of("p4d.24xlarge") == "ami-all"


def test_without_credentials_one_clear_message(rig: AwsRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launching stops with the fix in the message."""
    offer = rig.offer()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    rig.fake.faults.plan("*", "error:ExpiredToken", times=99)
    outcome = rig.cloud.launch(a_launch(offer))

    assert isinstance(outcome, Refused)
    assert outcome.kind == "denied"
    assert "Renew the credentials" in outcome.reason


def test_a_reservation_is_an_offer_of_its_own(make_rig: RigMaker) -> None:
    """With its zone, what is left of it, and its id in the call."""
    terms = Terms(reservations={"p4d.24xlarge": ("cr-1", "us-east-1b", 2)})
    rig = make_rig(terms, reservations={"p4d.24xlarge": "cr-1"})
    offer = rig.offer("p4d.24xlarge", "reserved", "us-east-1b")
    outcome = rig.cloud.launch(a_launch(offer, 2, is_gang=True))

    assert offer.nodes_left == 2
    assert isinstance(outcome, Launched)
    assert {node.market for node in rig.cloud.nodes()} == {"reserved"}


def test_user_data_holds_no_secret(rig: AwsRig) -> None:
    """Whoever may describe the instance can read it."""
    request = run_request(a_launch(GANG_OFFER), GANG_OFFER, SITE, AwsSettings(), ledger_id="b", lease=0.0)
    text = request["UserData"]

    assert "AWS_" not in text
    assert base64.b64encode(text.encode())
