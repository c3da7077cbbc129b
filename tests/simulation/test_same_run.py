"""The same workload and seed give the same run to the bit, also in a process with another hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

RUN = """
import hashlib
from dataclasses import replace
from load_scenarios import PROBLEM, SCENARIOS, a_trace_of, settings_of
from boa_daemon.sim.world_settings import Checkpoints, Faults, Spot, Stock, WorldSettings
from boa_daemon.sim.wiring import prepare
from policies.model import Budget

faults = Faults(boot_failure_fraction=0.05, lost_answer_fraction=0.02, mean_job_failure_hours=20.0)
world = WorldSettings(
    zones=("a", "b"),
    spot=Spot(mean_interruption_hours=2.0, stock=Stock(mean_in_hours=3.0)),
    faults=faults,
    checkpoints=Checkpoints(every_seconds=600.0, cost_seconds=10.0),
)
classes = tuple(replace(c, arrivals_per_hour=4.0 * c.arrivals_per_hour) for c in PROBLEM.classes)
run = prepare(
    replace(
        settings_of(SCENARIOS[0], hours=1.0),
        trace=a_trace_of(SCENARIOS[0], classes, hours=3.0, seed=1),
        problem=replace(PROBLEM, classes=classes),
        budget=Budget(amount=240.0),
        world=world,
        policy="boa-paced",
    )
)
seen = hashlib.sha256()
run.finish(lambda decision: seen.update(repr((decision.state.now, decision.actions)).encode()))
print(seen.hexdigest())
"""


def digest(hash_seed: str) -> str:
    """Return a digest of every action of a run, in a process of its own."""
    found = os.pathsep.join(path for path in sys.path if path)  # Includes the folder of the test scenarios.
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": found}
    done = subprocess.run(
        [sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


@pytest.mark.exhaustive
def test_another_process_takes_the_same_decisions() -> None:
    """Every action of three busy hours with spot nodes, two zones, failures and lost answers is the same."""
    assert digest("0") == digest("1")
