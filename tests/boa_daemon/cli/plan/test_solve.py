"""`boa solve`: one JSON document per file, tables, CSV and errors."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner, Result

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from policies.optimum.solution import Version

PROBLEM = """
budget: {gpus: 6}
classes:
- name: vision
  arrivals_per_hour: 2.0
  phases:
  - {size_gpu_hours: 1.0, speedup: {table: {1: 1.0, 2: 1.8, 4: 3.0}}}
  - {size_gpu_hours: 0.5, speedup: {table: {1: 1.0, 2: 1.9, 4: 3.6}}}
- name: speech
  arrivals_per_hour: 1.0
  phases: [{size_gpu_hours: 1.0, speedup: {amdahl: {parallel_fraction: 0.9, max_gpus: 8}}}]
"""
PRICED = "gpu_types: {gpu: {usd_per_gpu_hour: 2.0}}\n" + PROBLEM.replace("gpus: 6", "usd_per_hour: 12")


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    """Write the problem with a budget in GPUs."""
    (tmp_path / "problem.yaml").write_text(PROBLEM)
    return tmp_path / "problem.yaml"


@pytest.fixture
def priced(tmp_path: Path) -> Path:
    """Write the problem with a budget in dollars, at 2 USD per GPU-hour."""
    (tmp_path / "priced.yaml").write_text(PRICED)
    return tmp_path / "priced.yaml"


def boa(*arguments: object) -> Result:
    """Run the command line on a terminal of 100 columns; an error stays an exception."""
    words = ["solve", *map(str, arguments)]
    return CliRunner().invoke(app, words, env={"COLUMNS": "100"})


def document(*arguments: object) -> dict[str, Any]:
    """Return the JSON document on standard output."""
    found: dict[str, Any] = json.loads(boa(*arguments, "--json").stdout)
    return found


@pytest.mark.parametrize("version", get_args(Version))
def test_the_answer_is_optimal_and_within_the_budget(problem: Path, version: str) -> None:
    """It is one JSON document with a lower bound."""
    result = boa(problem, "--version", version, "-o", "json")
    answer = json.loads(result.stdout)

    assert result.exit_code == 0
    assert (answer["version"], answer["status"], answer["budget_unit"]) == (version, "optimal", "gpus")
    assert answer["mean_spend"] <= 6.0 * (1.0 + 1e-12)
    assert answer["lower_bound_mean_jct_hours"] <= answer["mean_jct_hours"] * (1.0 + 1e-9)
    assert "weighted_mean_jct_hours" not in answer


def test_mean_jct_grows_from_continuous_to_mixed_to_pure_widths(problem: Path) -> None:
    """Each version restricts the widths further."""
    real, mixed, pure = (
        document(problem, "--version", version)["mean_jct_hours"]
        for version in ("continuous", "integer-mixed", "integer-pure")
    )
    assert real <= mixed * (1.0 + 1e-9) <= pure * (1.0 + 2e-9)


def test_the_budget_flag_overrides_the_file(problem: Path, priced: Path) -> None:
    """A bare number has the unit of the file; `gpus:` gives a budget in GPUs."""
    assert document(problem, "--budget", "8")["budget"] == 8.0
    assert document(priced, "--budget", "14")["budget"] == 14.0
    assert document(priced, "--budget", "336/day")["budget"] == 336 / 24
    in_gpus = document(priced, "--budget", "gpus:7")
    assert (in_gpus["budget"], in_gpus["budget_unit"]) == (7.0, "gpus")
    assert in_gpus["mean_jct_hours"] == pytest.approx(document(priced, "--budget", "14")["mean_jct_hours"])


def test_an_infeasible_budget_gives_a_document_and_exit_code_3(problem: Path) -> None:
    """Work of 2 x 1.5 + 1 GPU-hours per hour needs 4 GPUs."""
    result = boa(problem, "--budget", "3", "--json")
    answer = json.loads(result.stdout)

    assert result.exit_code == 3
    assert answer["status"] == "infeasible"
    assert answer["cheapest_feasible_spend"] == pytest.approx(2 * 1.5 + 1.0)
    assert "InfeasibleBudget" in result.stderr


def test_each_file_gives_one_document_on_a_line(problem: Path, priced: Path) -> None:
    """The exit code is the worst one."""
    result = boa(problem, priced, "--json", "--budget", "5")
    lines = [json.loads(line) for line in result.stdout.splitlines()]

    assert [line["status"] for line in lines] == ["optimal", "infeasible"]
    assert result.exit_code == 3


def test_csv_of_several_files_is_one_table_with_a_file_column(problem: Path, priced: Path) -> None:
    """The CSV of one file has no such column."""
    alone = list(csv.DictReader(io.StringIO(boa(problem, "-o", "csv").stdout)))
    both = list(csv.DictReader(io.StringIO(boa(problem, priced, "-o", "csv").stdout)))

    assert "file" not in alone[0]
    assert {row["file"] for row in both} == {str(problem), str(priced)}
    assert [{k: v for k, v in row.items() if k != "file"} for row in both[: len(alone)]] == alone
    assert {row["class"] for row in alone} == {"vision", "speech"}


def test_class_weights_add_the_weighted_mean_to_the_answer(tmp_path: Path) -> None:
    """The weighted mean is what is minimised."""
    path = tmp_path / "weighted.yaml"
    path.write_text(PROBLEM.replace("- name: speech\n", "- name: speech\n  weight: 3.0\n"))

    assert document(path)["weighted_mean_jct_hours"] != document(path)["mean_jct_hours"]
    assert "weighted mean JCT" in boa(path).stdout


def test_coupled_classes_have_plans_and_others_have_phases(tmp_path: Path) -> None:
    """A rescale cost couples the phases of its class."""
    path = tmp_path / "coupled.yaml"
    path.write_text(PROBLEM.replace("- name: vision\n", "- name: vision\n  rescale_hours: 0.1\n"))
    vision, speech = document(path)["classes"]

    assert "plans" in vision
    assert "phases" not in vision
    assert len(vision["plans"][0]["phases"]) == 2
    assert "phases" in speech
    assert "plans" not in speech


def test_the_table_shows_widths_spend_and_optimality_gap(problem: Path) -> None:
    """The first line names the file, the version and the status."""
    shown = boa(problem, "--budget", "5").stdout

    assert shown.splitlines()[0] == f"{problem}: integer-mixed, optimal"
    for words in ("vision", "speech", "x gpu", "5 GPUs of 5 GPUs", "gap to the bound", "0.00%"):
        assert words in shown


def test_a_job_that_costs_less_than_a_cent_has_its_cost(tmp_path: Path) -> None:
    """It was shown as free: a GPU for seven seconds at two dollars an hour."""
    file = tmp_path / "short.yaml"
    file.write_text(
        "gpu_types: {gpu: {usd_per_gpu_hour: 2.0}}\nbudget: {usd_per_hour: 1}\nclasses:\n- name: short\n"
        "  arrivals_per_hour: 10\n  phases: [{size_gpu_hours: 0.002, speedup: {table: {1: 1.0}}}]\n"
    )
    (row,) = [line for line in boa(file).stdout.splitlines() if line.startswith("short")]
    assert row.split()[-1] == "$0.004"


def test_brackets_in_names_are_not_read_as_markup(problem: Path) -> None:
    """A class may be called [/red]."""
    problem.write_text(PROBLEM.replace("name: vision", 'name: "[/red] [bold]x"'))

    assert "[/red] [bold]x" in boa(problem).stdout


def test_the_cheapest_feasible_budget_is_rounded_up(priced: Path) -> None:
    """The shown budget is feasible."""
    shown = boa(priced, "--budget", "60/h").stdout
    least = next(line for line in shown.splitlines() if "cheapest feasible" in line).split("$")[1]

    assert boa(priced, "--budget", least).exit_code == 0


def test_a_search_that_hits_its_limit_exits_with_4(problem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document has the best answer found."""
    import policies.optimum.boa
    from policies.optimum.knapsack import solve_pure

    monkeypatch.setattr(
        policies.optimum.boa, "solve_pure", lambda problem, budget: solve_pure(problem, budget, state_limit=0)
    )
    result = boa(problem, "--version", "integer-pure", "--budget", "4.4", "--json")

    assert result.exit_code == 4
    assert json.loads(result.stdout)["status"] == "feasible"
    assert "ProblemTooLarge" in result.stderr


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--budget", "12 euros"], "no unit that BOA knows"),
        (["--budget", "12/fortnight"], "unknown unit of time"),
        (["--budget", "nan"], "not a positive number"),
        (["--budget", "0"], "not a positive number"),
        (["--budget=-3"], "not a positive number"),
        (["--budget", "inf/h"], "not a positive number"),
        (["--prices", "none.toml"], "no such file"),
    ],
)
def test_wrong_values_are_input_errors(problem: Path, flags: list[str], says: str) -> None:
    """Standard output is empty."""
    result = boa(problem, *flags)

    assert isinstance(result.exception, InputError)
    assert says in str(result.exception)
    assert result.stdout == ""


def test_unknown_flags_and_versions_are_usage_errors(problem: Path) -> None:
    """The exit code is 2."""
    assert boa(problem, "--verison", "continuous").exit_code == 2
    assert boa(problem, "--version", "integer").exit_code == 2
    assert boa().exit_code == 2


def test_no_file_is_solved_when_one_cannot_be_read(problem: Path, tmp_path: Path) -> None:
    """All files are read before the first answer."""
    result = boa(problem, tmp_path / "none.yaml", "--json")

    assert isinstance(result.exception, InputError)
    assert result.stdout == ""


def test_a_file_without_a_budget_needs_the_flag(tmp_path: Path) -> None:
    """The error gives an example of the flag."""
    path = tmp_path / "open.yaml"
    path.write_text(PRICED.replace("budget: {usd_per_hour: 12}", ""))

    assert "--budget 40/h" in str(boa(path).exception)
    assert document(path, "--budget", "12/h")["budget"] == 12.0


@pytest.mark.parametrize(
    ("budget", "least"),
    [
        ("1/h", "$1.00/hour is too small: 2 classes need at least $8.00/hour"),
        ("24/day", "$24.00/day is too small: the jobs need at least $192.00/day ($8.00/h)"),
        ("100/week", "$100.00/week is too small: the jobs need at least $1,344.00/week"),
        ("100/month", "$100.00/month is too small: the jobs need at least $5,840.00/month"),
    ],
)
@pytest.mark.parametrize("verb", ["solve", "simulate", "compare", "plan"])
def test_a_budget_below_the_load_is_refused_in_the_unit_asked(
    priced: Path, verb: str, budget: str, least: str
) -> None:
    """Every verb that takes a rate of money answers in the rate that was typed."""
    trace = priced.with_name("trace.csv")
    trace.write_text("job_id,arrived_at_seconds,class_name\n" + "".join(
        f"j{n},{1200 * n},{('vision', 'vision', 'speech')[n % 3]}\n" for n in range(61)
    ))  # fmt: skip
    arguments = {
        "solve": [str(priced)],
        "plan": ["--classes", str(priced)],
        "simulate": ["--trace", str(trace), "--classes", str(priced), "--policy", "boa"],
        "compare": ["--trace", str(trace), "--classes", str(priced)],
    }[verb]

    result = CliRunner().invoke(app, [verb, *arguments, "--budget", budget])
    said = " ".join((result.stderr + str(result.exception or "")).split())

    assert result.exit_code != 0
    assert "at least" in said
    assert "Raise the budget" in said
    if verb in ("solve", "plan"):
        assert least in said
    else:
        assert least.split(" is ", maxsplit=1)[0] in said


def test_the_last_dollars_are_said_in_the_unit_asked(priced: Path) -> None:
    """Above the knee: what the money beyond it buys, and what the same waiting costs at the knee."""
    result = CliRunner().invoke(app, ["solve", str(priced), "--budget", "100000/month"])
    said = " ".join(result.stdout.split())

    assert "of $100,000.00/month" in said
    assert "/month of it buy" in said
    assert "at the knee, $" in said
    assert "/h" not in said.replace("/hour", "").split("spend")[1]
