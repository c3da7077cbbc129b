"""Hostile archives: nothing is written outside the folder, and nothing but plain files comes out."""

from __future__ import annotations

import gzip
import io
import os
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from boa_daemon.job.unpack import BadArchive, opened, unpack


def member(name: str, kind: bytes = tarfile.REGTYPE, *, to: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.mode, found.uid = kind, to, mode, 0
    return found


def archive(*members: tarfile.TarInfo, content: bytes = b"planted") -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as found:
        for each in members:
            each.size = len(content) if each.isfile() else 0
            found.addfile(each, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def long_chain(outside: Path) -> list[tarfile.TarInfo]:
    """Links whose path is longer than the system's limit, behind which `realpath` gave up (CVE-2025-4517)."""
    found, below, steps = [], "", "abcdefghijklmnop"
    for letter in steps:
        part = "d" * 247
        found.append(member(os.path.join(below, part), tarfile.DIRTYPE, mode=0o755))
        found.append(member(os.path.join(below, letter), tarfile.SYMTYPE, to=part))
        below = os.path.join(below, part)
    link = os.path.join("/".join(steps), "l" * 254)
    found.append(member(link, tarfile.SYMTYPE, to="../" * len(steps)))
    found.append(member("escape", tarfile.SYMTYPE, to=f"{link}/../{outside.name}"))
    found.append(member("escape/planted"))
    return found


HOSTILE = {
    "absolute": lambda out: [member(f"{out}/planted")],
    "parent": lambda out: [member(f"../{out.name}/planted")],
    "parent in the middle": lambda out: [member(f"a/../../{out.name}/planted")],
    "link to a folder outside, then a file in it": lambda out: [
        member("a", tarfile.SYMTYPE, to=str(out)),
        member("a/planted"),
    ],
    "relative link outside": lambda out: [member("a", tarfile.SYMTYPE, to=f"../{out.name}")],
    "absolute link": lambda out: [member("a", tarfile.SYMTYPE, to="/etc/passwd")],
    "two links that lead out together": lambda out: [
        member("a/b", tarfile.DIRTYPE, mode=0o755),
        member("l", tarfile.SYMTYPE, to="a/b"),
        member("m", tarfile.SYMTYPE, to=f"l/../../../{out.name}"),
    ],
    "long chain of links": long_chain,
    "second name of a file outside": lambda out: [member("a", tarfile.LNKTYPE, to=f"{out}/precious")],
    "second name of a link": lambda out: [
        member("a", tarfile.SYMTYPE, to=f"{out}/precious"),
        member("b", tarfile.LNKTYPE, to="a"),
    ],
    "second name through a link": lambda out: [
        member("a", tarfile.SYMTYPE, to=str(out)),
        member("b", tarfile.LNKTYPE, to="a/precious"),
    ],
    "pipe": lambda _: [member("a", tarfile.FIFOTYPE)],
    "block device": lambda _: [member("a", tarfile.BLKTYPE)],
    "character device": lambda _: [member("a", tarfile.CHRTYPE)],
    "one name twice": lambda _: [member("a"), member("a")],
    "a file, then a file below it": lambda _: [member("a"), member("a/b")],
    "a link over a file": lambda _: [member("a"), member("a", tarfile.SYMTYPE, to="b")],
    "the folder itself": lambda out: [member(".", tarfile.SYMTYPE, to=str(out))],
    "a name that no file may have": lambda _: [member("n" * 300)],
    "a link to a name that no file may have": lambda _: [member("a", tarfile.SYMTYPE, to="n" * 5000)],
    "a link to nothing": lambda _: [member("a", tarfile.SYMTYPE)],
    "folders that no program can remove by recursion": lambda _: [member("a/" * 1500 + "b")],
    "a name without end": lambda _: [member("n" * 2_000_000)],
    "too much": lambda _: [member(str(number)) for number in range(20)],
    "too much by second names": lambda _: [
        member("a"),
        *(member(f"b{number}", tarfile.LNKTYPE, to="a") for number in range(20)),
    ],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_and_writes_nothing_outside(tmp_path: Path, name: str) -> None:
    """Whatever the archive holds: the folder beside is as it was."""
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "precious").write_text("precious")
    with pytest.raises(BadArchive), opened(archive(*HOSTILE[name](outside)), "r:") as found:
        unpack(found, inside, most_bytes=100)

    assert [(file.name, file.read_text()) for file in outside.iterdir()] == [("precious", "precious")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside", "outside"]
    assert "precious" not in {file.read_text() for file in inside.rglob("*") if file.is_file()}


def test_files_folders_and_links_that_stay_inside_are_unpacked(tmp_path: Path) -> None:
    """A script stays executable; set-uid, owners and times are not taken over."""
    content = archive(
        member("bin/run", mode=0o4755),
        member("./data", tarfile.DIRTYPE, mode=0o700),
        member("data/second", tarfile.LNKTYPE, to="bin/run"),
        member("link", tarfile.SYMTYPE, to="bin/../data"),
        member("dangling", tarfile.SYMTYPE, to="later"),
        member("plain", mode=0o2666),
    )
    with opened(content, "r:") as found:
        unpack(found, tmp_path, most_bytes=100)

    def mode(name: str) -> int:
        return stat.S_IMODE((tmp_path / name).stat().st_mode)

    assert (mode("bin/run"), mode("data/second"), mode("plain")) == (0o755, 0o755, 0o644)
    assert (tmp_path / "link" / "second").read_text() == "planted"
    assert (tmp_path / "bin/run").stat().st_uid == os.geteuid()
    assert (tmp_path / "dangling").readlink() == Path("later")


def test_a_stream_without_links_gives_its_files_alone(tmp_path: Path) -> None:
    """Copies of data leave out links and special files, and refuse the rest as always."""
    content = archive(member("a"), member("l", tarfile.SYMTYPE, to="/etc"), member("p", tarfile.FIFOTYPE))
    with opened(content, "r|") as found:
        unpack(found, tmp_path, most_bytes=100, keeps_links=False)
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def numbered(size: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Return an archive of two members, the second of which has `size` as the bytes of that field."""
    content = bytearray(archive(member("a"), member("b", kind)).getvalue())
    header = content[1024:1536]
    header[124:136] = size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    content[1024:1536] = header
    return bytes(content)


def spoilt_in_the_middle() -> bytes:
    """Return an archive of two files, the header of the second with a wrong sum."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as written:
        for name in "ab":
            written.addfile(member(name, tarfile.REGTYPE))
    content = bytearray(buffer.getvalue())
    content[512] ^= 1
    return bytes(content)


def described(**attributes: str) -> bytes:
    """Return an archive of one member with attributes, as POSIX writes them."""
    buffer, found = (
        io.BytesIO(),
        member("a", tarfile.SYMTYPE if "linkpath" in attributes else tarfile.REGTYPE),
    )
    found.pax_headers = {name.replace("_", "."): value for name, value in attributes.items()}
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as written:
        written.addfile(found)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        numbered(b"\xff" * 11 + b"\x00"),
        numbered(b"\xff" * 10 + b"\x00\x00"),
        numbered(b"\xff" * 11 + b"\x00", tarfile.GNUTYPE_LONGNAME),
        numbered(b"\x80" + b"\xff" * 11),
        described(size="-5"),
        described(linkpath="a\0b"),
        described(path="a\0b"),
        described(GNU_sparse_map="0,x", GNU_sparse_size="5"),
        spoilt_in_the_middle(),
    ],
)
def test_a_damaged_archive_is_refused_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    """Sizes below zero, null characters, wrong sums and numbers that are none; no error of the program."""
    with pytest.raises(BadArchive), opened(io.BytesIO(content), "r:") as found:
        unpack(found, tmp_path, most_bytes=1000)


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("mode", ["r:", "r|", "r:gz"])
def test_an_archive_that_is_cut_anywhere_is_refused(tmp_path: Path, mode: str, kind: int) -> None:
    """Also at the edge of a member, where `tarfile` takes it as whole: its end is blocks of zeros."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as found:
        for name, size in (("a", 0), ("b", 700), ("c" * 99, 512), ("d", 1)):
            each = member(name)
            each.size = size
            found.addfile(each, io.BytesIO(b"x" * size))
        ends = found.offset
    whole = buffer.getvalue()
    cuts = [*range(0, ends + 512, 512), *range(100, ends + 512, 512)]
    for number, cut in enumerate([*cuts, len(whole)]):
        content = gzip.compress(whole[:cut], mtime=0) if mode == "r:gz" else whole[:cut]
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            with opened(io.BytesIO(content), mode) as found:
                unpack(found, folder, most_bytes=10_000)
        except (BadArchive, tarfile.TarError):
            assert cut < len(whole)
        else:
            assert cut == len(whole), f"{cut} of {ends} bytes were taken as whole"
            assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize("how", ["tar", "tar --format=pax", "tar --format=v7", "git"])
def test_an_archive_of_another_program_is_whole(tmp_path: Path, how: str) -> None:
    """GNU's tar in its formats, and git."""
    source, folder = tmp_path / "source", tmp_path / "folder"
    for each in (source, folder):
        each.mkdir()
    (source / "a").write_text("a")
    if how == "git":
        given = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["init", "-q"], ["add", "a"], ["commit", "-qm", "a"]):
            subprocess.run([*given, *words], cwd=source, check=True)
        words = ["git", "archive", "HEAD"]
    else:
        words = [*how.split(), "-cf", "-", "a"]
    done = subprocess.run(words, cwd=source, check=True, capture_output=True)
    with opened(io.BytesIO(done.stdout), "r|") as found:
        unpack(found, folder, most_bytes=10_000)
    assert (folder / "a").read_text() == "a"
