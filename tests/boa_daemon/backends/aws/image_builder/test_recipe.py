"""`aws/image_builder/recipe.py`: the node that builds an image is one with a time limit of its own."""

from __future__ import annotations

from typing import Any

from boa_daemon.backends.aws.image_builder.recipe import builder_request
from boa_daemon.backends.aws.instances.launch_request import BUILD_TAG, LEDGER_TAG, LaunchTarget
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.tick.facts.offers import Offer


def asked(minutes: float = 59.1) -> dict[str, Any]:
    """Return the request of build b7 on a type with EFA cards."""
    return builder_request(
        "p4d.24xlarge",
        "b7",
        1_800_000_000.0,
        minutes=minutes,
        offer=Offer(instance_type="p4d.24xlarge", zone="us-east-1a"),
        site=LaunchTarget(image="ami-0", root_device="/dev/sda1", subnet="subnet-a", efa_interfaces=4),
        settings=AwsSettings(cluster="lab"),
        catalog=Catalog.load(),
    )


def test_a_builder_powers_off_after_its_minutes_rounded_up() -> None:
    """The lease script of a node would become part of the image."""
    assert [asked(minutes)["UserData"] for minutes in (59.1, 60.0)] == ["#!/bin/bash\nshutdown -P +60\n"] * 2
    assert asked()["InstanceInitiatedShutdownBehavior"] == "terminate"


def test_all_that_a_builder_rents_has_its_tag_and_no_database() -> None:
    """No job runs there, and it belongs to no daemon; a build that is repeated is the same order."""
    for each in asked()["TagSpecifications"]:
        tags = {tag["Key"]: tag["Value"] for tag in each["Tags"]}
        assert (tags[BUILD_TAG], tags[LEDGER_TAG], tags["boa:cluster"]) == ("b7", "", "lab")
    assert asked()["ClientToken"] == asked(5.0)["ClientToken"]


def test_one_builder_without_cards_is_asked_for() -> None:
    """It sends nothing to other nodes."""
    request = asked()
    assert (request["MinCount"], request["MaxCount"], request["SubnetId"]) == (1, 1, "subnet-a")
    assert "NetworkInterfaces" not in request
