"""Unpacks archives that a job's user made, for a reader with more rights than that user.

The reader accepts files, folders, second names of files in the same archive, and links that stay inside.
Nothing is written through a link: links are made after all files, and each folder is opened from its parent
by descriptor. Owners, times, devices, pipes, and bits such as set-uid are not taken over. The filters of
`tarfile` are not used: their checks have had holes (before Python 3.11.13, 3.12.11 and 3.13.4). Standard
library only.
"""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO

BLOCK = 1 << 20
MOST_MEMBERS = 1_000_000
MOST_DEPTH = 200
"""Limit of folders within each other; what removes them later descends by recursion (`shutil.rmtree`)."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_HEADER_BYTES = 1 << 20
"""Limit of one long name or list of attributes, which `tarfile` reads into memory at once."""
_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


_CUT_SHORT = (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError)  # type: ignore[attr-defined]  # the same


class BadArchive(ValueError):
    """An archive holds something that is not unpacked, or more than is allowed."""


class _Member(tarfile.TarInfo):
    """A member whose headers have a limit, and of which a damaged one is no end of the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _Member:
        """Return the next member.

        Raises:
            BadArchive: when its header is damaged or missing; `tarfile` would end there without a word. Who
                writes an archive ends it with blocks of zeros.
        """
        try:
            return super().fromtarfile(archive)
        except _CUT_SHORT as error:
            if archive.offset > 0:
                raise BadArchive(f"it is cut short: {error}") from None
            raise
        except tarfile.InvalidHeaderError as error:  # type: ignore[attr-defined]  # typeshed lacks it
            if archive.offset > 0:
                raise BadArchive(f"it is damaged: {error}") from None
            raise

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size < 0:
            raise BadArchive(f"{self.name!r} has {self.size} bytes")
        if self.type in _HEADERS and self.size > MOST_HEADER_BYTES:
            raise BadArchive("a name in it is too long")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]  # typeshed does not list it


def opened(content: IO[bytes], mode: str) -> tarfile.TarFile:
    """Open an archive for `unpack`, and read its first member.

    Raises:
        BadArchive: when that is damaged.
        TarError: when it is none.
    """
    try:
        # typeshed wants the mode as a literal.
        return tarfile.open(fileobj=content, mode=mode, tarinfo=_Member)  # type: ignore[call-overload,no-any-return]
    except ValueError as error:
        raise _damaged(error) from None


def unpack(archive: tarfile.TarFile, folder: Path, *, most_bytes: int, keeps_links: bool = True) -> None:
    """Unpack an archive into an empty folder that only we can write.

    Args:
        archive: The archive, open for reading; it may be a stream.
        folder: The folder.
        most_bytes: Limit of the bytes of all files together.
        keeps_links: Whether links are made; otherwise they, and all else but files, are left out.

    Raises:
        BadArchive: when a member may not be unpacked; the message names it.
        OSError: when a file cannot be written.
        TarError: when the archive is damaged.
    """
    top = os.open(folder, _FOLDER)
    links: dict[str, str] = {}
    files: set[str] = set()
    left = most_bytes
    try:
        for number, member in enumerate(archive):
            if number >= MOST_MEMBERS:
                raise BadArchive(f"it has more than {MOST_MEMBERS:,} members")
            if member.size < 0:
                raise BadArchive(f"{member.name!r} has {member.size} bytes")  # By an attribute of its own.
            parts = _parts(member.name)
            if member.isdir():
                os.close(_opened(top, parts))
            elif member.isfile() and parts:
                left -= _write(archive, member, top, parts, left)
                files.add("/".join(parts))
            elif keeps_links and member.islnk() and parts:
                first = _parts(member.linkname)
                if "/".join(first) not in files:
                    raise BadArchive(f"{member.name!r} is a second name of a file that is not in it")
                left -= _copy(top, first, parts, left)
                files.add("/".join(parts))
            elif keeps_links and member.issym() and parts:
                if not member.linkname or "\0" in member.linkname:
                    raise BadArchive(f"the link {member.name!r} has no target: {member.linkname!r}")
                links["/".join(parts)] = member.linkname
            elif keeps_links:
                raise BadArchive(f"{member.name!r} is no file, folder or link")
        for name, target in links.items():
            *above, last = name.split("/")
            handle = _opened(top, above)
            try:
                os.symlink(target, last, dir_fd=handle)
            finally:
                os.close(handle)
    except (FileExistsError, NotADirectoryError) as error:
        raise BadArchive(f"it has two members of one name: {error}") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise BadArchive(f"a name in it is too long: {str(error.filename)[:80]!r}...") from None
        raise
    except ValueError as error:
        raise _damaged(error) from None
    finally:
        os.close(top)
    inside = os.path.realpath(folder)
    for name, target in links.items():
        leads_to = os.path.realpath(Path(inside, name))
        if os.path.isabs(target) or not (leads_to == inside or leads_to.startswith(f"{inside}/")):
            raise BadArchive(f"the link {name!r} leads out of the folder: {target!r}")


def _damaged(error: ValueError) -> BadArchive:
    """Return the error for what `tarfile` raises at a number that is none; our own errors stay."""
    return error if isinstance(error, BadArchive) else BadArchive(f"it is damaged: {error}")


def _parts(name: str) -> list[str]:
    """Return the parts of a member's name.

    Raises:
        BadArchive: when it is absolute, leads up, is too deep, or holds a null character.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise BadArchive(f"{name!r} is not below the folder")
    if len(path.parts) > MOST_DEPTH:
        raise BadArchive(f"{name[:40]!r}... is in more than {MOST_DEPTH} folders")
    return [part for part in path.parts if part != "."]


def _opened(top: int, parts: list[str]) -> int:
    """Return a descriptor of a folder below `top`; missing folders are made, and no link is followed."""
    here = os.dup(top)
    for part in parts:
        try:
            os.mkdir(part, 0o755, dir_fd=here)
        except FileExistsError:
            pass
        except OSError:
            os.close(here)
            raise
        try:
            below = os.open(part, _FOLDER, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


def _new(top: int, parts: list[str], mode: int) -> IO[bytes]:
    """Return a new file below `top`, open for writing."""
    above = _opened(top, parts[:-1])
    try:
        return os.fdopen(os.open(parts[-1], _NEW, mode, dir_fd=above), "wb")
    finally:
        os.close(above)


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, top: int, parts: list[str], left: int) -> int:
    """Write a file; return its size in bytes."""
    if member.size > left:
        raise BadArchive("its files are larger than is allowed")
    content = archive.extractfile(member)
    assert content is not None, "a file has content"
    with content, _new(top, parts, 0o755 if member.mode & 0o100 else 0o644) as file:
        shutil.copyfileobj(content, file, BLOCK)
    return member.size


def _copy(top: int, source: list[str], target: list[str], left: int) -> int:
    """Copy a file that was unpacked before; return its size in bytes."""
    above = _opened(top, source[:-1])
    try:
        handle = os.open(source[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    finally:
        os.close(above)
    with os.fdopen(handle, "rb") as content:
        found = os.fstat(handle)
        if found.st_size > left:
            raise BadArchive("its files are larger than is allowed")
        with _new(top, target, found.st_mode & 0o755) as file:
            shutil.copyfileobj(content, file, BLOCK)
    return found.st_size
