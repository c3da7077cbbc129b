"""A day and a half of the daemon in a world that refuses, loses answers, lags and takes nodes back."""

from __future__ import annotations

from pathlib import Path

from boa_daemon.testing.chaos import rehearse


def test_no_leak_no_double_start_no_cap_broken(tmp_path: Path) -> None:
    """The world's own records say so; `benchmarks/daemon_month.py` does the same for a month."""
    outcome = rehearse(tmp_path, days=1.5, seed=3, tick_seconds=300.0)
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
