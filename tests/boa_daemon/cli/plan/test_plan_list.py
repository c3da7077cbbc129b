"""A finite list of jobs is planned for dollars in all, and its answer can be typed back in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from boa_daemon.cli.common.output import OutputFormat
from boa_daemon.cli.plan.plan_list import ROWS, plan_list
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.problem_file import parse_problem
from policies.errors import InfeasibleBudget, InfeasibleDeadline
from policies.optimum.job_list import ListedJob

PHASES = [{"size_gpu_hours": 4, "speedup": {"table": {"1": 1, "2": 1.6, "4": 2.5}}}]
FILE = parse_problem(
    Document(
        name="p.yaml",
        content={
            "gpu_types": {"gpu": {"usd_per_gpu_hour": 3.0}},
            "classes": [{"name": "c", "phases": PHASES}],
        },
        language="json",
    ),
    require_rates=False,
)


def jobs(count: int = 2, **changes: Any) -> list[ListedJob]:
    """Return jobs of four GPU-hours."""
    return [ListedJob(id=f"[j{number}]", class_name="c", **changes) for number in range(count)]


def planned(
    capsys: pytest.CaptureFixture[str], listed: list[ListedJob], budget: str | None = None
) -> dict[str, Any]:
    """Return the answer as JSON; without a budget that for the least one."""
    plan_list(FILE, listed, budget, budget is None, OutputFormat.json)
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    ("budget", "least", "said"), [(None, False, "no budget"), ("9", True, "exclude each other")]
)
def test_a_list_has_a_budget_or_asks_for_the_least(budget: str | None, least: bool, said: str) -> None:
    """One of both."""
    with pytest.raises(InputError, match=said):
        plan_list(FILE, jobs(), budget, least, OutputFormat.json)
    with pytest.raises(InputError, match="the budget of a list of jobs is in dollars"):
        plan_list(FILE, jobs(), "gpus:4", False, OutputFormat.json)


def test_more_money_makes_jobs_faster(capsys: pytest.CaptureFixture[str]) -> None:
    """Two jobs on one GPU each cost 24 dollars and take four hours; never more is spent than asked."""
    least = planned(capsys, jobs())
    assert (least["spend"], least["mean_jct_hours"]) == (pytest.approx(24.0), pytest.approx(4.0))
    assert least["cheapest_feasible_spend"] == pytest.approx(24.0)
    rich = planned(capsys, jobs(), "35")
    assert rich["spend"] <= 35.0
    assert rich["mean_jct_hours"] < 4.0
    assert rich["budget_unit"] == "usd"
    assert len(rich["jobs"]) == 2


def test_a_budget_that_is_too_small_names_the_least(capsys: pytest.CaptureFixture[str]) -> None:
    """In JSON as well, before the error."""
    with pytest.raises(InfeasibleBudget):
        plan_list(FILE, jobs(), "20", False, OutputFormat.json)
    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["budget"]) == ("infeasible", 20.0)
    assert document["cheapest_feasible_spend"] == pytest.approx(24.0)


def test_a_date_that_no_width_meets_names_its_job(capsys: pytest.CaptureFixture[str]) -> None:
    """With the hours that it takes at best."""
    with pytest.raises(InfeasibleDeadline):
        plan_list(FILE, jobs(1, deadline_hours=1.0), "90", False, OutputFormat.json)
    (late,) = json.loads(capsys.readouterr().out)["late"]
    assert late == {"job_id": "[j0]", "deadline_hours": 1.0, "least_hours": pytest.approx(1.6)}


def test_the_table_has_the_first_jobs_and_what_more_money_buys(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are no markup; the weighted mean is said where weights differ."""
    monkeypatch.setenv("COLUMNS", "160")
    plan_list(FILE, jobs(ROWS + 3), None, True, OutputFormat.table)
    text = capsys.readouterr().out
    assert "[j0]" in text
    assert f"[j{ROWS}]" not in text
    assert "and 3 more; -o csv shows all" in text
    assert "The cheapest budget that runs every job in time is $756.00." in text
    plan_list(FILE, jobs(1, weight=2.0), "900", False, OutputFormat.table)
    text = " ".join(capsys.readouterr().out.split())
    assert ", weighted 1.60 h, for $19.20" in text
    assert "The smallest feasible budget is $12.00." in text
    assert "More than $19.20 buys nothing." in text
