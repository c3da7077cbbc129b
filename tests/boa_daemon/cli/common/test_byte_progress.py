"""Packing that takes long shows how far it is; packing that is quick shows nothing."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from boa_daemon.cli import main
from boa_daemon.cli.common import byte_progress as module
from boa_daemon.cli.common.byte_progress import byte_progress


def test_quick_packing_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output stays empty in any case."""
    with byte_progress("packing the code") as told:
        told(1, 2)

    assert capsys.readouterr() == ("", "")


def test_long_packing_shows_megabytes_in_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line every few seconds, on standard error."""
    clock = iter([0.0, 5.0, 11.0, 12.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    with byte_progress("packing the code") as told:
        for done in (100, 200, 250):
            told(done * 10**6, 400 * 10**6)
    out, errors = capsys.readouterr()

    assert out == ""
    assert errors.split("\n") == ["packing the code: 200 of 400 MB", ""]


@pytest.mark.lab
def test_a_history_that_takes_long_to_read_shows_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The bytes are those of the file, packed or not; the last line is of all of them."""
    rows = "".join(f"{n}|2026-01-01T00:00:00|01:00:00|COMPLETED|gres/gpu=1\n" for n in range(60_000))
    text = f"JobID|Submit|Elapsed|State|AllocTRES\n{rows}".encode()
    monkeypatch.setattr(module, "QUIET_SECONDS", -1.0)
    monkeypatch.setattr(module, "LINE_SECONDS", 0.0)
    for name, content in (("sacct.txt", text), ("sacct.txt.gz", gzip.compress(text))):
        path = tmp_path / name
        path.write_bytes(content)
        words = ["boa", "trace", "import", str(path), "--from", "sacct", "--out", str(tmp_path / "out")]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit, match="0"):
            main()
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("reading ")]
        size = f"{len(content) / 1e6:,.0f}"
        assert lines[-1] == f"reading {path}: {size} of {size} MB"
        assert len(lines) > 1
