"""Import of Gavel's traces: kinds of jobs, measured on several GPU types."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.lab.traces.gavel import import_gavel, read_throughputs
from boa_daemon.traces.workload import Options
from boa_daemon.traces.writer import write_workload

Write = Callable[[str, str], Path]
KIND = "ResNet-18 (batch size 16)"
RATES = {
    "v100": {f"('{KIND}', 1)": {"null": 30.0}, f"('{KIND}', 2)": {"null": 54.0}, "('A3C', 1)": {"null": 7.0}},
    "p100": {f"('{KIND}', 1)": {"null": 36.0}, f"('{KIND}', 4)": {"null": 0.0}},
    "v100_unconsolidated": {f"('{KIND}', 8)": {"null": 99.0}},
}
TEN = f"{KIND}\tpython3 main.py\timages\t--num_steps\t1\t{{steps}}\t4\t1\t-1.0\t{{at}}\n"
SEVEN = f"{KIND}\tpython3 main.py\t--num_steps\t1\t{{steps}}\t{{at}}\t1\n"


@pytest.fixture
def source(written: Write) -> Path:
    """Return a directory with a table of throughputs and a trace of three jobs out of order."""
    written("simulation_throughputs.json", json.dumps(RATES))
    lines = [TEN.format(steps=108000, at=3600), TEN.format(steps=324000, at=0)]
    lines.append(lines[0].replace(KIND, "Bloom (batch size 1)"))
    return written("physical_cluster/small.trace", "".join(lines)).parents[1]


def test_sizes_and_speeds_are_relative_to_one_v100(source: Path) -> None:
    """216,000 steps at 30 a second are 2 hours; two V100 are 1.8 times as fast, and a P100 is 1.2 times."""
    found = import_gavel(source, Options())

    (job_class,) = found.classes
    (phase,) = job_class.phases
    assert job_class.name == "resnet-18-b16"
    assert phase.size_gpu_hours == pytest.approx(2.0)
    assert phase.speedups["v100"].speed_at([1, 2]) == pytest.approx([1.0, 1.8])
    assert phase.speedups["p100"].speed_at([1]) == pytest.approx([1.2])
    assert list(phase.speedups["v100"].whole_widths()) == [1, 2]
    assert [(job.id, job.arrived_at_seconds, job.scale) for job in found.trace.jobs] == [
        ("1", 0.0, 1.5),
        ("0", 3600.0, 0.5),
    ]
    assert found.dropped == {"of a kind that was not measured": 1}


def test_the_older_layout_with_seven_columns_is_read(source: Path, written: Write) -> None:
    """It has no directory, priority or deadline."""
    path = written("msr/old.trace", SEVEN.format(steps=108000, at=60) + SEVEN.format(steps=108000, at=9))

    assert [job.arrived_at_seconds for job in import_gavel(path, Options()).trace.jobs] == [9.0, 60.0]


def test_written_classes_are_read_back_with_nodes_of_four_gpus(source: Path, tmp_path: Path) -> None:
    """A GPU type without an instance type in the catalogue has the GPUs of a node in the file."""
    _, classes = write_workload(import_gavel(source, Options()), tmp_path / "out")

    machines = load_problem(classes, require_rates=False).instance_types
    assert (machines["p100"].gpus, machines["p100"].usd_per_hour) == (4, pytest.approx(4 * 1.46))
    assert machines["v100"].name == "p3.8xlarge"


def test_a_line_of_another_length_is_refused(source: Path, written: Write) -> None:
    """The error has the number of the line."""
    path = written("physical_cluster/bad.trace", TEN.format(steps=1, at=0) + "a\tb\n")

    with pytest.raises(InputError, match="2 columns where 10 or 7") as caught:
        import_gavel(path, Options())
    assert caught.value.line == 2


def test_a_trace_without_throughputs_is_refused(written: Write, tmp_path: Path) -> None:
    """Throughputs give the duration of a step."""
    path = written("alone/x.trace", TEN.format(steps=1, at=0))

    with pytest.raises(InputError, match=r"no simulation_throughputs\.json"):
        import_gavel(path, Options())


@pytest.mark.parametrize("text", ["[]", "{", '{"v100": {"(\'A3C\', 1)": {}}}'])
def test_a_damaged_table_is_refused(written: Write, text: str) -> None:
    """The file is no JSON, or has no throughputs in it."""
    with pytest.raises(InputError, match="no table of throughputs"):
        read_throughputs(written("simulation_throughputs.json", text))
