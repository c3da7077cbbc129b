"""Budgets and plans as the planning verbs take and print them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.cli.common.planning_options import (
    MarketName,
    a_budget,
    best_effort_is_named,
    chosen_market,
    commitments_today,
    in_unit_asked,
    money,
    money_up,
    phases_text,
    runs,
    said_in,
    share_text,
    width_text,
    with_budget_flag,
)
from boa_daemon.errors import InputError, MissingPrice
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.problem_file import ProblemFile, parse_problem
from boa_daemon.units import PER_HOUR, per_of
from policies.errors import InfeasibleBudget
from policies.model import Budget
from policies.optimum.options import PhaseOption


def a_file(*, budget: dict[str, float] | None = None, priced: bool = True) -> ProblemFile:
    """Return a problem file."""
    phases = [{"size_gpu_hours": 1, "speedup": {"table": {"1": 1}}}]
    content: dict[str, Any] = {"classes": [{"name": "c", "arrivals_per_hour": 1, "phases": phases}]}
    if priced:
        content["gpu_types"] = {"gpu": {"usd_per_gpu_hour": 1.0}}
    if budget is not None:
        content["budget"] = budget
    return parse_problem(Document(name="p.yaml", content=content, language="json"))


@pytest.mark.parametrize(
    ("file", "text", "is_plan", "amount"),
    [
        (a_file(), "48/day", False, 2.0),
        (a_file(budget={"usd_per_hour": 7.0}), None, False, 7.0),
        (a_file(budget={"usd_per_hour": 7.0}), "5", False, 5.0),
        (a_file(priced=False), "5", True, 5.0),
        (a_file(), "gpus:5", True, 5.0),
    ],
)
def test_the_budget_is_that_of_the_flag_or_the_files_own(
    file: ProblemFile, text: str | None, is_plan: bool, amount: float
) -> None:
    """A bare number is in the unit of the file's own budget, or GPUs."""
    found, budget = with_budget_flag(file, text, is_plan=is_plan)
    assert budget.amount == amount
    assert found.problem.budget_unit == budget.unit


@pytest.mark.parametrize(
    ("file", "text", "is_plan", "said"),
    [
        (a_file(), "5", False, "--budget 5 does not say for how long. Type 5/h, 5/day or 5/month"),
        (a_file(budget={"usd_per_hour": 7.0}), "5", True, "does not say for how long"),
        (a_file(), None, False, "no budget"),
        (a_file(budget={"usd_per_hour": 7.0}), "-5", False, "'-5' is not a positive number"),
        (a_file(budget={"usd_per_hour": 7.0}), "nan", False, "'nan' is not a positive number"),
    ],
)
def test_dollars_without_a_time_are_refused(
    file: ProblemFile, text: str | None, is_plan: bool, said: str
) -> None:
    """The error says what to type."""
    with pytest.raises(InputError) as found:
        with_budget_flag(file, text, is_plan=is_plan)
    assert said in str(found.value)
    assert a_budget("5", a_file(priced=False)).unit == "gpus"


def test_a_budget_that_is_too_small_is_said_in_the_unit_that_was_typed() -> None:
    """Rounded up, so that it is feasible when typed back in; dollars per hour and GPUs stay as they are."""
    error = InfeasibleBudget("too small", least_spend=1.0001, budget=0.5)
    said = said_in(error, per_of("365/month"))
    assert "$365.00/month is too small: the jobs need at least $730.08/month ($1.01/h)" in str(said)
    assert (said.least_spend, said.budget) == (1.0001, 0.5)
    assert said_in(error, PER_HOUR) is error
    assert said_in(replace_budget(error), per_of("1/day")).budget is None
    with (
        pytest.raises(InfeasibleBudget, match=r"365\.00/month is too small.*add --best-effort"),
        best_effort_is_named("365/month"),
    ):
        raise error
    with pytest.raises(InfeasibleBudget) as found, in_unit_asked("5/h"):
        raise error
    assert found.value is error


def replace_budget(error: InfeasibleBudget) -> InfeasibleBudget:
    """Return the error of a budget in GPUs."""
    return InfeasibleBudget(str(error), least_spend=error.least_spend)


@pytest.mark.parametrize(
    ("amount", "unit", "text", "said"),
    [
        (8.06, "usd_per_hour", None, "$8.06/h"),
        (8.0601, "usd_per_hour", None, "$8.07/h"),
        (1.0, "usd_per_hour", "1/day", "$24.00/day"),
        (8.06, "gpus", None, "8.06 GPUs"),
        (1234.56, "gpus", None, "1,235 GPUs"),
        (0.12341, "gpus", None, "0.1235 GPUs"),
    ],
)
def test_a_least_budget_is_rounded_up(amount: float, unit: str, text: str | None, said: str) -> None:
    """A rounding error of a float is none of money."""
    assert money_up(amount, unit, per_of(text)) == said
    assert money(8.0, "gpus") == "8 GPUs"


def step(gpus: float, hours: float = 1.0) -> PhaseOption:
    """Return a phase at a width."""
    return PhaseOption(gpu_type="a", gpus=gpus, hours=hours, spend=2.0 * hours)  # type: ignore[arg-type]


def test_phases_at_one_width_are_one_run() -> None:
    """Hours and spend are summed; the same width later on is another run."""
    found = runs([step(1), step(1, 3.0), step(2), step(1)])
    assert [(first, last, one.gpus, one.hours, one.spend) for first, last, one in found] == [
        (0, 1, 1, 4.0, 8.0),
        (2, 2, 2, 1.0, 2.0),
        (3, 3, 1, 1.0, 2.0),
    ]
    assert [phases_text(first, last, 4) for first, last, _ in found] == ["1-2", "3", "4"]
    assert phases_text(0, 0, 1) == ""
    assert (width_text(step(8)), width_text(step(2.5))) == ("8 x a", "2.50 x a")


def test_a_share_of_all_jobs_is_not_said() -> None:
    """Part of them is."""
    shares: list[Any] = [SimpleNamespace(job_fraction=part) for part in (1.0, 0.25)]
    assert [share_text(share) for share in shares] == ["", "25.0 %"]


def test_a_spot_market_needs_prices_and_no_contradiction(tmp_path: Any) -> None:
    """On demand there is none."""
    file = a_file()
    assert chosen_market(None, None, file) is None
    assert chosen_market(MarketName.on_demand, None, file) is None
    found = chosen_market(MarketName.spot, None, file)
    assert found is not None
    assert found.spot is not None
    with pytest.raises(InputError, match="exclude each other"):
        chosen_market(MarketName.on_demand, tmp_path / "world.yaml", file)
    with pytest.raises(MissingPrice, match="a spot market needs prices"):
        chosen_market(MarketName.spot, None, a_file(priced=False))
    (tmp_path / "world.yaml").write_text("faults: {}\n")
    with pytest.raises(InputError, match="the world has no spot market"):
        chosen_market(None, tmp_path / "world.yaml", file)


def test_commitments_are_in_dollars(tmp_path: Any) -> None:
    """GPUs have no price."""
    with pytest.raises(InputError, match="--commitments needs a budget in dollars"):
        commitments_today(a_file(), Budget(amount=1.0, unit="gpus"), tmp_path / "c.toml")
