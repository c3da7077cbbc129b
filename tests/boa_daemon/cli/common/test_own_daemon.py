"""The daemon of one run: when it is started again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from boa_daemon.cli.common import own_daemon
from boa_daemon.cli.common.own_daemon import OwnDaemon
from boa_daemon.daemon.settings.config import Settings


@pytest.mark.parametrize(
    ("ends", "answers", "starts"),
    [
        pytest.param([-9], [], 1, id="its end is seen"),
        pytest.param([None, None, -9], [None, None], 1, id="its socket is gone before its end is seen"),
        pytest.param([None, None], [None, {"tick": 3}], 0, id="it was only slow"),
        pytest.param([None], [{"tick": 3}], 0, id="it answers again"),
    ],
)
def test_a_daemon_that_died_is_started_again_and_one_that_lives_is_not(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    ends: list[int | None],
    answers: list[dict[str, int] | None],
    starts: int,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(own_daemon, "LOOK_SECONDS", 0.0)
    daemon = OwnDaemon(Settings(), [], {})
    seen: list[str] = []
    monkeypatch.setattr(daemon, "_process", SimpleNamespace(poll=lambda: ends.pop(0)))
    monkeypatch.setattr(daemon, "_status", lambda: answers.pop(0))
    monkeypatch.setattr(daemon, "start", lambda: seen.append("start"))
    daemon.revive()
    assert len(seen) == starts
    assert (ends, answers) == ([], [])
