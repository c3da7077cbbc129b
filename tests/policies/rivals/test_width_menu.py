"""The choices of rivals: the type that does the work most cheaply, and the nodes of a budget."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.testing import an_instance_type
from policies.errors import InfeasibleBudget, InvalidProblem
from policies.model import Budget, GpuType, JobClass, Phase, Problem
from policies.rivals.width_menu import FixedFleet, WidthMenu, fleet_of, menu_of
from policies.site import PolicyOptions, Site
from policies.speedup import Table

FLAT = Table(gpus=(1, 2), speeds=(1.0, 1.5))
TWICE = Table(gpus=(2, 4), speeds=(4.0, 6.0))
KINDS = {
    "old": an_instance_type(gpu_type="old", gpus=2),
    "new": an_instance_type(gpu_type="new", usd_per_gpu_hour=3.0),
}


def a_class(name: str = "c", *, size: float = 6.0, arrivals: float = 1.0, **curves: Table) -> JobClass:
    """Return a class of one phase, by default on both types."""
    curves = curves or {"old": FLAT, "new": TWICE}
    phases = (Phase(size_gpu_hours=size, speedups=curves),)
    return JobClass(name=name, phases=phases, arrivals_per_hour=arrivals)


def a_site(*classes: JobClass, usd: float = 20.0, old: float = 1.0, new: float = 3.0, **changes: Any) -> Site:
    """Return a site with GPUs of two types at prices per hour."""
    gpu_types = (GpuType(name="old", usd_per_gpu_hour=old), GpuType(name="new", usd_per_gpu_hour=new))
    values: dict[str, Any] = {
        "problem": Problem(classes=classes or (a_class(),), gpu_types=gpu_types),
        "budget": Budget(amount=usd),
        "instance_types": KINDS,
    }
    return Site(**(values | changes))


@pytest.mark.parametrize(("new", "chosen"), [(1.9, "new"), (2.0, "new"), (2.1, "old")])
def test_the_type_that_does_all_work_most_cheaply_is_chosen(new: float, chosen: str) -> None:
    """Two new GPUs do the work of four old ones, so they may cost twice as much. Ties go by name."""
    assert menu_of(a_site(new=new), PolicyOptions()).gpu_type == chosen


def test_classes_are_weighted_by_their_work() -> None:
    """One class is better off on old GPUs; the chosen type depends on sizes and arrivals."""
    slow = Table(gpus=(2,), speeds=(1.0,))
    for size, arrivals, chosen in ((6.0, 1.0, "new"), (600.0, 1.0, "old"), (6.0, 100.0, "old")):
        other = a_class("d", size=size, arrivals=arrivals, old=FLAT, new=slow)
        assert menu_of(a_site(a_class(), other, new=0.7), PolicyOptions()).gpu_type == chosen


def test_the_chosen_type_runs_every_class() -> None:
    """With one class for old GPUs only and one for new GPUs only, no type is left."""
    on_old, on_new = a_class("d", old=FLAT), a_class("e", new=FLAT)
    assert menu_of(a_site(a_class(), on_old, new=0.1), PolicyOptions()).gpu_type == "old"
    with pytest.raises(InvalidProblem, match="no GPU type runs every phase"):
        menu_of(a_site(on_old, on_new), PolicyOptions())


def test_a_named_type_is_used_and_an_unknown_one_gets_a_hint() -> None:
    """A named type is used whatever it costs."""
    assert menu_of(a_site(), PolicyOptions(gpu_type="new")).gpu_type == "new"
    with pytest.raises(InvalidProblem, match=r"no GPU type 'odl'. Did you mean 'old'\?"):
        menu_of(a_site(), PolicyOptions(gpu_type="odl"))


@pytest.mark.parametrize(("usd", "nodes"), [(2.0, 1), (3.9, 1), (4.0, 2), (9.0, 4)])
def test_a_fleet_is_as_many_whole_nodes_as_the_budget_pays_for(usd: float, nodes: int) -> None:
    """A node of two GPUs costs 2 USD, or two GPUs where GPUs are counted."""
    fleet = fleet_of(a_site(usd=usd), PolicyOptions(), "old")
    assert (fleet.nodes, fleet.gpus, fleet.count_by_type) == (nodes, 2 * nodes, {"old-x2": nodes})
    assert fleet_of(a_site(budget=Budget(amount=usd, unit="gpus")), PolicyOptions(), "old").nodes == nodes


def test_a_budget_below_one_node_is_refused_unless_nodes_are_given() -> None:
    """A node of four GPUs costs 12 USD."""
    with pytest.raises(InfeasibleBudget, match=r"\$11.90/hour does not pay for one new-x4") as refused:
        fleet_of(a_site(usd=11.9), PolicyOptions(), "new")
    assert refused.value.least_spend == 12.0
    assert fleet_of(a_site(usd=11.9), PolicyOptions(nodes=3), "new").nodes == 3


@pytest.mark.parametrize(("most", "nodes"), [(None, 5), (6, 5), (5, 5), (4, 4)])
def test_the_cap_on_nodes_holds_for_paid_and_for_given_nodes(most: int | None, nodes: int) -> None:
    """Five nodes are paid for, or given as an option."""
    for usd, options in ((10.0, PolicyOptions()), (1.0, PolicyOptions(nodes=5))):
        assert fleet_of(a_site(usd=usd, max_nodes=most), options, "old").nodes == nodes


def test_a_fleet_has_at_least_one_node() -> None:
    """One node is allowed, and zero nodes are refused."""
    assert FixedFleet(instance_type=KINDS["old"], nodes=1).gpus == 2
    with pytest.raises(InvalidProblem, match="at least one node; got 0"):
        FixedFleet(instance_type=KINDS["old"], nodes=0)


def test_services_give_the_work_left_after_each_phase() -> None:
    """Phases have 6 and 3 GPU-hours: after the first, 3 hours of work are left, and 3 GPU-hours."""
    phases = tuple(Phase(size_gpu_hours=size, speedups={"old": FLAT}) for size in (6.0, 3.0))
    menu = WidthMenu(classes={"c": JobClass(name="c", phases=phases)}, gpu_type="old")
    widths = (menu.fastest_within("c", 0, 2), menu.fastest_within("c", 1, 1))
    first, last = menu.services("c", widths)
    assert (first.gpu_hours_per_work_hour, first.later_work_hours, first.later_gpu_hours) == pytest.approx(
        (2 / 1.5, 3.0, 3.0)
    )
    assert (last.gpu_hours_per_work_hour, last.later_work_hours, last.later_gpu_hours) == (1.0, 0.0, 0.0)
    swapped = menu.services("c", widths[::-1])
    assert swapped[0].later_gpu_hours == pytest.approx(3.0 * 2 / 1.5)
    assert menu.widths_within("c", 1) == (widths[1], widths[1])


def test_thresholds_and_limits_are_the_values_that_change_a_width() -> None:
    """Efficiencies are 1 and 0.75 in both classes; widths are 1, 2 and 4."""
    other = a_class("d", old=Table(gpus=(1, 4), speeds=(1.0, 3.0)))
    classes = {"c": a_class(old=FLAT), "d": other}
    menu = WidthMenu(classes=classes, gpu_type="old")
    assert menu.thresholds == pytest.approx((1.0, 0.75))
    assert menu.limits == (1, 2, 4)
