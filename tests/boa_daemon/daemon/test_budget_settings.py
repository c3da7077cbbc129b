"""Budget settings: a budget per hour or per month, and the daily cap that a monthly budget implies."""

from __future__ import annotations

from pathlib import Path

from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.learning.beliefs import PlannedFigures
from policies.online.paced_optimum import PacedBudgetOptimal


def test_a_monthly_budget_sets_an_hourly_rate_and_a_daily_cap() -> None:
    """7300 USD per month are 10 USD/hour, paced by calendar months, with a daily cap of two mean days."""
    settings = Settings.model_validate({"budget": {"usd_per_month": 7300.0}})
    site = Planner(settings).record(()).site

    assert settings.budget.mean_usd_per_hour == 10.0
    assert settings.budget.usd_per_day_cap == 480.0
    assert (site.budget.amount, site.is_monthly) == (10.0, True)
    hourly = Planner(Settings()).record(()).site
    assert (hourly.budget.amount, hourly.is_monthly) == (10.0, False)


def test_an_explicit_daily_cap_overrides_the_one_of_a_monthly_budget() -> None:
    """The default cap of a monthly budget replaces neither a number nor an explicit `None`."""
    for cap in (100.0, None):
        settings = Settings.model_validate({"budget": {"usd_per_month": 7300.0, "usd_per_day_cap": cap}})
        assert settings.budget.usd_per_day_cap == cap


def test_pacing_starts_from_the_stated_load_not_the_learned_one(tmp_path: Path) -> None:
    """With a learned arrival rate of twice the stated rate, the pacing table still uses the stated rate."""
    file = tmp_path / "classes.yaml"
    file.write_text(
        "gpu_types: {gpu: {usd_per_gpu_hour: 1.0}}\n"
        "classes: [{name: a, arrivals_per_hour: 3.0, phases: "
        "[{size_gpu_hours: 1.0, speedup: {gpu: {table: {1: 1.0, 2: 1.8}}}}]}]\n"
    )
    words = {"workload": {"classes": str(file)}, "cloud": {"instance_types": ["gpu"]}}
    planner = Planner(Settings.model_validate(words))
    planner.take_back({"a": PlannedFigures(per_hour=6.0)})
    record = planner.record(())
    allocator, _, _ = record.build()

    assert (record.site.load_over_stated, record.site.is_load_stated) == (2.0, True)
    assert isinstance(allocator, PacedBudgetOptimal)
    assert allocator.table.rates.tolist() == [3.0]
    assert not Planner(Settings()).record(()).site.is_load_stated, "without a class file nobody stated a rate"
