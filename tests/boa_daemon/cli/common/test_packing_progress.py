"""Packing that takes long shows how far it is; packing that is quick shows nothing."""

from __future__ import annotations

import pytest

from boa_daemon.cli.common import packing_progress as module
from boa_daemon.cli.common.packing_progress import packing_progress


def test_quick_packing_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output stays empty in any case."""
    with packing_progress() as told:
        told(1, 2)

    assert capsys.readouterr() == ("", "")


def test_long_packing_shows_megabytes_in_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line every few seconds, on standard error."""
    clock = iter([0.0, 5.0, 11.0, 12.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    with packing_progress() as told:
        for done in (100, 200, 250):
            told(done * 10**6, 400 * 10**6)
    out, errors = capsys.readouterr()

    assert out == ""
    assert errors.split("\n") == ["packing the code: 200 of 400 MB", ""]
