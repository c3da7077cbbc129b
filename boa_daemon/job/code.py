"""Brings a job's code to its node: unpacks the archive once per node, then copies it for each job.

    ... boa_daemon.job.code SOURCE DIGEST CACHE WORK

SOURCE is a packed archive: a file or an s3:// address. DIGEST is the digest of its content. CACHE holds one
unpacked folder per digest. WORK becomes the job's own copy, so that jobs with the same code do not see each
other's files. Standard library only.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from boa_daemon.job.unpack import BadArchive, opened, unpack

BLOCK = 1 << 20
MOST_UNPACKED_BYTES = 4 << 30
FETCH_SECONDS = 600.0
KEEP_SECONDS = 7 * 86_400.0
"""Unpacked code is removed from a node this long after a job last started with it."""
DIGEST_LENGTH = 64


class CodeFailed(RuntimeError):
    """The code of a job could not be fetched or unpacked."""


def digest_of_archive(archive: IO[bytes], *, most: int = MOST_UNPACKED_BYTES) -> str:
    """Return the SHA-256 of an archive's uncompressed content.

    Raises:
        CodeFailed: when it is not an archive, or is larger than `most` bytes uncompressed.
    """
    found, size = hashlib.sha256(), 0
    try:
        with gzip.GzipFile(fileobj=archive) as content:
            while block := content.read(BLOCK):
                size += len(block)
                if size > most:
                    raise CodeFailed(f"the archive of the code is larger than {most} bytes unpacked")
                found.update(block)
    except (OSError, EOFError, zlib.error) as error:
        raise CodeFailed(f"the archive of the code cannot be read: {error}") from None
    return found.hexdigest()


def bring(source: str, digest: str, cache: Path, work: Path) -> None:
    """Copy the code into `work` unless it is there already; fetch and unpack it first if needed.

    Raises:
        CodeFailed: when the archive cannot be fetched, or does not match its digest.
        OSError: when a file cannot be written.
    """
    marker = work.with_name(f"{work.name}.{digest}")
    if marker.exists() and work.is_dir():
        return
    own_folder(cache)
    folder = cache / digest
    _sweep(cache, keep=digest)
    with alone(cache / f"{digest}.lock"):
        if not folder.is_dir():
            _unpack(source, digest, folder)
        os.utime(folder)
    work.parent.mkdir(parents=True, exist_ok=True)
    with alone(work.with_name(f"{work.name}.lock")):
        if marker.exists() and work.is_dir():
            return
        fresh = work.with_name(f"{work.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(folder, fresh, symlinks=True)
        shutil.rmtree(work, ignore_errors=True)
        fresh.rename(work)
        marker.touch()


def own_folder(cache: Path) -> None:
    """Make the folder of all code, and let nobody else read it: jobs get copies of their own code."""
    cache.mkdir(parents=True, exist_ok=True)
    if cache.stat().st_uid == os.geteuid():
        cache.chmod(0o700)


def _sweep(cache: Path, *, keep: str) -> None:
    """Remove unpacked code that no job has started with for long; running jobs have their own copies."""
    for folder in cache.iterdir():
        is_code = len(folder.name) == DIGEST_LENGTH and folder.is_dir() and folder.name != keep
        if is_code and folder.stat().st_mtime < time.time() - KEEP_SECONDS:
            forget_code(cache, folder.name)


def forget_code(cache: Path, digest: str) -> None:
    """Remove the unpacked code of an archive; the next job that needs it unpacks it again."""
    folder = cache / digest
    gone = folder.with_name(f"{digest}.gone.{time.time_ns()}")
    with suppress(OSError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _unpack(source: str, digest: str, folder: Path) -> None:
    """Unpack an archive into a folder atomically."""
    aside = folder.with_name(f"{digest}.part")
    archive = folder.with_name(f"{digest}.tar.gz")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        file = archive if source.startswith("s3://") else Path(source)
        if source.startswith("s3://"):
            _fetch(source, archive)
        try:
            with file.open("rb") as content:
                found = digest_of_archive(content)
        except OSError as error:
            raise CodeFailed(f"the archive of the code cannot be read: {error}") from None
        if found != digest:
            raise CodeFailed(f"the archive of the code has the digest {found[:12]}, not {digest[:12]}")
        aside.mkdir(parents=True)
        with file.open("rb") as content, opened(content, "r:gz") as content_of:
            unpack(content_of, aside, most_bytes=MOST_UNPACKED_BYTES)
        aside.rename(folder)
    except (tarfile.TarError, BadArchive) as error:
        raise CodeFailed(f"the archive of the code cannot be unpacked: {error}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        if source.startswith("s3://"):
            archive.unlink(missing_ok=True)


def _fetch(source: str, target: Path) -> None:
    done = subprocess.run(
        ["aws", "s3", "cp", source, str(target), "--only-show-errors"],
        capture_output=True,
        text=True,
        check=False,
        timeout=FETCH_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise CodeFailed(f"{source} could not be fetched: {done.stderr.strip()[-300:]}")


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """Hold a lock file, so that only one process of this node works on the folder."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: list[str]) -> int:
    """Bring the code; print one sentence and return exit code 1 if that fails."""
    source, digest, cache, work = arguments
    try:
        bring(source, digest, Path(cache), Path(work))
    except (CodeFailed, OSError, subprocess.TimeoutExpired) as error:
        with suppress(OSError):
            os.write(2, f"boa: {error}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
