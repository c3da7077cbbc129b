"""Brings a job's data to its node, read-only, and once for all jobs that use it.  Standard library only.

    ... boa_daemon.job.data FOLDER

FOLDER is the folder of a unit. A source is an s3:// prefix or a folder of this machine. Each source is copied
into a cache entry, whose name is a digest of its file names, sizes, and ETags or times, and is linked into
the unit's folder `data`. An entry that no living unit uses is removed after a week, or sooner if space is
needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from boa_daemon.job.account import drops, is_ours_alone, popen_as
from boa_daemon.job.code import alone
from boa_daemon.job.processes import is_alive, started_ticks
from boa_daemon.job.unit import Unit, read_json, write_json
from boa_daemon.job.unpack import BadArchive, opened, unpack

INSTANCE_STORES = ("/opt/dlami/nvme", "/mnt/instance-store", "/local_scratch")
"""Where AWS images mount an instance's own disks; the cache goes to the first that is a writable mount."""
KEEP_SECONDS = 7 * 86_400.0
ASK_SECONDS = 120.0
SPARE_BYTES = 1 << 30
_ENTRY = re.compile(r"[0-9a-f]{64}")


class DataFailed(RuntimeError):
    """The data of a job could not be listed or fetched, or does not fit."""


def objects_of(source: str, *, most: int | None = None) -> list[tuple[str, int, str]]:
    """Return (name, bytes, ETag) of the objects below an s3:// prefix, sorted; at most about `most`.

    Raises:
        DataFailed: when the prefix cannot be listed, or holds no object.
    """
    bucket, _, prefix = source.removeprefix("s3://").partition("/")
    below = f"{prefix.rstrip('/')}/" if prefix else ""
    words = ["aws", "s3api", "list-objects-v2", "--bucket", bucket, "--prefix", below, "--output", "json"]
    words += ["--query", "Contents[].[Key,Size,ETag]", *(("--max-items", str(most)) if most else ())]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=ASK_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataFailed(f"{source} cannot be listed: {type(error).__name__} of the aws command") from None
    if done.returncode:
        raise DataFailed(f"{source} cannot be listed: {done.stderr.strip()[-300:]}")
    rows = json.loads(done.stdout or "null") or []
    found = sorted((key[len(below) :], int(size), str(tag)) for key, size, tag in rows if key[-1] != "/")
    if not found:
        raise DataFailed(f"{source} holds no object")
    return found


def bring(unit: Unit, keeper: int) -> None:
    """Link the data of a unit into its folder, and fetch it if needed; it is in use while `keeper` lives.

    Raises:
        DataFailed: when a source cannot be fetched completely.
        OSError: when a file cannot be written.
    """
    links = unit.folder / "data"
    if "" not in unit.data:
        links.mkdir(parents=True, exist_ok=True)
        links.chmod(0o755)
    cache = cache_of(Path(unit.data_cache))
    cache.mkdir(parents=True, exist_ok=True)
    cache.chmod(0o755)
    for name, source in unit.data.items():
        entry = _entry_of(source, cache, unit, keeper)
        link = links / name if name else links
        aside = link.with_name(f".{link.name}.new")
        aside.unlink(missing_ok=True)
        aside.symlink_to(entry)
        aside.replace(link)


def cache_of(beside: Path) -> Path:
    """Return the cache folder: on the instance's own disks if there are any, else `beside`."""
    for store in map(Path, INSTANCE_STORES):
        if os.path.ismount(store) and os.access(store, os.W_OK):
            cache = store / "boa-data"
            with suppress(FileExistsError):
                cache.mkdir(mode=0o755)
            # In a store that all may write, a job may have made this folder, or put a link there.
            if is_ours_alone(cache):
                return cache
    return beside


def _entry_of(source: str, cache: Path, unit: Unit, keeper: int) -> Path:
    """Return the cache entry for a source in its present state; fetch it if needed."""
    is_remote = source.startswith("s3://")
    home = cache if is_remote or not drops(unit) else _own_cache(cache, unit)
    rows = objects_of(source) if is_remote else _files_of(source, unit)
    identity = hashlib.sha256(json.dumps([source, rows]).encode()).hexdigest()
    entry = home / identity
    sweep(cache)
    with alone(home / f"{identity}.lock"):
        refer(entry, unit.name, keeper)
        if entry.is_dir():
            return entry
        make_room(cache, sum(size for _, size, _ in rows))
        aside = entry.with_name(f"{identity}.part")
        _remove(aside)
        aside.mkdir(parents=True)
        if is_remote:
            _sync(source, aside)
        else:
            _copy(source, aside, unit, sum(size for _, size, _ in rows))
        if {name: size for name, size, _ in rows} != dict(_sizes(aside)):
            _remove(aside)
            raise DataFailed(f"{source} was changed while it was copied, or was not copied completely")
        _make_read_only(aside)
        aside.rename(entry)
    return entry


def _own_cache(cache: Path, unit: Unit) -> Path:
    """Return the part of the cache for the unit's user alone, because other users may not read the source."""
    home = cache / f"u{unit.uid}"
    home.mkdir(exist_ok=True)
    os.chown(home, 0, unit.gid)
    home.chmod(0o750)
    return home


def _files_of(source: str, unit: Unit) -> list[tuple[str, int, str]]:
    """Return (name, bytes, time) of the files of a folder, listed as the unit's user."""
    done = subprocess.run(
        ["find", "-H", os.path.join("/", source), "-type", "f", "-printf", r"%P\0%s\0%T@\0"],
        capture_output=True, check=False, stdin=subprocess.DEVNULL, **popen_as(unit),
    )  # fmt: skip
    if done.returncode:
        raise DataFailed(f"{source} cannot be read: {done.stderr.decode(errors='replace').strip()[-300:]}")
    words = [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]
    found = zip(words[::3], map(int, words[1::3]), words[2::3])
    return sorted(found)


def _copy(source: str, target: Path, unit: Unit, most_bytes: int) -> None:
    """Copy the files of a folder: read as the unit's user, written as ours."""
    words = ["tar", "--create", "--hard-dereference", "--file=-", "--directory", source, "."]
    reader = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **popen_as(unit)
    )
    assert reader.stdout is not None
    try:
        with reader, opened(reader.stdout, "r|") as archive:
            unpack(archive, target, most_bytes=most_bytes, keeps_links=False)
    except (tarfile.TarError, BadArchive) as error:
        raise DataFailed(f"{source} could not be copied: {error}") from None


def _sync(source: str, target: Path) -> None:
    """Fetch an s3:// prefix, without a time limit."""
    words = ["aws", "s3", "sync", source.rstrip("/"), str(target), "--only-show-errors"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise DataFailed(f"{source} could not be fetched: {done.stderr.strip()[-300:]}")


def _sizes(folder: Path) -> Iterator[tuple[str, int]]:
    for path, _, names in os.walk(folder):
        for name in names:
            file = Path(path, name)
            yield file.relative_to(folder).as_posix(), file.stat().st_size


def _make_read_only(folder: Path) -> None:
    for path, _, names in os.walk(folder):
        for name in names:
            Path(path, name).chmod(0o444)
        Path(path).chmod(0o555)


def _remove(folder: Path) -> None:
    """Remove a folder that may be read-only."""
    for path, _, _ in os.walk(folder):
        with suppress(OSError):
            Path(path).chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)


def refer(entry: Path, unit: str, keeper: int) -> None:
    """Record that a unit uses an entry while its keeper lives."""
    folder = entry.with_name(f"{entry.name}.refs")
    folder.mkdir(exist_ok=True)
    write_json(folder / unit, {"pid": keeper, "ticks": started_ticks(keeper)})
    os.utime(folder)


def _unused(cache: Path) -> list[tuple[float, Path]]:
    """Return (last use, entry) of the entries that no living unit uses, the longest unused first."""
    found = []
    for entry in (*cache.glob("*"), *cache.glob("u*/*")):
        if not _ENTRY.fullmatch(entry.name):
            continue
        refs = entry.with_name(f"{entry.name}.refs")
        living = [
            said
            for said in map(read_json, refs.glob("*"))
            if said and is_alive(int(said["pid"]), int(said["ticks"] or 0))
        ]
        if not living:
            found.append((refs.stat().st_mtime if refs.is_dir() else 0.0, entry))
    return sorted(found)


def sweep(cache: Path, *, keep_seconds: float = KEEP_SECONDS) -> None:
    """Remove entries that no living unit uses and that were last used more than `keep_seconds` ago."""
    for used_at, entry in _unused(cache):
        if used_at < time.time() - keep_seconds:
            _drop(entry)


def make_room(cache: Path, wanted: int) -> None:
    """Remove unused entries, the longest unused first, until `wanted` bytes and a reserve of 1 GiB are free.

    Raises:
        DataFailed: when `wanted` bytes are still not free afterwards.
    """
    for _, entry in _unused(cache):
        if shutil.disk_usage(cache).free >= wanted + SPARE_BYTES:
            return
        _drop(entry)
    if shutil.disk_usage(cache).free < wanted:
        raise DataFailed(
            f"the data needs {wanted:,} bytes, and {cache} has {shutil.disk_usage(cache).free:,}"
        )


def _drop(entry: Path) -> None:
    """Remove an entry; a unit that starts to use it meanwhile fetches it again."""
    gone = entry.with_name(f"{entry.name}.gone")
    with suppress(OSError):
        entry.rename(gone)
    _remove(gone)
    _remove(entry.with_name(f"{entry.name}.refs"))


def main(arguments: list[str]) -> int:
    """Bring the data of a unit; print one sentence and return exit code 1 if that fails."""
    unit = Unit.read(Path(arguments[0]))
    try:
        bring(unit, keeper=os.getppid())
    except (DataFailed, OSError, ValueError) as error:
        with suppress(OSError):
            os.write(2, f"boa: data: {error}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
