"""Pollux's simulator, re-implemented in `benchmarks/pollux.py`, against the published figures."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from benchmark_modules import benchmark_module

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data/pollux"


@pytest.fixture(scope="module")
def pollux() -> ModuleType:
    """Return the benchmark as a module."""
    return benchmark_module("pollux")


@pytest.mark.exhaustive
@pytest.mark.parametrize(("number", "published"), [(6, 3469.69375), (1, 2473.65)])
def test_tiresias_has_the_published_mean_jct(pollux: ModuleType, number: int, published: float) -> None:
    """The mean JCT of 160 jobs on 16 nodes of 4 T4 equals the published one to the last digit."""
    jobs = pollux.jobs_of(DATA / f"workloads/workload-{number}.csv", pollux.applications_of(DATA), rigid=True)

    assert pollux.World(jobs=jobs, nodes=16).run(pollux.TiresiasRounds()) == published


@pytest.mark.exhaustive
def test_our_pollux_is_within_a_tenth_of_the_published_one(pollux: ModuleType) -> None:
    """The published mean JCT is 2446 s, for workload-6 with rounds of 60 s."""
    jobs = pollux.jobs_of(DATA / "workloads/workload-6.csv", pollux.applications_of(DATA), rigid=False)

    mean = pollux.World(jobs=jobs, nodes=16).run(pollux.PolluxRounds(pollux.classes_of(DATA)))

    assert mean == pytest.approx(2446.1, rel=0.1)
