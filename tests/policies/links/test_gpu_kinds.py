"""Several machines with the same GPU are GPU types of their own."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from boa_daemon.testing import a_class
from policies.links.contention import Link
from policies.links.gpu_kinds import machines_by_kind, on_machines, siblings, speedup_on
from policies.links.gpu_share import shared_iteration_seconds
from policies.links.link_share import network_share
from policies.model import AllReduce, GpuType, InstanceType, JobClass, Phase, Problem
from policies.optimum.boa import solve
from policies.speedup import Table

SMALL = InstanceType(name="s1", gpu_type="t4", gpus=1, usd_per_hour=0.5, link_gigabits_per_second=5.0)
LARGE = InstanceType(name="l4", gpu_type="t4", gpus=4, usd_per_hour=4.0, link_gigabits_per_second=50.0)
NEED = AllReduce(message_bytes=1e9, compute_seconds=1.0)
CURVE = Table(gpus=(1, 2, 4, 8), speeds=(1.0, 1.9, 3.6, 6.0))


def test_the_first_machine_keeps_the_name_of_the_gpu() -> None:
    """Each further machine adds its own name; a name from a class file stays."""
    assert list(machines_by_kind((LARGE, SMALL), {})) == ["t4", "t4@s1"]
    assert list(machines_by_kind((SMALL, LARGE), {"t4": LARGE})) == ["t4@s1", "t4"]
    assert machines_by_kind((LARGE, SMALL), {})["t4@s1"].gpu_type == "t4@s1"
    assert siblings(["t4", "a100", "t4@s1"]) == {"t4": ("t4", "t4@s1"), "t4@s1": ("t4", "t4@s1")}


def test_one_machine_per_gpu_changes_nothing() -> None:
    """The class is the same object, and no GPU has siblings."""
    job_class = a_class(gpu_type="t4", curve=CURVE)

    assert on_machines(job_class, {"t4": LARGE}, {"t4": LARGE}) is job_class
    assert siblings(["t4", "a100"]) == {}


def test_a_class_without_known_messages_stays_within_one_node() -> None:
    """On one-GPU machines its width is one GPU; a class that begins at two GPUs has no width."""
    found = speedup_on(CURVE, measured=LARGE, machine=SMALL, need=None)

    assert found == Table(gpus=(1,), speeds=(1.0,))
    assert speedup_on(Table(gpus=(2,), speeds=(2.0,)), measured=LARGE, machine=SMALL, need=None) is None


def test_a_class_with_known_messages_pays_for_the_link_of_its_machine() -> None:
    """Within one node of the measured machine the link is added; beyond, it replaces the measured link."""
    slow, fast = (1.0 + network_share(Link.of_gigabits(gigabits), NEED) for gigabits in (5.0, 50.0))
    found = speedup_on(CURVE, measured=LARGE, machine=SMALL, need=NEED)

    assert found is not None
    assert found.speed_at([1, 2, 8]) == pytest.approx([1.0, 1.9 / slow, 6.0 * fast / slow])


def test_the_optimum_is_exact_over_machines_and_widths() -> None:
    """No pair of options of two classes within the budget has a lower mean JCT."""
    kinds = {"t4": LARGE, "t4@s1": SMALL}
    stated = [
        a_class(name, gpu_type="t4", curve=CURVE, arrivals_per_hour=rate, network=NEED)
        for name, rate in (("a", 1.0), ("b", 2.0))
    ]
    classes = tuple(on_machines(job_class, kinds, {"t4": LARGE}) for job_class in stated)
    problem = Problem(
        classes=classes,
        gpu_types=tuple(GpuType(name=k, usd_per_gpu_hour=m.usd_per_gpu_hour) for k, m in kinds.items()),
    )
    solution = solve(problem, 2.5, version="integer-pure")
    best = min(
        hours
        for choice in itertools.product(_options(classes[0], kinds), _options(classes[1], kinds))
        if sum(spend for _, spend in choice) <= 2.5
        for hours in [sum(hours for hours, _ in choice) / 3.0]
    )
    used = {width.gpu_type for answer in solution.classes for plan in answer.plans for width in plan.widths}

    assert solution.mean_jct_hours == pytest.approx(best)
    assert used == {"t4", "t4@s1"}, "a mix of both is best here"


def _options(job_class: JobClass, kinds: dict[str, InstanceType]) -> list[tuple[float, float]]:
    """Return (job-hours per hour, spend per hour) of each option of a class."""
    phase: Phase = job_class.phases[0]
    return [
        (
            job_class.arrivals_per_hour / speed,
            job_class.arrivals_per_hour * kinds[kind].usd_per_gpu_hour * width / speed,
        )
        for kind, curve in phase.speedups.items()
        for width, speed in zip(curve.whole_widths(), curve.speed_at(curve.whole_widths()), strict=True)
    ]


def test_a_machine_with_places_is_one_more_type_for_classes_that_may_share() -> None:
    """Half as fast on one node, where no messages are sent; across nodes slower by T_2 / T_1."""
    places = replace(LARGE, gpus=8, places_per_gpu=2)
    kinds = machines_by_kind((LARGE, places), {})
    assert {kind: (one.gpus, one.usd_per_gpu_hour) for kind, one in kinds.items()} == {
        "t4": (4, 1.0),
        "t4@l4/2": (8, 0.5),
    }
    closed = a_class(gpu_type="t4", curve=CURVE, network=NEED)
    assert list(on_machines(closed, kinds, {"t4": LARGE}).phases[0].speedups) == ["t4"]
    share = network_share(Link.of_gigabits(50.0), NEED)
    found = on_machines(replace(closed, may_share=True), kinds, {"t4": LARGE}).phases[0].speedups["t4@l4/2"]
    together = shared_iteration_seconds(2, (1.0, share)) / (1.0 + share)
    assert found.speed_at([1, 4, 8]) == pytest.approx([0.5, 1.8, 6.0 / together])
    stated = replace(closed, phases=(replace(closed.phases[0], speedups={"t4@l4/2": CURVE, "t4": CURVE}),))
    assert on_machines(stated, kinds, {"t4": LARGE}).phases[0].speedups["t4@l4/2"] is CURVE


def test_only_machines_whose_gpu_was_measured_somewhere_get_a_curve() -> None:
    """A GPU type that was not measured gets no curve, and does not stop later types from getting theirs."""
    other = replace(SMALL, name="o1", gpu_type="a100")
    kinds = {"a100": other, "a100@o2": replace(other, name="o2"), "t4": LARGE, "t4@s1": SMALL}
    known = a_class(gpu_type="t4", curve=CURVE)
    assert list(on_machines(known, kinds, {"t4": LARGE}).phases[0].speedups) == ["t4", "t4@s1"]
    assert list(on_machines(known, kinds, {"a100": other}).phases[0].speedups) == ["t4"]


def test_without_messages_each_of_two_places_is_half_as_fast_as_the_gpu() -> None:
    """Curves end at one node of four GPUs."""
    assert speedup_on(CURVE, measured=LARGE, machine=LARGE, need=None) == Table(
        gpus=(1, 2, 4), speeds=(1.0, 1.9, 3.6)
    )
    places = replace(LARGE, gpus=8, places_per_gpu=2)
    assert speedup_on(CURVE, measured=LARGE, machine=places, need=None) == Table(
        gpus=(1, 2, 4), speeds=(0.5, 0.95, 1.8)
    )
