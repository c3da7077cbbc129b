"""Speeds by placement, and several machines per GPU type, in a problem file."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.problem_file import ProblemFile, load_problem
from policies.optimum.boa import solve
from policies.speedup import Table

PROBLEM = """
gpu_types:
  t4: {machines}
classes:
  - name: a
    arrivals_per_hour: 1.0
    phases: [{{size_gpu_hours: 1.0, speedup: {speedup}}}]
"""
BOTH = "{instance_types: [g4dn.12xlarge, g4dn.xlarge]}"
PLACED = "{placements: {1x1: 1.0, 1x2: 1.9, 1x4: 3.6, 2x1: 1.7, 4x1: 2.9, 2x4: 6.8}}"


def read(folder: Path, speedup: str = PLACED, machines: str = BOTH) -> ProblemFile:
    """Load a problem with one class."""
    path = folder / "problem.yaml"
    path.write_text(PROBLEM.format(machines=machines, speedup=speedup), encoding="utf-8")
    return load_problem(path)


def test_each_machine_gets_the_placements_that_fit_its_nodes(tmp_path: Path) -> None:
    """Four GPUs are one node of the large machine, or four nodes of the small one."""
    file = read(tmp_path)

    assert file.problem.classes[0].phases[0].speedups == {
        "t4": Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.9, 3.6, 6.8)),
        "t4@g4dn.xlarge": Table(gpus=(1, 2, 4), speeds=(1.0, 1.7, 2.9)),
    }
    assert file.instance_types["t4@g4dn.xlarge"].usd_per_hour == 0.526
    assert [note.instance_type for note in file.prices] == ["g4dn.12xlarge", "g4dn.xlarge"]


def test_a_job_of_one_gpu_is_planned_on_the_one_gpu_machine(tmp_path: Path) -> None:
    """At the least budget, one GPU costs 0.526 USD/h there instead of a quarter of 3.912 USD/h."""
    solution = solve(read(tmp_path).problem, 0.526)

    assert str(solution.classes[0].plans[0].widths[0]) == "1 x t4@g4dn.xlarge"


def test_a_gpu_types_curve_holds_within_one_node_of_further_machines(tmp_path: Path) -> None:
    """A machine that the file names has its own curve."""
    of_gpu = read(tmp_path, "{amdahl: {parallel_fraction: 0.9, max_gpus: 8}}")
    named = read(tmp_path, "{t4: {table: {1: 1.0, 2: 1.9}}, t4@g4dn.xlarge: {table: {1: 1.0, 2: 1.5}}}")

    assert list(of_gpu.problem.classes[0].phases[0].speedups["t4@g4dn.xlarge"].whole_widths()) == [1]
    assert named.problem.classes[0].phases[0].speedups["t4@g4dn.xlarge"].speed_at(2) == 1.5


@pytest.mark.parametrize(
    ("speedup", "machines", "said"),
    [
        ("{placements: {4: 1.0}}", BOTH, r"'4' is no placement"),
        ("{placements: {1x1: fast}}", BOTH, r"the speed at 1x1 must be a number, more than zero"),
        ("{placements: {2x3: 1.0}}", BOTH, r"no placement fits a machine"),
        ("{t4: {placements: {1x1: 1.0}, table: {1: 1.0}}}", BOTH, r"'table' besides placements"),
        (PLACED, "{instance_types: [g4dn.xlarge, g4dn.xlarge]}", r"names g4dn.xlarge twice"),
        (PLACED, "{instance_types: [g4dn.xlarge, g5.xlarge]}", r"g5.xlarge carries a10g GPUs"),
        (PLACED, "{instance_types: [g4dn.xlarge], usd_per_gpu_hour: 1}", r"besides instance_types"),
    ],
)
def test_invalid_placements_are_refused_with_their_line(
    tmp_path: Path, speedup: str, machines: str, said: str
) -> None:
    """The error gives the reason and the file."""
    with pytest.raises(InputError, match=said) as refused:
        read(tmp_path, speedup, machines)

    assert refused.value.file is not None
    assert refused.value.line in {3, 7}
