"""A commitment backtest: the advice uses the first part of the trace only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.planning.commitment_backtest import (
    first_part,
    loads_around,
    rentals_of,
    settings_from_known_part,
    split_instant,
)
from boa_daemon.traces.reader import Trace, TraceJob
from policies.model import Budget

CLASSES = """
gpu_types: {a: {usd_per_gpu_hour: 2.0, gpus_per_instance: 4}}
classes:
- {name: c, phases: [{size_gpu_hours: 2.0, speedup: {table: {1: 1.0, 2: 1.9, 4: 3.4}}}]}
- {name: rare, phases: [{size_gpu_hours: 1.0, speedup: {table: {1: 1.0, 2: 1.8}}}]}
"""


def a_trace(*, late: int) -> Trace:
    """Return 40 jobs in the first 20 hours, `late` jobs in the next 20, and one at the end."""
    early = [TraceJob(f"e{n}", 1800.0 * n, "c", 1.0 + n % 3) for n in range(40)]
    step = 71000.0 / late
    after = [TraceJob(f"l{n}", 72000.0 + step * n, "rare" if n % 2 else "c") for n in range(late)]
    return Trace((*early, *after, TraceJob("end", 144000.0, "c")))


def test_the_load_of_the_first_part_does_not_depend_on_the_rest(tmp_path: Path) -> None:
    """The rest has 20 or 200 jobs, half of a class that the first part does not have."""
    (tmp_path / "classes.yaml").write_text(CLASSES)
    file = load_problem(tmp_path / "classes.yaml", require_rates=False)
    found = []
    for late in (20, 200):
        trace = a_trace(late=late)
        at = split_instant(trace, 0.5)
        rentals = rentals_of(
            settings_from_known_part(file, trace, first_part(trace, at), Budget(amount=20.0))
        )
        found.append(loads_around(rentals, ("a",), trace, at))

    assert split_instant(a_trace(late=20), 0.5) == pytest.approx(72000.0)
    assert np.array_equal(found[0][1].gpus, found[1][1].gpus)
    assert found[0][1].share == pytest.approx(found[1][1].share, abs=1e-12)
    assert found[1][2].mean_gpus[0] > 1.5 * found[0][2].mean_gpus[0]
    for whole, early, late_load in found:
        assert whole.mean_gpus == pytest.approx(0.5 * (early.mean_gpus + late_load.mean_gpus))
