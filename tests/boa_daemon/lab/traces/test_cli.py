"""`boa trace import`: its files, its output and its errors."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.traces.reader import check_classes, read_trace

CUT = ("--workload", "workloads/workload-1.csv", "--apps", "cifar10,deepspeech2,bert")


def run(*arguments: object) -> str:
    """Return the command's output; an error is raised."""
    result = CliRunner().invoke(app, ["trace", "import", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_import_of_pollux_writes_files_that_agree_with_its_summary(data: Path, tmp_path: Path) -> None:
    """The files can be read back, and sizes and loads agree."""
    summary = json.loads(run("--from", "pollux", data / "pollux", *CUT, "--out", tmp_path, "--json"))

    trace = read_trace(tmp_path / "trace.csv")
    classes = yaml.load((tmp_path / "classes.yaml").read_text(), yaml.CSafeLoader)
    check_classes(trace, [entry["name"] for entry in classes["classes"]], tmp_path / "trace.csv")
    assert summary["files"] == [str(tmp_path / "trace.csv"), str(tmp_path / "classes.yaml")]
    assert summary["jobs"] == len(trace.jobs) == 85
    assert summary["window_hours"] == trace.window_hours
    assert summary["dropped"] == {"of other applications": 75}
    assert summary["load_gpus"] == pytest.approx(sum(row["load_gpus"] for row in summary["classes"]))
    assert classes["gpu_types"] == {"t4": {"instance_type": "g4dn.12xlarge"}}
    for entry, row in zip(classes["classes"], summary["classes"], strict=True):
        assert entry["name"] == row["name"]
        size = sum(phase["size_gpu_hours"] for phase in entry["phases"])
        assert size == pytest.approx(row["size_gpu_hours"], rel=1e-5)
        assert row["load_gpus"] == pytest.approx(size * row["arrivals_per_hour"], rel=1e-5)


def test_the_table_shows_classes_omissions_notes_and_files(data: Path, tmp_path: Path) -> None:
    """Jobs beyond the limit count as omissions."""
    text = run("--from", "philly", data / "philly", "--limit", 100, "--out", tmp_path)

    assert "gpus-1" in text
    assert "Left out: 200 jobs beyond the limit." in text
    assert "Note: speed-ups are not known" in text
    assert f"Wrote {tmp_path / 'trace.csv'}" in text


def test_a_trace_without_prices_makes_a_problem_in_gpus(data: Path, tmp_path: Path) -> None:
    """Philly names no GPU types; each class has the one width that its jobs used."""
    run("--from", "philly", data / "philly", "--out", tmp_path)

    file = load_problem(tmp_path / "classes.yaml")

    assert not file.has_prices
    for job_class in file.problem.classes:
        (phase,) = job_class.phases
        assert phase.speedups["gpu"].whole_widths().tolist() == [int(job_class.name.removeprefix("gpus-"))]


def test_csv_has_a_row_per_class(data: Path, tmp_path: Path) -> None:
    """The first columns are the name and the number of jobs."""
    text = run("--from", "pollux", data / "pollux", *CUT, "--out", tmp_path, "-o", "csv")

    assert text.splitlines()[0] == "name,jobs,arrivals_per_hour,phases,size_gpu_hours,load_gpus"
    assert [line.split(",")[:2] for line in text.splitlines()[1:]] == [
        ["bert", "7"],
        ["cifar10", "66"],
        ["deepspeech2", "12"],
    ]


def test_the_load_of_a_single_job_is_unknown(data: Path, tmp_path: Path) -> None:
    """One arrival has no rate, so JSON has null."""
    options = ("--from", "pollux", data / "pollux", *CUT, "--limit", 1, "--out", tmp_path)

    assert json.loads(run(*options, "--json"))["load_gpus"] is None
    assert "1 jobs over 0.00 h" in run(*options)


def test_price_and_instance_type_override_the_source(data: Path, tmp_path: Path) -> None:
    """The flags replace the price in the class file."""
    source = (
        "--from",
        "itp",
        data / "itp/elasticflow",
        "--profiles",
        data / "elasticflow",
        "--out",
        tmp_path,
    )

    for flags, expected in (
        (("--price", "a100=1.5"), {"a100": {"usd_per_gpu_hour": 1.5}}),
        (("--instance-type", "a100=p4de.24xlarge"), {"a100": {"instance_type": "p4de.24xlarge"}}),
    ):
        run(*source, *flags)
        classes = yaml.load((tmp_path / "classes.yaml").read_text(), yaml.CSafeLoader)
        assert classes["gpu_types"] == expected


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--price", "a100"), "--price 'a100' is not TYPE=VALUE"),
        (("--price", "a100=cheap"), "'cheap' is not a positive number of dollars"),
        (("--price", "a100=-1"), "'-1' is not a positive number"),
        (("--price", "a100=1", "--instance-type", "a100=p4d.24xlarge"), "both price 'a100'"),
        (("--price", "h100=1"), "'h100', which no class uses"),
        (("--apps", "bert"), "--apps does not apply to --from itp.*pollux, sia"),
        (("--seed", "1"), "--seed does not apply to --from itp"),
        (("--from-hours", "nan"), "--from-hours must be a finite number"),
        (("--rescale-seconds", "-1"), "--rescale-seconds must be a finite number, zero or more"),
        (("--from-hours", "9000"), "no job is left to import"),
    ],
)
def test_wrong_flags_are_refused_and_nothing_is_written(
    data: Path, tmp_path: Path, flags: tuple[str, ...], problem: str
) -> None:
    """The error names the flag."""
    out = tmp_path / "out"
    source = ("--from", "itp", data / "itp/elasticflow", "--profiles", data / "elasticflow", "--out", out)

    with pytest.raises(InputError, match=problem):
        run(*source, *flags)
    assert not out.exists()


def test_a_seed_without_profiles_is_refused(data: Path, tmp_path: Path) -> None:
    """Only profiles are drawn at random."""
    with pytest.raises(InputError, match="--seed draws from --profiles"):
        run("--from", "philly", data / "philly", "--seed", 1, "--out", tmp_path)


def test_an_unknown_source_is_a_usage_error_that_lists_the_known() -> None:
    """The exit code is 2."""
    result = CliRunner().invoke(app, ["trace", "import", "x", "--from", "borg", "--out", "y"])

    assert result.exit_code == 2
    assert "pollux" in result.output
