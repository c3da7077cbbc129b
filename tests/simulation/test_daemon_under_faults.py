"""The daemon under refusals, lost answers, delays, interruptions and restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from daemon_chaos import rehearse


@pytest.mark.parametrize("days", [0.4, pytest.param(1.0, marks=pytest.mark.exhaustive)])
def test_faults_cause_no_leak_no_double_start_and_no_broken_cap(tmp_path: Path, days: float) -> None:
    """The world's own records are the proof; `benchmarks/daemon_month.py` does the same for a month."""
    outcome = rehearse(tmp_path, days=days, seed=3, tick_seconds=300.0)
    assert outcome.faults["refusals"] > 0
    assert outcome.faults["lost answers"] > 0
    assert outcome.faults["interruptions"] > 0
    assert outcome.restarts > 0
    assert outcome.failed_ticks == 0
    assert outcome.leaked == 0
    assert outcome.started_twice == 0
    assert outcome.ledger_difference_micro_dollars == 0
    assert outcome.dearest_day_usd <= outcome.day_cap_usd
    assert outcome.most_instances <= 40
    assert outcome.finished > 0.7 * outcome.jobs


@pytest.mark.exhaustive
def test_faults_break_no_cap_of_a_team(
    tmp_path: Path,
) -> None:
    """Two of three teams have caps; the cloud's bills for each team's nodes are the proof."""
    teams = {
        "red": {"members": ["ann"], "usd_per_day_cap": 12.0, "share": 1.0},
        "blue": {"members": ["bob"], "usd_per_day_cap": 25.0, "share": 3.0},
        "green": {"members": ["cyd"]},
    }
    outcome = rehearse(tmp_path, days=1.5, seed=5, tick_seconds=300.0, jobs_per_hour=9.0, teams=teams)
    assert outcome.faults["lost answers"] > 0
    assert outcome.faults["interruptions"] > 0
    assert outcome.restarts > 0
    assert outcome.failed_ticks == 0
    assert (outcome.leaked, outcome.started_twice, outcome.ledger_difference_micro_dollars) == (0, 0, 0)
    assert outcome.dearest_day_usd <= outcome.day_cap_usd
    assert 0.5 < outcome.dearest_team_day <= 1.0
    assert outcome.purse_difference_usd < 0.05
