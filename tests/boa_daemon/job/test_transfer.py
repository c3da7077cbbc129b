"""Checkpoints to S3 and back; the bucket is a folder, and `aws` is a script that copies."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from boa_daemon.job import checkpoint, transfer
from boa_daemon.job.checkpoint import (
    begin_folder,
    commit_folder,
    described,
    digest_of,
    files_of,
    newest_checkpoint,
    write_checkpoint,
)
from boa_daemon.job.unit import Unit, read_json

AWS = """#!{python} -S
import fnmatch, shutil, sys
from pathlib import Path
bucket, fails, is_deep = Path({bucket!r}), Path({fails!r}), "--recursive" in sys.argv
verb, *words = [word for word in sys.argv[2:] if word not in ("--no-progress", "--recursive")]
begin = min([at for at, word in enumerate(words) if word.startswith("--")], default=len(words))
filters, words = words[begin:], words[:begin]
def place(uri): return bucket / uri[5:] if uri.startswith("s3://") else Path(uri)
def chosen(folder):
    if not is_deep:
        return [""]
    files = [each for each in place(folder).rglob("*") if each.is_file()]
    return [name for name in sorted(str(each.relative_to(place(folder))) for each in files) if passes(name)]
def passes(name):
    said = "--include"
    for flag, pattern in zip(filters[::2], filters[1::2]):
        said = flag if fnmatch.fnmatchcase(name, pattern) else said
    return said == "--include"
def copy(source, target):
    with open({copies!r}, "a") as copies: copies.write(source + " " + target + chr(10))
    if fails.exists() and fails.read_text() in source + target:
        sys.stderr.write("An error occurred (503): Slow Down"); return 1
    place(target).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(place(source), place(target))
    print("download:" if source.startswith("s3:") else "upload:", source, "to", target, flush=True)
    return 0
with open({calls!r}, "a") as calls: calls.write(verb + " " + " ".join(words + filters) + chr(10))
if verb == "cp":
    sys.exit(max([copy(words[0] + name, words[1] + name) for name in chosen(words[0])], default=0))
elif verb == "ls":
    for file in sorted(bucket.rglob("*")):
        name = str(file.relative_to(bucket))
        if file.is_file() and name.startswith(words[0][5:]):
            print("2026-01-01 00:00:00", file.stat().st_size, name.partition("/")[2])
else:
    for name in chosen(words[0]):
        (place(words[0]) / name).unlink(missing_ok=True)
"""
URI = "s3://bucket/jobs/a/g1/checkpoint"


class Cloud:
    """A bucket, the calls of `aws`, and the copies that fail."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bucket = folder, folder / "s3"
        self.calls_file, self.copies_file, self.fails = folder / "calls", folder / "copies", folder / "fails"
        self.bucket.mkdir()
        program = folder / "bin" / "aws"
        program.parent.mkdir()
        program.write_text(
            AWS.format(
                python=sys.executable,
                bucket=str(self.bucket),
                calls=str(self.calls_file),
                copies=str(self.copies_file),
                fails=str(self.fails),
            )
        )
        program.chmod(0o755)

    def calls(self) -> list[str]:
        """Return the calls of `aws`."""
        return self.calls_file.read_text().splitlines()

    def copies(self) -> list[str]:
        """Return the attempted copies, each "source target"."""
        return self.copies_file.read_text().splitlines()

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
def test_a_checkpoint_counts_once_the_last_node_has_uploaded_its_part(
    cloud: Cloud, order: tuple[int, int]
) -> None:
    """The last node writes the manifest, and then any node can fetch and verify the whole checkpoint."""
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


def test_an_interrupted_transfer_continues_with_the_missing_files(cloud: Cloud) -> None:
    """Uploaded files are not sent again, and a fetch keeps the files that are right."""
    sha256 = two_nodes(cloud, 4)
    cloud.fails.write_text("sub/b")
    assert cloud.keep(0) == 1
    cloud.fails.unlink()
    assert (cloud.keep(0), cloud.keep(1)) == (0, 0)
    sent = [line.rpartition("ckpt/")[2] for line in cloud.copies() if "g1-step4.ckpt" in line]
    assert sent == ["a", "sub/b", "sub/b", "sub/b", "c"], "twice in vain, and once after that"

    there = cloud.folder / "fresh"
    assert transfer.main(["fetch", str(there), URI, "4", sha256]) == 0
    (there / "g1-step4.ckpt" / "a").write_text("a of X")
    before = len(cloud.copies())
    assert transfer.main(["fetch", str(there), URI, "4", sha256]) == 0
    assert len(cloud.copies()) - before == 2, "the manifest and the one file that was wrong"


ODD = ["__0_0.distcp", "a to b", "x[1]*?.pt", "x1aa.pt", "with space/é"]


def test_files_with_odd_names_are_copied_in_one_process(cloud: Cloud) -> None:
    """A save has calls for files, list and manifest; a name with wildcards matches only itself."""
    path = begin_folder(cloud.node(0)[1], generation=1, step=4)
    for name in ODD:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(name)
    files = described(path, files_of(path))
    commit_folder(cloud.node(0)[1], generation=1, step=4, files=files)
    cloud.fails.write_text("x1aa")
    assert cloud.keep(0) == 1
    cloud.fails.unlink()
    cloud.calls_file.write_text("")
    assert cloud.keep(0) == 0
    assert [line.partition(" ")[0] for line in cloud.calls()] == ["cp", "ls", "cp"]
    sent = [line.rpartition("ckpt/")[2] for line in cloud.copies() if "g1-step4.ckpt" in line]
    assert sorted(sent) == sorted([*ODD, "x1aa.pt", "x1aa.pt"])

    there = cloud.folder / "fresh"
    sha256 = json.loads((cloud.node(0)[1] / "manifest.json").read_text())["sha256"]
    cloud.calls_file.write_text("")
    assert transfer.main(["fetch", str(there), URI, "4", sha256]) == 0
    assert [line.partition(" ")[0] for line in cloud.calls()] == ["cp", "cp"]
    assert files_of(there / "g1-step4.ckpt") == sorted(ODD)


HANGS = """#!/bin/bash
if [ ! -e {began} ]; then touch {began}; sleep 60 & echo $! > {began}; wait; fi
echo "upload: x to $4"
"""


def test_a_hanging_transfer_is_ended_and_tried_again(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second attempt copies the file."""
    began = cloud.folder / "began"
    (cloud.folder / "bin" / "aws").write_text(HANGS.format(began=began))
    monkeypatch.setattr(transfer, "FIRST_SECONDS", 0.2)
    noted: list[set[str]] = []
    transfer.Mover(lambda arrived: noted.append(set(arrived))).move("s/", "s3://b/t/", {"x": 3})
    os.kill(int(began.read_text()), signal.SIGKILL)

    assert noted == [set(), {"x"}]


@pytest.mark.parametrize("damage", ["byte", "gone", "manifest", "other"])
def test_a_damaged_checkpoint_in_s3_is_not_used(
    cloud: Cloud, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    """The fetch exits with 1 and a message, and leaves no checkpoint."""
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


def test_a_damaged_file_on_a_node_fails_the_upload(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    """The file has the right size and wrong content."""
    two_nodes(cloud, 4)
    (cloud.node(0)[1] / "g1-step4.ckpt" / "a").write_text("? of 4")
    assert cloud.keep(0) == 1
    assert "is not what its manifest says" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["a pipe", "a folder", "a device", "holes"])
def test_what_cannot_be_read_to_its_end_fails_the_upload_at_once(
    cloud: Cloud, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """The last upload has no time limit, and the keeper waits for it."""
    _, checkpoints = cloud.node(0)
    write_checkpoint(checkpoints, generation=1, step=5, write=lambda file: file.write(b"x"))
    file = checkpoints / "g1-step5.ckpt"
    file.unlink()
    if what == "a pipe":
        os.mkfifo(file)
    elif what == "a folder":
        file.mkdir()
    elif what == "a device":
        file.symlink_to("/dev/zero")
    else:
        disk = os.statvfs(checkpoints)
        file.touch()
        os.truncate(file, min(2 * disk.f_blocks * disk.f_frsize, 2**43))
    assert cloud.keep(0) == 1
    assert "is no file, or larger than its disk" in capsys.readouterr().err


def test_older_checkpoints_on_a_node_do_not_count(cloud: Cloud) -> None:
    """`fetch` replaces them and `forget` drops them, so histories of nodes do not mix."""
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


def test_only_the_two_newest_checkpoints_stay_in_s3(cloud: Cloud) -> None:
    """The third upload removes the first checkpoint."""
    unit, checkpoints = cloud.node(0)
    for step in (1, 2, 3):
        write_checkpoint(checkpoints, generation=1, step=step, write=lambda file: file.write(b"x"))
        assert cloud.keep(0) == 0
    names = sorted(file.name for file in (cloud.bucket / URI[5:]).iterdir())
    assert names == ["g1-step2.ckpt", "g1-step3.ckpt", "manifest-2.json", "manifest-3.json"]
    assert cloud.kept(0) == [3, 2, 1]
    assert not (unit / "sending").exists()
    assert len(cloud.calls()) == 3 * 3 + 2, "files, list and manifest of three; and of one its two removals"


def test_an_upload_leaves_the_checkpoint_known_by_its_digest(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link would change the file: keeper and ranks would read each gigabyte again at the next start."""
    _, checkpoints = cloud.node(0)
    write_checkpoint(checkpoints, generation=1, step=5, write=lambda file: file.write(b"x" * 1000))
    taken: list[Path] = []

    def digest(file: Path) -> str:
        taken.append(file)
        return digest_of(file)

    for module in (checkpoint, transfer):
        monkeypatch.setattr(module, "digest_of", digest)
    assert cloud.keep(0) == 0
    found, _ = newest_checkpoint(checkpoints)
    assert found is not None
    assert taken == []

    there = cloud.folder / "fresh"
    assert transfer.main(["fetch", str(there), URI, "5", found.sha256]) == 0
    assert taken == [there / "g1-step5.ckpt"], "once, for what came from elsewhere"
    assert newest_checkpoint(there)[0] is not None
    assert len(taken) == 1
    (there / "g1-step5.ckpt").write_bytes(b"y" * 1000)
    assert newest_checkpoint(there)[0] is None


@pytest.mark.parametrize("files", [1, 3])
def test_a_checkpoint_that_is_replaced_during_its_upload_is_sent_whole(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """A newer one removes it from its folder."""
    _, checkpoints = cloud.node(0)
    if files == 1:
        write_checkpoint(checkpoints, generation=1, step=4, write=lambda file: file.write(b"x" * 1000))
    else:
        two_nodes(cloud, 4)
    before = transfer.Mover.move

    def move(self: transfer.Mover, *words: object, **names: object) -> None:
        for step in (5, 6, 7):
            if not (checkpoints / f"g1-step{step}.ckpt").exists():
                write_checkpoint(checkpoints, generation=1, step=step, write=lambda file: file.write(b"z"))
        before(self, *words, **names)  # type: ignore[arg-type]

    monkeypatch.setattr(transfer.Mover, "move", move)
    assert cloud.keep(0) == 0
    assert not (checkpoints / "g1-step4.ckpt").exists()
    sent = cloud.bucket / URI[5:] / "g1-step4.ckpt"
    if files == 1:
        assert sent.read_bytes() == b"x" * 1000
    else:
        assert (sent / "sub" / "b").read_text() == "sub/b of 4"


def test_a_damaged_checkpoint_of_one_file_fails_the_upload(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    """The manifest's note of the file no longer holds, and its digest is taken."""
    _, checkpoints = cloud.node(0)
    write_checkpoint(checkpoints, generation=1, step=5, write=lambda file: file.write(b"x"))
    (checkpoints / "g1-step5.ckpt").write_bytes(b"y")
    assert cloud.keep(0) == 1
    assert "is not what its manifest says" in capsys.readouterr().err
