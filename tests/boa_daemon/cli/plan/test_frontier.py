"""`boa frontier`: its points are the answers of `boa solve`, and a plot is checked before the work."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from boa_daemon.cli import app
from boa_daemon.errors import InputError, MissingExtra

CLASSES = """
classes:
- name: vision
  arrivals_per_hour: 2.0
  phases: [{size_gpu_hours: 1.0, speedup: {table: {1: 1.0, 2: 1.8, 4: 3.0, 8: 4.0}}}]
- name: speech
  arrivals_per_hour: 1.0
  phases: [{size_gpu_hours: 2.0, speedup: {amdahl: {parallel_fraction: 0.9, max_gpus: 16}}}]
"""
PRICES = "gpu_types: {gpu: {usd_per_gpu_hour: 2.0}}\n"


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    """Write a problem with a price of 2 USD per GPU-hour and so a least budget of 8 USD per hour."""
    (tmp_path / "problem.yaml").write_text("budget: {usd_per_hour: 12}\n" + PRICES + CLASSES)
    return tmp_path / "problem.yaml"


def boa(verb: str, *arguments: object) -> Result:
    """Run the command line; an error stays an exception."""
    return CliRunner().invoke(app, [verb, *map(str, arguments)], env={"COLUMNS": "100"})


def document(*arguments: object) -> dict[str, Any]:
    """Return the JSON document on standard output."""
    found: dict[str, Any] = json.loads(boa("frontier", *arguments, "--json").stdout)
    return found


def budgets_of(*arguments: object) -> list[float]:
    """Return the budgets of the points."""
    return [point["budget"] for point in document(*arguments)["points"]]


@pytest.mark.parametrize("version", ["integer-mixed", "integer-pure", "continuous"])
def test_each_point_equals_the_answer_of_solve(problem: Path, version: str) -> None:
    """Both have the same keys; a budget below the least is infeasible."""
    points = document(problem, "--budgets", "7..13", "--version", version)["points"]

    for point in points:
        solved = json.loads(
            boa("solve", problem, "--budget", point["budget"], "--version", version, "--json").stdout
        )
        assert point.keys() == solved.keys()
        if point["status"] != "infeasible":
            assert point["mean_jct_hours"] == pytest.approx(solved["mean_jct_hours"], rel=1e-9)
            assert version == "continuous" or point["classes"] == solved["classes"]
    assert [point["status"] for point in points[:2]] == ["infeasible", "optimal"]


def test_the_multiplier_is_the_slope_of_the_curve(problem: Path) -> None:
    """It is -d(sum of arrivals x JCT)/d(budget), checked by a small difference."""
    step = 1e-6
    before, after = document(problem, "--budgets", f"11,{11 + step}")["points"]

    slope = (before["mean_jct_hours"] - after["mean_jct_hours"]) / step * (2.0 + 1.0)
    assert before["multiplier"] == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "dollars"),
    [
        ("9..12", [9.0, 10.0, 11.0, 12.0]),
        ("9..11.5", [9.0, 10.0, 11.0]),
        ("9..12:7", np.linspace(9, 12, 7).tolist()),
        ("9..9", [9.0]),
        ("12,9,10.5", [9.0, 10.5, 12.0]),
        ("10", [10.0]),
        ("240..288/day:3", [10.0, 11.0, 12.0]),
        ("240..288:3/day", [10.0, 11.0, 12.0]),
        ("240..242/day", [240 / 24, 241 / 24, 242 / 24]),
        ("$240,$288/day", [10.0, 12.0]),
        ("1,752..8,760:2/month", [2.4, 12.0]),
        ("7300..8760/month:3", [10.0, 11.0, 12.0]),
    ],
)
def test_budgets_are_a_range_a_number_of_points_or_a_list(
    problem: Path, text: str, dollars: list[float]
) -> None:
    """A unit of time may follow the range or the number of points."""
    assert budgets_of(problem, "--budgets", text) == pytest.approx(dollars)


def test_budgets_in_gpus_count_gpus(problem: Path) -> None:
    """Prices play no role in this unit."""
    answer = document(problem, "--budgets", "gpus:4..6")

    assert answer["budget_unit"] == "gpus"
    assert [point["budget"] for point in answer["points"]] == [4.0, 5.0, 6.0]
    assert answer["cheapest_feasible_spend"] == pytest.approx(2 * 1.0 + 2.0)


def test_the_default_points_run_from_the_cliff_past_the_knee(problem: Path) -> None:
    """The curve falls and is convex."""
    answer = document(problem)
    budgets = np.array([point["budget"] for point in answer["points"]])
    hours = np.array([point["mean_jct_hours"] for point in answer["points"]])
    slopes = np.diff(hours) / np.diff(budgets)

    assert budgets[0] == pytest.approx(answer["cheapest_feasible_spend"]) == pytest.approx(8.0)
    assert budgets[-1] > answer["knee"]["budget"]
    assert (slopes <= 0.0).all()
    assert (np.diff(slopes) >= -1e-9).all()
    assert answer["floor_mean_jct_hours"] <= hours[-1]


def test_the_exit_code_is_3_only_if_every_point_is_infeasible(problem: Path) -> None:
    """One feasible point is enough for exit code 0."""
    assert boa("frontier", problem, "--budgets", "1..3").exit_code == 3
    assert boa("frontier", problem, "--budgets", "1..9").exit_code == 0


def test_csv_has_a_row_for_each_point(problem: Path) -> None:
    """An infeasible point has empty cells."""
    rows = list(csv.DictReader(io.StringIO(boa("frontier", problem, "--budgets", "7,9", "-o", "csv").stdout)))

    assert [row["status"] for row in rows] == ["infeasible", "optimal"]
    assert rows[0]["mean_jct_hours"] == ""
    assert float(rows[1]["mean_spend"]) == 9.0


def test_the_table_names_cliff_knee_and_floor(problem: Path) -> None:
    """With class weights the mean JCT is called weighted."""
    shown = boa("frontier", problem, "--budgets", "7..10").stdout

    for words in ("infeasible", "Cliff: below $8.00/h", "Knee: at $", "Floor: ", "more buys nothing"):
        assert words in shown
    assert "weighted" not in shown
    problem.write_text(problem.read_text().replace("- name: vision\n", "- name: vision\n  weight: 2\n"))
    assert "weighted mean JCT" in boa("frontier", problem).stdout


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_a_plot_is_written_and_reported_on_standard_error(problem: Path, tmp_path: Path, suffix: str) -> None:
    """Standard output stays one JSON document; the same command writes the same file."""
    path = tmp_path / f"curve{suffix}"
    result = boa("frontier", problem, "--plot", path, "--mark", "10/h", "--json")
    first = path.read_bytes()
    boa("frontier", problem, "--plot", path, "--mark", "10/h", "--json")

    json.loads(result.stdout)
    assert f"wrote {path}" in result.stderr.replace("\n", "")
    assert path.read_bytes() == first
    assert not list(tmp_path.glob(".*"))


def test_an_infeasible_mark_is_reported_and_the_plot_is_written(problem: Path, tmp_path: Path) -> None:
    """The report is on standard error."""
    result = boa("frontier", problem, "--plot", tmp_path / "curve.svg", "--mark", "2/h")

    assert "$2.00/hour is infeasible, so it is not marked" in result.stderr
    assert (tmp_path / "curve.svg").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--budgets", "12..8"], "ends below its start"),
        (["--budgets", "8..12:0"], "asks for 0 points"),
        (["--budgets", "1..1000000"], "asks for 1000000 points"),
        (["--budgets", "8..12:999999"], "At most 10000"),
        (["--budgets", "eight..twelve"], "no unit that BOA knows"),
        (["--budgets", "8..12/fortnight"], "unknown unit of time"),
        (["--budgets", ""], "no unit that BOA knows"),
        (["--budgets", "8..nan"], "not a positive number"),
        (["--budgets", "0..4"], "not a positive number"),
        (["--budgets", "8..12", "--mark", "gpus:4"], "different units"),
        (["--plot", "curve.gif"], ".gif is no picture"),
        (["--plot", "nowhere/curve.svg"], "does not exist"),
    ],
)
def test_wrong_values_are_input_errors(problem: Path, flags: list[str], says: str) -> None:
    """Standard output is empty."""
    result = boa("frontier", problem, *flags)

    assert isinstance(result.exception, InputError)
    assert says in str(result.exception)
    assert result.stdout == ""


def test_a_plot_without_matplotlib_is_refused_before_the_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The problem file does not even exist."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = boa("frontier", tmp_path / "none.yaml", "--plot", tmp_path / "curve.svg")

    assert isinstance(result.exception, MissingExtra)
