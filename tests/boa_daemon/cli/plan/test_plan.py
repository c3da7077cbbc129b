"""`boa plan`: streams with rates or a trace, and lists of jobs with deadlines."""

from __future__ import annotations

import csv
import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from policies.errors import InfeasibleBudget, InfeasibleDeadline

CLASSES = """
gpu_types: {gpu: {usd_per_gpu_hour: 2.0, gpus_per_instance: 4}}
classes:
- name: vision
  arrivals_per_hour: 2.0
  phases: [{size_gpu_hours: 1.0, speedup: {table: {1: 1.0, 2: 1.8, 4: 3.0, 8: 4.0}}}]
- name: speech
  arrivals_per_hour: 1.0
  rescale_hours: 0.1
  phases:
  - {size_gpu_hours: 1.0, speedup: {amdahl: {parallel_fraction: 0.8, max_gpus: 16}}}
  - {size_gpu_hours: 1.0, speedup: {amdahl: {parallel_fraction: 0.95, max_gpus: 16}}}
"""
JOBS = "job_id,class_name,deadline_hours\na,vision,\nb,vision,0.6\nc,speech,2.5\n"


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """Write the classes, whose least budget is 8 dollars per hour."""
    (tmp_path / "classes.yaml").write_text(CLASSES)
    return tmp_path / "classes.yaml"


@pytest.fixture
def trace(classes: Path) -> Path:
    """Write a trace beside the classes: five vision jobs in two hours, one of them of double size."""
    rows = "".join(f"{n},{n * 1800},vision,{2 if n == 1 else 1}\n" for n in range(5))
    path = classes.with_name("trace.csv")
    path.write_text("job_id,arrived_at_seconds,class_name,scale\n" + rows)
    return path


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Write a list of jobs: b is due after 36 minutes, c after 2.5 hours."""
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path / "jobs.csv"


def boa(*arguments: object) -> Result:
    """Run `boa plan`, or `boa calendar` for ``--jobs LIST``; an error stays an exception."""
    words = ["plan", *map(str, arguments)]
    if "--jobs" in words:
        at = words.index("--jobs")
        words = ["calendar", *words[1:at], *words[at + 1 :]]
    return CliRunner().invoke(app, words, env={"COLUMNS": "100"})


def document(*arguments: object) -> dict[str, Any]:
    """Return the JSON document on standard output."""
    found: dict[str, Any] = json.loads(boa(*arguments, "--json").stdout)
    return found


def rows_of(*arguments: object) -> list[dict[str, str]]:
    """Return the rows of the CSV output."""
    return list(csv.DictReader(io.StringIO(boa(*arguments, "-o", "csv").stdout)))


@pytest.mark.first_set(2)
@pytest.mark.parametrize("version", ["integer-mixed", "integer-pure"])
@pytest.mark.parametrize("dollars", [8.0, 10.0, 14.0, 200.0])
def test_the_spend_is_never_above_the_budget(classes: Path, version: str, dollars: float) -> None:
    """With mixed widths, `next_unit_saves_hours` is the difference to the plan with one dollar more."""
    here = document("--classes", classes, "--budget", f"{dollars}/h", "--version", version)
    there = document("--classes", classes, "--budget", f"{dollars + 1}/h", "--version", version)

    assert here["mean_spend"] <= dollars * (1.0 + 1e-12)
    if version == "integer-mixed":
        saved = here["mean_jct_hours"] - there["mean_jct_hours"]
        assert here["next_unit_saves_hours"] == pytest.approx(saved, abs=1e-12)


def test_a_trace_gives_arrival_rates_and_uses_the_classes_beside_it(trace: Path, classes: Path) -> None:
    """A class without arrivals is left out."""
    found = document("--trace", trace, "--budget", "14/h")

    assert found == document("--trace", trace, "--classes", classes, "--budget", "14/h")
    (vision,) = found["class_spend"]
    assert (vision["name"], vision["arrivals_per_hour"]) == ("vision", 5 / 2.0)


def test_the_mean_gpus_of_the_swing_are_a_budget_in_gpus(classes: Path) -> None:
    """Quotas are whole instances."""
    found = document("--classes", classes, "--budget", "gpus:6")

    (swing,) = found["swing"]
    assert swing["mean_gpus"] == pytest.approx(found["mean_spend"]) == pytest.approx(6.0)
    assert swing["p99_instances"] == -(-swing["p99_gpus"] // 4)


def test_a_budget_may_be_per_hour_day_or_month(classes: Path) -> None:
    """10 per hour, 240 per day and 7300 per month give the same plan."""
    plans = [document("--classes", classes, "--budget", text) for text in ("10/h", "240/day", "7300/month")]

    assert all(plan == plans[0] for plan in plans)


def test_a_price_file_changes_the_plan(tmp_path: Path) -> None:
    """At half the price, half the budget gives the same plan."""
    (tmp_path / "c.yaml").write_text(
        CLASSES.replace("usd_per_gpu_hour: 2.0, gpus_per_instance: 4", "instance_type: p4d.24xlarge")
    )
    (tmp_path / "half.toml").write_text('[discounts]\n"*" = 0.5\n')
    listed = document("--classes", tmp_path / "c.yaml", "--budget", "24/h")
    half = document("--classes", tmp_path / "c.yaml", "--budget", "12/h", "--prices", tmp_path / "half.toml")

    assert half["mean_jct_hours"] == pytest.approx(listed["mean_jct_hours"])


def test_the_table_shows_spend_next_dollar_knee_and_quotas(classes: Path) -> None:
    """Above the useful budget it says that more would buy nothing."""
    shown = boa("--classes", classes, "--budget", "10/h").stdout

    for words in (
        "Plan for $10.00/h",
        "One more dollar per hour would cut the mean JCT by",
        "the knee ($",
        "Whole instances add",
        "to ask for",
        "Planned spend $10.00/h ($7,300 a month)",
    ):
        assert words in shown
    assert "would buy nothing" in boa("--classes", classes, "--budget", "500/h").stdout


@pytest.mark.parametrize("columns", ["80", "100"])
def test_the_table_fits_the_terminal(classes: Path, columns: str) -> None:
    """No line is wider, and wrapped sentences stay indented."""
    shown = (
        CliRunner()
        .invoke(app, ["plan", "--classes", str(classes), "--budget", "10/h"], env={"COLUMNS": columns})
        .stdout
    )

    assert all(len(line) <= int(columns) for line in shown.splitlines())
    assert not any(line.startswith(("jobs share", "than its")) for line in shown.splitlines())


def test_brackets_in_names_are_not_read_as_markup(classes: Path, jobs: Path) -> None:
    """The class is called [/red] and the job [a]."""
    classes.write_text(CLASSES.replace("name: vision", 'name: "[/red]"'))
    jobs.write_text("job_id,class_name\n[a],[/red]\n")

    assert "[/red]" in boa("--classes", classes, "--budget", "10/h").stdout
    assert "[a]" in boa("--classes", classes, "--jobs", jobs, "--min-budget").stdout


def test_csv_has_rows_for_classes_or_jobs(classes: Path, jobs: Path) -> None:
    """A stream has rows for each class; a list has one row for each job."""
    stream = rows_of("--classes", classes, "--budget", "10/h")
    listed = rows_of("--classes", classes, "--jobs", jobs, "--min-budget")

    assert {row["class"] for row in stream} == {"vision", "speech"}
    assert {row["job_id"]: row["deadline_hours"] for row in listed} == {"a": "", "b": "0.6", "c": "2.5"}


def test_best_effort_plans_an_infeasible_budget(classes: Path) -> None:
    """It spends the budget, and says how the queue grows and which budget is enough."""
    answer = json.loads(boa("--classes", classes, "--budget", "5/h", "--best-effort", "--json").stdout)
    spent = sum(row["spend_per_hour"] for row in answer["class_spend"])

    assert (answer["status"], answer["mean_jct_hours"]) == ("best-effort", None)
    assert spent == pytest.approx(5.0)
    assert answer["best_effort"]["queue_growth_jobs_per_hour"] > 0.0
    assert answer["best_effort"]["least_spend"] == answer["cheapest_feasible_spend"] > 5.0
    assert "would stop that" in " ".join(
        boa("--classes", classes, "--budget", "5/h", "--best-effort").stdout.split()
    )
    assert "--best-effort" in str(boa("--classes", classes, "--budget", "5/h").exception)
    enough = json.loads(boa("--classes", classes, "--budget", "50/h", "--best-effort", "--json").stdout)
    assert enough["status"] == "optimal"


def test_an_infeasible_budget_gives_a_document_and_an_error(classes: Path) -> None:
    """The document has the cheapest feasible spend."""
    result = boa("--classes", classes, "--budget", "5/h", "--json")

    assert isinstance(result.exception, InfeasibleBudget)
    answer = json.loads(result.stdout)
    assert (answer["status"], answer["budget"]) == ("infeasible", 5.0)
    assert answer["cheapest_feasible_spend"] == pytest.approx(2.0 * (2 * 1.0 + 2.0))
    assert boa("--classes", classes, "--budget", "5/h").stdout == ""


# Lists of jobs


def test_the_cheapest_budget_meets_every_deadline(classes: Path, jobs: Path) -> None:
    """Job b needs 2 GPUs (1 / 1.8 hours); a and c take their cheapest width of one GPU."""
    found = document("--classes", classes, "--jobs", jobs, "--min-budget")

    assert found["status"] == "optimal"
    assert found["spend"] == pytest.approx(2.0 * (1.0 + 2 * 1.0 / 1.8 + 2.0))
    assert found["cheapest_feasible_spend"] == pytest.approx(found["spend"])
    for job in found["jobs"]:
        assert job["deadline_hours"] is None or job["jct_hours"] <= job["deadline_hours"] * (1.0 + 1e-12)


@pytest.mark.parametrize("dollars", ["8.3", "12", "$1,000"])
def test_a_larger_total_budget_shortens_jobs_and_keeps_deadlines(
    classes: Path, jobs: Path, dollars: str
) -> None:
    """The spend stays within the budget."""
    least = document("--classes", classes, "--jobs", jobs, "--min-budget")
    found = document("--classes", classes, "--jobs", jobs, "--budget", dollars)

    assert found["spend"] <= found["budget"]
    assert found["mean_jct_hours"] <= least["mean_jct_hours"]
    assert found["dual_bound_hours"] <= found["weighted_mean_jct_hours"] * (1.0 + 1e-12)
    for job in found["jobs"]:
        assert job["deadline_hours"] is None or job["jct_hours"] <= job["deadline_hours"] * (1.0 + 1e-12)


def test_the_least_budget_of_a_list_is_rounded_up(classes: Path, jobs: Path) -> None:
    """8.2222... is shown as 8.23, which is feasible as a budget."""
    shown = boa("--classes", classes, "--jobs", jobs, "--min-budget").stdout
    least = shown.rsplit("$", 1)[1].strip().rstrip(".")

    assert least == "8.23"
    assert boa("--classes", classes, "--jobs", jobs, "--budget", least).exit_code == 0


def test_a_list_without_prices_is_planned_in_gpu_hours(tmp_path: Path, jobs: Path) -> None:
    """The spend is half of the dollars at 2 USD per GPU-hour."""
    path = tmp_path / "unpriced.yaml"
    path.write_text(CLASSES.split("\n", 2)[2])
    found = document("--classes", path, "--jobs", jobs, "--min-budget")

    assert found["budget_unit"] == "gpu_hours"
    assert found["spend"] == pytest.approx(1.0 + 2 * 1.0 / 1.8 + 2.0)
    assert "GPU-hours" in boa("--classes", path, "--jobs", jobs, "--min-budget").stdout


def test_an_infeasible_deadline_gives_a_document_and_an_error(classes: Path, jobs: Path) -> None:
    """The fastest plan of a vision job takes a quarter of an hour on 8 GPUs."""
    jobs.write_text("job_id,class_name,deadline_hours\nrush,vision,0.2\n")
    result = boa("--classes", classes, "--jobs", jobs, "--min-budget", "--json")

    assert isinstance(result.exception, InfeasibleDeadline)
    assert "job rush cannot end within 0.2 hours" in str(result.exception)
    answer = json.loads(result.stdout)
    assert (answer["status"], answer["least_hours"]) == ("infeasible", 1.0 / 4.0)


def test_a_too_small_budget_of_a_list_gives_a_document_and_an_error(classes: Path, jobs: Path) -> None:
    """The document has the cheapest feasible spend."""
    result = boa("--classes", classes, "--jobs", jobs, "--budget", "5", "--json")

    assert isinstance(result.exception, InfeasibleBudget)
    assert json.loads(result.stdout)["cheapest_feasible_spend"] == pytest.approx(8.2222222)


def test_a_long_list_is_cut_only_in_the_table(classes: Path, jobs: Path) -> None:
    """JSON has every job."""
    jobs.write_text("job_id,class_name\n" + "".join(f"j{n},vision\n" for n in range(100)))
    shown = boa("--classes", classes, "--jobs", jobs, "--budget", "250").stdout

    assert "and 40 more; -o csv shows all" in shown
    assert len(document("--classes", classes, "--jobs", jobs, "--budget", "250")["jobs"]) == 100


def test_a_list_with_weights_is_labelled_as_weighted(classes: Path, jobs: Path) -> None:
    """The weighted mean is what the plan minimises."""
    jobs.write_text("job_id,class_name,weight\na,vision,1\nb,vision,5\n")

    assert ", weighted " in boa("--classes", classes, "--jobs", jobs, "--budget", "7").stdout


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "nothing to plan"),
        (["--classes", "classes.yaml"], "no budget"),
        (["--classes", "classes.yaml", "--jobs", "jobs.csv"], "no budget"),
        (["--classes", "classes.yaml", "--jobs", "jobs.csv", "--budget", "gpus:9"], "--quota TYPE=4"),
        (["--classes", "classes.yaml", "--jobs", "jobs.csv", "--budget", "much"], "not a positive number"),
        (
            ["--classes", "classes.yaml", "--jobs", "jobs.csv", "--budget", "9", "--min-budget"],
            "exclude each other",
        ),
        (["--classes", "classes.yaml", "--jobs", "none.csv", "--min-budget"], "no such file"),
        (
            ["--classes", "classes.yaml", "--min-budget"],
            "--blocks and --gantt are of a list of jobs",
        ),
        (["--classes", "classes.yaml", "--budget", "9", "--version", "continuous"], "whole GPUs"),
        (["--trace", "none.csv", "--budget", "9"], "none.csv: cannot read the trace"),
        (["--trace", "other.csv", "--budget", "9"], "other.csv:2: job a is of class 'visoin'"),
    ],
)
def test_wrong_combinations_are_input_errors(
    trace: Path, jobs: Path, flags: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard output is empty, and the message says what to give."""
    monkeypatch.chdir(trace.parent)
    (trace.parent / "other.csv").write_text("job_id,arrived_at_seconds,class_name\na,0,visoin\n")
    result = boa(*flags)

    assert isinstance(result.exception, InputError)
    assert says in str(result.exception)
    assert result.stdout == ""


def test_plan_with_jobs_is_the_calendar_with_a_note(classes: Path, jobs: Path) -> None:
    """The name of before works for a release, and says the new one."""
    flags = ["--classes", str(classes), "--budget", "40/h", "--json"]
    now, before = (
        CliRunner().invoke(app, words)
        for words in (["calendar", str(jobs), *flags], ["plan", "--jobs", str(jobs), *flags])
    )
    assert before.stdout == now.stdout
    assert now.exit_code == before.exit_code == 0
    assert "boa plan --jobs FILE is now boa calendar FILE" in before.stderr
    assert now.stderr == before.stderr.replace("note boa plan --jobs FILE is now boa calendar FILE\n", "")


@pytest.mark.parametrize("flag", ["--commitments", "--trace", "--open", "--page", "--best-effort"])
def test_a_flag_of_a_stream_is_refused_for_a_list(classes: Path, jobs: Path, flag: str) -> None:
    value = {"--commitments": ["c.toml"], "--trace": [str(jobs)], "--page": ["p.html"]}.get(flag, [])
    words = ["plan", "--classes", str(classes), "--jobs", str(jobs), "--budget", "9", flag, *value]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, InputError)
    assert f"{flag} is for a stream of jobs" in str(result.exception)


def test_a_trace_may_come_from_a_pipe(trace: Path) -> None:
    """A shell's ``<(zcat ...)`` can be read once."""
    pipe = trace.parent / "pipe"
    os.mkfifo(pipe)
    flags = ("--classes", trace.parent / "classes.yaml", "--budget", "10/h", "--json")
    writer = threading.Thread(target=pipe.write_bytes, args=(trace.read_bytes(),), daemon=True)
    writer.start()
    found = boa("--trace", pipe, *flags)
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout) == document("--trace", trace, *flags[:-1])


def test_the_classes_of_a_list_may_lie_beside_it(tmp_path: Path, classes: Path, jobs: Path) -> None:
    """As those of a trace; without them the command says what to give."""
    words = ["calendar", str(jobs), "--min-budget"]
    (jobs.parent / "classes.yaml").write_text(classes.read_text())
    assert CliRunner().invoke(app, words).exit_code == 0
    (jobs.parent / "classes.yaml").unlink()
    result = CliRunner().invoke(app, words)
    assert "there is no" in str(result.exception)
    assert "Give --classes FILE" in str(result.exception)


def test_absurd_sizes_and_rates_give_a_hint_to_check_them(classes: Path) -> None:
    """The plan would hold more GPUs than exist."""
    huge = CLASSES.replace("size_gpu_hours: 1.0", "size_gpu_hours: 1e11").replace(": 2.0\n", ": 1e9\n")
    classes.write_text(huge)
    result = boa("--classes", classes, "--budget", "1e30/h")

    assert "check sizes and arrivals" in str(result.exception)


def test_a_world_adds_the_spot_market_and_a_checkpoint_interval(classes: Path, tmp_path: Path) -> None:
    """At this budget all jobs run on spot; the best interval is close to Young's formula."""
    world = tmp_path / "world.yaml"
    world.write_text(
        "spot: {price_fraction: 0.4, mean_interruption_hours: 10, unannounced_fraction: 1}\n"
        "checkpoints: {every_seconds: 600, cost_seconds: 20}\n"
    )
    asked = ("--classes", classes, "--budget", "6/h", "--world", world)
    answer = json.loads(boa(*asked, "--json").output)
    young = (2.0 * 20.0 * 36_000.0) ** 0.5

    assert {part["instance_type"] for part in answer["swing"]} == {"gpu-x4@spot"}
    assert answer["checkpoints"][0]["nodes"] == 1
    assert answer["checkpoints"][0]["best_seconds"] == pytest.approx(young, rel=0.02)
    assert "it is best to save every 19.8 min on 1 node" in " ".join(boa(*asked).output.split())


def test_a_world_without_a_spot_market_is_refused(classes: Path, jobs: Path, tmp_path: Path) -> None:
    """It is refused for a stream and for a list."""
    world = tmp_path / "world.yaml"
    world.write_text("boot: aws\n")

    none = boa("--classes", classes, "--budget", "12/h", "--world", world)
    listed = boa("--classes", classes, "--jobs", jobs, "--budget", "12/h", "--world", world)

    for told in (none, listed):
        assert isinstance(told.exception, InputError)
        assert "has no spot market" in str(told.exception)


@pytest.mark.first_set(3)
@pytest.mark.parametrize(("per", "hours"), [("h", 1.0), ("day", 24.0), ("week", 168.0), ("month", 730.0)])
def test_a_plan_answers_in_the_unit_that_was_asked(classes: Path, per: str, hours: float) -> None:
    """The spend of each class, the planned spend, and what of the budget buys nothing."""
    plan = document("--classes", classes, "--budget", f"{100.0 * hours:g}/{per}")
    spent, unspent = plan["mean_spend"] * hours, plan["not_spent"] * hours
    shown = boa("--classes", classes, "--budget", f"{100.0 * hours:g}/{per}").stdout
    said = " ".join(shown.split())
    assert f"$/{per}" in said
    assert f"Planned spend ${spent:,.2f}/{per}" in said
    assert f"of the budget is not spent: more than ${spent:,.2f}/{per} buys nothing" in said
    assert f"${unspent:,.2f}/{per}" in said
    assert f"{plan['class_spend'][0]['spend_per_hour'] * hours:,.2f}" in said


def test_a_best_effort_answers_in_the_unit_that_was_asked(classes: Path) -> None:
    """The least budget is 8 dollars per hour, 5,840 a month."""
    shown = boa("--classes", classes, "--budget", "3000/month", "--best-effort").stdout
    said = " ".join(shown.split())
    assert "Best effort for $3,000.00/month" in said
    assert "the cheapest widths need $5,840.00/month" in said
