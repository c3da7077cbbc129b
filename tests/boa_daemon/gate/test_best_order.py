"""The gate's default policy against the best order of messages, found by trying all orders."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from benchmark_modules import benchmark_module

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def gate_best() -> ModuleType:
    """Return benchmarks/gate_best.py as a module."""
    return benchmark_module("gate_best")


@pytest.mark.exhaustive
def test_the_best_order_of_two_messages_sends_the_short_one_first(gate_best: ModuleType) -> None:
    """The exhaustive search gives the expected mean time for two jobs with one message each."""
    long, short = (
        gate_best.Small(arrived_at=0.0, compute_seconds=0.1, message_bytes=size, iterations=1)
        for size in (1.2e6, 0.4e6)
    )
    first, second = sum(short.pieces), sum(long.pieces)
    assert gate_best.best_mean_seconds([long, short]) == pytest.approx(0.101 + first + second / 2)


@pytest.mark.exhaustive  # All orders of some dozens of messages, 25 times: ten seconds.
def test_the_gate_is_within_six_percent_of_the_best_order(gate_best: ModuleType) -> None:
    """The mean over small cases is within 5 %, or 6 % if the gate may switch off; no case is above 20 %."""
    cases = [gate_best.draw(seed) for seed in range(25)]
    best = np.array([gate_best.best_mean_seconds(jobs) for jobs in cases])
    bucket = gate_best.PIECE_BYTES
    for is_always_on, most in ((True, 1.05), (False, 1.06)):
        settings = gate_best.GateSettings(
            link=gate_best.LINK, bucket_bytes=bucket, fits_link=False, is_always_on=is_always_on
        )
        gate = np.array(
            [gate_best.gate_mean_seconds(jobs, ask_seconds=0.001, settings=settings) for jobs in cases]
        )
        assert (gate / best).mean() <= most
        assert (gate / best).max() <= 1.20
        assert (gate / best).min() >= 0.999
