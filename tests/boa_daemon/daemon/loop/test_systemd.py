"""systemd: the messages of a service, and the installation of its unit."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boa_daemon.cli import main
from boa_daemon.daemon.loop import systemd
from boa_daemon.errors import BoaError, InputError

OURS = str(os.getpid())


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Yield a function that returns the next message to systemd."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(5.0)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        yield lambda: listener.recv(4096).decode()


def test_each_state_sends_its_systemd_message(heard: Callable[[], str]) -> None:
    """The states are ready, alive, reloading and stopping; a status has one line."""
    systemd.notify_ready("starting\nup")
    assert heard() == "READY=1\nSTATUS=starting up"
    systemd.notify_alive("4.00 USD/hour, 1 nodes")
    assert heard() == "WATCHDOG=1\nSTATUS=4.00 USD/hour, 1 nodes"
    systemd.notify_reloading()
    assert heard().startswith("RELOADING=1\nMONOTONIC_USEC=")
    systemd.notify_stopping()
    assert heard().startswith("STOPPING=1\nSTATUS=stopping")


def test_a_notify_socket_with_an_at_sign_is_an_abstract_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message arrives at the abstract socket of that name."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0boa-test-{OURS}")
        listener.settimeout(5.0)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@boa-test-{OURS}")
        systemd.notify_alive("well")
        assert listener.recv(4096) == b"WATCHDOG=1\nSTATUS=well"


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "relative"])
def test_notify_ignores_a_missing_socket(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal and in a container, no process listens on the socket."""
    monkeypatch.setenv("NOTIFY_SOCKET", address)

    systemd.notify_alive("well")


def test_the_watchdog_applies_only_to_the_process_it_names() -> None:
    """A child process that inherits the environment is not watched."""
    assert systemd.watchdog_seconds({"WATCHDOG_USEC": "180000000"}) == 180.0
    assert systemd.watchdog_seconds({"WATCHDOG_USEC": "180000000", "WATCHDOG_PID": OURS}) == 180.0
    assert systemd.watchdog_seconds({"WATCHDOG_USEC": "180000000", "WATCHDOG_PID": "1"}) is None
    assert systemd.watchdog_seconds({}) is systemd.watchdog_seconds({"WATCHDOG_USEC": "soon"}) is None


def test_a_tick_interval_too_long_for_the_watchdog_is_refused() -> None:
    """Otherwise systemd would restart a healthy daemon again and again."""
    systemd.check_tick(90.0, {"WATCHDOG_USEC": "180000000"})
    systemd.check_tick(9e9, {})
    with pytest.raises(InputError, match=r"watchdog waits 180 s.*Set tick_seconds to 90 or less"):
        systemd.check_tick(91.0, {"WATCHDOG_USEC": "180000000"})


def test_the_program_path_is_quoted_for_systemd() -> None:
    """A path with blanks is quoted; a percent sign is doubled, and a dollar of a program is not."""
    assert "ExecStart=/opt/boa/bin/boa daemon --config" in systemd.unit_text("/opt/boa/bin/boa")
    assert 'ExecStart="/opt/my tools/100%%/boa" daemon' in systemd.unit_text("/opt/my tools/100%/boa")
    assert 'ExecStart="/opt/$HOME/boa" daemon' in systemd.unit_text("/opt/$HOME/boa")


@pytest.mark.parametrize("folder", ['a"b', "a'b", "a\\b", "a\nb"])
def test_a_program_path_that_systemd_refuses_is_an_error(folder: str) -> None:
    """A unit with a quote, a backslash or a control character in its program would never start."""
    with pytest.raises(InputError, match="which systemd refuses in a program"):
        systemd.unit_text(f"/opt/{folder}/boa")


@pytest.mark.parametrize("program", ["/home/ann/venv/bin/boa", "/root/boa", "/tmp/x/boa"])
def test_a_program_that_the_service_cannot_see_is_refused(program: str) -> None:
    """`ProtectHome` and `PrivateTmp` hide the program, so the start would fail."""
    with pytest.raises(InputError, match=r"cannot see.*--program"):
        systemd.unit_text(program)


def test_install_writes_the_unit_with_mode_644(tmp_path: Path) -> None:
    """No other file is left in the folder."""
    target = systemd.install_unit("whole\n", tmp_path)

    assert target.read_text(encoding="utf-8") == "whole\n"
    assert target.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == [systemd.UNIT]


def test_a_failed_install_keeps_the_old_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full, the error says so and no partial file is left."""
    systemd.install_unit("old\n", tmp_path)

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(systemd.os, "fsync", full)
    with pytest.raises(BoaError, match=r"No space left on device\. Nothing was changed"):
        systemd.install_unit("new\n", tmp_path)
    assert (tmp_path / systemd.UNIT).read_text(encoding="utf-8") == "old\n"
    assert os.listdir(tmp_path) == [systemd.UNIT]


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[int, str, str]:
    """Run `boa systemd`; return exit code, output and errors."""
    monkeypatch.setattr("sys.argv", ["boa", "systemd", *words])
    try:
        main()
        code = 0
    except SystemExit as left:
        code = int(left.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


def test_print_writes_only_the_unit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output can be piped into a file."""
    for words in ((), ("print",), ("--print",)):
        code, out, _ = run(capsys, monkeypatch, *words, "--program", "/opt/boa/bin/boa")
        assert (code, out) == (0, systemd.unit_text("/opt/boa/bin/boa"))


def test_a_dry_run_of_install_says_what_install_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A dry run writes nothing, and a second install finds the unit up to date."""
    words = ("install", "--folder", str(tmp_path), "--program", "/opt/boa/bin/boa", "--json")

    changes = []
    for more in (("--dry-run",), (), (), ("--dry-run",)):
        code, out, _ = run(capsys, monkeypatch, *words, *more)
        answer = json.loads(out)
        changes.append((code, answer["change"], answer["path"], os.listdir(tmp_path)))

    path = str(tmp_path / systemd.UNIT)
    assert changes == [
        (0, "create", path, []),
        (0, "create", path, [systemd.UNIT]),
        (0, "nothing", path, [systemd.UNIT]),
        (0, "nothing", path, [systemd.UNIT]),
    ]


def test_install_into_a_folder_that_cannot_be_written_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The exit code is 1, the error says to run it as root, and nothing is written."""
    folder = tmp_path / "missing"
    code, out, err = run(
        capsys, monkeypatch, "install", "--folder", str(folder), "--program", "/opt/boa/bin/boa"
    )

    assert (code, out, folder.exists()) == (1, "", False)
    assert "Run it as root" in " ".join(err.split())
