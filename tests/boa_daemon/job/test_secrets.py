"""The store of secrets is read as it was written, or refused; no value is changed on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.job.secrets import MOST_STORE_BYTES, SecretMissing, read_store


def a_store(folder: Path, data: bytes) -> Path:
    """Return a file that only its owner can read."""
    file = folder / "secrets"
    file.touch(mode=0o600)
    file.write_bytes(data)
    return file


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("is_ended", [True, False])
def test_line_ends_and_a_mark_are_no_part_of_a_value(
    tmp_path: Path, end: str, mark: bytes, is_ended: bool
) -> None:
    """Files of Windows, files with a mark of UTF-8, and a last line without an end give the same values."""
    text = end.join(["# comment", "", "A=one", " B = two =", "C="]) + (end if is_ended else "")
    assert read_store(a_store(tmp_path, mark + text.encode())) == {"A": "one", "B": " two =", "C": ""}


@pytest.mark.parametrize("sign", ["\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\t", " "])
@pytest.mark.parametrize("where", ["before{}after", "{}after", "before{}", "before{}B=after"])
def test_a_value_is_not_cut_at_a_sign_that_ends_no_line(tmp_path: Path, sign: str, where: str) -> None:
    """Signs that Python counts as line ends belong to the value, also if what follows looks like a line."""
    value = where.format(sign)
    assert read_store(a_store(tmp_path, f"A={value}\nZ=last\n".encode())) == {"A": value, "Z": "last"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"A=1\rB=2\r", "line 1 .* is not NAME=VALUE"),
        (b"A=1\nB=2\r3\n", "line 2 .* is not NAME=VALUE"),
        (b"A=1\nB=\0\n", "line 2 .* is not NAME=VALUE"),
        (b"export A=1\n", "line 1 .* is not NAME=VALUE"),
        (b"A: 1\n", "line 1 .* is not NAME=VALUE"),
        (b"A=1\nB=2\n A=3\n", "line 3 .* gives A another value"),
        (b"A=" + b"x" * MOST_STORE_BYTES, "more than 1,000,000 bytes"),
        (b"A=\xff\n", "cannot be read"),
    ],
)
def test_a_store_that_could_be_read_in_two_ways_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    """Two values of one name, lone carriage returns, and a file that is too large; no value is quoted."""
    with pytest.raises(SecretMissing, match=said) as refused:
        read_store(a_store(tmp_path, data))
    assert "xxx" not in str(refused.value)


def test_a_name_may_have_its_value_twice(tmp_path: Path) -> None:
    """A line that was copied says nothing new."""
    assert read_store(a_store(tmp_path, b"A=1\nA=1\n")) == {"A": "1"}
