"""Checkpoints of many files from many ranks are complete or not there."""

from __future__ import annotations

import errno
import json
import mmap
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled
from small_disk import a_small_disk

from boa_daemon.job import checkpoint as checkpoint_module
from boa_daemon.job import run as running
from boa_daemon.job.checkpoint import (
    Checkpoint,
    CheckpointFailed,
    StaleGeneration,
    begin_folder,
    commit_folder,
    described,
    digest_of_list,
    files_of,
    identity_of,
    newest_checkpoint,
    remove_older_checkpoints,
    set_fence,
    write_checkpoint,
)
from boa_daemon.job.run import Run


class Crew:
    """Ranks as threads, each with its node's folder; `gather` exchanges bytes between them."""

    def __init__(self, folders: Mapping[int, Path], nodes: tuple[int, ...], **more: str) -> None:
        self._parts: list[bytes] = [b""] * len(nodes)
        self._barrier = threading.Barrier(len(nodes), timeout=120)
        self.runs = [
            Run(
                {
                    "RANK": str(rank),
                    "BOA_NODE_RANK": str(node),
                    "BOA_CHECKPOINT_DIR": str(folders[node]),
                    "BOA_GENERATION": "3",
                    **more,
                }
            )
            for rank, node in enumerate(nodes)
        ]

    def gather(self, rank: int) -> Callable[[bytes], list[bytes]]:
        def meet(part: bytes) -> list[bytes]:
            self._parts[rank] = part
            self._barrier.wait()
            found = list(self._parts)
            self._barrier.wait()
            return found

        return meet

    def all(self, do: Callable[[int, Run], object]) -> list[object]:
        with ThreadPoolExecutor(len(self.runs)) as pool:
            return list(pool.map(do, range(len(self.runs)), self.runs))

    def save(self, step: int, write: Callable[[int, Path], object]) -> list[object]:
        return self.all(
            lambda rank, run: run.save_folder(step, lambda path: write(rank, path), self.gather(rank))
        )


def shard(rank: int, path: Path) -> None:
    (path / f"__{rank}_0.distcp").write_bytes(bytes([rank]) * (rank + 1))


@pytest.mark.parametrize("is_shared", [True, False])
def test_files_of_all_ranks_make_one_checkpoint(tmp_path: Path, is_shared: bool) -> None:
    """Two nodes of two ranks write the same manifest on each file system, and it names every file."""
    folders = {node: tmp_path / ("one" if is_shared else f"node{node}") for node in (0, 1)}
    crew = Crew(folders, (0, 0, 1, 1))
    found = [one for one in crew.save(7, shard) if one is not None]

    assert len(found) == (1 if is_shared else 2)
    manifests = {(folder / "manifest.json").read_text() for folder in folders.values()}
    assert len(manifests) == 1
    document = json.loads(manifests.pop())
    sizes = {name: size for name, (size, _) in document["files"].items()}
    assert sorted(name for name in sizes if name.startswith("random-")) == [
        f"random-{rank}-of-1" for rank in range(4)
    ]
    assert {name: size for name, size in sizes.items() if not name.startswith("random-")} == {
        f"__{rank}_0.distcp": rank + 1 for rank in range(4)
    }
    assert "nodes" not in document, "it says nothing of the width"
    whole, wrong = newest_checkpoint(folders[0])
    if is_shared:
        assert isinstance(whole, Checkpoint)
        assert (whole.generation, whole.step, wrong) == (3, 7, "")
    else:
        assert whole is None, "a node that has a part has no checkpoint"
        assert "cannot be read" in wrong


def test_an_asynchronous_save_counts_once_all_ranks_have_written(tmp_path: Path) -> None:
    """There is no checkpoint while the write of one rank is pending."""
    crew = Crew({0: tmp_path}, (0, 0))
    futures: list[Future[None]] = [Future(), Future()]

    def write(rank: int, path: Path) -> Future[None]:
        shard(rank, path)
        return futures[rank]

    def ask(rank: int, run: Run) -> bool:
        meet = crew.gather(rank)
        return run.should_checkpoint(
            None, lambda wish: any(part == b"1" for part in meet(b"1" if wish else b"0"))
        )

    crew.save(5, write)
    futures[0].set_result(None)
    assert crew.all(ask) == [False, False]
    assert newest_checkpoint(tmp_path) == (None, "")
    futures[1].set_result(None)
    assert crew.all(ask) == [False, False]
    found, _ = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 5


class WrittenWhenAwaited(Future[None]):
    """A write that ends as soon as its result is waited for."""

    def result(self, timeout: float | None = None) -> None:
        self.set_result(None)
        super().result(timeout)


def test_a_stop_waits_for_an_asynchronous_save(tmp_path: Path) -> None:
    """A write that is pending when the ranks agree to stop is a checkpoint before they end."""
    crew = Crew({0: tmp_path}, (0, 0))

    def write(rank: int, path: Path) -> Future[None]:
        shard(rank, path)
        return WrittenWhenAwaited()

    def ask(rank: int, run: Run) -> bool:
        meet = crew.gather(rank)
        return run.should_checkpoint(
            None, lambda wish: any(part == b"1" for part in meet(b"1" if wish else b"0"))
        )

    crew.save(5, write)
    assert crew.all(ask) == [False, False]
    assert newest_checkpoint(tmp_path) == (None, "")
    crew.runs[1].stop_asked = True
    assert crew.all(ask) == [True, True]
    found, _ = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 5


@pytest.mark.parametrize("damage", ["shorter", "other", "gone", "list"])
def test_a_damaged_checkpoint_folder_does_not_count(tmp_path: Path, damage: str) -> None:
    """The earlier checkpoint is used, and the damaged one is named."""
    for step in (1, 2):
        path = begin_folder(tmp_path, generation=1, step=step)
        (path / "sub").mkdir()
        (path / "sub" / "a").write_bytes(b"a" * step)
        (path / "b").write_bytes(b"b")
        commit_folder(tmp_path, generation=1, step=step, files=described(path, files_of(path)))
    file = path / "sub" / "a"
    if damage == "shorter":
        file.write_bytes(b"a")
    elif damage == "other":
        file.write_bytes(b"ab")
    elif damage == "gone":
        file.unlink()
    else:
        manifest = tmp_path / "manifest.json"
        document = json.loads(manifest.read_text())
        del document["files"]["b"]
        manifest.write_text(json.dumps(document))
    found, wrong = newest_checkpoint(tmp_path)

    assert found is not None
    assert found.step == 1
    assert "g1-step2.ckpt" in wrong


def test_the_newest_checkpoints_are_kept_and_unfinished_ones_are_not_removed(tmp_path: Path) -> None:
    """Three of five are kept, files and folders alike; the unfinished one of a later step stays."""
    begin_folder(tmp_path, generation=1, step=99)
    for step in range(1, 6):
        if step % 2:
            write_checkpoint(tmp_path, generation=1, step=step, write=lambda file: file.write(b"x"), keep=3)
        else:
            path = begin_folder(tmp_path, generation=1, step=step)
            (path / "a").write_bytes(b"y")
            commit_folder(tmp_path, generation=1, step=step, files=described(path, ["a"]), keep=3)
    names = sorted(file.name for file in tmp_path.glob("*.ckpt"))
    assert names == ["g1-step3.ckpt", "g1-step4.ckpt", "g1-step5.ckpt", "g1-step99.ckpt"]
    for step in (5, 4, 3):
        found, _ = newest_checkpoint(tmp_path)
        assert found is not None
        assert found.step == step
        target = found.path / "a" if found.path.is_dir() else found.path
        target.write_bytes(b"??")


def test_different_files_of_one_name_on_two_nodes_are_an_error(tmp_path: Path) -> None:
    """Then there is no checkpoint."""
    crew = Crew({0: tmp_path / "n0", 1: tmp_path / "n1"}, (0, 1))
    with pytest.raises(CheckpointFailed, match="different files named 'meta'"):
        crew.save(1, lambda rank, path: (path / "meta").write_text(str(rank)))
    assert newest_checkpoint(tmp_path / "n0") == (None, "")


def test_an_older_generation_writes_no_folder(tmp_path: Path) -> None:
    """An older generation can neither begin nor commit a folder; a commit without files is an error."""
    path = begin_folder(tmp_path, generation=3, step=1)
    (path / "a").write_bytes(b"a")
    set_fence(tmp_path, 4)
    with pytest.raises(StaleGeneration):
        commit_folder(tmp_path, generation=3, step=1, files=described(path, ["a"]))
    with pytest.raises(StaleGeneration):
        begin_folder(tmp_path, generation=3, step=2)
    with pytest.raises(CheckpointFailed, match="no rank has written a file"):
        commit_folder(tmp_path, generation=4, step=1, files={})


@pytest.mark.parametrize(
    ("environment", "is_first"),
    [
        ({}, True),
        ({"RANK": "0", "BOA_NODE_RANK": "1"}, True),
        ({"RANK": "1", "BOA_NODE_RANK": "0"}, False),
        ({"OMPI_COMM_WORLD_RANK": "0", "BOA_NODE_RANK": "1"}, True),
        ({"BOA_NODE_RANK": "1"}, False),
    ],
)
def test_rank_0_is_the_first_rank_on_any_node(environment: dict[str, str], is_first: bool) -> None:
    """Without ranks in the environment, node 0 is the first."""
    assert Run(environment).is_first == is_first


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.sampled_from(
        [10**400, -1, 2**70, "9" * 5000, "\0", "x" * 5000, "loop", "loop/x", "..", "/", "", "pipe"]
    ),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(
        st.sampled_from(["whole", "loop", "\0", "x" * 5000, "../x", "pipe"]),
        st.one_of(st.none(), st.tuples(st.one_of(st.integers(), st.floats()), st.text(max_size=3))),
        max_size=2,
    ),
)


@settings(max_examples=sampled(400), deadline=None)
@given(
    changes=st.dictionaries(
        st.sampled_from(["generation", "step", "sha256", "path", "files", "seen"]), ODD, max_size=3
    )
)
def test_an_odd_manifest_never_hides_the_checkpoint_before_it(
    changes: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The problem is reported, and reading neither raises nor hangs."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "pipe")
    for step in (1, 2):
        write_checkpoint(folder, generation=1, step=step, write=lambda file: file.write(b"whole"))
    newest = json.loads((folder / "manifest.json").read_text())
    odd = {**newest, **changes}
    if isinstance(odd.get("files"), dict):
        with suppress(TypeError):
            odd["sha256"] = digest_of_list(odd["files"])
    (folder / "manifest.json").write_text(json.dumps(odd))
    found, wrong = newest_checkpoint(folder)
    assert found is not None
    assert found.step == 1 if wrong else {"generation", "step", "files", "seen"} >= changes.keys()


def test_what_killed_processes_were_writing_goes_with_the_next_generation(tmp_path: Path) -> None:
    """A node that is taken back in the middle of each save must not fill the disk that the next one uses."""
    write_checkpoint(tmp_path, generation=1, step=1, write=lambda file: file.write(b"1"))
    older = [".g1-step2.ckpt.123-45", ".trial.g1.123", ".generation.123-45", ".manifest.json.123-45"]
    own = [".g2-step3.ckpt.123-45", ".trial.g2.123", ".gitignore", ".generation"]
    for name in (*older, *own):
        (tmp_path / name).touch()
    set_fence(tmp_path, 2)
    hidden = {file.name for file in tmp_path.glob(".*")} - {".lock"}
    assert hidden == set(own)
    found = newest_checkpoint(tmp_path)[0]
    assert found is not None
    assert found.step == 1


def _digests(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the files of which digests are computed from now on."""
    taken: list[Path] = []
    digest_of = checkpoint_module.digest_of

    def digest(file: Path) -> str:
        taken.append(file)
        return digest_of(file)

    monkeypatch.setattr(checkpoint_module, "digest_of", digest)
    return taken


def _saved(folder: Path) -> Path:
    """Write two checkpoints of the same size, and return the file of the newer one."""
    for step in (1, 2):
        found = write_checkpoint(
            folder, generation=1, step=step, write=lambda file: file.write(b"state" * 1000)
        )
    return found.path


def test_nobody_reads_a_checkpoint_again_that_has_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank, the keeper and the daemon believe the digest that was taken of the very same file."""
    _saved(tmp_path)
    taken = _digests(monkeypatch)
    found, wrong = newest_checkpoint(tmp_path)
    assert found is not None
    assert (found.step, wrong, taken) == (2, "", [])


def _flip(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.write(b"S")


def _flip_and_set_back_its_time(file: Path) -> None:
    before = file.stat()
    _flip(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _map_and_flip(file: Path) -> None:
    with file.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as memory:
        memory[7] = 0
        memory.flush()


def _put_another_in_its_place(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(b"STATE" * 1000)
    shutil.copystat(file, other)
    other.replace(file)


def _write_it_anew(file: Path) -> None:
    file.write_bytes(b"STATE" * 1000)


def _link_to_another(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(b"STATE" * 1000)
    file.unlink()
    file.symlink_to(other)


def _make_it_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _append(file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(b"x")


CHANGES = (
    _flip,
    _flip_and_set_back_its_time,
    _map_and_flip,
    _put_another_in_its_place,
    _write_it_anew,
    _link_to_another,
    _make_it_a_pipe,
    lambda file: os.truncate(file, 10),
    _append,
    lambda file: file.unlink(),
)


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_a_file_its_digest_is_taken_again(
    change: Callable[[Path], object], tmp_path: Path
) -> None:
    """The change follows the save at once, within a tick of the kernel's clock."""
    change(_saved(tmp_path))
    found, wrong = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 1
    assert "g1-step2.ckpt" in wrong


@pytest.mark.parametrize("boot", ["", "another boot"])
def test_after_a_boot_every_digest_is_taken(
    boot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that crashed may show a file of the same times without its last blocks."""
    file = _saved(tmp_path)
    taken = _digests(monkeypatch)
    monkeypatch.setattr(checkpoint_module, "boot_id", lambda: boot)
    found, _ = newest_checkpoint(tmp_path)
    assert found is not None
    assert taken == [file]
    assert identity_of(file)[:1] == [boot][: len(boot)]


@pytest.mark.parametrize("seen", [None, [], {}, "x", 1, [None] * 6])
def test_an_odd_identity_of_a_manifest_counts_as_none(
    seen: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest of an older release has none, and a job may write what it likes."""
    file = _saved(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "seen": seen}))
    taken = _digests(monkeypatch)
    found, _ = newest_checkpoint(tmp_path)
    assert found is not None
    assert (found.step, taken) == (2, [file])


def test_a_disk_that_fails_while_the_digest_is_taken_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells a failed write once, and the thread that hears it is not the one that saves."""
    _saved(tmp_path)
    told: list[Path] = []

    def fails_once(path: Path) -> None:
        if not told:
            told.append(path)
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checkpoint_module, "flush", fails_once)
    with pytest.raises(CheckpointFailed, match="Input/output"):
        write_checkpoint(tmp_path, generation=1, step=3, write=lambda file: file.write(b"x"))
    found, wrong = newest_checkpoint(tmp_path)
    assert found is not None
    assert (found.step, wrong) == (2, "")
    assert len(told) == 1


def test_on_a_full_disk_older_checkpoints_make_room_for_a_save() -> None:
    """Their own checkpoints are what fills the disks of jobs; the newest one stays until there is a newer."""
    with a_small_disk(megabytes=8) as disk:
        if disk is None:
            pytest.skip("only root can mount a disk")
        run = Run({"BOA_CHECKPOINT_DIR": str(disk.folder / "c"), "BOA_GENERATION": "1"})
        for step in (1, 2):
            run.save(step, lambda file: file.write(b"x" * 2**21))
        disk.fill()
        run.save(3, lambda file: file.write(b"y" * (2**21 - 2**16)))
        found, wrong = newest_checkpoint(disk.folder / "c")
        assert found is not None
        assert (found.step, wrong) == (3, "")
        with pytest.raises(CheckpointFailed, match="No space"):
            run.save(4, lambda file: file.write(b"z" * 2**23))
        still = newest_checkpoint(disk.folder / "c")[0]
        assert still is not None
        assert still.step == 3


@pytest.mark.parametrize("damage", ["overwritten", "cut short", "gone"])
def test_no_checkpoint_makes_room_while_the_newest_one_is_damaged(tmp_path: Path, damage: str) -> None:
    """The job has resumed from the one before, which is then all that there is of its work."""
    for step in (100, 200):
        write_checkpoint(tmp_path, generation=1, step=step, write=lambda file: file.write(b"state" * 100))
    newest = tmp_path / "g1-step200.ckpt"
    if damage == "gone":
        newest.unlink()
    else:
        newest.write_bytes(b"x" * 500 if damage == "overwritten" else b"state")

    assert not remove_older_checkpoints(tmp_path, 1)
    found, _ = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 100


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_save_that_a_stop_waits_for_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    """A later save would make good for any other one."""
    monkeypatch.setattr(running, "LAST_PAUSES_SECONDS", (0.0, 0.0))
    run = Run({"BOA_CHECKPOINT_DIR": str(tmp_path), "BOA_GENERATION": "1"})
    run.stop_agreed = is_stopped
    faults = [OSError(errno.EIO, "Input/output error"), OSError(errno.EMFILE, "Too many open files")]

    def write(file: Any) -> None:
        if faults:
            raise faults.pop()
        file.write(b"x")

    if is_stopped:
        run.save(1, write)
        assert newest_checkpoint(tmp_path)[0] is not None
    else:
        with pytest.raises(CheckpointFailed, match="Too many"):
            run.save(1, write)


def test_a_folder_that_cannot_be_made_is_a_failed_checkpoint(tmp_path: Path) -> None:
    """Not an error of its own kind, which a script would not expect."""
    (tmp_path / "c").write_text("a file")
    with pytest.raises(CheckpointFailed, match="step 1"):
        write_checkpoint(tmp_path / "c", generation=1, step=1, write=lambda file: file.write(b"x"))


WRITERS = """
import sys
from pathlib import Path
from boa_daemon.job.checkpoint import write_checkpoint
folder, first = Path(sys.argv[1]), int(sys.argv[2])
sys.stdin.readline()
for number in range(first, first + 25):
    write_checkpoint(folder, generation=1, step=100 + number % 4, write=lambda file: file.write(b"x"))
"""


def test_a_manifest_has_its_file_though_several_processes_save_in_one_folder(tmp_path: Path) -> None:
    """None removes, as left over, what another has put in its place and is about to name."""
    words = [sys.executable, "-c", WRITERS, str(tmp_path)]
    with ExitStack() as all_of_them:
        writers = [
            all_of_them.enter_context(subprocess.Popen([*words, str(first)], stdin=subprocess.PIPE))
            for first in range(4)
        ]
        for one in writers:
            assert one.stdin is not None
            one.stdin.write(b"\n")
            one.stdin.close()
        while any(one.poll() is None for one in writers):
            with checkpoint_module._locked(tmp_path):
                found, wrong = newest_checkpoint(tmp_path)
            assert found is None or not wrong, wrong
        assert [one.wait() for one in writers] == [0] * 4
    assert newest_checkpoint(tmp_path)[0] is not None
