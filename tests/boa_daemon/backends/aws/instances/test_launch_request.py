"""`aws/instances/launch_request.py`: what one RunInstances call asks for, and the tags that come with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from boa_daemon.backends.aws.instances import launch_request as request
from boa_daemon.backends.aws.instances.launch_request import LaunchTarget, client_token, run_request
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.testing import an_instance_type
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.offers import Offer

TARGET = LaunchTarget(image="ami-1", root_device="/dev/sda1", subnet="subnet-a")
OFFER = Offer(instance_type="gpu-x4", zone="us-east-1a")
SPOT, RESERVED = replace(OFFER, market="spot"), replace(OFFER, market="reserved")
LAUNCH = LaunchNodes(id="t7-launch-0", instance_type=an_instance_type(), count=3, reason="", offer=OFFER)


def asked(
    offer: Offer = OFFER,
    target: LaunchTarget = TARGET,
    action: LaunchNodes = LAUNCH,
    *,
    attempt: int = 0,
    **settings: Any,
) -> dict[str, Any]:
    """Return the arguments of the call."""
    known = AwsSettings(cluster="lab", **settings)
    return run_request(action, offer, target, known, ledger_id="db", lease=1_800_000_000.7, attempt=attempt)


def tags(*arguments: Any, **settings: Any) -> dict[str, str]:
    """Return the tags of the instance."""
    listed = asked(*arguments, **settings)["TagSpecifications"][0]["Tags"]
    return {tag["Key"]: tag["Value"] for tag in listed}


def test_a_gang_comes_whole_and_other_nodes_as_many_as_there_are() -> None:
    """Three single nodes may come as one; a gang of three may not."""
    gang = replace(LAUNCH, is_gang=True)
    counts = [(each["MinCount"], each["MaxCount"]) for each in (asked(), asked(action=gang))]
    assert counts == [(1, 3), (3, 3)]


def test_a_token_differs_with_each_of_its_parts_and_only_with_them() -> None:
    """Another database, order, attempt or zone is another order of nodes; the same is the same order."""

    def token(action: str = "t1", ledger: str = "db", attempt: int = 0, place: str = "a") -> str:
        return client_token(action, ledger_id=ledger, attempt=attempt, place=place)

    each = [token(), token("t2"), token(ledger="other"), token(attempt=1), token(place="b"), token("t1\n0")]
    assert len(set(each)) == len(each)
    assert token() == token()
    assert all(text.isascii() and text.startswith("boa-") and len(text) <= 64 for text in each)


def test_the_place_of_a_token_is_the_subnet_or_else_the_zone() -> None:
    """EC2 counts tokens per zone, so the order of another subnet is another one."""
    bare = replace(TARGET, subnet="")
    tokens = [
        asked(target=target, offer=offer)["ClientToken"]
        for target in (TARGET, bare)
        for offer in (OFFER, replace(OFFER, zone="us-east-1b"))
    ]
    assert tokens[0] == tokens[1]
    assert len(set(tokens)) == 3


def test_no_instance_outlives_its_lease_its_disk_or_its_spot_request() -> None:
    """What powers off is terminated, its disk with it; EC2 never launches a spot request again."""
    call = asked(SPOT)
    disk = call["BlockDeviceMappings"][0]
    spot = call["InstanceMarketOptions"]["SpotOptions"]
    assert call["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert (disk["DeviceName"], disk["Ebs"]["DeleteOnTermination"], disk["Ebs"]["Encrypted"]) == (
        "/dev/sda1",
        True,
        True,
    )
    assert spot == {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    assert "1800000000" in call["UserData"]


def test_a_tag_of_the_house_never_replaces_one_that_nodes_are_found_by() -> None:
    """Its own tags stand beside ours, whatever they are called."""
    theirs = dict.fromkeys([request.CLUSTER_TAG, request.LEASE_TAG, request.LEDGER_TAG, "Name", "team"], "x")
    settings = AwsSettings(cluster="lab").model_copy(update={"tags": theirs})
    found = request.launch_tags(LAUNCH, OFFER, settings, ledger_id="db", lease=12.9)
    assert (found["team"], found["Name"], found[request.INTENT_TAG]) == ("x", "lab-gpu-x4", "t7-launch-0")
    assert [found[tag] for tag in (request.CLUSTER_TAG, request.LEDGER_TAG, request.LEASE_TAG)] == [
        "lab",
        "db",
        "12",
    ]


def test_the_price_tag_is_compute_alone_by_the_offer_or_else_the_catalogue() -> None:
    """Extras have a tag of their own, so that they are not billed twice."""
    priced = replace(OFFER, usd_per_hour=5.5, extras=(("disk", 0.5),))
    assert [tags(each)[request.PRICE_TAG] for each in (priced, OFFER)] == ["5", "4"]
    assert tags(replace(OFFER, usd_per_hour=12.34567))[request.PRICE_TAG] == "12.3457"


def test_the_extras_of_a_node_are_those_of_its_subnet_with_the_dearer_transfer() -> None:
    """A node without an address pays none; the offer of a far region may know of more transfer."""
    far = replace(OFFER, usd_per_hour=5.5, extras=(("transfer", 0.75),))
    kinds = [
        {word.partition("=")[0] for word in tags(offer, target)[request.EXTRAS_TAG].split()}
        for offer, target in ((OFFER, TARGET), (OFFER, replace(TARGET, has_address=False)), (far, TARGET))
    ]
    assert kinds == [{"disk", "address"}, {"disk"}, {"disk", "address", "transfer"}]
    assert "transfer=0.750000" in tags(far)[request.EXTRAS_TAG]


def test_a_node_is_rented_for_its_first_job_under_a_tag_that_ec2_takes() -> None:
    """A value of a tag has at most 256 characters."""
    action = replace(LAUNCH, for_jobs=(("j" * 300, 2), ("k", 1)))
    found = tags(OFFER, TARGET, action)
    assert (found[request.JOB_TAG], found[request.GENERATION_TAG]) == ("j" * 256, "2")
    assert request.JOB_TAG not in tags()


@pytest.mark.parametrize(("offer", "has_request"), [(OFFER, False), (SPOT, True), (RESERVED, False)])
def test_everything_that_the_call_makes_is_tagged(offer: Offer, has_request: bool) -> None:
    """A spot request is made for spot alone; all have the same tags."""
    specifications = asked(offer)["TagSpecifications"]
    kinds = {each["ResourceType"] for each in specifications}
    assert kinds == {"instance", "volume", "network-interface"} | (
        {"spot-instances-request"} if has_request else set()
    )
    assert all(each["Tags"] == specifications[0]["Tags"] for each in specifications)


def test_a_reservation_is_named_by_orders_of_its_market_alone() -> None:
    """A block of capacity has a market type of its own; on-demand orders carry neither."""
    target = replace(TARGET, reservation="cr-1")
    block = asked(RESERVED, replace(target, is_block=True))
    wanted = {"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}}
    assert block["CapacityReservationSpecification"] == wanted
    assert block["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    assert "InstanceMarketOptions" not in asked(RESERVED, target)
    assert tags(RESERVED, target)[request.RESERVATION_TAG] == "cr-1"
    assert request.RESERVATION_TAG not in tags(OFFER, target)
    assert not {"InstanceMarketOptions", "CapacityReservationSpecification"} & {*asked(OFFER, target)}


def test_spot_has_a_highest_price_only_for_the_types_that_have_one() -> None:
    """Without a limit EC2 uses the on-demand price."""
    limits = {"gpu-x4": 2.5, "other": 9.0}
    options = asked(SPOT, spot_max_usd_per_hour=limits)["InstanceMarketOptions"]["SpotOptions"]
    assert options["MaxPrice"] == "2.5"
    other = replace(SPOT, instance_type="gpu-x8")
    assert (
        "MaxPrice" not in asked(other, spot_max_usd_per_hour=limits)["InstanceMarketOptions"]["SpotOptions"]
    )


EFA = replace(TARGET, efa_interfaces=2)


def test_cards_with_efa_are_asked_for_in_a_subnet_and_told_by_a_tag() -> None:
    """Each interface has subnet and groups; without a subnet, or with EFA off, there are none."""
    call = asked(OFFER, EFA, security_groups=["sg-1"])
    cards = call["NetworkInterfaces"]
    assert [(each["NetworkCardIndex"], each["DeviceIndex"], each["InterfaceType"]) for each in cards] == [
        (0, 0, "efa"),
        (1, 1, "efa-only"),
    ]
    assert all((each["SubnetId"], each["Groups"]) == ("subnet-a", ["sg-1"]) for each in cards)
    assert not {"SubnetId", "SecurityGroupIds"} & {*call}
    assert [request.CARDS_TAG in found for found in (tags(OFFER, EFA), tags())] == [True, False]
    three = [
        each["DeviceIndex"] for each in asked(target=replace(EFA, efa_interfaces=3))["NetworkInterfaces"]
    ]
    assert three == [0, 1, 1]


@pytest.mark.parametrize("off", [{"efa": False}, {"target": replace(EFA, subnet="")}])
def test_without_efa_the_call_itself_has_subnet_and_groups(off: dict[str, Any]) -> None:
    """An interface is described only where it is a card with EFA."""
    call = asked(**({"target": EFA} | off), security_groups=["sg-1"])
    assert "NetworkInterfaces" not in call
    assert call["SecurityGroupIds"] == ["sg-1"]
    assert ("SubnetId" in call) == ("target" not in off)


def test_a_zone_is_named_where_no_subnet_implies_it_and_a_group_for_gangs_with_efa() -> None:
    """A placement group of another zone, or for single nodes, would only cost capacity."""
    gang = replace(LAUNCH, is_gang=True)
    groups = {"us-east-1a": "close"}
    bare = replace(TARGET, subnet="")
    placed = [
        asked(offer, target, action, placement_groups=groups).get("Placement")
        for offer, target, action in (
            (OFFER, TARGET, LAUNCH),
            (OFFER, bare, LAUNCH),
            (OFFER, EFA, gang),
            (OFFER, EFA, LAUNCH),
            (OFFER, TARGET, gang),
            (replace(OFFER, zone="us-east-1b"), EFA, gang),
        )
    ]
    assert placed == [None, {"AvailabilityZone": "us-east-1a"}, {"GroupName": "close"}, None, None, None]


def test_key_and_profile_are_asked_for_where_they_are_set() -> None:
    """A profile may be named by its name or its ARN."""
    arn = "arn:aws:iam::123456789012:instance-profile/nodes"
    assert asked(instance_profile=arn)["IamInstanceProfile"] == {"Arn": arn}
    assert asked(instance_profile="nodes", key_name="k")["IamInstanceProfile"] == {"Name": "nodes"}
    assert asked(key_name="k")["KeyName"] == "k"
    assert not {"KeyName", "IamInstanceProfile"} & {*asked()}


def test_throughput_is_asked_for_only_above_what_is_free() -> None:
    """A disk of 125 MB/s costs its gigabytes alone."""
    disks = [asked(volume_mb_per_second=mb)["BlockDeviceMappings"][0]["Ebs"] for mb in (125, 126)]
    assert [disk.get("Throughput") for disk in disks] == [None, 126]
    assert disks[0]["VolumeSize"] == 200


def test_the_metadata_service_asks_for_a_session_and_shows_tags_to_the_node_alone() -> None:
    """The lease is read from it; a container behind another hop gets no credentials."""
    assert asked()["MetadataOptions"] == {
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 1,
        "HttpEndpoint": "enabled",
        "InstanceMetadataTags": "enabled",
    }
