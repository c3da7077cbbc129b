"""Long-run averages of fixed widths by Little's law, and the best setting for a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from boa_daemon.testing import a_class, a_problem, an_instance_type
from policies.errors import InfeasibleBudget
from policies.model import Budget, Width
from policies.rivals.long_run_averages import LongRunAverages, fastest_affordable, long_run_of, planned_within
from policies.rivals.width_menu import WidthMenu
from policies.site import PolicyOptions, Site

PROMISES = {
    1: LongRunAverages(mean_jct_hours=9.0, gpus=2.0),
    2: LongRunAverages(mean_jct_hours=5.0, gpus=3.0),
    3: LongRunAverages(mean_jct_hours=5.0, gpus=2.5),
    4: LongRunAverages(mean_jct_hours=1.0, gpus=4.0),
}
MENU = WidthMenu(classes={"c": a_class()}, gpu_type="gpu")


def chosen(usd: float, given: int | None = None, **changes: Any) -> int:
    """Return the setting for a budget, at 2 USD for a GPU."""
    site = Site(
        problem=a_problem(usd_per_gpu_hour=2.0),
        budget=Budget(amount=usd),
        instance_types={"gpu": an_instance_type()},
        **changes,
    )
    return fastest_affordable(PROMISES, site, MENU, what="a test", given=given)


@pytest.mark.parametrize(("usd", "knob"), [(4.0, 1), (4.9, 1), (5.0, 3), (7.9, 3), (8.0, 4), (99.0, 4)])
def test_the_affordable_setting_with_the_least_jct_is_chosen(usd: float, knob: int) -> None:
    """Of two settings with the same JCT, the one with fewer GPUs is chosen."""
    assert chosen(usd) == knob


def test_a_given_setting_is_used_whatever_it_costs() -> None:
    """A given setting of 0 is used, too."""
    assert chosen(1.0, given=4) == 4
    assert chosen(1.0, given=0) == 0


def test_if_no_setting_is_affordable_the_error_names_the_least_spend() -> None:
    """The least spend is that of 2 GPUs at 2 USD."""
    with pytest.raises(
        InfeasibleBudget, match=r"\$3.90/hour is too small: a test takes at least \$4.00"
    ) as no:
        chosen(3.9)
    assert no.value.least_spend == 4.0


def test_gpus_held_are_arrivals_times_gpu_hours_and_jct_is_the_mean_of_jobs() -> None:
    """3 jobs an hour of 2 h on one GPU, and 1 of 4 h on two: 6 + 8 GPUs, (3 x 2 + 1 x 4) / 4 hours."""
    classes = {
        "c": a_class("c", sizes=(2.0,), arrivals_per_hour=3.0),
        "d": a_class("d", sizes=(7.2,), arrivals_per_hour=1.0),
    }
    found = long_run_of({"c": (Width("gpu", 1),), "d": (Width("gpu", 2),)}, classes)
    assert (found.gpus, found.mean_jct_hours) == pytest.approx((14.0, 2.5))


@dataclass(frozen=True)
class Planned:
    """Every class on one GPU."""

    plans: dict[str, tuple[Width, ...]]


def test_a_plan_in_gpus_is_priced_in_the_unit_of_the_budget() -> None:
    """Ten dollars an hour are five GPUs at two dollars; the error for too small a budget is in dollars."""
    budget = Budget(amount=10.0)
    problem = a_problem(a_class(sizes=(3.0,)), usd_per_gpu_hour=2.0)
    site = Site(problem=problem, budget=budget, instance_types={"gpu": an_instance_type()})

    def within(classes: Any, gpu_type: str, *, gpus: float) -> Planned:
        assert (list(classes), gpu_type, gpus) == (["c"], "gpu", 5.0)
        return Planned({"c": (Width("gpu", 1),)})

    built = planned_within(site, PolicyOptions(), within, floor="")  # type: ignore[arg-type]
    assert (built.planned_mean_jct_hours, built.planned_spend) == (3.0, 3.0 * 2.0)

    def never(classes: Any, gpu_type: str, *, gpus: float) -> Planned:
        raise InfeasibleBudget("GPUs", least_spend=7.0)

    with pytest.raises(
        InfeasibleBudget, match=r"\$10\.00/hour is too small: \$14\.00/hour it takes\. Raise"
    ) as no:
        planned_within(site, PolicyOptions(), never, floor="{} it takes")  # type: ignore[arg-type]
    assert no.value.least_spend == 7.0 * 2.0
