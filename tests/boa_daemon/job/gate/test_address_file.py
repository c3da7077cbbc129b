"""`job/gate/address_file.py`: the address in `BOA_GATE`, or in the file that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.job.gate.address import BadAddress, GateAddress
from boa_daemon.job.gate.address_file import find_address


def test_a_text_is_an_address_or_the_path_of_a_file_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also below the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "gate.json").write_text('{"address": "unix:/a?generation=2"}')
    wanted = GateAddress(path="/a", generation=2)
    for text in ("unix:/a?generation=2", str(tmp_path / "gate.json"), "~/gate.json"):
        assert find_address(text) == wanted


def test_no_address_yet_is_none(tmp_path: Path) -> None:
    """The file may be written before the gate exists, or not at all."""
    (tmp_path / "gate.json").write_text('{"job": "a"}')
    for text in ("", str(tmp_path / "none.json"), str(tmp_path / "gate.json")):
        assert find_address(text) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'"unix:/a"',
        b'{"address": 5}',
        b'{"address": null}',
        b'{"address": "x"}',
    ],
)
def test_a_file_with_anything_else_is_a_bad_address(content: bytes, tmp_path: Path) -> None:
    """The error that stops no job."""
    file = tmp_path / "gate.json"
    file.write_bytes(content)
    with pytest.raises(BadAddress):
        find_address(str(file))


@pytest.mark.parametrize("text", ["/", "/a\0b", "~nobody-has-this-name/gate.json", "gate.json", "tcp:h"])
def test_a_path_that_cannot_be_read_is_a_bad_address(text: str) -> None:
    """A folder, a name that no file can have, the home of nobody, and a path from here."""
    with pytest.raises(BadAddress):
        find_address(text)
