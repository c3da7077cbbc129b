"""Read the site's files of commitments and Capacity Blocks, `[cloud] commitments` and `blocks`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from boa_daemon.daemon.settings.config import Settings
from boa_daemon.inputs.blocks_file import BoughtBlock, read_blocks
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.commitments_file import read_commitments
from boa_daemon.tick.facts.limits import FixedCost
from boa_daemon.tick.money.commitments import CommitmentLevel, SiteCommitments
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import InstanceType


def site_commitments(
    settings: Settings, machines: Sequence[InstanceType], catalog: Catalog
) -> SiteCommitments:
    """Return what the files say of these on-demand machines.

    Raises:
        InputError: when a file is wrong, with file and line.
    """
    cloud, levels = settings.cloud, list[CommitmentLevel]()
    if cloud.commitments is not None:
        levels += read_commitments(cloud.commitments, machines, catalog).levels(machines)
    if cloud.blocks is not None:
        levels += [_of_block(one) for one in read_blocks(Path(cloud.blocks))]
    return SiteCommitments.of(levels, machines)


def _of_block(block: BoughtBlock) -> CommitmentLevel:
    """Return a block, with its fee divided over its hours and instances."""
    begins, ends = block.begins.timestamp(), block.ends.timestamp()
    usd = block.usd * SECONDS_PER_HOUR / (ends - begins)
    cost = FixedCost(name=block.name, usd_per_hour=usd, begins_at=begins, ends_at=ends)
    return CommitmentLevel(cost=cost, rates={block.instance_type: usd / block.instances}, is_block=True)
