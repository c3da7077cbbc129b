"""`aws/instances/blocks.py`: listing, buying and using Capacity Blocks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aws_rigs import START, AwsRig, a_rig
from request_shapes import request_shapes

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.blocks import BlockOffering, buy, offerings
from boa_daemon.errors import InputError
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.testing.fake_terms import Block, Terms

TYPE, ZONE, HOUR = "g5.xlarge", "us-east-1a", 3600.0
SETTINGS = {
    "budget": {"usd_per_hour": 5.0, "usd_per_day_cap": 200.0, "max_instances": 4},
    "cloud": {"provider": "aws", "instance_types": [TYPE]},
    "daemon": {"tick_seconds": 30.0, "idle_hold_seconds": 60.0},
}


def terms() -> Terms:
    """Return a fake cloud without on-demand stock and with two Capacity Blocks."""
    begins = START + 2 * HOUR
    return Terms(
        boot_seconds=60.0,
        shutdown_seconds=30.0,
        stock={(TYPE, ZONE, "on-demand"): 0},
        blocks={
            "dear": Block(TYPE, ZONE, 1, begins, begins + 24 * HOUR, 40.0),
            "cheap": Block(TYPE, ZONE, 1, begins, begins + 24 * HOUR, 19.5),
        },
    )


def asked(rig: AwsRig) -> tuple[AwsCalls, list[BlockOffering]]:
    """Return the AWS calls and the blocks on offer."""
    calls = rig.cloud.calls
    begin = datetime.fromtimestamp(START, UTC)
    return calls, offerings(calls, TYPE, instances=1, hours=24, begin=begin)


def test_blocks_are_listed_cheapest_first_and_bought_only_at_the_listed_price() -> None:
    with a_rig("process", terms()) as rig, request_shapes() as shapes:
        calls, found = asked(rig)
        for wrong in (19.0, 40.0):
            with pytest.raises(InputError, match=r"costs \$19.50 and not .* nothing was bought"):
                buy(calls, rig.settings, found[0], usd=wrong)
        assert not any(block.bought for block in rig.fake.terms.blocks.values())
        assert buy(calls, rig.settings, found[0], usd=19.5) == "cr-cheap"
        with pytest.raises(CallFailed):
            buy(calls, rig.settings, found[0], usd=19.5)

        assert [one.usd for one in found] == [19.5, 40.0]
        assert found[0].usable_hours == pytest.approx(23.5)
        assert rig.fake.terms.blocks["cheap"].bought == 1
        assert shapes.faults == []
        assert [one.id for one in asked(rig)[1]] == ["dear"]


def test_a_job_starts_when_the_block_begins_and_stops_before_it_ends(tmp_path: Path) -> None:
    """The job leaves its node before EC2 ends the node, and only one node is ever launched."""
    with a_rig(
        "process", terms(), instance_types=(TYPE,), zones=(ZONE,), reservations={TYPE: "cr-cheap"}
    ) as rig:
        rig.fake.terms.blocks["cheap"].bought = 1
        play = DaemonInAFolder(tmp_path, rig.clock, SETTINGS, rented_from=rig.cloud)

        def until(is_so: Callable[[], bool], step: float = 30.0, most: int = 1000) -> float:
            for _ in range(most):
                play.daemon.tick()
                assert not play.daemon.standing.fault
                if is_so():
                    return rig.clock.now() - START
                rig.pass_time(step)
            pytest.fail(f"never came: {play.daemon.standing.decision}")

        (job,) = play.service.submit([job_content("long", hours=100.0)], user="ann")["jobs"]
        began = until(lambda: bool(play.service.job(job)["nodes"]), step=120.0)
        [node] = play.service.instances()["instances"]
        rig.pass_time(23.2 * HOUR)
        left = until(lambda: not play.service.job(job)["nodes"])
        over = until(lambda: not rig.fake.live())
        play.daemon.tick()

        assert 2.0 * HOUR <= began <= 2.0 * HOUR + 420.0
        assert (node["market"], node["zone"]) == ("reserved", ZONE)
        # The fee of the block is paid in advance, so the node's price is its disk alone.
        assert node["usd_per_hour"] < 0.1
        assert 25.0 * HOUR < left < 25.5 * HOUR
        assert over <= 25.5 * HOUR + 60.0
        assert play.service.job(job)["status"] == "queued"
        assert len(rig.fake.history()) == 1
        play.close()
