"""Rows of cost reports: markets, regions, machines, and tags of jobs, teams, nodes and the site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from daemon_time import pass_time

from boa_daemon.daemon.money.cost_labels import _NODE_LABELS, STANDING_ROW, HouseTags, house_tags
from boa_daemon.daemon.money.cost_labels import UNUSED_ROW as UNUSED
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.state import NodeState
from policies.kinds import MachineName, PlannedMarket
from policies.model import InstanceType

START = 1_800_057_600.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 20.0, "standing_usd_per_hour": 0.045},
    "cloud": {"boot_seconds": 60.0, "tags": {"CostCentre": "site"}},
    "daemon": {"tick_seconds": 30.0, "idle_hold_seconds": 60.0},
    "teams": {
        "vision": {"members": ["ann"], "tags": {"CostCentre": "4711", "Grant": "ERC"}},
        "text": {"members": ["bob"]},
    },
}


class Tagged:
    """A cloud whose nodes carry tags and are on spot in eu-west-1."""

    def __init__(self, cloud: Any) -> None:
        self._cloud = cloud

    def nodes(self) -> Sequence[NodeState]:
        tags = (("CostCentre", "node"), ("Owner", "ops"))
        nodes = self._cloud.nodes()
        return [replace(each, market="spot", zone="eu-west-1b", tags=tags) for each in nodes]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cloud, name)


def rows_by(by: str, folder: Path, **given: Any) -> Mapping[str, float]:
    """Return dollars by row after an hour: a job of each team, and one with a tag of its own."""
    clock = ManualClock(START)
    play = DaemonInAFolder(folder, clock, SETTINGS, **given)
    try:
        play.service.submit([job_content("a", hours=0.5, max_gpus=1)], user="ann")
        play.service.submit([job_content("b", hours=0.5, max_gpus=1)], user="bob")
        own = job_content("c", hours=0.5, max_gpus=1) | {"tags": {"CostCentre": "own"}}
        play.service.submit([own], user="ann")
        pass_time(play, 3600.0)
        answer = play.service.cost(by=by)
        assert answer["usd"] == pytest.approx(play.service.cost(by="day")["usd"], abs=2e-5)
        return {row["name"]: row["usd"] for row in answer["rows"]}
    finally:
        play.close()


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("market", {"spot", STANDING_ROW}),
        ("region", {"eu-west-1", STANDING_ROW}),
        ("machine", {"g5.xlarge", STANDING_ROW}),
        ("tag:CostCentre", {"4711", "own", "node", "site"}),
        ("tag:Owner", {"ops", "(no tag Owner)"}),
        ("tag:Grant", {"ERC", "(no tag Grant)"}),
        ("team", {"vision", "text", UNUSED, STANDING_ROW}),
    ],
)
def test_each_row_of_a_report_has_its_part(tmp_path: Path, by: str, names: set[str]) -> None:
    """The tag of a job comes before that of its team, and that before the node's."""
    rows = rows_by(by, tmp_path, wrap_cloud=Tagged)
    assert set(rows) == names
    if by == "tag:CostCentre":
        # One hour has begun: the gateway is billed by the hour.
        assert rows["site"] == pytest.approx(0.045)
        # Half an hour of a g5.xlarge and its boot.
        assert rows["own"] == pytest.approx((0.5 + 60 / 3600) * 1.006, rel=0.05)


def test_without_a_cloud_that_tags_nodes_are_as_the_settings_say(tmp_path: Path) -> None:
    """Simulated and local nodes have the tags of the settings."""
    assert set(rows_by("tag:CostCentre", tmp_path)) == {"4711", "own", "site"}


@pytest.mark.parametrize(
    ("cloud", "region"),
    [("aws", "us-east-1"), ("simulated", "us-east-1"), ("local", ""), ("slurm", ""), ("of-a-plug-in", "")],
)
def test_a_node_without_a_zone_is_in_the_region_of_the_settings_if_its_cloud_has_regions(
    cloud: str, region: str
) -> None:
    """Nodes of this machine or of a Slurm cluster are in no region, whatever [cloud] region is by default."""
    settings = Settings.model_validate({"cloud": {"provider": cloud}})
    assert house_tags(settings).home == region


def test_a_key_that_nothing_carries_is_refused(tmp_path: Path) -> None:
    """Keys are case-sensitive: the hint names the one that was meant."""
    with pytest.raises(InputError, match="carries the tag 'Costcentre'") as refused:
        rows_by("tag:Costcentre", tmp_path)
    assert refused.value.hint == "Did you mean 'CostCentre'?"


@pytest.mark.parametrize("market", ["on-demand", "spot"])
@pytest.mark.parametrize("region", ["", "sa-east-1"])
def test_a_machine_has_one_row_wherever_it_is(market: PlannedMarket, region: str) -> None:
    """The region is not part of the row; plans name a machine on the spot market apart, in every region."""
    name = MachineName("g5.xlarge", region, market)
    machine = InstanceType(name=str(name), gpu_type="a10g", gpus=1, usd_per_hour=1.0)
    node = NodeState(id="n1", instance_type=machine, phase="ready", launched_at=START, gpus=(None,))

    assert _NODE_LABELS["machine"](node, HouseTags(home="us-east-1")) == str(name.in_region(""))
    assert _NODE_LABELS["region"](node, HouseTags(home="us-east-1")) == (region or "us-east-1")
