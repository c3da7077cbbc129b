"""`aws/cloud.py`, launching: the contents of the call, and the outcome of each EC2 answer."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from aws_rigs import AwsRig, RigMaker, a_launch, ends

from boa_daemon.backends.aws.client.refusal_codes import BY_CODE, has_own_row
from boa_daemon.backends.aws.instances.launch_request import LaunchTarget, client_token, run_request
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.facts.offers import Offer, covers
from boa_daemon.tick.facts.ports import Launched, Refused, Unknown

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


def test_a_gang_is_requested_whole_and_a_group_from_one_node_on() -> None:
    """A gang has MinCount equal to MaxCount; a group has MinCount 1."""
    settings = AwsSettings()
    gang = run_request(
        a_launch(GANG_OFFER, 4, is_gang=True), GANG_OFFER, SITE, settings, ledger_id="b", lease=0.0
    )
    group = run_request(a_launch(GANG_OFFER, 4), GANG_OFFER, SITE, settings, ledger_id="b", lease=0.0)

    assert (gang["MinCount"], gang["MaxCount"]) == (4, 4)
    assert (group["MinCount"], group["MaxCount"]) == (1, 4)


def test_a_launch_request_holds_tags_security_and_market_options() -> None:
    """IMDSv2 is required, disks are encrypted and deleted with the node, and spot requests are one-time."""
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


def test_client_tokens_differ_by_order_database_attempt_and_place() -> None:
    """The same question gives the same token, of at most 64 characters."""
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


# At an end this code is of a protected instance, at a launch of an account that may not do it.
MEANINGS = {code: row.meaning for code, row in BY_CODE.items() if not has_own_row(code)} | {
    "OperationNotPermitted": "denied"
}


@pytest.mark.parametrize("code", sorted(MEANINGS))
def test_every_error_code_gives_its_outcome_and_launches_nothing(rig: AwsRig, code: str) -> None:
    """An unknown outcome is tried three times; a refusal is tried once and names what is out of reach."""
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
    # Refused credentials are read anew, and the launch is tried once with them.
    tries = 2 if MEANINGS[code] == "credentials" else 1
    assert rig.fake.faults.counts["RunInstances"] == tries
    assert not outcome.scopes or any(covers(scope, offer.key) for scope in outcome.scopes)
    assert code in outcome.reason or outcome.reason.endswith("is full")


def test_throttling_pauses_every_launch_for_seconds(rig: AwsRig) -> None:
    """The refusal covers every offer, for 5 to 10 seconds."""
    rig.fake.faults.plan("RunInstances", "error:RequestLimitExceeded")
    outcome = rig.cloud.launch(a_launch(rig.offer()))

    assert isinstance(outcome, Refused)
    assert (outcome.kind, outcome.scopes) == ("throttled", ("*",))
    assert outcome.retry_after_seconds is not None
    assert 5.0 <= outcome.retry_after_seconds <= 10.0


def test_a_quota_refusal_covers_every_type_under_that_quota(make_rig: RigMaker) -> None:
    """The refusal holds in every zone of that market, and the quota is read from the message."""
    rig = make_rig(instance_types=("p4d.24xlarge", "p5.48xlarge", "g5.xlarge"))
    offer = rig.offer("p4d.24xlarge")
    rig.fake.faults.plan("RunInstances", "error:VcpuLimitExceeded")

    outcome = rig.cloud.launch(a_launch(offer))

    assert isinstance(outcome, Refused)
    assert set(outcome.scopes) == {"p4d.24xlarge/*/on-demand", "p5.48xlarge/*/on-demand"}
    assert rig.cloud.market.quota("L-417A185B") == 32.0
    assert rig.offer("p4d.24xlarge").nodes_left == 0


def test_a_lost_answer_makes_no_second_instance(rig: AwsRig) -> None:
    """The launch is repeated with the same token."""
    rig.fake.faults.plan("RunInstances", "lost", times=2)
    outcome = rig.cloud.launch(a_launch(rig.offer(), 2))

    assert isinstance(outcome, Launched)
    assert sorted(outcome.nodes) == sorted(life.id for life in rig.fake.live())


def test_a_refusal_after_a_lost_answer_leaves_the_outcome_unknown(rig: AwsRig) -> None:
    """The refusal may be about the second try alone; the node is in the listing."""
    rig.fake.faults.plan("RunInstances", "lost")
    rig.fake.faults.plan("RunInstances", "error:RequestLimitExceeded")
    outcome = rig.cloud.launch(a_launch(rig.offer()))

    assert isinstance(outcome, Unknown)
    assert [node.launched_by for node in rig.cloud.nodes()] == ["t1-launch-g5.xlarge-0"]


def test_a_launch_repeated_after_a_restart_returns_the_same_nodes(rig: AwsRig) -> None:
    """The token is made from the order, so a new process sends the same token."""
    offer = rig.offer()
    first = rig.cloud.launch(a_launch(offer, 2))
    second = rig.another().launch(a_launch(offer, 2))

    assert isinstance(first, Launched)
    assert isinstance(second, Launched)
    assert first.nodes == second.nodes


def test_a_token_reused_for_another_count_is_a_bad_request(rig: AwsRig) -> None:
    """No further instance is launched."""
    rig.cloud.launch(a_launch(rig.offer(), 1, name="same"))
    outcome = rig.cloud.launch(a_launch(rig.offer(), 2, name="same"))

    assert isinstance(outcome, Refused)
    assert outcome.kind == "bad-request"
    assert len(rig.fake.live()) == 1


def test_a_group_is_launched_in_part_and_a_gang_is_refused(make_rig: RigMaker) -> None:
    """With two nodes in stock, a group of three gets two nodes and the reason for the third."""
    terms = Terms(stock={("g5.xlarge", "us-east-1a", "on-demand"): 2})
    rig = make_rig(terms)
    gang = rig.cloud.launch(a_launch(rig.offer(), 3, name="gang", is_gang=True))
    group = rig.cloud.launch(a_launch(rig.offer(), 3, name="group"))

    assert isinstance(gang, Refused)
    assert isinstance(group, Launched)
    assert len(group.nodes) == 2
    assert group.short is not None
    assert group.short.kind == "no-capacity"


def test_a_skewed_clock_stops_launches_but_not_terminations(rig: AwsRig) -> None:
    """With a skew of 300 s the launch is refused, and the refusal gives the skew."""
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


def test_a_zone_is_skipped_after_three_launches_without_an_answer(rig: AwsRig) -> None:
    """Launches in other zones still succeed."""
    rig.fake.faults.plan("RunInstances", "error:InternalError", times=9, zone="us-east-1a")
    said = [rig.cloud.launch(a_launch(rig.offer(), name=f"n{number}")) for number in range(4)]

    assert [isinstance(each, Unknown) for each in said] == [True, True, True, False]
    assert isinstance(said[3], Refused)
    assert said[3].scopes == ("*/us-east-1a",)
    assert isinstance(rig.cloud.launch(a_launch(rig.offer(zone="us-east-1b"), name="b")), Launched)


def test_a_zone_whose_subnets_are_full_is_refused(make_rig: RigMaker) -> None:
    """The second refusal says that every subnet is full, and EC2 is not asked again."""
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
    assert rig.fake.faults.counts["RunInstances"] == 1


@pytest.mark.parametrize("answer", ["granted", "lost"])
def test_a_launch_in_a_second_subnet_is_not_repeated_for_the_first(make_rig: RigMaker, answer: str) -> None:
    """The first subnet is full and a third one is new: what the second one took is not launched again."""
    terms = Terms()
    rig = make_rig(terms)
    rig.cloud.launcher.open_subnets("us-east-1a")
    ec2 = rig.fake.backend("us-east-1")
    vpc = next(iter(ec2.vpcs))
    for number in (1, 2):
        made = ec2.create_subnet(vpc, f"172.31.{100 + number}.0/24", availability_zone="us-east-1a")
        made.default_for_az = "true"
        if number == 1:
            rig.cloud.launcher.forget()
            first, second = rig.cloud.launcher.open_subnets("us-east-1a")
    terms.free_addresses |= {first: 0, second: 10}
    if answer == "lost":
        rig.fake.faults.plan("RunInstances", "lost", times=9, skip=1)
    outcome = rig.cloud.launch(a_launch(rig.offer()))

    assert isinstance(outcome, Launched if answer == "granted" else Unknown)
    assert len(rig.fake.live()) == 1


def test_an_unknown_image_is_refused_before_the_launch_call(make_rig: RigMaker) -> None:
    """The reason names the setting `[cloud] image`."""
    rig = make_rig(image="ami-00000000")
    outcome = rig.cloud.launch(a_launch(rig.offer()))

    assert isinstance(outcome, Refused)
    assert outcome.kind == "bad-request"
    assert "[cloud] image" in outcome.reason
    assert rig.fake.faults.counts["RunInstances"] == 0


def test_the_image_depends_on_the_instance_family() -> None:
    """V100 types get the proprietary driver; a family's own image takes precedence over the default."""
    settings = AwsSettings(images={"g5": "ami-5"})

    assert "proprietary" in settings.image_of("p3dn.24xlarge")
    assert "oss" in settings.image_of("p4d.24xlarge")
    assert settings.image_of("g5.xlarge") == "ami-5"
    assert AwsSettings(image="ami-all").image_of("p4d.24xlarge") == "ami-all"


def test_a_launch_without_credentials_says_to_renew_them(
    rig: AwsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch is refused as denied."""
    offer = rig.offer()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    rig.fake.faults.plan("*", "error:ExpiredToken", times=99)
    outcome = rig.cloud.launch(a_launch(offer))

    assert isinstance(outcome, Refused)
    assert outcome.kind == "denied"
    assert "Renew the credentials" in outcome.reason


def test_a_reservation_is_a_separate_offer(make_rig: RigMaker) -> None:
    """The offer has the reservation's zone and the nodes left in it; the launch names the reservation."""
    terms = Terms(reservations={"p4d.24xlarge": ("cr-1", "us-east-1b", 2)})
    rig = make_rig(terms, reservations={"p4d.24xlarge": "cr-1"})
    offer = rig.offer("p4d.24xlarge", "reserved", "us-east-1b")
    outcome = rig.cloud.launch(a_launch(offer, 2, is_gang=True))

    assert offer.nodes_left == 2
    assert isinstance(outcome, Launched)
    assert {node.market for node in rig.cloud.nodes()} == {"reserved"}


def test_user_data_holds_no_credentials(rig: AwsRig) -> None:
    """Anybody who may describe the instance can read its user data."""
    request = run_request(a_launch(GANG_OFFER), GANG_OFFER, SITE, AwsSettings(), ledger_id="b", lease=0.0)
    text = request["UserData"]

    assert "AWS_" not in text
    assert base64.b64encode(text.encode())
