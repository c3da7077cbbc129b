"""The state of the last tick is read back whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.daemon.loop import last_state
from boa_daemon.daemon.loop.last_state import LastState, LastStateFile
from boa_daemon.testing import ManualClock, a_job, a_node, a_state, some_slots
from boa_daemon.tick.facts.codec import dumps, pack

STATE = a_state(a_job("a"), nodes=[a_node("n1")], held={"a": some_slots("n1", 0)}, now=7.0)


def test_the_state_and_the_name_of_its_database_are_read_back(tmp_path: Path) -> None:
    """Only the daemon's user may read what runs where."""
    file = LastStateFile(tmp_path / "last")
    assert (file.ledger_id(), file.read()) == ("", None)
    file.write(dumps(STATE), ledger_id="l1")
    assert file.ledger_id() == "l1"
    assert file.read() == LastState(ledger_id="l1", state=STATE)
    assert (tmp_path / "last").stat().st_mode & 0o777 == 0o600


def test_a_new_version_is_written_after_five_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site that ticks each second does not write its state each second."""
    clock = ManualClock()
    monkeypatch.setattr(last_state.time, "monotonic", clock.now)
    file = LastStateFile(tmp_path / "last")
    for instant, ledger_id, there in ((100.0, "l1", "l1"), (104.9, "l2", "l1"), (105.0, "l3", "l3")):
        clock.instant = instant
        file.write(dumps(STATE), ledger_id=ledger_id)
        assert file.ledger_id() == there


def test_a_version_that_could_not_be_written_is_tried_again_at_once(tmp_path: Path) -> None:
    """The folder comes back before the next tick."""
    file = LastStateFile(tmp_path / "gone" / "last")
    file.write(dumps(STATE), ledger_id="l1")
    assert file.read() is None
    (tmp_path / "gone").mkdir()
    file.write(dumps(STATE), ledger_id="l1")
    assert file.ledger_id() == "l1"


@pytest.mark.parametrize(
    ("content", "ledger_id"),
    [
        (b"", ""),
        (b"torn", ""),
        (b'{"format": 1}\n', ""),
        (b"[]\n", ""),
        (b'{"ledger_id": "l1"}\nnot packed', "l1"),
        (b'{"ledger_id": "l1"}\n' + pack(dumps([1])), "l1"),
        (b'{"ledger_id": "l1"}\n' + pack('{"$":"Nobody"}'), "l1"),
    ],
)
def test_what_is_no_state_is_no_last_state(tmp_path: Path, content: bytes, ledger_id: str) -> None:
    """A torn disk or another version stops no start; the name of the database may still be known."""
    (tmp_path / "last").write_bytes(content)
    file = LastStateFile(tmp_path / "last")
    assert file.read() is None
    assert file.ledger_id() == ledger_id
