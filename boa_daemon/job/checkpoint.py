"""Checkpoints with a manifest: whole, or not there.

A folder holds the files, `manifest.json` (`generation, step, sha256, path`) and, one before it,
`manifest.previous.json`. The file is written aside, brought to the disk, and renamed; then the manifest is.
Whoever dies in between leaves the manifest before, which is still right.

`generation` in the folder is the fence: it names the newest generation that was started, and an older one
may not write any more. The lock makes the look at the fence and the rename one act.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

MANIFEST, PREVIOUS, FENCE, LOCK = "manifest.json", "manifest.previous.json", "generation", ".lock"


class CheckpointFailed(RuntimeError):
    """The checkpoint could not be written; the one before is untouched."""


class StaleGeneration(CheckpointFailed):
    """A newer generation of this job was started: this one may not write any more, and should end."""


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint: who wrote it, after which step, its digest, and where it is."""

    generation: int
    step: int
    sha256: str
    path: Path


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file, as hexadecimal digits.

    Raises:
        OSError: when it cannot be read.
    """
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def read_manifest(folder: Path, name: str = MANIFEST) -> Checkpoint | str | None:
    """Return the checkpoint that a manifest names, None without a manifest, or what is wrong with it."""
    try:
        text = (folder / name).read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        return f"{name} cannot be read: {error}"
    try:
        found = json.loads(text)
        generation, step = int(found["generation"]), int(found["step"])
        sha256, relative = str(found["sha256"]), str(found["path"])
    except (ValueError, KeyError, TypeError):
        return f"{name} is not a manifest: {text[:80]!r}"
    file = (folder / relative).resolve()
    if not file.is_relative_to(folder.resolve()):
        return f"{name} points out of the checkpoint folder: {relative!r}"
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
    before = read_manifest(folder, PREVIOUS)
    wrong = found or ""
    return (before if isinstance(before, Checkpoint) else None), wrong


def write_checkpoint(
    folder: Path, *, generation: int, step: int, write: Callable[[BinaryIO], Any]
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
        with _locked(folder):
            _check_fence(folder, generation)
            before = _remember_previous(folder)
            manifest = {"generation": generation, "step": step, "sha256": sha256, "path": file.name}
            _write_whole(folder / MANIFEST, lambda stream: stream.write(json.dumps(manifest).encode()))
    except OSError as error:
        raise CheckpointFailed(f"no checkpoint of step {step}: {error.strerror or error}") from error
    _clean(folder, keep={file.name, before})
    return Checkpoint(generation=generation, step=step, sha256=sha256, path=file)


def set_fence(folder: Path, generation: int) -> None:
    """Let no generation before this one write from now on.

    Raises:
        OSError: when it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if read_fence(folder) < generation:
            _write_whole(folder / FENCE, lambda stream: stream.write(str(generation).encode()))


def read_fence(folder: Path) -> int:
    """Return the newest generation that was started; 0 where nobody wrote one."""
    try:
        return int((folder / FENCE).read_text())
    except (OSError, ValueError):
        return 0


def _check_fence(folder: Path, generation: int) -> None:
    """Raise `StaleGeneration` where a newer generation was started."""
    newest = read_fence(folder)
    if newest > generation:
        raise StaleGeneration(f"generation {generation} is over: generation {newest} was started")


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


def _remember_previous(folder: Path) -> str:
    """Keep the manifest as the previous one, and return the name of its file; empty where there is none."""
    try:
        text = (folder / MANIFEST).read_bytes()
        name = str(json.loads(text)["path"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    _write_whole(folder / PREVIOUS, lambda stream: stream.write(text))
    return name


def _clean(folder: Path, *, keep: set[str]) -> None:
    """Remove checkpoints that no manifest names."""
    for file in folder.glob("g*-step*.ckpt"):
        if file.name not in keep:
            file.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock."""
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
