"""A gate in a thread of its own answers, closes once, and gives up on what takes too long."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from boa_daemon.gate.thread import GateThread
from boa_daemon.gate.types import GateSettings
from boa_daemon.job.gate.address import GateAddress
from policies.links.contention import ETHERNET_10G

SETTINGS = GateSettings(link=ETHERNET_10G)


def test_a_gate_listens_until_it_is_closed(tmp_path: Path) -> None:
    """A second close does nothing; its thread is gone."""
    gate = GateThread(SETTINGS, "secret", GateAddress(path=str(tmp_path / "gate.sock")))
    with gate:
        assert gate.is_listening()
        assert [address.path for address in gate.addresses] == [str(tmp_path / "gate.sock")]
        gate.take_plan({"a": 5.0}, {"a": 2})
        assert gate.server.newest_generation("a") in (0, 2)
        status = gate.status(patience_seconds=5.0)
        assert status is not None
        assert status["jobs"] == []
        assert gate.view(patience_seconds=5.0) is not None
        assert gate.server.newest_generation("a") == 2
    assert not gate.is_listening()
    gate.close()
    assert "boa-gate" not in [thread.name for thread in threading.enumerate()]


def test_a_gate_that_hangs_answers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon asks again with its next status."""
    go_on = threading.Event()
    with GateThread(SETTINGS, "secret", GateAddress(path=str(tmp_path / "gate.sock"))) as gate:
        answer = gate.server.status
        monkeypatch.setattr(gate.server, "status", lambda: go_on.wait(30.0) and answer())
        assert gate.status(patience_seconds=0.01) is None
        go_on.set()
        assert gate.status(patience_seconds=30.0) is not None


def test_a_gate_that_cannot_listen_leaves_no_thread(tmp_path: Path) -> None:
    """Its error is that of the socket."""
    gate = GateThread(SETTINGS, "secret", GateAddress(path=str(tmp_path / "file" / "gate.sock")))
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"file"):
        gate.__enter__()
    assert "boa-gate" not in [thread.name for thread in threading.enumerate()]


def test_a_gate_whose_thread_was_never_started_closes(tmp_path: Path) -> None:
    """Its loop would be leaked otherwise."""
    gate = GateThread(SETTINGS, "secret", GateAddress(path=str(tmp_path / "gate.sock")))
    gate.close()
    gate.close()
    assert not gate.is_listening()
