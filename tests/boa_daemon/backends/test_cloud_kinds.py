"""What each cloud is: one line for each that can be opened, and none for another."""

from __future__ import annotations

from boa_daemon.backends.cloud_kinds import CLOUD_KINDS, CloudKind, cloud_kind
from boa_daemon.cli.init import CloudName
from boa_daemon.daemon.assembly import CLOUD_CLASSES, CLOUDS


def test_every_cloud_that_can_be_opened_has_a_line() -> None:
    """And `boa init` offers it."""
    assert CLOUD_KINDS.keys() == CLOUDS.keys() == CLOUD_CLASSES.keys() == {where.value for where in CloudName}


def test_of_a_cloud_of_a_plug_in_nothing_is_known() -> None:
    """It has no account of AWS, and no file in the state folder."""
    assert cloud_kind("theirs") == CloudKind(on_aws=False, in_a_file=False)
