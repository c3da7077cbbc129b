"""Long-run averages of fixed widths, and the choice of those that a budget pays for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from policies.errors import InfeasibleBudget
from policies.model import Budget, JobClass
from policies.protocols import Allocator
from policies.rivals.ladder import Widths, job_hours
from policies.rivals.width_menu import WidthMenu, menu_of
from policies.site import BuiltPolicy, PolicyOptions, Site

_Knob = TypeVar("_Knob", int, float)


class _Planned(Allocator, Protocol):
    """A policy that gives each class fixed widths."""

    @property
    def plans(self) -> Mapping[str, Widths]:
        """The widths of the phases of each class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRunAverages:
    """Long-run averages of fixed widths: hours per job, and GPUs held."""

    mean_jct_hours: float
    gpus: float


def long_run_of(plans: Mapping[str, Widths], classes: Mapping[str, JobClass]) -> LongRunAverages:
    """Return the averages of one plan per class: GPUs held are arrivals per hour times GPU-hours per job."""
    held = waited = arrivals = 0.0
    for name, job_class in classes.items():
        hours, gpu_hours = job_hours(job_class, plans[name])
        held += job_class.arrivals_per_hour * gpu_hours
        waited += job_class.arrivals_per_hour * hours
        arrivals += job_class.arrivals_per_hour
    return LongRunAverages(mean_jct_hours=waited / arrivals, gpus=held)


def fastest_affordable(
    promises: Mapping[_Knob, LongRunAverages], site: Site, menu: WidthMenu, *, what: str, given: _Knob | None
) -> _Knob:
    """Return the setting with the least mean completion time within the budget; `given` if it is not None.

    Raises:
        InfeasibleBudget: when none is given and no setting is within the budget; `what` names the rule.
    """
    if given is not None:
        return given
    price = site.problem.price_of(menu.gpu_type)
    affordable = [knob for knob, promise in promises.items() if promise.gpus * price <= site.budget.amount]
    if not affordable:
        least = min(promise.gpus for promise in promises.values()) * price
        raise InfeasibleBudget(
            f"{site.budget} is too small: {what} takes at least "
            f"{Budget(amount=least, unit=site.budget.unit)}. Raise the budget",
            least_spend=least,
            budget=None if site.budget.unit == "gpus" else site.budget.amount,
        )
    return min(affordable, key=lambda knob: (promises[knob].mean_jct_hours, promises[knob].gpus))


def planned_within(
    site: Site, options: PolicyOptions, within: Callable[..., _Planned], *, floor: str
) -> BuiltPolicy:
    """Build the policy that `within` plans for the GPUs that the budget pays for, with its averages.

    Raises:
        InfeasibleBudget: when `within` finds no plan; `floor` is the message about the least budget.
    """
    menu = menu_of(site, options)
    price = site.problem.price_of(menu.gpu_type)
    try:
        policy = within(menu.classes, menu.gpu_type, gpus=site.budget.amount / price)
    except InfeasibleBudget as error:
        least = error.least_spend * price
        raise InfeasibleBudget(
            f"{site.budget} is too small: {floor.format(Budget(amount=least, unit=site.budget.unit))}. "
            "Raise the budget",
            least_spend=least,
            budget=None if site.budget.unit == "gpus" else site.budget.amount,
        ) from error
    promise = long_run_of(policy.plans, menu.classes)
    return BuiltPolicy(
        allocator=policy,
        planned_mean_jct_hours=promise.mean_jct_hours,
        planned_spend=promise.gpus * price,
    )
