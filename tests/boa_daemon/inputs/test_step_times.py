"""Phases from measured step times: hours as measured, and errors."""

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
    """At any reference type, 36,000 steps of 0.5 s take 5 hours."""
    times = {"a100": {8: 0.05, 2: 0.2}, "a10g": {1: 0.5}}
    phase = f"{{steps: 36000, step_seconds: {{a100: {{8: 0.05, 2: 0.2}}, {machine}: {{1: 0.5}}}}}}"
    (found,) = read(tmp_path, TWO, phase).problem.classes[0].phases

    for name, seconds in times.items():
        assert found.speedups[name].whole_widths().tolist() == sorted(seconds)
        for width, each in seconds.items():
            hours = found.size_gpu_hours / float(found.speedups[name].speed_at(width))
            assert hours == pytest.approx(36000 * each / 3600.0)


def test_with_one_gpu_type_its_name_may_be_omitted(tmp_path: Path) -> None:
    """The widths then stand directly below `step_seconds`."""
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
        ("{samples: 10}", "samples_per_second is missing"),
        ("{tokens_per_second: {1: 1}}", "tokens is missing"),
        ("{steps: 10, epochs: 2, step_seconds: {1: 1}}", "give one of each"),
        ("{epochs: 2, step_seconds: {1: 1}}", "steps is missing"),
        ("{tokens: 10, tokens_per_second: {1: 0}}", "tokens per second at 1 GPUs must be a number"),
        ("{extrapolate_to: 8, size_gpu_hours: 1, speedup: {table: {1: 1}}}", "goes with measurements"),
        ("{steps: 10, step_seconds: none.csv}", "none.csv"),
        ("{speedup: {table: {1: 1}}}", "size_gpu_hours is missing"),
        ("{size_gpu_hours: null, speedup: {table: {1: 1}}}", "size_gpu_hours must be a number; got nothing"),
    ],
)
def test_invalid_measurements_are_refused(tmp_path: Path, phase: str, says: str) -> None:
    """The error gives the reason."""
    with pytest.raises(InputError) as caught:
        read(tmp_path, ONE, phase)

    assert says in str(caught.value)


@pytest.mark.parametrize(
    "phase",
    [
        "{steps: 7200, steps_per_second: {1: 2, 2: 4}}",
        "{samples: 14400, samples_per_second: {1: 4, 2: 8}}",
        "{tokens: 3.6e9, tokens_per_second: {1: 1.0e6, 2: 2.0e6}}",
        "{epochs: 2, epoch_seconds: {1: 1800, 2: 900}}",
    ],
)
def test_work_may_be_counted_in_steps_samples_tokens_or_epochs(tmp_path: Path, phase: str) -> None:
    """All give an hour on one GPU and half an hour on two."""
    (found,) = read(tmp_path, ONE, phase).problem.classes[0].phases

    assert found.size_gpu_hours == pytest.approx(1.0)
    assert float(found.speedups["a100"].speed_at(2)) == pytest.approx(2.0)


def test_measurements_may_come_from_a_csv_file(tmp_path: Path) -> None:
    """Rows of one width are averaged, and their spread is reported."""
    (tmp_path / "times.csv").write_text(
        "class_name,machine,gpus,step_seconds\nc,p4d.24xlarge,1,0.45\nc,a100,1,0.5\nd,a100,1,9\nc,a100,2,0.3\n"
    )
    with pytest.raises(InputError, match="twice"):
        read(tmp_path, ONE, "{steps: 7200, step_seconds: times.csv}")
    (tmp_path / "times.csv").write_text(
        "class_name,machine,gpus,step_seconds\nc,a100,1,0.45\nc,a100,1,0.55\nd,a100,1,9\n\nc,a100,2,0.3\n"
    )
    file = read(tmp_path, ONE, "{steps: 7200, step_seconds: times.csv}")
    (found,) = file.problem.classes[0].phases

    assert found.size_gpu_hours == pytest.approx(1.0)
    assert float(found.speedups["a100"].speed_at(2)) == pytest.approx(0.5 / 0.3)
    assert file.spreads == {"c": pytest.approx(0.1)}


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("machine,gpus\na100,1\n", ":1: column 'step_seconds' must occur exactly once"),
        ("machine,gpu,step_seconds\n", ":1: unknown column 'gpu'"),
        ("machine,gpus,step_seconds\na100,1\n", ":2: 2 cells where the header has 3"),
        ("machine,gpus,step_seconds\na100,1,soon\n", ":2: step_seconds must be a number, more than zero"),
        ("class_name,machine,gpus,step_seconds\nother,a100,1,1\n", "no row is about class 'c'"),
    ],
)
def test_an_invalid_table_is_refused_with_its_line(tmp_path: Path, table: str, says: str) -> None:
    """A table without a row for the class is an error too."""
    (tmp_path / "times.csv").write_text(table)

    with pytest.raises(InputError) as error:
        read(tmp_path, ONE, "{steps: 7200, step_seconds: times.csv}")
    assert says in str(error.value)


def test_extrapolated_widths_follow_the_measured_line_and_are_listed(tmp_path: Path) -> None:
    """Seconds of 0.02 + 0.4 / k are met exactly."""
    phase = "{steps: 100, step_seconds: {1: 0.42, 2: 0.22, 4: 0.12}, extrapolate_to: 24}"
    file = read(tmp_path, ONE, phase)
    (found,) = file.problem.classes[0].phases
    curve = found.speedups["a100"]

    assert curve.whole_widths().tolist() == [1, 2, 4, 8, 16, 24]
    assert file.extrapolated == {("c", "a100"): frozenset({8, 16, 24})}
    for width in (8, 16, 24):
        assert 0.42 / float(curve.speed_at(width)) == pytest.approx(0.02 + 0.4 / width)
    assert read(tmp_path, ONE, "{steps: 1, step_seconds: {1: 1}, extrapolate_to: 8}").extrapolated == {}
