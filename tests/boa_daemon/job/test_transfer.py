"""Checkpoints to S3 and back; the bucket is a folder, and `aws` a script that copies."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from boa_daemon.job import transfer
from boa_daemon.job.checkpoint import (
    begin_folder,
    commit_folder,
    described,
    files_of,
    newest_checkpoint,
    write_checkpoint,
)
from boa_daemon.job.unit import Unit, read_json

AWS = """#!{python} -S
import os, shutil, sys
from pathlib import Path
bucket, words = Path({bucket!r}), [word for word in sys.argv[2:] if not word.startswith("--only")]
def place(uri): return bucket / uri[5:] if uri.startswith("s3://") else Path(uri)
with open({calls!r}, "a") as calls: calls.write(" ".join(words) + chr(10))
fails = Path({fails!r})
if fails.exists() and fails.read_text() in " ".join(words):
    sys.stderr.write("An error occurred (503): Slow Down"); sys.exit(1)
if words[0] == "cp":
    target = place(words[2]); target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(place(words[1]), target)
elif words[0] == "ls":
    for file in sorted(bucket.rglob("*")):
        name = str(file.relative_to(bucket))
        if file.is_file() and name.startswith(words[2][5:]):
            print("2026-01-01 00:00:00", file.stat().st_size, name.partition("/")[2])
else:
    found = place(words[1])
    shutil.rmtree(found) if found.is_dir() else found.unlink(missing_ok=True)
"""
URI = "s3://bucket/jobs/a/g1/checkpoint"


class Cloud:
    """A bucket, what was asked of it, and what fails."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bucket = folder, folder / "s3"
        self.calls_file, self.fails = folder / "calls", folder / "fails"
        self.bucket.mkdir()
        program = folder / "bin" / "aws"
        program.parent.mkdir()
        program.write_text(
            AWS.format(
                python=sys.executable,
                bucket=str(self.bucket),
                calls=str(self.calls_file),
                fails=str(self.fails),
            )
        )
        program.chmod(0o755)

    def calls(self, begin: str) -> list[str]:
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        return [line for line in lines if line.startswith(begin)]

    def node(self, number: int) -> tuple[Path, Path]:
        """Return the unit folder and the checkpoint folder of a node."""
        unit, checkpoints = self.folder / f"n{number}", self.folder / f"checkpoints{number}"
        Unit(
            name="u",
            job="a",
            generation=1,
            rank=number,
            run="true",
            folder=unit,
            workdir="/",
            progress_file="",
            checkpoint_dir=str(checkpoints),
        ).write()
        return unit, checkpoints

    def keep(self, number: int) -> int:
        unit, checkpoints = self.node(number)
        return transfer.main(["keep", str(unit), str(checkpoints), URI])

    def kept(self, number: int) -> list[int]:
        return [
            one["step"] for one in (read_json(self.node(number)[0] / "kept.json") or {"kept": []})["kept"]
        ]


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    found = Cloud(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(transfer, "TRIES", 2)
    return found


def two_nodes(cloud: Cloud, step: int) -> str:
    """Write a checkpoint of three files, two on the first node and one on the second; return its digest."""
    parts, files = {0: ["a", "sub/b"], 1: ["c"]}, {}
    for number, names in parts.items():
        path = begin_folder(cloud.node(number)[1], generation=1, step=step)
        for name in names:
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_text(f"{name} of {step}")
        files |= described(path, files_of(path))
    for number in parts:
        commit_folder(cloud.node(number)[1], generation=1, step=step, files=files)
    return str(json.loads((cloud.node(0)[1] / "manifest.json").read_text())["sha256"])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_checkpoint_stands_once_the_last_node_has_sent_its_part(
    cloud: Cloud, order: tuple[int, int]
) -> None:
    """Whichever comes last writes the manifest; then any node can have the whole, verified."""
    sha256 = two_nodes(cloud, 4)
    manifest = cloud.bucket / URI[5:] / "manifest-4.json"
    assert cloud.keep(order[0]) == 0
    assert not manifest.exists()
    assert cloud.kept(order[0]) == []
    assert cloud.keep(order[1]) == 0
    assert manifest.exists()
    assert cloud.kept(order[1]) == [4]

    there = cloud.folder / "fresh"
    assert transfer.main(["fetch", str(there), URI, "4", sha256]) == 0
    found, wrong = newest_checkpoint(there)
    assert found is not None
    assert (found.step, wrong) == (4, "")
    assert (found.path / "sub" / "b").read_text() == "sub/b of 4"


def test_a_transfer_that_was_cut_off_goes_on_with_what_is_missing(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first file was sent and is not sent again; a fetch keeps what is right already."""
    monkeypatch.setattr(transfer, "AT_ONCE", 1)
    sha256 = two_nodes(cloud, 4)
    cloud.fails.write_text("sub/b")
    assert cloud.keep(0) == 1
    cloud.fails.unlink()
    assert (cloud.keep(0), cloud.keep(1)) == (0, 0)
    sent = [line.split()[2].rpartition("ckpt/")[2] for line in cloud.calls("cp") if "g1-step4.ckpt" in line]
    assert sent == ["a", "sub/b", "sub/b", "sub/b", "c"], "twice in vain, and once after that"

    there = cloud.folder / "fresh"
    assert transfer.main(["fetch", str(there), URI, "4", sha256]) == 0
    (there / "g1-step4.ckpt" / "a").write_text("a of X")
    before = len(cloud.calls("cp"))
    assert transfer.main(["fetch", str(there), URI, "4", sha256]) == 0
    assert len(cloud.calls("cp")) - before == 2, "the manifest and the one file that was wrong"


@pytest.mark.parametrize("damage", ["byte", "gone", "manifest", "other"])
def test_what_is_damaged_in_s3_is_never_taken(
    cloud: Cloud, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    """Exit code 1 and a sentence; no manifest stands, so nothing resumes from it."""
    sha256 = two_nodes(cloud, 4)
    assert (cloud.keep(0), cloud.keep(1)) == (0, 0)
    folder = cloud.bucket / URI[5:]
    if damage == "byte":
        (folder / "g1-step4.ckpt" / "c").write_text("? of 4")
    elif damage == "gone":
        (folder / "g1-step4.ckpt" / "c").unlink()
    elif damage == "manifest":
        (folder / "manifest-4.json").write_text("{")
    else:
        sha256 = "0" * 64
    there = cloud.folder / "fresh"

    assert transfer.main(["fetch", str(there), URI, "4", sha256]) == 1
    assert "boa: " in capsys.readouterr().err
    assert newest_checkpoint(there)[0] is None


def test_what_is_damaged_on_a_node_is_not_sent(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    """Its size is right and its content is not."""
    two_nodes(cloud, 4)
    (cloud.node(0)[1] / "g1-step4.ckpt" / "a").write_text("? of 4")
    assert cloud.keep(0) == 1
    assert "is not what its manifest says" in capsys.readouterr().err


def test_what_lies_on_a_node_from_before_counts_for_nothing(cloud: Cloud) -> None:
    """A fetch replaces it, and where no checkpoint stands it is forgotten: nodes never mix histories."""
    sha256 = two_nodes(cloud, 4)
    assert (cloud.keep(0), cloud.keep(1)) == (0, 0)
    there = cloud.folder / "old"
    for step in (8, 9):
        write_checkpoint(there, generation=1, step=step, write=lambda file: file.write(b"x"))
    assert transfer.main(["fetch", str(there), URI, "4", sha256]) == 0
    found, _ = newest_checkpoint(there)
    assert found is not None
    assert found.step == 4
    (found.path / "a").unlink()
    assert newest_checkpoint(there)[0] is None, "nor as what stood before it"

    assert transfer.main(["forget", str(there)]) == 0
    assert newest_checkpoint(there) == (None, "")


def test_only_the_newest_stay_in_s3(cloud: Cloud) -> None:
    """Of three, two; files of a single one as well as folders."""
    unit, checkpoints = cloud.node(0)
    for step in (1, 2, 3):
        write_checkpoint(checkpoints, generation=1, step=step, write=lambda file: file.write(b"x"))
        assert cloud.keep(0) == 0
    names = sorted(file.name for file in (cloud.bucket / URI[5:]).iterdir())
    assert names == ["g1-step2.ckpt", "g1-step3.ckpt", "manifest-2.json", "manifest-3.json"]
    assert cloud.kept(0) == [3, 2, 1]
    assert not (unit / "sending").exists()
