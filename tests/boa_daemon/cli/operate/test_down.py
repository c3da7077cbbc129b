"""`boa down`: which flags go together, and who ends what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boa_daemon.backends.aws.instances.receipt import KINDS, Receipt
from boa_daemon.cli.operate import down as verb
from boa_daemon.cli.operate.down import down
from boa_daemon.errors import InputError


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Return what was ordered, of a daemon and of the simulated cloud."""
    found: list[tuple[str, Any]] = []
    receipt = Receipt(region="simulated", left=dict.fromkeys(KINDS, 0), ended=2, stopped_at=None, failed={})
    monkeypatch.setattr(verb, "release_everything", lambda **words: found.append(("daemon", words["resume"])))
    monkeypatch.setattr(verb, "simulated_settings", lambda _config: "settings")
    monkeypatch.setattr(verb, "end_simulated", lambda *which: found.append(("cloud", which)) or receipt)
    monkeypatch.setattr(verb, "billed_usd", lambda _settings: {"compute": 2.0})
    return found


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"stack": True}, "--stack goes with --all"),
        ({"data": True}, "--data with --all --stack"),
        ({"everything": True, "data": True}, "--data with --all --stack"),
        ({"everything": True, "resume": True}, "--all and --resume exclude each other"),
        ({"everything": True, "stack": True}, "the simulated cloud has no stack"),
    ],
)
def test_flags_that_do_not_go_together_end_nothing(
    told: list[tuple[str, Any]], flags: dict[str, bool], said: str
) -> None:
    """The error names them."""
    with pytest.raises(InputError, match=said):
        down(config=Path("boa.toml"), **flags)  # type: ignore[arg-type]
    assert told == []


@pytest.mark.parametrize("resume", [True, False])
def test_a_daemon_is_asked_unless_all_is_said(told: list[tuple[str, Any]], resume: bool) -> None:
    """It ends its nodes itself, or goes on."""
    down(resume=resume, config=Path("boa.toml"))
    assert told == [("daemon", resume)]


def test_all_of_the_simulated_cloud_ends_directly(
    told: list[tuple[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """All nodes, not some; with the bill as the ledger has it."""
    down(everything=True, config=Path("boa.toml"))
    assert told == [("cloud", ("settings",))]
    assert "billed, as the ledger has it: $2.00 (compute $2.00)." in capsys.readouterr().out
