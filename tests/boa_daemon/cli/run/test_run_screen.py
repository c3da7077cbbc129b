"""What `boa run` prints: phases, a meter now and then, the log, and a receipt that says what is left."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.cli.run import run_screen
from boa_daemon.cli.run.run_screen import METER_SECONDS, Screen
from boa_daemon.testing import ManualClock

RECEIPT: dict[str, Any] = {
    "job": "a-1",
    "status": "finished",
    "cause": "its exit code was 1",
    "is_money_used_up": False,
    "max_usd": 5.0,
    "phases": [{"phase": "boot", "seconds": 60.0, "usd": 0.5}],
    "seconds": 90.0,
    "usd": 0.75,
    "nodes": [
        {
            "id": "n1",
            "instance_type": "m",
            "usd": 0.5,
            "kinds": {"compute": 0.4, "disk": 0.1},
            "ended_at": 9.0,
        },
        {"id": "n2", "instance_type": "m", "usd": 0.25, "kinds": {"compute": 0.25}, "ended_at": None},
    ],
    "left": {"instance": 0, "volume": 0},
    "is_clean": True,
}


def printed(capsys: pytest.CaptureFixture[str], *, quiet: bool = False, **changes: Any) -> str:
    """Return a receipt as it is printed."""
    Screen(is_quiet=quiet, max_usd=5.0).receipt({**RECEIPT, **changes})
    return capsys.readouterr().out


def test_a_receipt_lists_phases_nodes_and_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    """The parts of a node's bill only where there are several; also for a quiet run."""
    text = printed(capsys, quiet=True)
    assert text.startswith("a-1: finished\n")
    assert "n1 m: $0.50 (compute $0.40, disk $0.10), given back" in text
    assert "n2 m: $0.25, runs on" in text
    assert text.endswith("Nothing is left running.\n")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": "failed"}, "a-1: failed (its exit code was 1)"),
        (
            {"status": "failed", "is_money_used_up": True},
            "(the money is used up: what is left of $5.00 pays for no node)",
        ),
        ({"job": None, "status": "cancelled", "cause": ""}, "no job: cancelled\n"),
        ({"left": None}, "The daemon keeps running, and ends nodes by its plan"),
        (
            {"left": {"instance": 2, "volume": 0}, "is_clean": False},
            "STILL RUNNING: 2 instance. `boa down --all` ends it.",
        ),
    ],
)
def test_what_went_wrong_is_said(
    capsys: pytest.CaptureFixture[str], changes: dict[str, Any], said: str
) -> None:
    """Why it did not finish, and what still costs money."""
    assert said in printed(capsys, **changes)


def test_the_meter_prints_every_half_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the step, if one is known, and the reason for waiting."""
    clock = ManualClock(1000.0)
    monkeypatch.setattr(run_screen.time, "monotonic", clock.now)
    screen = Screen(is_quiet=False, max_usd=5.0)
    for more, lines in ((0.0, 1), (METER_SECONDS - 1.0, 0), (1.0, 1)):
        clock.instant += more
        screen.meter(12.0, 0.5, {"step": 7}, "waits [x]")
        assert capsys.readouterr().out.count("-- 12 s, $0.50 of $5.00, step 7; waits [x]\n") == lines
    clock.instant += METER_SECONDS
    screen.meter(12.0, 0.5, {"step": None}, "")
    assert capsys.readouterr().out == "-- 12 s, $0.50 of $5.00\n"


def test_a_quiet_run_prints_notes_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error."""
    quiet, loud = (Screen(is_quiet=is_quiet, max_usd=5.0) for is_quiet in (True, False))
    quiet.log("a [line]\n")
    quiet.meter(1.0, 1.0, {"step": None}, "")
    assert capsys.readouterr().out == ""
    loud.log("a [line]\nb\n")
    assert capsys.readouterr().out == "   a [line]\n   b\n"
    quiet.note("a note")
    assert capsys.readouterr().err == "a note\n"
