"""`backends/cloud_kinds.py`: the facts about each kind of cloud."""

from __future__ import annotations

from boa_daemon.backends.cloud_kinds import CLOUD_KINDS, CloudKind, cloud_kind, may_read
from boa_daemon.cli.plan.init import CloudName
from boa_daemon.daemon.loop.assembly import CLOUD_CLASSES, CLOUDS


def test_every_cloud_that_can_be_opened_has_a_kind() -> None:
    """`boa init` offers all of them but Slurm, whose partitions it cannot know."""
    offered = {where.value for where in CloudName}
    assert CLOUD_KINDS.keys() == CLOUDS.keys() == CLOUD_CLASSES.keys() == offered | {"slurm"}


def test_a_plug_in_cloud_is_neither_on_aws_nor_in_a_file() -> None:
    """It has no AWS account and no file in the state folder."""
    assert cloud_kind("theirs") == CloudKind(on_aws=False, in_a_file=False)


def test_a_plug_in_cloud_may_read_any_setting() -> None:
    """The clouds of BOA read those that name them."""
    assert [may_read(name, ("aws", "local")) for name in ("aws", "local", "slurm", "theirs")] == [
        True,
        True,
        False,
        True,
    ]
