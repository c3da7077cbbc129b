"""`api/doors.py`: whatever becomes of the socket's file, the daemon answers at its path."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.api.client import Client
from boa_daemon.api.doors import Doors
from boa_daemon.daemon.settings.config import ApiSettings, Settings
from boa_daemon.daemon.settings.daemon_paths import DaemonPaths
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder


def leave_a_dead_socket(path: Path) -> None:
    """Put the socket of a process that is gone there, as a folder has it that was mounted again."""
    path.unlink()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


def bring_back_an_older(path: Path) -> None:
    """Move the folder away and an older one with a socket into its place."""
    path.parent.rename(path.parent.with_name("aside"))
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


LOSSES: dict[str, Callable[[Path], object]] = {
    "swept away": Path.unlink,
    "a dead socket": leave_a_dead_socket,
    "an older folder": bring_back_an_older,
    "a file": lambda path: (path.unlink(), path.touch()),
    "a link to nothing": lambda path: (path.unlink(), path.symlink_to("nothing")),
}


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[tuple[Doors, Path]]:
    for name in ("play", "run"):
        (tmp_path / name).mkdir()
    play = DaemonInAFolder(tmp_path / "play", ManualClock(1_800_000_000.0))
    there = DaemonPaths(state=tmp_path / "play", socket=tmp_path / "run" / "boa.sock")
    made = Doors(Settings(), there, create_app(play.service, Authenticator(ApiSettings())))
    made.start()
    yield made, there.socket
    made.stop()
    play.close()


@pytest.mark.first_set(3)
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_socket_that_is_not_the_daemons_is_replaced(
    doors: tuple[Doors, Path], loss: Callable[[Path], object]
) -> None:
    """Nobody would ever be answered there; one that is the daemon's stays."""
    made, path = doors
    before = path.stat().st_ino
    made.keep()
    assert path.stat().st_ino == before
    loss(path)
    made.keep()
    with Client(path) as client:
        assert "now" in client.get("/status")
