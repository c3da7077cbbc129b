"""What a node costs beside its compute: in its tag, in offers, on its bill, under every cap."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from aws_rigs import START, AwsRig, a_launch
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.backends.aws.extra_costs import extras_in, extras_of, tag_of
from boa_daemon.backends.aws.launch_request import EXTRAS_TAG, LaunchTarget, run_request
from boa_daemon.backends.aws.node_from_instance import tags_of_instance
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.ports import Launched

RigMaker: TypeAlias = Callable[..., AwsRig]


def test_what_is_counted() -> None:
    """200 GiB of gp3, a public address, and 240 beats an hour where jobs run through SSM."""
    with_profile = AwsSettings(instance_types=("g5.xlarge",), instance_profile="node")
    assert extras_of(with_profile) == (
        ("disk", round(200 * 0.08 / 730.0, 6)),
        ("address", 0.005),
        ("requests", round(240 * (0.005 / 1000 + 0.005 / 1000 + 0.4e-6), 6)),
    )
    plain = AwsSettings(instance_types=("g5.xlarge",), volume_gib=73)
    assert extras_of(plain, has_address=False) == (("disk", 0.008),)
    fast = plain.model_copy(update={"volume_mb_per_second": 500})
    assert extras_of(fast, has_address=False) == (("disk", round(0.008 + 375 * 0.04 / 730.0, 6)),)


@pytest.mark.parametrize(
    "text", ["", "disk", "disk=free", "disk=-1", "disk=inf", "gold=1", "disk=0.1 gold=1", "disk=1e9"]
)
def test_a_tag_that_somebody_else_wrote_is_no_price(text: str) -> None:
    """What is not ours to the letter says nothing."""
    assert extras_in(text) is None


@given(gib=st.integers(8, 16384), has_address=st.booleans(), profile=st.sampled_from(["", "node"]))
def test_a_tag_says_what_was_written(gib: int, has_address: bool, profile: str) -> None:
    """There and back again, whatever the settings."""
    settings = AwsSettings(instance_types=("g5.xlarge",), volume_gib=gib, instance_profile=profile)
    extras = extras_of(settings, has_address=has_address)
    assert extras_in(tag_of(extras)) == extras


def test_a_node_keeps_what_it_was_born_with(make_rig: RigMaker) -> None:
    """A larger disk in the settings of a later daemon changes no bill of a node that has the smaller one."""
    rig = make_rig(Terms())
    offer = rig.offer()
    outcome = rig.cloud.launch(a_launch(offer))
    assert isinstance(outcome, Launched)
    rig.pass_time(100.0)
    [node] = rig.cloud.nodes()
    [later] = rig.another(volume_gib=2000).nodes()

    assert node.extras == later.extras == offer.extras
    assert node.usd_per_hour == pytest.approx(offer.usd_per_hour)
    [instance] = rig.cloud._instances
    assert tags_of_instance(instance)[EXTRAS_TAG] == tag_of(offer.extras)
    assert node.launched_at == START


def test_a_faster_disk_is_asked_for_and_paid(make_rig: RigMaker) -> None:
    """Above what gp3 gives for nothing the launch says how fast; the offer, and the tag, what it costs."""
    plain, fast = (make_rig(Terms(), **more) for more in ({}, {"volume_mb_per_second": 500}))
    requests = [
        run_request(
            a_launch(rig.offer()), rig.offer(), LaunchTarget(image="ami-1", root_device="/dev/sda1"),
            rig.settings,
            ledger_id="b", lease=0.0,
        )
        for rig in (plain, fast)
    ]  # fmt: skip
    disks = [each["BlockDeviceMappings"][0]["Ebs"] for each in requests]
    assert ["Throughput" in disk for disk in disks] == [False, True]
    assert disks[1]["Throughput"] == 500
    assert dict(fast.offer().extras)["disk"] > dict(plain.offer().extras)["disk"]


def test_what_comes_through_a_gateway_is_in_offers_caps_and_tags() -> None:
    """At the price of the region; nothing where nobody states how much it is."""
    settings = AwsSettings(instance_types=("g5.xlarge",), nat_gb_per_hour=4.0)
    assert ("transfer", 0.18) in extras_of(settings)
    assert extras_in(tag_of(extras_of(settings))) == extras_of(settings)
    assert "transfer" not in dict(extras_of(AwsSettings(instance_types=("g5.xlarge",))))
