"""The types of `policies.model` refuse impossible values."""

from __future__ import annotations

import math

import pytest
from strategies_planner import a_class, one_type
from unnamed import by_place, hidden, hurried, unnamed

import policies
from policies.errors import InvalidProblem
from policies.model import AllReduce, Budget, GpuType, InstanceType, JobClass, Phase, Problem, Width
from policies.speedup import PowerLaw

CURVE = PowerLaw(exponent=0.5)
PHASE = Phase(size_gpu_hours=1.0, speedups={"gpu": CURVE})
BAD = [0.0, -1.0, math.nan, math.inf]


@pytest.mark.parametrize("value", BAD)
def test_amounts_are_positive_and_finite(value: float) -> None:
    """Amounts are rates, sizes, weights, prices and budgets."""
    with pytest.raises(InvalidProblem, match="arrivals_per_hour of class c must be a finite number, more"):
        JobClass(name="c", phases=(PHASE,), arrivals_per_hour=value)
    with pytest.raises(InvalidProblem, match="weight of class c"):
        JobClass(name="c", phases=(PHASE,), weight=value)
    with pytest.raises(InvalidProblem, match="size_gpu_hours"):
        Phase(size_gpu_hours=value, speedups={"gpu": CURVE})
    with pytest.raises(InvalidProblem, match="usd_per_gpu_hour of v100"):
        GpuType(name="v100", usd_per_gpu_hour=value)
    with pytest.raises(InvalidProblem, match="a budget"):
        Budget(amount=value)
    with pytest.raises(InvalidProblem, match="usd_per_hour of big"):
        InstanceType(name="big", gpu_type="gpu", gpus=8, usd_per_hour=value)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_overheads_may_be_zero_but_not_negative(value: float) -> None:
    """Start-up and rescale default to zero."""
    with pytest.raises(
        InvalidProblem, match="startup_hours of class c must be a finite number, zero or more"
    ):
        JobClass(name="c", phases=(PHASE,), startup_hours=value)
    with pytest.raises(InvalidProblem, match="rescale_hours of class c"):
        JobClass(name="c", phases=(PHASE,), rescale_hours=value)

    assert JobClass(name="c", phases=(PHASE,)).startup_hours == 0.0


def test_empty_parts_of_a_problem_are_refused() -> None:
    """A problem has classes and types, a class has phases, a phase has a speed-up."""
    with pytest.raises(InvalidProblem, match="at least one class"):
        one_type()
    with pytest.raises(InvalidProblem, match="at least one GPU type"):
        Problem(classes=(a_class("c", (1.0, CURVE)),), gpu_types=())
    with pytest.raises(InvalidProblem, match="class c needs at least one phase"):
        JobClass(name="c", phases=())
    with pytest.raises(InvalidProblem, match="a speed-up on at least one GPU type"):
        Phase(size_gpu_hours=1.0, speedups={})
    with pytest.raises(InvalidProblem, match="a class needs a name"):
        JobClass(name="", phases=(PHASE,))
    with pytest.raises(InvalidProblem, match="a GPU type needs a name"):
        GpuType(name="", usd_per_gpu_hour=1.0)
    with pytest.raises(InvalidProblem, match="at least one GPU, got 0"):
        InstanceType(name="i", gpu_type="gpu", gpus=0, usd_per_hour=1.0)


def test_names_are_distinct_and_known() -> None:
    """Two classes of one name, or a speed-up on a type without a price, are refused by name."""
    one = a_class("c", (1.0, CURVE))
    with pytest.raises(InvalidProblem, match="class 'c' is defined twice"):
        one_type(one, one)
    gpu = GpuType(name="gpu", usd_per_gpu_hour=1.0)
    with pytest.raises(InvalidProblem, match="GPU type 'gpu' is defined twice"):
        Problem(classes=(one,), gpu_types=(gpu, gpu))
    with pytest.raises(InvalidProblem, match=r"phase 0: GPU type 'gpu' has a speed-up but no price; .* a100"):
        Problem(classes=(one,), gpu_types=(GpuType(name="a100", usd_per_gpu_hour=1.0),))


def test_a_budget_in_gpus_counts_every_gpu_once() -> None:
    """Prices apply to a budget in dollars, not to a budget in GPUs."""
    gpu = GpuType(name="gpu", usd_per_gpu_hour=3.0)
    classes = (a_class("c", (1.0, CURVE)),)

    assert Problem(classes=classes, gpu_types=(gpu,)).price_of("gpu") == 3.0
    assert Problem(classes=classes, gpu_types=(gpu,), budget_unit="gpus").price_of("gpu") == 1.0


def test_phases_are_coupled_by_a_rescale_cost() -> None:
    """A single phase is not coupled, and neither are phases that rescale for free."""
    two = ((1.0, CURVE), (2.0, CURVE))

    assert a_class("c", *two, rescale_hours=0.1).is_coupled
    assert not a_class("c", *two).is_coupled
    assert not a_class("c", two[0], rescale_hours=0.1).is_coupled
    assert a_class("c", *two).size_gpu_hours == 1.0 + 2.0


def test_amounts_print_with_their_unit() -> None:
    """A budget prints its unit and a width its GPU type; a GPU costs its share of the instance's price."""
    assert str(Budget(amount=12.5)) == "$12.50/hour"
    assert str(Budget(amount=15, unit="gpus")) == "15 GPUs"
    assert str(Width("a100", 8)) == "8 x a100"
    assert InstanceType(name="i", gpu_type="gpu", gpus=8, usd_per_hour=24.0).usd_per_gpu_hour == 24.0 / 8


def test_only_these_defaults_are_not_empty() -> None:
    """At the root of `policies`; fields without init, repr or comparison are listed, too."""
    assert unnamed(policies, deep=False) == {
        "Allocation.above_ceiling": "use",
        "Budget.unit": "usd_per_hour",
        "InstanceType.link_gigabits_per_second": 10.0,
        "InstanceType.places_per_gpu": 1,
        "Job.scale": 1.0,
        "Job.weight": 1.0,
        "JobClass.arrivals_per_hour": 1.0,
        "JobClass.weight": 1.0,
        "Money.accrual": 1.0,
        "Money.period_left_hours": 730.0,
        "Problem.budget_unit": "usd_per_hour",
        "Site.is_load_stated": True,
        "Site.load_over_stated": 1.0,
        "_Formula.max_gpus": 64,
        "_Formula.min_gpus": 1,
        "_Formula.speed": 1.0,
    }
    reckoned = dict.fromkeys(
        ("PhaseWidths.gpus_array", "PhaseWidths.numbers", "PhaseWidths.speeds_array"), "init repr compare"
    )
    reckoned |= dict.fromkeys(("PhaseWidths.corners", "PhaseWidths.gpus", "PhaseWidths.steps"), "init repr")
    assert hidden(policies, deep=False) == reckoned | {"Reasons._by_name": "init repr compare"}
    assert by_place(policies, deep=False) == ["replace"]


def test_types_made_often_have_the_fast_init_and_caches_are_bounded() -> None:
    """The lists cover the root of `policies`."""
    assert hurried(policies, deep=False) == dict.fromkeys(
        ["Allocation", "ChangedReasons", "GpuSlot", "Job", "JobClass", "Money", "Node", "Reasons", "Width"],
        "quick",
    ) | {"_found": None, "load": None} | dict.fromkeys(
        ["_written_kind", "_written_machine", "kind_of", "machine_name_of", "width_of"], 65536
    ) | {"_as_array": 128}


@pytest.mark.parametrize(("gpus", "places", "whole"), [(4, 1, 4), (4, 2, 2), (4, 4, 1), (6, 3, 2)])
def test_places_are_divided_evenly_among_gpus(gpus: int, places: int, whole: int) -> None:
    """Six places, three per GPU, are two GPUs."""
    kind = InstanceType(name="i", gpu_type="gpu", gpus=gpus, usd_per_hour=1.0, places_per_gpu=places)
    assert kind.whole_gpus == whole


@pytest.mark.parametrize("places", [0, -1, 3, 5])
def test_places_that_do_not_fill_whole_gpus_are_refused(places: int) -> None:
    """Four places cannot be split into three or zero on each GPU."""
    with pytest.raises(InvalidProblem, match=f"i: 4 places cannot be split into {places} on each GPU"):
        InstanceType(name="i", gpu_type="gpu", gpus=4, usd_per_hour=1.0, places_per_gpu=places)


def test_a_job_gets_one_place_per_gpu_emptiest_gpu_first() -> None:
    """Of six places on three GPUs, 1 and 4 share one; a GPU with a place that the job holds is left out."""
    kind = InstanceType(name="i", gpu_type="gpu", gpus=6, usd_per_hour=1.0, places_per_gpu=2)
    assert kind.one_per_gpu(range(6)) == [0, 1, 2]
    assert kind.one_per_gpu([0, 1, 2, 4, 5]) == [1, 2, 0]
    assert kind.one_per_gpu([0, 4, 5, 2]) == [2, 0, 4]
    assert kind.one_per_gpu(range(6), held=[4]) == [0, 2]
    plain = InstanceType(name="i", gpu_type="gpu", gpus=6, usd_per_hour=1.0)
    assert plain.one_per_gpu([5, 1], held=[1]) == [5, 1]


def test_the_size_of_a_class_is_the_sum_over_its_phases() -> None:
    """A link speed, message size or compute time of zero is refused as well."""
    assert a_class("c", (2.5, CURVE)).size_gpu_hours == 2.5
    assert a_class("c", (2.5, CURVE), (1.0, CURVE), (4.0, CURVE)).size_gpu_hours == 2.5 + 1.0 + 4.0
    with pytest.raises(InvalidProblem, match="link_gigabits_per_second of i"):
        InstanceType(name="i", gpu_type="gpu", gpus=1, usd_per_hour=1.0, link_gigabits_per_second=0.0)
    for field in ("message_bytes", "compute_seconds"):
        with pytest.raises(InvalidProblem, match=field):
            AllReduce(**{"message_bytes": 0.5, "compute_seconds": 0.5} | {field: 0.0})
