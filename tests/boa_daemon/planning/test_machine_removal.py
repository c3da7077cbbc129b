"""The cost of the removal of one machine type from a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.planning.budget_plan import budget_plan
from policies.model import Budget
from policies.optimum.boa import solve

PROBLEM = """
gpu_types:
  t4: {{instance_types: {machines}}}
classes:
  - name: a
    arrivals_per_hour: 4.0
    phases: [{{size_gpu_hours: 1.0, speedup: {{placements: {{1x1: 1.0, 1x4: 3.6, 2x1: 1.5}}}}}}]
"""
BOTH = "[g4dn.12xlarge, g4dn.xlarge]"


def problem_on(folder: Path, machines: str) -> Path:
    """Write a problem of one class on some machines."""
    path = folder / f"{len(machines)}.yaml"
    path.write_text(PROBLEM.format(machines=machines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("usd", "hours_of_others"), [(4.2, {"t4": "[g4dn.xlarge]", "t4@g4dn.xlarge": "[g4dn.12xlarge]"})]
)
def test_removing_a_machine_equals_the_plan_of_a_file_without_it(
    tmp_path: Path, usd: float, hours_of_others: dict[str, str]
) -> None:
    """The mean JCT is never below that of the plan with all machines."""
    plan = budget_plan(load_problem(problem_on(tmp_path, BOTH)), Budget(amount=usd), "integer-mixed")
    found = {one.gpu_type: one.mean_jct_hours for one in plan.without}

    assert found == pytest.approx(
        {
            kind: solve(load_problem(problem_on(tmp_path, rest)).problem, usd).mean_jct_hours
            for kind, rest in hours_of_others.items()
        }
    )
    assert all(hours is not None and hours >= plan.solution.mean_jct_hours for hours in found.values())
    assert plan.to_document()["without_machine"][0]["instance_type"] in plan.without[0].sentence


def test_a_budget_that_needs_the_machine_cannot_run_every_job_without_it(tmp_path: Path) -> None:
    """A file with a single machine has no answer without the machine."""
    plan = budget_plan(load_problem(problem_on(tmp_path, BOTH)), Budget(amount=2.2), "integer-mixed")
    alone = budget_plan(
        load_problem(problem_on(tmp_path, "[g4dn.xlarge]")), Budget(amount=2.2), "integer-mixed"
    )

    assert plan.without[0].sentence == "Without g4dn.xlarge the budget does not run every job."
    assert alone.without == ()
    assert "without_machine" not in alone.to_document()
