"""Checkpoints with a manifest: whole, or not there.

A folder holds the files, `manifest.json` (`generation, step, sha256, path`) and, one before it,
`manifest.previous.json`. The file is written aside, brought to the disk, and renamed; then the manifest is.
Whoever dies in between leaves the manifest before, which is still right.

A checkpoint may be a folder of many files, written by many ranks. Its manifest names each file with its size
and digest (`files`), is written when all ranks have written theirs, and says nothing of the width: whoever
resumes has the same files at any.

`generation` in the folder is the fence: it names the newest generation that was started, and an older one
may not write any more. The lock makes the look at the fence and the rename one act.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from boa_daemon.job.regular_files import open_regular, read_regular

MOST_KEPT = 100
NODE_MARK = ".node-"
"""Begins the name of a file in the folder of a checkpoint that says which node sees that folder."""
MANIFEST, PREVIOUS, FENCE, LOCK = "manifest.json", "manifest.previous.json", "generation", ".lock"


class CheckpointFailed(RuntimeError):
    """The checkpoint could not be written; the one before is untouched."""


class StaleGeneration(CheckpointFailed):
    """A newer generation of this job was started: this one may not write any more, and should end."""


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint: who wrote it, after which step, its digest, and where it is.

    `path` is a file or a folder; of a folder `files` are the size and the digest of each file in it, and
    `sha256` is the digest of that list.
    """

    generation: int
    step: int
    sha256: str
    path: Path
    files: Mapping[str, tuple[int, str]] = field(default_factory=dict)


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal digits.

    Raises:
        OSError: when it cannot be read.
    """
    digest = hashlib.sha256()
    with open_regular(file) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def read_manifest(folder: Path, name: str = MANIFEST) -> Checkpoint | str | None:
    """Return the checkpoint that a manifest names, None without a manifest, or what is wrong with it."""
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
        actual = digest_of(file)
    except OSError as error:
        return f"the checkpoint {relative!r} of {name} cannot be read: {error.strerror}"
    if actual != sha256:
        return f"the checkpoint {relative!r} is not what {name} says: its digest is {actual[:12]}"
    return Checkpoint(generation=generation, step=step, sha256=sha256, path=file)


def newest_checkpoint(folder: Path) -> tuple[Checkpoint | None, str]:
    """Return the newest whole checkpoint, and what was wrong with a newer one; empty where nothing was."""
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
    """Return the digest of a list of files with their sizes and digests, whatever its order."""
    rows = [[name, *files[name]] for name in sorted(files)]
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def wrong_file(folder: Path, files: Mapping[str, tuple[int, str]]) -> str:
    """Return what is wrong with the files of a folder, against a list of them; empty where all are right."""
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
    """Return the folder into which all ranks write a checkpoint, made where it is not there.

    Raises:
        StaleGeneration: when a newer generation was started.
        CheckpointFailed: when it cannot be made.
    """
    _check_fence(folder, generation)
    path = folder / f"g{generation}-step{step}.ckpt"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointFailed(f"no checkpoint of step {step}: {error.strerror or error}") from error
    return path


def files_of(path: Path) -> list[str]:
    """Return the files in the folder of a checkpoint, without the marks of nodes."""
    files = (file for file in path.rglob("*") if file.is_file() and not file.name.startswith(NODE_MARK))
    return sorted(str(file.relative_to(path)) for file in files)


def described(path: Path, names: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Return size and digest of files of a checkpoint, once they are on the disk.

    Raises:
        OSError: when one cannot be read.
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
    """Write the manifest of a folder that all ranks have written; keep the ones before, `keep` in all.

    Raises:
        StaleGeneration: when a newer generation was started.
        CheckpointFailed: when it cannot be written.
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
        _put_manifest(folder, manifest, keep=keep)
    except OSError as error:
        raise CheckpointFailed(f"no checkpoint of step {step}: {error.strerror or error}") from error
    return Checkpoint(generation=generation, step=step, sha256=sha256, path=path, files=dict(files))


def write_checkpoint(
    folder: Path, *, generation: int, step: int, write: Callable[[BinaryIO], Any], keep: int = 2
) -> Checkpoint:
    """Write a checkpoint and its manifest, whole or not at all; keep the one before.

    Raises:
        StaleGeneration: when a newer generation was started.
        CheckpointFailed: when it cannot be written, a full disk for instance.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"g{generation}-step{step}.ckpt"
    _check_fence(folder, generation)
    try:
        sha256 = _write_whole(file, write)
        manifest = {"generation": generation, "step": step, "sha256": sha256, "path": file.name}
        _put_manifest(folder, manifest, keep=keep)
    except OSError as error:
        raise CheckpointFailed(f"no checkpoint of step {step}: {error.strerror or error}") from error
    return Checkpoint(generation=generation, step=step, sha256=sha256, path=file)


def set_fence(folder: Path, generation: int) -> None:
    """Let no generation before this one write from now on.

    Raises:
        OSError: when it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if read_fence(folder) < generation:
            _write_bytes(folder / FENCE, str(generation).encode())


def read_fence(folder: Path) -> int:
    """Return the newest generation that was started; 0 where nobody wrote one."""
    try:
        return int(read_regular(folder / FENCE))
    except (OSError, ValueError):
        return 0


def _check_fence(folder: Path, generation: int) -> None:
    """Raise `StaleGeneration` where a newer generation was started."""
    newest = read_fence(folder)
    if newest > generation:
        raise StaleGeneration(f"generation {generation} is over: generation {newest} was started")


def _write_bytes(file: Path, content: bytes) -> None:
    """Write a file whole, or not at all."""
    _write_whole(file, lambda stream: stream.write(content))


def _write_whole(file: Path, write: Callable[[BinaryIO], Any]) -> str:
    """Write a file aside, bring it to the disk and rename it; return its digest."""
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with aside.open("wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        sha256 = digest_of(aside)
        aside.replace(file)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    return sha256


def put_manifest(folder: Path, text: bytes) -> None:
    """Let a manifest that was brought here stand, alone: what lay here before is of another history.

    Raises:
        OSError: when it cannot be written.
    """
    with _locked(folder):
        forget_manifests(folder)
        _write_bytes(folder / MANIFEST, text)


def forget_manifests(folder: Path) -> None:
    """Remove the manifests that stand here; their checkpoints count for nothing then."""
    for name in (MANIFEST, *_previous_names(MOST_KEPT)):
        (folder / name).unlink(missing_ok=True)


def _put_manifest(folder: Path, manifest: Mapping[str, Any], *, keep: int) -> None:
    """Write a manifest behind the fence, remember the ones before, and remove what none of them names."""
    with _locked(folder):
        _check_fence(folder, int(manifest["generation"]))
        kept = _remember_previous(folder, keep)
        _write_bytes(folder / MANIFEST, json.dumps(manifest).encode())
    _clean(folder, keep={str(manifest["path"]), *kept}, newest=(manifest["generation"], manifest["step"]))


def _previous_names(keep: int) -> list[str]:
    """Return the names of the manifests before the newest, the youngest first."""
    return [PREVIOUS, *(f"manifest.previous-{number}.json" for number in range(2, keep))][: max(keep - 1, 1)]


def _remember_previous(folder: Path, keep: int) -> set[str]:
    """Move each manifest one back, the oldest out; return the names of what they keep."""
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
    """Remove checkpoints that no manifest names, but for those that are being written after the newest."""
    for file in folder.glob("g*-step*.ckpt"):
        found = re.fullmatch(r"g(\d+)-step(\d+)\.ckpt", file.name)
        if file.name in keep or found is None or (int(found[1]), int(found[2])) > newest:
            continue
        with suppress(OSError):
            if file.is_dir():
                shutil.rmtree(file)
            else:
                file.unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock."""
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
