"""Phases from measured steps: the same hours as were measured, and every way to get it wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.problem_file import ProblemFile, load_problem

TWO = "gpu_types: {a100: {instance_type: p4d.24xlarge}, a10g: {instance_type: g5.xlarge}}"
ONE = "gpu_types: {a100: {instance_type: p4d.24xlarge}}"


def read(folder: Path, types: str, phase: str) -> ProblemFile:
    """Return a problem of one class with one phase."""
    path = folder / "classes.yaml"
    path.write_text(f"{types}\nclasses:\n- name: c\n  arrivals_per_hour: 1\n  phases:\n  - {phase}\n")
    return load_problem(path)


@pytest.mark.parametrize("machine", ["a10g", "g5.xlarge"])
def test_hours_are_steps_times_seconds_at_every_width(tmp_path: Path, machine: str) -> None:
    """Whatever the reference is, 36,000 steps of 0.5 s take 5 hours."""
    times = {"a100": {8: 0.05, 2: 0.2}, "a10g": {1: 0.5}}
    phase = f"{{steps: 36000, step_seconds: {{a100: {{8: 0.05, 2: 0.2}}, {machine}: {{1: 0.5}}}}}}"
    (found,) = read(tmp_path, TWO, phase).problem.classes[0].phases

    for name, seconds in times.items():
        assert found.speedups[name].whole_widths().tolist() == sorted(seconds)
        for width, each in seconds.items():
            hours = found.size_gpu_hours / float(found.speedups[name].speed_at(width))
            assert hours == pytest.approx(36000 * each / 3600.0)


def test_with_one_type_the_widths_may_stand_alone(tmp_path: Path) -> None:
    """As in a form of speed-up."""
    (found,) = read(tmp_path, ONE, "{steps: 7200, step_seconds: {1: 0.5, 2: 0.3}}").problem.classes[0].phases

    assert found.size_gpu_hours == pytest.approx(1.0)
    assert float(found.speedups["a100"].speed_at(2)) == pytest.approx(0.5 / 0.3)


@pytest.mark.parametrize(
    ("phase", "says"),
    [
        ("{steps: 10}", ":6: classes['c'].phases[0].step_seconds is missing"),
        ("{step_seconds: {a100: {1: 1}}}", "steps is missing"),
        ("{steps: 10, step_seconds: {}}", "must map widths to seconds; got an empty mapping"),
        ("{steps: 10, step_seconds: {a100: 0.5}}", "must map widths to seconds; got 0.5"),
        ("{steps: 10, step_seconds: {h100: {1: 1}}}", "'h100' is no GPU type of gpu_types"),
        ("{steps: 10, step_seconds: {a100: {1: 0}}}", "more than zero; got 0"),
        ("{steps: 10, step_seconds: {a100: {1: fast}}}", "got the text 'fast'"),
        ("{steps: 10, step_seconds: {a100: {0: 1}}}", "widths are whole GPUs, from 1"),
        ("{steps: 10, step_seconds: {a100: {1: 1}, p4d.24xlarge: {1: 1}}}", "names GPU type 'a100' twice"),
        ("{steps: 10, step_seconds: {1: 1}, size_gpu_hours: 4}", "has steps besides size_gpu_hours"),
        ("{speedup: {table: {1: 1}}}", "size_gpu_hours is missing"),
        ("{size_gpu_hours: null, speedup: {table: {1: 1}}}", "size_gpu_hours must be a number; got nothing"),
    ],
)
def test_what_means_nothing_is_refused(tmp_path: Path, phase: str, says: str) -> None:
    """File, line, and what was expected."""
    with pytest.raises(InputError) as caught:
        read(tmp_path, ONE, phase)

    assert says in str(caught.value)
