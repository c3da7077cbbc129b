"""A daemon that cannot start says what is wrong and what to try, in one sentence."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator
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


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restore the signal handlers."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("name", ["boa.toml", "applied_settings.json"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENOMEM, errno.ESTALE, errno.EACCES])
def test_settings_that_cannot_be_read_for_a_moment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    number: int,
) -> None:
    """The start is tried again while a trouble of the disk or the process lasts; missing rights are said."""
    state = tmp_path / "state"
    state.mkdir()
    (state / "applied_settings.json").write_text('{"given": {}, "complete": {}, "files": []}')
    if name == "boa.toml":
        (state / "applied_settings.json").unlink()
    (tmp_path / "boa.toml").write_text("[daemon]\nstate_dir = 'state'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["boa", "daemon"])
    tries: list[str] = []

    def fail(file: Path) -> None:
        if file.name == name:
            tries.append(name)
            if len(tries) > 3:
                os.kill(os.getpid(), signal.SIGTERM)
            raise OSError(number, os.strerror(number), str(file))

    real_open, real_text, real_os_open = Path.open, Path.read_text, os.open
    monkeypatch.setattr(os, "open", lambda path, *a, **k: fail(Path(path)) or real_os_open(path, *a, **k))
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: fail(self) or real_open(self, *a, **k))
    monkeypatch.setattr(Path, "read_text", lambda self, *a, **k: fail(self) or real_text(self, *a, **k))
    monkeypatch.setattr("boa_daemon.daemon.loop.waiting.STANDBY_SECONDS", 0.01)
    is_passing = number != errno.EACCES
    try:
        main()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0
    assert code == (0 if is_passing else 2)
    said = capsys.readouterr().err
    assert ("tries again" in said) == is_passing
    assert "Traceback" not in said
