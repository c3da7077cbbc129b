"""Work that is measured at every tick and work that is counted from the last event are the same work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scenarios import SCENARIOS, settings_of

from boa_daemon.sim import wiring
from boa_daemon.sim.wiring import simulate
from policies.registry import PolicyEntry, find_policy


def test_how_often_progress_is_measured_changes_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixed plan only asks for hours left: told fresh or as of an earlier instant, it does the same."""
    settings = settings_of(SCENARIOS[0], hours=4.0)
    counted = simulate(settings)

    def fresh(name: str) -> PolicyEntry:
        return replace(find_policy(name), reads_progress=True)

    monkeypatch.setattr(wiring, "find_policy", fresh)
    measured = simulate(settings)

    assert measured.mean_jct_hours == pytest.approx(counted.mean_jct_hours, rel=1e-9)
    assert measured.spent_usd == pytest.approx(counted.spent_usd, rel=1e-9)
