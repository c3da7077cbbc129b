"""The daemon's socket by the settings files alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from boa_daemon.daemon.settings.named_socket import named_socket


@pytest.fixture(autouse=True)
def _no_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("boa_daemon.daemon.settings.named_socket.SYSTEM_FILE", tmp_path / "etc.toml")
    for name in ("BOA_DAEMON_SOCKET", "BOA_DAEMON_STATE_DIR", "STATE_DIRECTORY", "RUNTIME_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)


def test_the_strongest_file_names_the_socket(tmp_path: Path) -> None:
    """Paths are relative to their file; what another section says does not matter here."""
    (tmp_path / "etc.toml").write_text("[daemon]\nsocket = 'weak.sock'\n")
    (tmp_path / "boa.toml").write_text("[daemon]\nsocket = 'own.sock'\n[budget]\nusd_per_hour = 'wrong'\n")
    assert named_socket() == tmp_path / "own.sock"


@pytest.mark.parametrize(
    "kind", ["a link to nothing", "a folder", "a pipe", "not TOML", "a number", "not a table", "deep"]
)
def test_a_file_that_cannot_be_read_is_not_passed_over(tmp_path: Path, kind: str) -> None:
    """What it was to say may name another daemon; reading all settings then says what is wrong."""
    (tmp_path / "etc.toml").write_text("[daemon]\nsocket = 'others.sock'\n")
    own = tmp_path / "boa.toml"
    if kind == "a link to nothing":
        own.symlink_to(tmp_path / "unmounted" / "boa.toml")
    elif kind == "a folder":
        own.mkdir()
    elif kind == "a pipe":
        os.mkfifo(own)
    else:
        texts = {"not TOML": "[daemon", "a number": "[daemon]\nsocket = 5\n", "not a table": "daemon = 5\n"}
        texts["deep"] = f"a = {'[' * 3000}{']' * 3000}\n"
        own.write_text(texts[kind])
    assert named_socket() is None
