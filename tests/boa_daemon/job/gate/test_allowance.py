"""`job/gate/allowance.py`: how much time a job may lose by asking."""

from __future__ import annotations

import pytest

from boa_daemon.job.gate import allowance
from boa_daemon.job.gate.allowance import BURST_SECONDS, MOST_FRACTION, OVERHEAD_FRACTION, Allowance
from boa_daemon.job.gate.bucket import TokenBucket


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time as a list of one number, which a test sets."""
    now = [100.0]
    monkeypatch.setattr(allowance, "TokenBucket", lambda size, rate: TokenBucket(size, rate, lambda: now[0]))
    return now


def test_a_job_loses_under_one_percent_and_a_burst(clock: list[float]) -> None:
    """In debt it must not ask; what it earned is saved up to the burst alone."""
    job = Allowance()
    job.charge(BURST_SECONDS)
    assert job.seconds_to_earn() == 0.0
    job.charge(0.006)
    assert job.seconds_to_earn() == pytest.approx(0.006 / OVERHEAD_FRACTION)
    clock[0] += 1e6
    job.charge(BURST_SECONDS + OVERHEAD_FRACTION)
    assert job.seconds_to_earn() == pytest.approx(1.0)
    assert job.lost_seconds == pytest.approx(2 * BURST_SECONDS + 0.012)
    assert OVERHEAD_FRACTION < 0.01
    assert BURST_SECONDS <= 0.02


@pytest.mark.parametrize(
    ("granted", "used"),
    [(0.0, OVERHEAD_FRACTION), (-1.0, OVERHEAD_FRACTION), (0.02, 0.02), (0.5, MOST_FRACTION)],
)
def test_a_gate_grants_within_limits(clock: list[float], granted: float, used: float) -> None:
    """Neither a gate that errs nor a stranger makes a job lose a twentieth of its time."""
    job = Allowance()
    job.set_fraction(granted)
    job.charge(BURST_SECONDS + 1.0)
    assert job.seconds_to_earn() == pytest.approx(1.0 / used)
