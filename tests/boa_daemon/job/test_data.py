"""The node's data cache: used data stays, unused data makes room, incomplete data is removed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from boa_daemon.job import data
from boa_daemon.job.data import DataFailed, bring, make_room, refer, sweep
from boa_daemon.job.unit import Unit


def a_unit(folder: Path, **sources: str) -> Unit:
    return Unit(
        name="boa-u", job="a", generation=1, rank=0, run="true", folder=folder / "g1" / "n0",
        workdir=str(folder), progress_file="", checkpoint_dir="", data=sources,
        data_cache=str(folder / "cache"),
    )  # fmt: skip


def an_entry(cache: Path, digit: str, *, days: float, keeper: int | None = None) -> Path:
    """Return an entry that a keeper's unit used this many days ago."""
    entry = cache / (digit * 64)
    entry.mkdir(parents=True)
    (entry / "x").write_text("x")
    entry.chmod(0o555)
    refer(entry, "boa-u", keeper or 2**22 + 1)
    at = time.time() - days * 86_400.0
    os.utime(f"{entry}.refs", (at, at))
    return entry


def test_sweep_keeps_data_that_is_used_or_young(tmp_path: Path) -> None:
    """Of two old entries, the one without a living keeper is removed."""
    used, unused, young = (
        an_entry(tmp_path, "a", days=30.0, keeper=os.getpid()),
        an_entry(tmp_path, "b", days=8.0),
        an_entry(tmp_path, "c", days=6.0),
    )
    sweep(tmp_path)

    assert [used.exists(), unused.exists(), young.exists()] == [True, False, True]
    assert not Path(f"{unused}.refs").exists()


def test_room_is_made_by_removing_the_longest_unused_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only as many entries are removed as needed; too little room is an error with the figures."""
    entries = [an_entry(tmp_path, digit, days=days) for digit, days in (("a", 1.0), ("b", 3.0), ("c", 2.0))]

    def usage(_path: Path) -> SimpleNamespace:
        return SimpleNamespace(free=data.SPARE_BYTES + 10 * sum(not entry.exists() for entry in entries))

    monkeypatch.setattr("shutil.disk_usage", usage)
    make_room(tmp_path, 15)
    assert [entry.exists() for entry in entries] == [True, False, False]
    with pytest.raises(DataFailed, match="needs 2,000,000,000 bytes"):
        make_room(tmp_path, 2_000_000_000)


def test_a_folder_is_copied_without_its_links(tmp_path: Path) -> None:
    """The copy has only files and is read-only; a single source is the data folder itself."""
    source = tmp_path / "set"
    source.mkdir()
    (source / "file").write_text("content")
    (source / "link").symlink_to("/etc/hostname")
    unit = Unit.read(_written(a_unit(tmp_path, **{"": str(source)})))
    bring(unit, os.getpid())
    top = unit.folder / "data"

    assert sorted(file.name for file in top.iterdir()) == ["file"]
    assert (top / "file").read_text() == "content"
    assert ((top / "file").stat().st_mode & 0o777, top.stat().st_mode & 0o777) == (0o444, 0o555)


def test_an_incomplete_copy_is_an_error_and_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that changes during the copy fails the start."""
    source = tmp_path / "set"
    source.mkdir()
    (source / "file").write_text("content")
    monkeypatch.setattr(data, "_copy", lambda *_: None)
    unit = a_unit(tmp_path, one=str(source))
    unit.folder.mkdir(parents=True)
    with pytest.raises(DataFailed, match="was changed while"):
        bring(unit, os.getpid())

    assert not list((tmp_path / "cache").glob("*.part"))
    assert not (unit.folder / "data" / "one").exists()


def _written(unit: Unit) -> Path:
    unit.write()
    return unit.folder
