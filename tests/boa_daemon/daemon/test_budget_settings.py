"""One budget per hour or per month: which one counts, what a monthly one brings along, what is refused."""

from __future__ import annotations

from pathlib import Path

from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.planner import Planner
from boa_daemon.learning.beliefs import PlannedFigures
from policies.online.paced_optimum import PacedBudgetOptimal


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
    planner.take_back({"a": PlannedFigures(per_hour=6.0)})
    record = planner.record(())
    allocator, _, _ = record.build()

    assert (record.site.load_over_stated, record.site.is_load_stated) == (2.0, True)
    assert isinstance(allocator, PacedBudgetOptimal)
    assert allocator.table.rates.tolist() == [3.0]
    assert not Planner(Settings()).record(()).site.is_load_stated, "without a class file nobody stated a rate"
