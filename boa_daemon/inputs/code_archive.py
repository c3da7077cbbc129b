"""Pack the code of a job: the files of a folder that git does not ignore, or a git revision.

The same files give the same archive on any machine, so code that the daemon has is not sent again.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from boa_daemon.errors import InputError

MOST_BYTES = 30 * 2**20
"""Largest archive in bytes; it goes to the daemon in one request."""
MOST_FILES = 100_000
GIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeArchive:
    """A compressed archive, the digest of its uncompressed content, and the names in it."""

    digest: str
    archive: bytes
    names: frozenset[str]


def pack(folder: Path, revision: str | None = None) -> CodeArchive:
    """Return the packed code of a folder: the files that git does not ignore, or those of a revision.

    Raises:
        InputError: when the folder or the revision does not exist, or the code is too large.
    """
    if not os.path.isdir(folder):
        hint = "Name the folder that the command needs"
        raise InputError(f"code: {str(folder)!r} is not a folder", hint=hint)
    plain = _revision(folder, revision) if revision is not None else _folder(folder)
    archive = gzip.compress(plain, mtime=0)
    if len(archive) > MOST_BYTES:
        raise InputError(
            f"code: {folder} is {len(archive) / 2**20:.0f} MiB packed, and may be {MOST_BYTES / 2**20:.0f}",
            hint="Leave data and results out by .gitignore",
        )
    with tarfile.open(fileobj=io.BytesIO(plain)) as found:
        names = frozenset(member.name.rstrip("/") for member in found.getmembers())
    folders = frozenset(str(parent) for name in names for parent in Path(name).parents)
    return CodeArchive(digest=hashlib.sha256(plain).hexdigest(), archive=archive, names=names | folders)


def _folder(folder: Path) -> bytes:
    """Return a tar archive of the files that git does not ignore, sorted, without owners and times."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for number, name in enumerate(_names(folder)):
            file = folder / name
            if number == MOST_FILES:
                said = f"code: {folder} has more than {MOST_FILES:,} files"
                raise InputError(said, hint="Ignore some of them")
            if file.is_symlink():
                _check_link(file, folder)
            elif file.is_dir():
                said = f"code: {name} is a repository of its own"
                raise InputError(said, hint="Ignore it, or submit from within it")
            elif not file.is_file():
                continue
            member = archive.gettarinfo(str(file), arcname=name.rstrip("/"))
            if member.isreg():
                with file.open("rb") as content:
                    _add(archive, member, content)
            else:
                _add(archive, member, None)
            if buffer.tell() > 40 * MOST_BYTES:
                said = "Leave data and results out by .gitignore"
                raise InputError(f"code: {folder} is too large", hint=said)
    return buffer.getvalue()


def _check_link(file: Path, folder: Path) -> None:
    """Refuse a link out of the folder, whose target would not exist on a node."""
    target = os.readlink(file)
    inside = os.path.normpath(file.parent / target)
    if os.path.isabs(target) or not Path(inside).is_relative_to(os.path.normpath(folder)):
        raise InputError(
            f"code: {file.relative_to(folder)} is a link to {target!r}, outside of the folder",
            hint="Ignore it, or put a file there",
        )


def _names(folder: Path) -> Iterator[str]:
    """Yield the names in a folder that are not ignored, sorted; the folder may be in no git repository."""
    with tempfile.TemporaryDirectory(prefix="boa-code-") as aside:
        options = ["-C", str(folder)]
        if _git("-C", str(folder), "rev-parse", "--is-inside-work-tree").returncode:
            # Without a repository, an empty temporary one applies the ignore files.
            _must(_git("init", "--quiet", "--bare", f"{aside}/git"))
            options += [f"--git-dir={aside}/git", f"--work-tree={folder.resolve()}"]
        listed = _must(
            _git(*options, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
        )
    yield from sorted(os.fsdecode(name) for name in listed.split(b"\0") if name)


def _revision(folder: Path, revision: str) -> bytes:
    """Return a tar archive of this folder at a revision."""
    found = _git("-C", str(folder), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if found.returncode:
        raise InputError(
            f"code: there is no revision {revision!r} in {folder}",
            hint="`git log` lists those that there are",
        )
    commit = found.stdout.decode().strip()
    # Archive the tree, not the commit: two commits with the same files are the same code.
    tree = _must(_git("-C", str(folder), "rev-parse", f"{commit}:./")).decode().strip()
    top = os.fsdecode(_must(_git("-C", str(folder), "rev-parse", "--show-toplevel"))).strip()
    plain = io.BytesIO(_must(_git("-C", top, "archive", "--format=tar", tree)))
    buffer = io.BytesIO()
    with (
        tarfile.open(fileobj=plain) as source,
        tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for member in sorted((one for one in source if not one.isdir()), key=lambda one: one.name):
            _add(archive, member, source.extractfile(member) if member.isreg() else None)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
    """Add a file without what differs between machines: owner, time, and permissions except executable."""
    member.uid = member.gid = 0
    member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.mode & 0o100 else 0o644
    member.pax_headers = {}
    archive.addfile(member, content)


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    """Run git.

    Raises:
        InputError: when git is not installed, or takes too long.
    """
    try:
        return subprocess.run(
            ["git", *words],
            capture_output=True,
            check=False,
            timeout=GIT_SECONDS,
            stdin=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        )
    except FileNotFoundError:
        raise InputError(
            "code: git is missing, which decides what to leave out", hint="Install git"
        ) from None
    except subprocess.TimeoutExpired:
        raise InputError(f"code: git took longer than {GIT_SECONDS:.0f} s") from None


def _must(done: subprocess.CompletedProcess[bytes]) -> bytes:
    """Return the output of a git command.

    Raises:
        InputError: when the command failed.
    """
    if done.returncode:
        raise InputError(f"code: git failed: {done.stderr.decode(errors='replace').strip()[-300:]}")
    return done.stdout
