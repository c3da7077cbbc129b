"""Transfers checkpoints to S3 and back with the AWS command line; each node sends its part, manifest last.

    ... keep UNIT CHECKPOINTS URI            upload this node's part of the newest checkpoint to URI
    ... fetch CHECKPOINTS URI STEP DIGEST    download and verify the checkpoint of that step
    ... forget CHECKPOINTS                   remove the local manifests: begin without a checkpoint

A checkpoint below URI is complete once `manifest-STEP.json` exists. The node that finds all files there with
the sizes in the manifest, which is the last node to finish, writes it. Sent files are noted beside the unit,
so an interrupted transfer continues with the missing files. A fetch verifies the digest of every file; if it
fails, the exit code is not 0, and the job does not start.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from boa_daemon.job.checkpoint import (
    MANIFEST,
    digest_of,
    digest_of_list,
    forget_manifests,
    known_digest,
    put_manifest,
    settled_identity,
    wrong_file,
)
from boa_daemon.job.regular_files import fits_its_disk, open_regular
from boa_daemon.job.unit import KEPT, Unit, kept_checkpoints, read_json, write_json

AT_ONCE = 10
"""Number of files, or parts of one, that the AWS command line transfers at a time."""
TRIES = 5
LEAST_BYTES_PER_SECOND = 1e6
"""A transfer slower than a quarter of this, or of the speed measured, is tried again."""
FIRST_SECONDS, NOTE_SECONDS = 60.0, 1.0
MOST_KEPT = 100
SENT = "sent.json"


class TransferFailed(RuntimeError):
    """A checkpoint could not be transferred completely."""


class Mover:
    """Copies files with one process of the AWS command line, which transfers several at a time.

    The process prints a line for each file that has arrived. If no line comes for too long, or files fail,
    the missing files are tried again. The time limit follows from the largest file and the speed measured.
    """

    def __init__(self, note: Callable[[Collection[str]], None] = lambda arrived: None) -> None:
        self._note, self._speed = note, LEAST_BYTES_PER_SECOND

    def move(self, source: str, target: str, wanted: Mapping[str, int], *, but: Iterable[str] = ()) -> None:
        """Copy the files below `source` (or the file `source`), except those named in `but`.

        `wanted` maps the name of each file to its size in bytes; `note` gets the names that have arrived.

        Raises:
            TransferFailed: when a file cannot be copied after several tries.
        """
        arrived: set[str] = set()
        wrong = ""
        for number in range(TRIES if wanted else 0):
            if number:
                time.sleep(min(0.5 * 2.0**number, 10.0))
            missing = {name: size for name, size in wanted.items() if name not in arrived}
            wrong = self._try(source, target, missing, {*but, *arrived}, arrived)
            self._note(arrived)
            if not wrong or arrived >= wanted.keys():
                return
        if wrong:
            raise TransferFailed(wrong)

    def _try(
        self, source: str, target: str, missing: Mapping[str, int], but: Collection[str], arrived: set[str]
    ) -> str:
        """Try to copy once; return what went wrong, or an empty text."""
        most = min(sum(missing.values()), AT_ONCE * max(missing.values()))
        limit = FIRST_SECONDS + 4.0 * most / self._speed
        words = ["aws", "s3", "cp", source, target, "--no-progress"]
        if source.endswith("/"):
            words.append("--recursive")
            words += [word for name in sorted(but) for word in ("--exclude", _pattern(name))]
        began = noted = time.monotonic()
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, bufsize=0
            )
            assert process.stdout is not None
            with process.stdout as lines:
                rest = b""
                while select.select([lines], [], [], limit)[0]:
                    if not (block := lines.read(1 << 16)):
                        break
                    *whole, rest = (rest + block).split(b"\n")
                    names = {_arrived(line.decode(errors="replace"), source, target) for line in whole}
                    arrived.update(names.intersection(missing))
                    if time.monotonic() - noted >= NOTE_SECONDS:
                        self._note(arrived)
                        noted = time.monotonic()
                else:
                    process.kill()
            code = process.wait()
            said.seek(0)
            why = said.read().decode(errors="replace").strip()[-300:]
        if code == 0:
            arrived.update(missing)
        done = sum(missing[name] for name in arrived.intersection(missing))
        self._speed = max(self._speed, done / max(time.monotonic() - began, 1e-3))
        if code == 0:
            return ""
        why = why or (f"exit code {code}" if code > 0 else f"no file came within {limit:.0f} s")
        return f"{source}: {why}"


def _pattern(name: str) -> str:
    """Return the glob pattern that matches only this name."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _arrived(line: str, source: str, target: str) -> str:
    """Return the name of the file that an output line reports as transferred."""
    if line.startswith(f"download: {source}"):
        return line.removeprefix(f"download: {source}").rpartition(" to ")[0]
    return line.partition(f" to {target}")[2] if line.startswith("upload: ") else ""


def aws(*words: str, seconds: float = FIRST_SECONDS) -> subprocess.CompletedProcess[str]:
    """Run the AWS command line.

    Raises:
        TimeoutExpired: when it takes longer than `seconds`.
    """
    return subprocess.run(
        ["aws", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
    )


def keep(unit_folder: Path, checkpoints: Path, uri: str) -> None:
    """Upload this node's part of the newest checkpoint of its generation, unless it was uploaded already.

    Raises:
        TransferFailed: when a file cannot be sent.
        OSError: when a file cannot be read.
    """
    unit, manifest = Unit.read(unit_folder), read_json(checkpoints / MANIFEST)
    if manifest is None or manifest["generation"] != unit.generation:
        return
    if any(one["step"] == manifest["step"] for one in kept_checkpoints(unit)):
        return
    staging = unit.own / "sending"
    shutil.rmtree(staging, ignore_errors=True)
    try:
        with ExitStack() as held:
            _send(unit, manifest, uri, staging, _staged(manifest, checkpoints, staging, held))
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _staged(manifest: Mapping[str, Any], checkpoints: Path, staging: Path, held: ExitStack) -> dict[str, int]:
    """Put this node's files of a checkpoint below `staging`; return the size of each by name.

    Newer checkpoints may replace this one during the upload. Hard links keep many files alive. A single one
    is held open: a link would change it, and whoever reads its manifest next would take its digest anew.
    """
    path = str(manifest["path"])
    names = [f"{path}/{name}" for name in manifest.get("files", {})]
    sizes = {name: _linked(checkpoints / name, staging / name) for name in names}
    if not names:
        sizes = {path: _held(checkpoints / path, staging / path, held)}
    return {name: size for name, size in sizes.items() if size is not None}


def _send(unit: Unit, manifest: Mapping[str, Any], uri: str, staging: Path, mine: Mapping[str, int]) -> None:
    """Send this node's part of a checkpoint, and the manifest if that was the last part."""
    path, step = str(manifest["path"]), manifest["step"]
    listed = manifest.get("files", {})
    wanted = {f"{path}/{name}": int(size) for name, (size, _) in listed.items()} or mine
    mine = {name: size for name, size in mine.items() if wanted[name] == size}
    digests = {f"{path}/{name}": str(digest) for name, (_, digest) in listed.items()}
    for name in mine:
        file, digest = staging / name, digests.get(name)
        if (digest_of(file) != digest) if digest else (known_digest(file, manifest) != manifest["sha256"]):
            raise TransferFailed(f"{name} is not what its manifest says, and is not sent")
    sent = read_json(unit.own / SENT) or {}
    done = set(sent.get("files", [])) if sent.get("sha256") == manifest["sha256"] else set()

    def note(arrived: Collection[str]) -> None:
        write_json(unit.own / SENT, {"sha256": manifest["sha256"], "files": sorted({*done, *arrived})})

    missing = {name: size for name, size in mine.items() if name not in done}
    Mover(note).move(f"{staging}/", f"{uri}/", missing, but=done)
    there = _listed(uri, path)
    if not wanted or any(there.get(name) != size for name, size in wanted.items()):
        return  # Another node is still sending its part and will write the manifest.
    staging.mkdir(parents=True, exist_ok=True)
    write_json(staging / MANIFEST, manifest)
    _move_file(str(staging / MANIFEST), f"{uri}/manifest-{step}.json")
    stands = {name: manifest[name] for name in ("generation", "step", "sha256", "path")}
    kept = [stands, *kept_checkpoints(unit)]
    write_json(unit.own / KEPT, {"kept": kept[:MOST_KEPT]})
    for old in kept[unit.keep_checkpoints : unit.keep_checkpoints + 1]:
        # Remove the manifest first: without it, a half-removed checkpoint does not count.
        parts = ("--include", str(old["path"]), "--include", f"{old['path']}/*")
        with suppress(subprocess.TimeoutExpired):
            aws("s3", "rm", f"{uri}/manifest-{old['step']}.json")
            aws("s3", "rm", f"{uri}/", "--recursive", "--exclude", "*", *parts)


def _move_file(source: str, target: str, size: int = 0) -> None:
    """Copy one file.

    Raises:
        TransferFailed: when it cannot be copied after several tries.
    """
    Mover().move(source, target, {"": size})


def _held(file: Path, target: Path, held: ExitStack) -> int | None:
    """Make `target` a way to a file that stays open with `held`; return its size, None if there is no file.

    Raises:
        TransferFailed: when it is no file, or has holes and more bytes than its disk.
        OSError: when it cannot be read.
    """
    if not _may_be_sent(file):
        return None
    stream = held.enter_context(open_regular(file))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(f"/proc/{os.getpid()}/fd/{stream.fileno()}")
    return target.stat().st_size


def _may_be_sent(file: Path) -> bool:
    """Return whether a file is there.

    Raises:
        TransferFailed: when it is no file, or has holes and more bytes than its disk.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        found = file.stat()
        if not stat.S_ISREG(found.st_mode) or not fits_its_disk(found.st_size, file):
            raise TransferFailed(f"{file.name} is no file, or larger than its disk, and is not sent")
        return True
    return False


def _linked(file: Path, target: Path) -> int | None:
    """Link (or copy) a file to `target` and return its size; None if this node does not have the file.

    Raises:
        TransferFailed: when it is no file, or has holes and more bytes than its disk.
        OSError: when it cannot be read.
    """
    if not _may_be_sent(file):
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, target)
    except FileNotFoundError:
        return None
    except OSError:
        shutil.copy2(file, target)
    return target.stat().st_size


def _listed(uri: str, path: str) -> dict[str, int]:
    """Return the sizes of a checkpoint's files in S3, by name below `uri`.

    Raises:
        TransferFailed: when S3 does not list them.
    """
    try:
        done = aws("s3", "ls", "--recursive", f"{uri}/{path}")
    except subprocess.TimeoutExpired as error:
        raise TransferFailed(f"S3 did not list {uri}: {error}") from error
    if done.returncode != 0 and done.stderr.strip():
        raise TransferFailed(f"S3 did not list {uri}: {done.stderr.strip()[-300:]}")
    prefix = uri.removeprefix("s3://").partition("/")[2] + "/"
    rows = (line.split(None, 3) for line in done.stdout.splitlines())
    return {row[3].removeprefix(prefix): int(row[2]) for row in rows if len(row) == 4}


def fetch(checkpoints: Path, uri: str, step: str, sha256: str) -> None:
    """Download a checkpoint, verify each file, and install its manifest; correct local files are kept.

    Raises:
        TransferFailed: when the checkpoint cannot be downloaded, or is damaged.
        OSError: when a file cannot be written.
    """
    checkpoints.mkdir(parents=True, exist_ok=True)
    aside = checkpoints / f".manifest-{step}"
    _move_file(f"{uri}/manifest-{step}.json", str(aside))
    manifest = read_json(aside)
    if manifest is None or str(manifest.get("sha256")) != sha256:
        raise TransferFailed(f"{uri}/manifest-{step}.json is not the manifest of {sha256[:12]}")
    path = str(manifest["path"])
    listed = {
        str(name): (int(size), str(digest)) for name, (size, digest) in manifest.get("files", {}).items()
    }
    if listed and digest_of_list(listed) != sha256:
        raise TransferFailed(f"the list of files in {uri}/manifest-{step}.json is damaged")
    if listed:
        folder = checkpoints / path
        for name in listed:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        wanted = {name: row for name, row in listed.items() if wrong_file(folder, {name: row})}
        sizes = {name: size for name, (size, _) in wanted.items()}
        Mover().move(f"{uri}/{path}/", f"{folder}/", sizes, but=listed.keys() - wanted.keys())
        wrong = wrong_file(folder, wanted)
    else:
        identity = _identity_of(checkpoints / path, sha256)
        if identity is None:
            size = _listed(uri, path).get(path, 0)
            _move_file(f"{uri}/{path}", str(checkpoints / path), size)
            identity = _identity_of(checkpoints / path, sha256)
        wrong = f"{path!r} has another digest" if identity is None else ""
        manifest = {**manifest, "seen": [sha256, *(identity or [])]}
    if wrong:
        raise TransferFailed(f"the checkpoint of step {step} in {uri} is damaged: {wrong}")
    put_manifest(checkpoints, json.dumps(manifest).encode())
    aside.unlink()


def _identity_of(file: Path, sha256: str) -> list[Any] | None:
    """Return the identity with which a file has this digest; None if it is not there, or has another one."""
    try:
        identity = settled_identity(file)  # Before the digest: a change in between makes it out of date.
        return identity if digest_of(file) == sha256 else None
    except OSError:
        return None


def main(words: list[str]) -> int:
    """Run a subcommand; print errors to standard error, from where they go to the job's log."""
    verb, *rest = words
    try:
        if verb == "keep":
            keep(Path(rest[0]), Path(rest[1]), rest[2])
        elif verb == "fetch":
            fetch(Path(rest[0]), rest[1], rest[2], rest[3])
        else:
            forget_manifests(Path(rest[0]))
    except (TransferFailed, OSError, KeyError, ValueError) as error:
        print(f"boa: {error}", file=sys.stderr)  # noqa: T201  the keeper puts it into the job's log
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
