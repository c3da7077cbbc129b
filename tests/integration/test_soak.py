"""A short soak: 120 jobs while the daemon and keepers are killed; `benchmarks/soak.py` runs 2,000 jobs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from benchmark_modules import benchmark_module

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks/soak.py"


@pytest.mark.exhaustive
def test_a_soak_loses_no_job_and_leaves_no_process() -> None:
    """A job ends twice only if its keeper was killed before it could report the first end."""
    module = benchmark_module("soak")
    with tempfile.TemporaryDirectory(prefix="boa") as name:
        found = module.soak(Path(name), jobs=120, kills=12)

    assert found.counts == {"finished": 120}
    assert sum(found.ends.values()) == 120
    assert found.ends.get(0, 0) == 0
    assert sum(count for ends, count in found.ends.items() if ends > 1) <= found.kills_of_keepers
    assert found.kills_of_daemon + found.kills_of_keepers >= 8
    assert (found.upgrades, found.reloads, found.rotations) == (2, 1, 1)
    assert found.processes_left == 0
    assert found.database_bytes < 20e6
