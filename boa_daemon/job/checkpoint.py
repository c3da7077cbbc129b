"""Atomic checkpoints: a checkpoint exists once its manifest is written.

The folder holds the checkpoints, `manifest.json` (`generation, step, sha256, path`) of the newest one, and
`manifest.previous.json` of the one before. A checkpoint is written under a temporary name, synced to disk and
renamed; then the manifest is. A process that dies in between leaves the old manifest, which is still valid.
The manifest also says which file its digest was taken of (`seen`): while the kernel of that boot shows the
same file, unchanged since, nobody computes the digest again, which takes about a second per gigabyte.

A checkpoint may also be a folder of many files, written by many ranks. Its manifest lists each file with size
and digest (`files`) and is written once all ranks have written theirs. It does not depend on the number of
ranks, so a job can resume at any width.

The file `generation` is the fence: it names the newest generation that was started, and older generations may
not write any more. A lock makes the check of the fence and the rename of the manifest one atomic step.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from boa_daemon.job.processes import boot_id
from boa_daemon.job.regular_files import files_below, fits_its_disk, open_regular, read_regular
from boa_daemon.job.whole_files import flush, whole_file

MOST_KEPT = 100
LOCK_SECONDS = 10.0
"""How long to wait for another process that writes a manifest, which takes milliseconds."""
CLOCK_TICK_SECONDS = 0.02
"""Two changes of a file within this time may have one time: the kernel's ticks are at most 10 ms apart."""
NODE_MARK = ".node-"
"""Prefix of the marker files in a checkpoint's folder; each names a node that shares this folder."""
MANIFEST, PREVIOUS, FENCE, LOCK = "manifest.json", "manifest.previous.json", "generation", ".lock"


class CheckpointFailed(RuntimeError):
    """The checkpoint could not be written; the previous checkpoint is untouched."""


class StaleGeneration(CheckpointFailed):
    """A newer generation of this job was started: this process may not write any more and should exit."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: the generation that wrote it, the step, the digest and the path.

    `path` is a file or a folder. For a folder, `files` maps each file name in it to its size in bytes and its
    digest, and `sha256` is the digest of that list.
    """

    generation: int
    step: int
    sha256: str
    path: Path
    files: Mapping[str, tuple[int, str]] = field(default_factory=dict)


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal digits.

    Raises:
        OSError: when the file cannot be read.
    """
    digest = hashlib.sha256()
    with open_regular(file) as stream:
        if not fits_its_disk(os.fstat(stream.fileno()).st_size, file):
            raise OSError(errno.EFBIG, "is larger than its disk", str(file))
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def identity_of(file: Path) -> list[Any]:
    """Return what the kernel changes whenever a file's content does; empty if it is no regular file.

    The times are those of this boot: after a crash of the machine a file may have lost what was written.

    Raises:
        OSError: when the file cannot be reached.
    """
    found, boot = file.stat(), boot_id()
    if not boot or not stat.S_ISREG(found.st_mode):
        return []
    return [boot, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def settled_identity(file: Path) -> list[Any]:
    """Return the identity of a file once each later change gets a later time; empty if none is sure to."""
    age_seconds = time.time() - file.stat().st_ctime
    if age_seconds < 0.0:
        return []  # Another machine's clock.
    time.sleep(max(0.0, CLOCK_TICK_SECONDS - age_seconds))
    return identity_of(file)


def known_digest(file: Path, manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a checkpoint of one file; it is not read if its manifest was written about it.

    Raises:
        OSError: when the file cannot be read.
    """
    identity, sha256 = identity_of(file), str(manifest["sha256"])
    is_seen = identity != [] and manifest.get("seen") == [sha256, *identity]
    return sha256 if is_seen else digest_of(file)


def read_manifest(folder: Path, name: str = MANIFEST) -> Checkpoint | str | None:
    """Return the checkpoint that a manifest names, None without a manifest, or a sentence: what is wrong."""
    try:
        text = read_regular(folder / name).decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        return f"{name} cannot be read: {error}"
    try:
        found = json.loads(text)
        generation, step = int(found["generation"]), int(found["step"])
        sha256, relative = str(found["sha256"]), str(found["path"])
        files = {
            str(file): (int(size), str(digest)) for file, (size, digest) in found.get("files", {}).items()
        }
        file = (folder / relative).resolve()
    except (ArithmeticError, AttributeError, KeyError, RuntimeError, TypeError, ValueError):
        return f"{name} is not a manifest: {text[:80]!r}"
    if not file.is_relative_to(folder.resolve()):
        return f"{name} points out of the checkpoint folder: {relative!r}"
    if files:
        wrong = "its list of files is damaged" if digest_of_list(files) != sha256 else wrong_file(file, files)
        if wrong:
            return f"the checkpoint {relative!r} is not what {name} says: {wrong}"
        return Checkpoint(generation=generation, step=step, sha256=sha256, path=file, files=files)
    try:
        actual = known_digest(file, found)
    except OSError as error:
        return f"the checkpoint {relative!r} of {name} cannot be read: {error.strerror}"
    if actual != sha256:
        return f"the checkpoint {relative!r} is not what {name} says: its digest is {actual[:12]}"
    return Checkpoint(generation=generation, step=step, sha256=sha256, path=file)


def newest_checkpoint(folder: Path) -> tuple[Checkpoint | None, str]:
    """Return the newest complete checkpoint, and what is wrong with a newer one (empty if nothing is)."""
    found = read_manifest(folder)
    if isinstance(found, Checkpoint):
        return found, ""
    wrong = found or ""
    for name in _previous_names(MOST_KEPT):
        before = read_manifest(folder, name)
        if before is None:
            break
        if isinstance(before, Checkpoint):
            return before, wrong
    return None, wrong


def digest_of_list(files: Mapping[str, tuple[int, str]]) -> str:
    """Return the digest of a list of files with sizes and digests; the order does not matter."""
    rows = [[name, *files[name]] for name in sorted(files)]
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def wrong_file(folder: Path, files: Mapping[str, tuple[int, str]]) -> str:
    """Return the first difference between a folder and a list of its files; empty if there is none."""
    with suppress(OSError):
        # The same file may be named often.
        if not fits_its_disk(sum(size for size, _ in files.values()), folder):
            return "its files are larger than its disk"
    for name, (size, digest) in files.items():
        try:
            file = (folder / name).resolve()
            if not file.is_relative_to(folder.resolve()):
                return f"{name!r} points out of it"
            if file.stat().st_size != size:
                return f"{name!r} has {file.stat().st_size} bytes and should have {size}"
            if digest_of(file) != digest:
                return f"{name!r} has another digest"
        except (OSError, RuntimeError, ValueError) as error:
            return f"{name!r} cannot be read: {getattr(error, 'strerror', None) or error}"
    return ""


def begin_folder(folder: Path, *, generation: int, step: int) -> Path:
    """Create the folder into which all ranks write a checkpoint, and return it.

    Raises:
        StaleGeneration: when a newer generation was started.
        CheckpointFailed: when the folder cannot be created.
    """
    _check_fence(folder, generation)
    path = folder / f"g{generation}-step{step}.ckpt"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointFailed(f"no checkpoint of step {step}: {error.strerror or error}") from error
    return path


def files_of(path: Path) -> list[str]:
    """Return the names of the files in a checkpoint's folder, without the node markers."""
    files = (file for file in files_below(path) if file.is_file() and not file.name.startswith(NODE_MARK))
    return sorted(str(file.relative_to(path)) for file in files)


def described(path: Path, names: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Sync files of a checkpoint to disk; return the size and the digest of each.

    Raises:
        OSError: when a file cannot be read.
    """
    found = {}
    for name in names:
        with (path / name).open("rb") as file:
            os.fsync(file.fileno())
        found[name] = ((path / name).stat().st_size, digest_of(path / name))
    return found


def commit_folder(
    folder: Path, *, generation: int, step: int, files: Mapping[str, tuple[int, str]], keep: int = 2
) -> Checkpoint:
    """Write the manifest of a folder that all ranks have written; keep `keep` checkpoints in total.

    Raises:
        StaleGeneration: when a newer generation was started.
        CheckpointFailed: when the manifest cannot be written.
    """
    path = folder / f"g{generation}-step{step}.ckpt"
    if not files:
        raise CheckpointFailed(f"no checkpoint of step {step}: no rank has written a file")
    sha256 = digest_of_list(files)
    manifest = {
        "generation": generation,
        "step": step,
        "sha256": sha256,
        "path": path.name,
        "files": {name: list(files[name]) for name in sorted(files)},
    }
    try:
        for mark in path.glob(f"{NODE_MARK}*"):
            mark.unlink(missing_ok=True)
        with _locked(folder):
            _put_manifest(folder, manifest, keep=keep)
    except OSError as error:
        raise CheckpointFailed(f"no checkpoint of step {step}: {error.strerror or error}") from error
    return Checkpoint(generation=generation, step=step, sha256=sha256, path=path, files=dict(files))


def write_checkpoint(
    folder: Path,
    *,
    generation: int,
    step: int,
    write: Callable[[BinaryIO], Any],
    keep: int = 2,
    check: Callable[[Path], Any] | None = None,
) -> Checkpoint:
    """Write a checkpoint and its manifest atomically; keep `keep` checkpoints in total.

    `check` gets the path of what was written, and raises if it cannot be loaded.

    Raises:
        StaleGeneration: when a newer generation was started.
        CheckpointFailed: when it cannot be written, for instance because the disk is full, or not be loaded.
    """
    file = folder / f"g{generation}-step{step}.ckpt"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_fence(folder, generation)
        with ExitStack() as until_named:
            sha256 = _write_whole(file, write, check, lambda: until_named.enter_context(_locked(folder)))
            manifest = {
                "generation": generation,
                "step": step,
                "sha256": sha256,
                "path": file.name,
                "seen": [sha256, *settled_identity(file)],
            }
            _put_manifest(folder, manifest, keep=keep)
    except OSError as error:
        raise CheckpointFailed(f"no checkpoint of step {step}: {error.strerror or error}") from error
    return Checkpoint(generation=generation, step=step, sha256=sha256, path=file)


def remove_older_checkpoints(folder: Path, generation: int) -> bool:
    """Remove all checkpoints but the newest one; return whether there was another.

    None is removed where the newest one is damaged: the job has resumed from one before it.

    Raises:
        StaleGeneration: when a newer generation was started.
    """
    newest, wrong = newest_checkpoint(folder)  # Not under the lock: a digest may take minutes.
    if newest is None or wrong:
        return False
    with suppress(OSError), _locked(folder):
        _check_fence(folder, generation)
        previous = [folder / name for name in _previous_names(MOST_KEPT)]
        before = {str((_document(file) or {}).get("path", "")) for file in previous}
        if (_document(folder / MANIFEST) or {}).get("path") != newest.path.name:
            return False
        for file in previous:
            file.unlink(missing_ok=True)
        before.discard(newest.path.name)
        names = [file for file in folder.glob("g*-step*.ckpt") if file.name in before]
        for file in names:
            _remove(file)
        return bool(names)
    return False


def _document(file: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        found = json.loads(read_regular(file))
        return found if isinstance(found, dict) else None
    return None


def try_checkpoint(
    folder: Path, *, generation: int, write: Callable[[BinaryIO], Any], check: Callable[[Path], Any]
) -> None:
    """Write what a checkpoint would hold, load it and remove it.

    Raises:
        CheckpointFailed: when the state cannot be saved, or cannot be loaded again.
        OSError: when there is no room for it now; a later try may succeed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f".trial.g{generation}.{os.getpid()}"
    try:
        with aside.open("wb") as stream:
            try:
                write(stream)
            except OSError:
                raise
            except Exception as error:
                raise CheckpointFailed(
                    f"the state of this job cannot be saved: {type(error).__name__}: {error}"
                ) from error
        _must_load(check, aside)
    finally:
        aside.unlink(missing_ok=True)


def set_fence(folder: Path, generation: int) -> None:
    """Forbid older generations to write checkpoints from now on.

    Raises:
        OSError: when the fence cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if read_fence(folder) < generation:
            _remove_torn(folder, generation)
            _write_bytes(folder / FENCE, str(generation).encode())


def _remove_torn(folder: Path, generation: int) -> None:
    """Remove what killed processes were writing: parts of checkpoints only if of older generations.

    Who calls this has the folder's lock, under which fence and manifests are written.
    """
    for name in os.listdir(folder):
        found = re.match(r"\.(?:trial\.)?g([0-9]+)[-.]", name)
        is_older = found is not None and int(found[1]) < generation
        if is_older or re.fullmatch(rf"\.(?:{FENCE}|manifest[^/]*)\.[0-9]+-[0-9]+", name):
            with suppress(OSError):
                os.unlink(folder / name)


def read_fence(folder: Path) -> int:
    """Return the newest generation that was started; 0 without a fence."""
    try:
        return int(read_regular(folder / FENCE))
    except (OSError, ValueError):
        return 0


def _check_fence(folder: Path, generation: int) -> None:
    newest = read_fence(folder)
    if newest > generation:
        raise StaleGeneration(f"generation {generation} is over: generation {newest} was started")


def _write_bytes(file: Path, content: bytes) -> None:
    with whole_file(file) as aside:
        aside.write_bytes(content)


def _write_whole(
    file: Path,
    write: Callable[[BinaryIO], Any],
    check: Callable[[Path], Any] | None,
    before_rename: Callable[[], Any],
) -> str:
    """Write a file under a temporary name, sync it to disk, check and rename it; return its digest.

    From `before_rename` on, another process must not clean up: no manifest names the file yet.

    Raises:
        CheckpointFailed: when `check` cannot load it.
        OSError: when it cannot be written.
    """
    with whole_file(file) as aside:
        with aside.open("wb") as stream:
            write(stream)
        with _flushed_beside(aside):
            sha256 = digest_of(aside)
            if check is not None:
                _must_load(check, aside)
        before_rename()
    return sha256


@contextmanager
def _flushed_beside(file: Path) -> Iterator[None]:
    """Write a file to the disk while the block works, if this process may start a thread.

    Raises:
        OSError: when the disk is full or fails; the kernel may tell that only once.
    """
    failed: list[OSError] = []

    def flush_file() -> None:
        try:
            flush(file)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=flush_file)
    try:
        thread.start()
    except RuntimeError:  # No threads are left, or Python is ending: the caller's own flush is enough.
        yield
        return
    try:
        yield
    finally:
        thread.join()
    if failed:
        raise failed[0]


def _must_load(check: Callable[[Path], Any], file: Path) -> None:
    try:
        check(file)
    except Exception as error:
        raise CheckpointFailed(
            f"what was saved cannot be loaded again, so it is no checkpoint: {type(error).__name__}: {error}"
        ) from error


def put_manifest(folder: Path, text: bytes) -> None:
    """Replace all manifests by one that was fetched: the old ones belong to another history of the job.

    Raises:
        OSError: when the manifest cannot be written.
    """
    with _locked(folder):
        forget_manifests(folder)
        _write_bytes(folder / MANIFEST, text)


def forget_manifests(folder: Path) -> None:
    """Remove all manifests; without a manifest, a checkpoint no longer counts."""
    for name in (MANIFEST, *_previous_names(MOST_KEPT)):
        (folder / name).unlink(missing_ok=True)


def _put_manifest(folder: Path, manifest: Mapping[str, Any], *, keep: int) -> None:
    """Check the fence, write a manifest, keep the previous ones, and remove checkpoints that none names.

    The caller holds the lock of the folder.
    """
    _check_fence(folder, int(manifest["generation"]))
    kept = _remember_previous(folder, keep)
    _write_bytes(folder / MANIFEST, json.dumps(manifest).encode())
    _clean(folder, keep={str(manifest["path"]), *kept}, newest=(manifest["generation"], manifest["step"]))


def _previous_names(keep: int) -> list[str]:
    """Return the names of the previous manifests, the newest first."""
    return [PREVIOUS, *(f"manifest.previous-{number}.json" for number in range(2, keep))][: max(keep - 1, 1)]


def _remember_previous(folder: Path, keep: int) -> set[str]:
    """Rename each manifest to the next older name, drop the oldest; return the checkpoints they name."""
    kept: set[str] = set()
    names = [MANIFEST, *_previous_names(keep)]
    for number in range(len(names) - 1, 0, -1):
        younger, older = names[number - 1], names[number]
        try:
            text = read_regular(folder / younger)
            kept.add(str(json.loads(text)["path"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        _write_bytes(folder / older, text)
    return kept


def _clean(folder: Path, *, keep: set[str], newest: tuple[int, int]) -> None:
    """Remove checkpoints that no manifest names, except newer ones, which are still being written."""
    for file in folder.glob("g*-step*.ckpt"):
        found = re.fullmatch(r"g(\d+)-step(\d+)\.ckpt", file.name)
        if file.name in keep or found is None or (int(found[1]), int(found[2])) > newest:
            continue
        with suppress(OSError):
            _remove(file)


def _remove(file: Path) -> None:
    if file.is_dir():
        shutil.rmtree(file)
    else:
        file.unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which a job may have replaced by a pipe, or may hold for ever.

    Raises:
        OSError: when it cannot be had within `LOCK_SECONDS`.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(folder / LOCK, flags, 0o666), "wb") as lock:
        if not stat.S_ISREG(os.fstat(lock.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(folder / LOCK))
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
        yield
