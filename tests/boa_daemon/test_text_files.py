"""Text files as people have them: what is unpacked, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from boa_daemon import text_files
from boa_daemon.errors import InputError
from boa_daemon.text_files import is_parquet, open_text, read_whole_text


@pytest.mark.parametrize(
    "raw",
    [
        b"a,b\r\n1,2\r\n",
        b"\xef\xbb\xbfa,b\r\n1,2\r\n",
        "a,b\r\n1,2\r\n".encode("utf-16"),
        gzip.compress(b"a,b\r\n1,2\r\n"),
    ],
    ids=["plain", "with a mark", "UTF-16", "gzip"],
)
def test_the_text_is_that_of_the_file(raw: bytes, tmp_path: Path) -> None:
    """Line ends stay as they are; the name of the file says nothing."""
    path = tmp_path / "a.txt"
    path.write_bytes(raw)
    assert read_whole_text(path) == "a,b\r\n1,2\r\n"
    assert not is_parquet(path)


def test_damaged_bytes_within_gzip_are_refused(tmp_path: Path) -> None:
    """A byte in the middle is not that of the file: the archive neither ends early nor has another sum."""
    raw = bytearray(gzip.compress("".join(f"{n},{n * n}\n" for n in range(200)).encode()))
    path = tmp_path / "a.csv"
    said = set()
    for at in range(10, len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0x55]) + raw[at + 1 :])
        try:
            read_whole_text(path)
        except InputError as error:
            said.add(error.problem.partition(":")[0])
    assert said == {"cannot be unpacked"}


def test_an_archive_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of a kilobyte may hold a terabyte."""
    path = tmp_path / "a.csv"
    path.write_bytes(gzip.compress(b"0" * 5_000_000))
    monkeypatch.setattr(text_files, "MAX_TEXT_BYTES", 2**20)
    with pytest.raises(InputError, match="holds more than"), open_text(path) as file:
        file.read()


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    """A spreadsheet of Windows saves Latin-1."""
    path = tmp_path / "a.csv"
    path.write_bytes("für".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8 text: byte 0xfc"):
        read_whole_text(path)


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    """A typing mistake is the usual cause."""
    (tmp_path / "jobs.csv").write_text("a")
    with pytest.raises(InputError, match="Did you mean"):
        read_whole_text(tmp_path / "job.csv")
