"""Capacity Blocks: each has a name, its machines for itself, and time to work before its end."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.blocks_file import BoughtBlock, read_blocks

BLOCK = """
[[blocks]]
name = "{name}"
instance_type = "{kind}"
instances = 2
begins = {begins}
ends = {ends}
usd = 4200.0
"""


def read(folder: Path, *blocks: tuple[str, ...]) -> tuple[BoughtBlock, ...]:
    """Return the blocks of a file, given as name, begin and end on a day of December, and type."""
    text = ""
    for name, begins, ends, *kind in blocks:
        days = {"begins": f"2026-12-{begins}Z", "ends": f"2026-12-{ends}Z"}
        text += BLOCK.format(name=name, kind=kind[0] if kind else "p5.48xlarge", **days)
    (folder / "blocks.toml").write_text(text)
    return read_blocks(folder / "blocks.toml")


def test_a_block_is_usable_until_half_an_hour_before_its_end(tmp_path: Path) -> None:
    """In hours after an instant, which may be within the block."""
    (block,) = read(tmp_path, ("december", "01T11:30:00", "03T11:30:00"))
    assert (block.name, block.instances, block.usd) == ("december", 2, 4200.0)
    assert block.hours(datetime(2026, 12, 1, 1, 30, tzinfo=UTC)) == (10.0, 57.5)
    assert block.hours(datetime(2026, 12, 2, 11, 30, tzinfo=UTC)) == (-24.0, 23.5)


def test_instants_are_utcs_unless_a_zone_is_written(tmp_path: Path) -> None:
    """YAML and JSON write them as text."""
    text = (
        "blocks: [{name: a, instance_type: p, instances: 1, begins: %s, ends: 2026-12-03T11:30:00Z, usd: 1}]"
    )
    for begins, hour in (("2026-12-01T11:30", 11), ('"2026-12-01T11:30:00+02:00"', 9)):
        (tmp_path / "blocks.yaml").write_text(text % begins)
        (block,) = read_blocks(tmp_path / "blocks.yaml")
        assert (block.begins.hour, block.begins.tzinfo) == (hour, UTC)


@pytest.mark.parametrize(
    ("ends", "is_refused"),
    [("01T11:30:00", True), ("01T12:00:00", True), ("01T12:00:01", False), ("01T10:00:00", True)],
)
def test_a_block_leaves_time_to_work(tmp_path: Path, ends: str, is_refused: bool) -> None:
    """More than the half hour in which its instances are ended."""
    if is_refused:
        with pytest.raises(InputError, match=r"blocks\.toml:7: block 'a' leaves no time to work"):
            read(tmp_path, ("a", "01T11:30:00", ends))
    else:
        assert read(tmp_path, ("a", "01T11:30:00", ends))


def test_blocks_of_a_type_do_not_overlap_and_names_are_unique(tmp_path: Path) -> None:
    """One may begin as another ends, and other types are other machines."""
    first = ("a", "02T00:00:00", "04T00:00:00")
    assert len(read(tmp_path, first, ("b", "04T00:00:00", "05T00:00:00"))) == 2
    assert len(read(tmp_path, first, ("b", "01T00:00:00", "02T00:00:00"))) == 2
    assert len(read(tmp_path, first, ("b", "03T00:00:00", "05T00:00:00", "p4d.24xlarge"))) == 2
    for begins, ends in (("03T23:59:59", "05T00:00:00"), ("01T00:00:00", "02T00:00:01"), first[1:]):
        with pytest.raises(InputError, match=r"blocks 'a' and 'b' of p5\.48xlarge overlap"):
            read(tmp_path, first, ("b", begins, ends))
    with pytest.raises(InputError, match="block 'a' is given twice"):
        read(tmp_path, first, ("a", "05T00:00:00", "06T00:00:00"))


def test_a_time_that_is_none_is_refused(tmp_path: Path) -> None:
    """The error shows how to write one; a file without blocks is none."""
    text = BLOCK.format(name="a", kind="p", begins='"soon"', ends="2026-12-03T11:30:00Z")
    (tmp_path / "blocks.toml").write_text(text)
    with pytest.raises(InputError, match=r"begins must be an instant; got 'soon'.*2026-12-01T11:30:00Z"):
        read_blocks(tmp_path / "blocks.toml")
    (tmp_path / "blocks.toml").write_text("blocks = []")
    with pytest.raises(InputError, match="blocks"):
        read_blocks(tmp_path / "blocks.toml")
