"""A daemon that cannot start says what is wrong and what to try, in one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from boa_daemon.cli import main


@pytest.mark.parametrize("verb", ["daemon", "recover"])
@pytest.mark.parametrize("folder", ["file", "file/below", "\0"])
def test_a_state_folder_that_cannot_be(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    folder: str,
) -> None:
    """A file in its place or above it: exit code 2, the folder, and the setting to change."""
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["boa", verb, "--state-dir", folder])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr().err
    assert left.value.code == 2
    assert folder.strip("\0") in said
    assert "--state-dir" in said
    assert "Traceback" not in said
