"""Artifacts of a job: the keeper copies what is below the working folder, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from boa_daemon.job.artifacts import collect, is_plain
from boa_daemon.job.unit import Unit


def a_unit(folder: Path, *patterns: str) -> Unit:
    (folder / "work" / "out").mkdir(parents=True, exist_ok=True)
    return Unit(
        name="u", job="a-1", generation=1, rank=0, run="true", folder=folder / "g1" / "n0",
        workdir=str(folder / "work"), progress_file="", checkpoint_dir=str(folder / "checkpoint"),
        artifacts=patterns, artifacts_dir=str(folder / "artifacts"),
    )  # fmt: skip


def copied(folder: Path) -> list[str]:
    top = folder / "artifacts"
    return sorted(str(file.relative_to(top)) for file in top.rglob("*") if file.is_file())


@pytest.mark.parametrize(
    "pattern", ["/etc/passwd", "**x", "", "../precious", "out/../../precious", "[", "\0", "a" * 5000]
)
def test_an_odd_pattern_copies_nothing_from_outside_and_ends_nothing(tmp_path: Path, pattern: str) -> None:
    """Also where the check of the file would have refused it: one sentence for the log, and no exception."""
    (tmp_path / "precious").write_text("x")
    unit = a_unit(tmp_path, pattern)
    faults = collect(unit)

    assert copied(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "artifacts") == [
        "precious",
        "work",
    ]
    assert all(fault.encode() for fault in faults)
    assert faults or pattern == ""


def test_links_pipes_and_devices_are_left_out(tmp_path: Path) -> None:
    """What leads out of the folder is not copied, and nothing that would block or never end is read."""
    unit, out = a_unit(tmp_path, "out/**/*", "out/*"), tmp_path / "work" / "out"
    (tmp_path / "precious").write_text("x")
    (out / "fine").write_text("fine")
    (out / "inside").symlink_to("fine")
    for name, target in (
        ("a", "/etc/passwd"),
        ("b", str(tmp_path / "precious")),
        ("c", "/"),
        ("d", "/dev/zero"),
    ):
        (out / name).symlink_to(target)
    os.mkfifo(out / "pipe")
    collect(unit)

    assert copied(tmp_path) == ["out/fine", "out/inside"]


def test_names_that_cannot_be_shown_are_named_and_left_out(tmp_path: Path) -> None:
    """Control characters and bytes that are no text; letters of any script are kept."""
    unit, out = a_unit(tmp_path, "out/*"), tmp_path / "work" / "out"
    names = [b"a\x1b]0;x\x07", b"a\nb", b"\xff\xfe", "größe 模型\u3000".encode(), b"-rf"]
    for name in names:
        Path(os.fsdecode(bytes(out) + b"/" + name)).write_text("x")
    faults = collect(unit)

    assert copied(tmp_path) == ["out/-rf", "out/größe 模型\u3000"]
    assert len(faults) == 3
    assert all(fault.isprintable() for fault in faults)
    assert is_plain(Path("a/b c.txt"))
