"""Link estimates: traffic learned from running jobs, and the speeds on other machines that follow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.learning.class_document import class_document
from boa_daemon.learning.link_estimates import derived_kinds, link_estimate, with_link
from boa_daemon.learning.speedups import CurveEstimate, SpeedSample, estimate_all
from policies.links.contention import Link
from policies.links.gpu_kinds import on_machines
from policies.links.link_share import network_share
from policies.model import AllReduce, InstanceType, JobClass, Phase
from policies.speedup import Table

LARGE = InstanceType(
    name="g4dn.12xlarge", gpu_type="t4", gpus=4, usd_per_hour=3.912, link_gigabits_per_second=50.0
)
SMALL = InstanceType(
    name="g4dn.xlarge", gpu_type="t4@g4dn.xlarge", gpus=1, usd_per_hour=0.526, link_gigabits_per_second=5.0
)
MACHINES = {"t4": LARGE, "t4@g4dn.xlarge": SMALL}
NEED = AllReduce(message_bytes=100e6, compute_seconds=0.2)
WIDTHS = (1, 2, 4, 8, 16)


def share(machine: InstanceType) -> float:
    return network_share(Link.of_gigabits(machine.link_gigabits_per_second), NEED)


def true_speed(machine: InstanceType, gpus: int, factor: float) -> float:
    """Return the speed of a job that scales linearly but for messages, which take `factor` times as long."""
    return gpus / (1.0 + factor * share(machine)) if gpus > machine.gpus else float(gpus)


def a_class() -> JobClass:
    """Return a class measured on the large machine, with the model's speeds on the small one."""
    curve = Table(gpus=WIDTHS, speeds=tuple(true_speed(LARGE, gpus, 1.0) for gpus in WIDTHS))
    one = JobClass(name="c", phases=(Phase(size_gpu_hours=1.0, speedups={"t4": curve}),), network=NEED)
    return on_machines(one, MACHINES, MACHINES)


def curves_of(factor: float, kinds: dict[str, tuple[int, ...]]) -> list[CurveEstimate]:
    """Return the estimates after jobs ran for an hour at the given widths."""
    samples = [
        SpeedSample(
            class_name="c",
            gpu_type=kind,
            gpus=gpus,
            samples=3600.0 * 50.0 * true_speed(MACHINES[kind], gpus, factor),
            seconds=3600.0,
            at=0.0,
        )
        for kind, widths in kinds.items()
        for gpus in widths
    ]
    return list(estimate_all(samples, [a_class()], now=0.0).values())


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_the_traffic_factor_of_one_machine_improves_the_speeds_of_another(factor: float) -> None:
    """From 4 and 8 GPUs on the large machine, the interval contains the true factor."""
    found = link_estimate(a_class(), curves_of(factor, {"t4": (4, 8)}), MACHINES)

    assert found is not None
    assert found.low < factor < found.high
    before, after = a_class(), with_link(a_class(), found, {"t4@g4dn.xlarge"}, MACHINES)
    truth = true_speed(SMALL, 8, factor)
    off = [
        abs(float(one.phases[0].speedups["t4@g4dn.xlarge"].speed_at(8)) / truth - 1.0)
        for one in (before, after)
    ]
    assert off[1] < max(0.2, 0.5 * off[0])
    assert after.phases[0].speedups["t4"] == before.phases[0].speedups["t4"]


def test_measurements_on_slow_links_find_the_factor_within_ten_percent() -> None:
    """On the small machine, messages take most of the time; both machines together narrow the interval."""
    found = link_estimate(a_class(), curves_of(3.0, {"t4@g4dn.xlarge": (1, 8)}), MACHINES)

    assert found is not None
    assert found.factor == pytest.approx(3.0, rel=0.1)
    both = link_estimate(a_class(), curves_of(3.0, {"t4": (4, 8), "t4@g4dn.xlarge": (1, 8)}), MACHINES)
    assert both is not None
    assert both.machines == ("g4dn.12xlarge", "g4dn.xlarge")
    assert both.high / both.low < found.high / found.low


def test_a_factor_needs_widths_on_one_node_and_on_several_and_a_class_with_network() -> None:
    for widths in ((1, 2, 4), (8, 16), ()):
        assert link_estimate(a_class(), curves_of(3.0, {"t4": widths}), MACHINES) is None
    silent = replace(a_class(), network=None)
    assert link_estimate(silent, curves_of(3.0, {"t4": (4, 8)}), MACHINES) is None
    assert with_link(silent, None, {"t4@g4dn.xlarge"}, MACHINES) is silent


def test_only_speeds_derived_from_another_machine_are_changed() -> None:
    """A class that states its speeds on the small machine keeps them."""
    assert derived_kinds(a_class(), MACHINES) == {"t4@g4dn.xlarge"}
    (phase,) = a_class().phases
    stated = {**phase.speedups, "t4@g4dn.xlarge": Table(gpus=(1, 8), speeds=(1.0, 2.0))}
    own = replace(a_class(), phases=(replace(phase, speedups=stated),))
    assert derived_kinds(own, MACHINES) == frozenset()


FILE = """
gpu_types:
  t4: {instance_type: g4dn.12xlarge}
classes:
  - name: c
    network: {message_bytes: 1.0e+8, compute_seconds: 0.2}
    phases: [{size_gpu_hours: 1.0, speedup: {t4: {table: {1: 1.0, 2: 2.0, 4: 4.0, 8: 7.5}}}}]
"""


def test_measurements_on_one_machine_change_the_plan_for_another(tmp_path: Path) -> None:
    """Jobs that send longer than stated are planned slower on the other machine too."""
    (tmp_path / "classes.yaml").write_text(FILE)
    planner = Planner(
        Settings.model_validate(
            {
                "cloud": {"instance_types": ["g4dn.12xlarge", "g4dn.xlarge"]},
                "workload": {"classes": str(tmp_path / "classes.yaml")},
            }
        )
    )
    kind = "t4@g4dn.xlarge"
    before = planner.planned["c"].phases[0].speedups[kind].speed_at(8)
    hour = {"class_name": "c", "gpu_type": "t4", "seconds": 3600.0, "at": 0.0}
    samples = [SpeedSample(gpus=4, samples=4e5, **hour), SpeedSample(gpus=8, samples=6e5, **hour)]  # type: ignore[arg-type]
    planner.learn(estimate_all(samples, planner.stated.values(), now=0.0))
    after = planner.planned["c"].phases[0].speedups[kind].speed_at(8)

    assert float(after) < 0.8 * float(before)
    stated = planner.stated["c"]
    document = class_document(
        stated,
        None,
        None,
        planner.curves.values(),
        is_rate_stated=True,
        now=0.0,
        link=planner.link_of(stated),
    )
    assert document["sending"]["machines"] == ["g4dn.12xlarge"]
    assert document["sending"]["low"] > document["sending"]["stated"]
