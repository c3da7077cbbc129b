"""Pack the code of a job: the files of a folder that git does not ignore, or a git revision.

The same files give the same archive on any machine, so code that the daemon has is not sent again. A revision
is checked out aside instead of asking `git archive`, which leaves out and changes files by the repository's
export rules. Submodules are packed with it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from boa_daemon.errors import InputError

MOST_BYTES = 30 * 2**20
"""Largest archive in bytes; it goes to the daemon in one request."""
MOST_PLAIN_BYTES = 40 * MOST_BYTES
"""Largest code before it is packed."""
MOST_FILES = 100_000
GIT_SECONDS = 120.0
_AS_COMMITTED = ("-c", "core.autocrlf=false", "-c", "core.eol=lf", "-c", "core.symlinks=true")
"""Options of git, so that a checkout does not depend on a person's settings for another system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeArchive:
    """A compressed archive, the digest of its uncompressed content, and the names in it."""

    digest: str
    archive: bytes
    names: frozenset[str]


Progress = Callable[[int, int], None]
"""Is told how many bytes are packed, of how many."""


def pack(folder: Path, revision: str | None = None, *, progress: Progress | None = None) -> CodeArchive:
    """Return the packed code of a folder: the files that git does not ignore, or those of a revision.

    Raises:
        InputError: when the folder or the revision does not exist, or the code is too large.
    """
    if not os.path.isdir(folder):
        hint = "Name the folder that the command needs"
        raise InputError(f"code: {str(folder)!r} is not a folder", hint=hint)
    if revision is None:
        return _packed(folder, list(_names(folder)), progress)
    with tempfile.TemporaryDirectory(prefix="boa-code-") as aside:
        at = Path(aside) / "tree"
        at.mkdir()
        _check_out(folder, revision, at)
        names = (
            os.path.join(top, name)
            for top, below, files in os.walk(at)
            for name in [*files, *_links(top, below)]
        )
        return _packed(at, sorted(os.path.relpath(name, at) for name in names), progress, of=folder)


def _links(top: str, folders: list[str]) -> list[str]:
    """Return the folders of `os.walk` that are links; it does not follow them."""
    return [name for name in folders if os.path.islink(os.path.join(top, name))]


def _packed(
    folder: Path, names: list[str], progress: Progress | None, *, of: Path | None = None
) -> CodeArchive:
    """Return the archive of files below a folder, sorted, without owners and times.

    Raises:
        InputError: when there are too many files or bytes, or a link leads out of the folder.
    """
    of = of or folder
    if len(names) > MOST_FILES:
        raise InputError(f"code: {of} has more than {MOST_FILES:,} files", hint="Ignore some of them")
    ways = {os.path.dirname(name) for name in names}
    behind = {way for way in ways if _is_behind_link(folder, way)}
    # What git still lists below a folder that is now a link is no file of this folder.
    names = [name for name in names if os.path.dirname(name) not in behind]
    sizes = {name: (folder / name).lstat().st_size for name in names if os.path.lexists(folder / name)}
    total = sum(sizes.values())
    if total > MOST_PLAIN_BYTES:
        raise _too_large(of, total, MOST_PLAIN_BYTES, sizes, "")
    packed, found, done = io.BytesIO(), set[str](), 0
    try:
        with (
            gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as zipped,
            _DigestingWriter(zipped, packed) as plain,
            tarfile.open(fileobj=plain, mode="w|", format=tarfile.GNU_FORMAT) as archive,
        ):
            for name in names:
                try:
                    is_packed = _pack_one(archive, folder, name, of)
                except OSError as error:
                    raise InputError(
                        f"code: {name!r} in {of} cannot be read: {error.strerror or error}",
                        hint="Submit when nothing writes there, or ignore the file",
                    ) from None
                if is_packed:  # Else it was deleted since it was listed, or is a pipe or a socket.
                    found.add(name)
                    done += sizes.get(name, 0)
                    if progress is not None:
                        progress(done, total)
    except _TooLargePackedError:
        raise _too_large(of, packed.tell(), MOST_BYTES, sizes, " packed") from None
    if packed.tell() > MOST_BYTES:
        raise _too_large(of, packed.tell(), MOST_BYTES, sizes, " packed")
    folders = {str(parent) for name in found for parent in Path(name).parents}
    return CodeArchive(
        digest=plain.sha256.hexdigest(), archive=packed.getvalue(), names=frozenset(found | folders)
    )


def _pack_one(archive: tarfile.TarFile, folder: Path, name: str, of: Path) -> bool:
    """Add a file or a link to an archive; return whether there is one.

    Raises:
        InputError: when a link leads out of the folder.
        OSError: when the file cannot be read, or becomes shorter meanwhile.
    """
    file = folder / name
    if file.is_symlink():
        member = archive.gettarinfo(str(file), arcname=name)
        member.linkname = _link_within(file, folder, of)
        _add(archive, member, None)
        return True
    if not file.is_file():
        return False
    with file.open("rb") as content:
        member = archive.gettarinfo(arcname=name, fileobj=content)
        # Two names of one file are two files on a node.
        member.type, member.linkname = tarfile.REGTYPE, ""
        member.size = os.fstat(content.fileno()).st_size
        _add(archive, member, content)
    return True


def _is_behind_link(folder: Path, way: str) -> bool:
    """Return whether a folder below another one, or one on the way to it, is a link."""
    return any((folder / part).is_symlink() for part in (Path(way), *Path(way).parents) if str(part) != ".")


class _TooLargePackedError(Exception):
    """The archive has become larger than it may be."""


class _DigestingWriter(io.RawIOBase):
    """Writes into a compressed file, and computes the digest of what is written.

    Writing fails with `_TooLargePackedError` once `packed`, below that file, has more than `MOST_BYTES`.
    """

    def __init__(self, zipped: gzip.GzipFile, packed: io.BytesIO) -> None:
        super().__init__()
        self._zipped, self._packed, self.sha256 = zipped, packed, hashlib.sha256()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, block: Any) -> int:
        """Write a block."""
        if self._packed.tell() > MOST_BYTES:
            raise _TooLargePackedError
        self.sha256.update(block)
        return self._zipped.write(block)


def _too_large(folder: Path, size: int, most: int, sizes: Mapping[str, int], how: str) -> InputError:
    """Return the error for code that is too large; it names the largest files."""
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:3]
    named = ", ".join(f"{name} ({sizes[name] / 2**20:.1f} MiB)" for name in largest)
    at_least = "more than " if how else ""
    return InputError(
        f"code: {folder} is {at_least}{size / 2**20:.0f} MiB{how}, and may be {most / 2**20:.0f}; "
        f"its largest files: {named}",
        hint="Leave data and results out by .gitignore, and name them under data",
    )


def _link_within(file: Path, folder: Path, of: Path) -> str:
    """Return the target of a link relative to the link, without a way through folders above the code.

    Raises:
        InputError: when the target is outside of the folder, where a node has nothing.
    """
    target = os.readlink(file)
    top = os.path.realpath(of)
    # A checkout lies aside, and its links are those of the folder that it was taken from.
    beside = os.path.normpath(os.path.join(top, file.parent.relative_to(folder)))
    inside = os.path.normpath(os.path.join(beside, target))
    if os.path.isabs(target) and not Path(inside).is_relative_to(top):
        # The folder itself may be reached through a link.
        inside = os.path.join(os.path.realpath(os.path.dirname(inside)), os.path.basename(inside))
    if not Path(inside).is_relative_to(top):
        raise InputError(
            f"code: {file.relative_to(folder)} is a link to {target!r}, outside of the folder",
            hint="Ignore it, or put a file there",
        )
    leaves = os.path.normpath(os.path.join(os.path.relpath(beside, top), target)).startswith("../")
    return os.path.relpath(inside, beside) if os.path.isabs(target) or leaves else target


def why_left_out(folder: Path, name: str) -> str:
    """Return the rule by which git ignores a name, such as `.gitignore, line 3: build/`, or an empty text."""
    found = _git("-C", str(folder), "check-ignore", "-v", "--no-index", "--", name)
    rule, _, _ = found.stdout.decode(errors="replace").partition("\t")
    file, _, rest = rule.partition(":")
    line, _, pattern = rest.partition(":")
    return f"{file}, line {line}: {pattern}" if found.returncode == 0 and pattern else ""


def _names(folder: Path) -> Iterator[str]:
    """Yield the names in a folder that are not ignored, sorted; the folder may be in no git repository.

    Raises:
        InputError: when git leaves everything out, or a submodule is not there.
    """
    found = sorted(set(_listed(folder)))
    if not found and (rule := why_left_out(folder, ".")):
        raise InputError(
            f"code: git ignores all of {folder} ({rule})",
            hint="Name a folder that git does not ignore, or change that rule",
        )
    yield from found


def _listed(folder: Path, within: str = "") -> Iterator[str]:
    """Yield the names in a folder and in the repositories below it."""
    for name in _ls_files(folder):
        path = folder / name
        if name.endswith("/"):
            raise InputError(
                f"code: {within}{name} is a repository of its own, and no submodule of this one",
                hint="Ignore it, or submit from within it",
            )
        if path.is_symlink() or not path.is_dir():
            yield f"{within}{name}"
            continue
        if not _is_submodule(folder, name):
            continue  # A file before; what is in there now is listed, too.
        if not (path / ".git").exists():
            raise InputError(
                f"code: the submodule {within}{name} is not there",
                hint="Run git submodule update --init --recursive",
            )
        yield from _listed(path, f"{within}{name}/")


def _is_submodule(folder: Path, name: str) -> bool:
    """Return whether git has a name as a submodule, and not as a file that has since become a folder."""
    return _git("-C", str(folder), "ls-files", "-s", "--", f":(literal){name}").stdout.startswith(b"160000 ")


def _is_in_repository(folder: Path) -> bool:
    """Return whether a folder is in a work tree of git.

    Raises:
        InputError: when there is a repository and git refuses to read it: its rules would not be kept.
    """
    found = _git("-C", str(folder), "rev-parse", "--is-inside-work-tree")
    if found.returncode == 0:
        return True
    for above in (folder.resolve(), *folder.resolve().parents):
        if os.path.lexists(above / ".git"):
            said = " ".join(found.stderr.decode(errors="replace").split())[-300:]
            raise InputError(
                f"code: git cannot read the repository in {above}: {said}",
                hint="Without it, files that it ignores would be packed; mend or remove it",
            )
    return False


def _ls_files(folder: Path) -> Iterator[str]:
    """Yield what git lists in a folder: files, and the folders of repositories below it."""
    with tempfile.TemporaryDirectory(prefix="boa-code-") as aside:
        options = ["-C", str(folder)]
        if not _is_in_repository(folder):
            # Without a repository, an empty temporary one applies the ignore files.
            _must(_git("init", "--quiet", "--bare", f"{aside}/git"))
            options += [f"--git-dir={aside}/git", f"--work-tree={folder.resolve()}"]
        listed = _must(
            _git(*options, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
        )
    yield from (os.fsdecode(name) for name in listed.split(b"\0") if name)


def _check_out(folder: Path, revision: str, at: Path) -> None:
    """Write the files that this folder has at a revision below `at`, those of its submodules too.

    Raises:
        InputError: when there is no such revision, or a submodule does not have its commit.
    """
    is_there = _is_in_repository(folder)
    found = _git("-C", str(folder), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if found.returncode or not is_there:
        raise InputError(
            f"code: there is no revision {revision!r} in {folder}",
            hint="`git log` lists those that there are",
        )
    commit = found.stdout.decode().strip()
    # Archive the tree, not the commit: two commits with the same files are the same code.
    tree = _must(_git("-C", str(folder), "rev-parse", f"{commit}:./")).decode().strip()
    # From the top of the work tree: below it, git would write the files of that part alone.
    top = os.fsdecode(_must(_git("-C", str(folder), "rev-parse", "--show-toplevel"))).removesuffix("\n")
    with tempfile.TemporaryDirectory(prefix="boa-code-") as aside:
        variables = {"GIT_INDEX_FILE": f"{aside}/index"}
        _must(_git("-C", top, "read-tree", tree, variables=variables))
        _must(
            _git("-C", top, *_AS_COMMITTED, "checkout-index", "--all", f"--prefix={at}/", variables=variables)
        )
    for row in _must(_git("-C", top, "ls-tree", "-r", "-z", tree)).split(b"\0"):
        facts, _, name = row.partition(b"\t")
        if facts.startswith(b"160000 "):
            below = os.fsdecode(name)
            (at / below).mkdir(parents=True, exist_ok=True)
            try:
                if not (folder / below / ".git").exists():
                    raise InputError("it is not checked out")
                _check_out(folder / below, facts.split()[2].decode(), at / below)
            except InputError as error:
                raise InputError(
                    f"code: the submodule {below} of {revision} cannot be packed: {error.problem}",
                    hint="Run git submodule update --init --recursive",
                ) from None


def _add(archive: tarfile.TarFile, member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
    """Add a file without what differs between machines: owner, time, and permissions except executable."""
    member.uid = member.gid = 0
    member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.mode & 0o100 else 0o644
    member.pax_headers = {}
    archive.addfile(member, content)


def _git(*words: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
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
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
                **(variables or {}),
            },
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
