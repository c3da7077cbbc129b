"""`aws/prices/extra_costs.py`: what a node costs besides its compute, in tags, offers and bills."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from aws_rigs import START, AwsRig, a_launch
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.backends.aws.instances.launch_request import EXTRAS_TAG, LaunchTarget, run_request
from boa_daemon.backends.aws.instances.node_from_instance import tags_of_instance
from boa_daemon.backends.aws.prices.extra_costs import extras_in, extras_of, tag_of
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.facts.ports import Launched

RigMaker: TypeAlias = Callable[..., AwsRig]


def test_the_extra_costs_are_disk_address_and_requests() -> None:
    """Requests cost only with an instance profile, the address only if there is one."""
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
def test_a_malformed_tag_gives_no_extra_costs(text: str) -> None:
    """`extras_in` returns None for any text that BOA does not write."""
    assert extras_in(text) is None


@given(gib=st.integers(8, 16384), has_address=st.booleans(), profile=st.sampled_from(["", "node"]))
def test_extra_costs_survive_the_round_trip_through_the_tag(
    gib: int, has_address: bool, profile: str
) -> None:
    """Any settings give extra costs that are read back unchanged."""
    settings = AwsSettings(instance_types=("g5.xlarge",), volume_gib=gib, instance_profile=profile)
    extras = extras_of(settings, has_address=has_address)
    assert extras_in(tag_of(extras)) == extras


def test_a_node_keeps_the_extra_costs_of_its_launch(make_rig: RigMaker) -> None:
    """A later daemon with a larger disk in its settings reads the costs from the node's tag."""
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


def test_a_faster_disk_is_requested_and_priced(make_rig: RigMaker) -> None:
    """Throughput above gp3's free amount is in the launch request and in the offer's disk cost."""
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


def test_nat_traffic_is_in_the_extra_costs_and_the_tag() -> None:
    """Without `nat_gb_per_hour` the extra costs have no transfer."""
    settings = AwsSettings(instance_types=("g5.xlarge",), nat_gb_per_hour=4.0)
    assert ("transfer", 0.18) in extras_of(settings)
    assert extras_in(tag_of(extras_of(settings))) == extras_of(settings)
    assert "transfer" not in dict(extras_of(AwsSettings(instance_types=("g5.xlarge",))))
