"""One budget per hour or per month: which one counts, what a monthly one brings along, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.daemon.config import Settings, load_settings
from boa_daemon.daemon.planner import Planner
from boa_daemon.errors import InputError
from boa_daemon.learning.beliefs import Planned
from policies.online.paced import PacedBudgetOptimal


def test_a_monthly_budget_is_spread_over_a_mean_month() -> None:
    """7300 dollars a month are 10 per hour, paced by calendar months; a day may cost two mean days' money."""
    settings = Settings.model_validate({"budget": {"usd_per_month": 7300.0}})
    site = Planner(settings).record(()).site

    assert settings.budget.mean_usd_per_hour == 10.0
    assert settings.budget.usd_per_day_cap == 480.0
    assert (site.budget.amount, site.is_monthly) == (10.0, True)
    hourly = Planner(Settings()).record(()).site
    assert (hourly.budget.amount, hourly.is_monthly) == (10.0, False)


def test_a_cap_that_was_set_stays() -> None:
    """The cap that comes with a monthly budget replaces no other, not even the word that there is none."""
    for cap in (100.0, None):
        settings = Settings.model_validate({"budget": {"usd_per_month": 7300.0, "usd_per_day_cap": cap}})
        assert settings.budget.usd_per_day_cap == cap


def test_two_budgets_in_one_file_are_refused(tmp_path: Path) -> None:
    """The sentence names both keys and says what to do."""
    file = tmp_path / "boa.toml"
    file.write_text("[budget]\nusd_per_hour = 10.0\nusd_per_month = 7300.0\n")

    with pytest.raises(InputError, match="budget has both usd_per_hour and usd_per_month") as refused:
        load_settings(file, environment={})
    assert "Give one of them" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("in_file", "in_environment", "usd_per_hour"),
    [("usd_per_hour = 40.0", ("MONTH", "7300"), 10.0), ("usd_per_month = 7300.0", ("HOUR", "40"), 40.0)],
)
def test_the_stronger_word_replaces_the_other_budget(
    tmp_path: Path, in_file: str, in_environment: tuple[str, str], usd_per_hour: float
) -> None:
    """A file says one budget and the environment the other: the environment wins."""
    file = tmp_path / "boa.toml"
    file.write_text(f"[budget]\n{in_file}\n")
    name, value = in_environment
    loaded = load_settings(file, environment={f"BOA_BUDGET_USD_PER_{name}": value})

    assert loaded.settings.budget.mean_usd_per_hour == usd_per_hour


def test_what_was_learnt_of_the_load_does_not_move_where_pacing_starts(tmp_path: Path) -> None:
    """Twice the stated rate is planned for: the law still starts from the stated one."""
    file = tmp_path / "classes.yaml"
    file.write_text(
        "gpu_types: {gpu: {usd_per_gpu_hour: 1.0}}\n"
        "classes: [{name: a, arrivals_per_hour: 3.0, phases: "
        "[{size_gpu_hours: 1.0, speedup: {gpu: {table: {1: 1.0, 2: 1.8}}}}]}]\n"
    )
    words = {"workload": {"classes": str(file)}, "cloud": {"instance_types": ["gpu"]}}
    planner = Planner(Settings.model_validate(words))
    planner.take_back({"a": Planned(per_hour=6.0)})
    record = planner.record(())
    allocator, _, _ = record.build()

    assert (record.site.load_over_stated, record.site.is_load_stated) == (2.0, True)
    assert isinstance(allocator, PacedBudgetOptimal)
    assert allocator.table.rates.tolist() == [3.0]
    assert not Planner(Settings()).record(()).site.is_load_stated, "without a class file nobody stated a rate"
