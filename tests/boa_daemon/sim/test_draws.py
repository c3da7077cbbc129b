"""Random outcomes depend on the seed and on whom they concern, and have the stated frequencies."""

from __future__ import annotations

import math
from collections import Counter
from statistics import mean
from typing import Any

import pytest

from boa_daemon.sim.draws import Draws
from boa_daemon.sim.world_settings import Boot, Faults, Spot, WorldSettings
from boa_daemon.testing import an_instance_type

MACHINE = an_instance_type()


def draws(*, seed: int = 0, spot: Spot | None = None, boots: Any = None, **faults: float) -> Draws:
    """Return the draws of a world with these faults."""
    world = WorldSettings(faults=Faults(**faults), spot=spot, boots=boots or {})
    return Draws(world, boot_seconds=180.0, seed=seed)


def test_without_faults_every_node_boots_alike_and_never_breaks() -> None:
    """Every request is heard and granted in full, and no job fails."""
    plain = draws()
    node = plain.of_node("n", MACHINE, "on-demand")
    assert (node.boot_seconds, node.boots, node.speed) == (180.0, True, 1.0)
    assert (node.breaks_seconds, node.taken_back_seconds) == (math.inf, math.inf)
    assert {plain.of_request() for _ in range(20)} == {"heard"}
    assert (plain.granted(9), plain.job_runs_seconds("a", 1)) == (9, math.inf)


def test_a_node_has_the_same_fate_whatever_is_drawn_besides() -> None:
    """Another seed or another node has another."""
    spot = Spot(mean_interruption_hours=5.0)
    first, second = draws(spot=spot), draws(spot=spot)
    second.of_node("other", MACHINE, "spot")
    fate = first.of_node("n", MACHINE, "spot")
    assert second.of_node("n", MACHINE, "spot") == fate
    assert first.of_node("other", MACHINE, "spot") != fate
    assert draws(seed=1, spot=spot).of_node("n", MACHINE, "spot") != fate


def test_only_spot_nodes_are_taken_back() -> None:
    """On average after the stated hours, and a part of them without notice."""
    world = draws(spot=Spot(mean_interruption_hours=5.0, unannounced_fraction=0.25))
    nodes = [world.of_node(f"n{number}", MACHINE, "spot") for number in range(2000)]
    assert mean(node.taken_back_seconds for node in nodes) == pytest.approx(5.0 * 3600.0, rel=0.1)
    assert mean(node.is_announced for node in nodes) == pytest.approx(0.75, abs=0.04)
    assert world.of_node("n", MACHINE, "on-demand").taken_back_seconds == math.inf


def test_nodes_fail_and_are_slow_as_often_as_stated() -> None:
    """A slow node has the stated speed; the mean life is that of the world."""
    world = draws(
        boot_failure_fraction=0.2, slow_node_fraction=0.3, slow_speed=0.6, mean_node_failure_hours=40.0
    )
    nodes = [world.of_node(f"n{number}", MACHINE, "on-demand") for number in range(2000)]
    assert mean(node.boots for node in nodes) == pytest.approx(0.8, abs=0.04)
    assert Counter(node.speed for node in nodes)[0.6] / 2000 == pytest.approx(0.3, abs=0.04)
    assert {node.speed for node in nodes} == {0.6, 1.0}
    assert mean(node.breaks_seconds for node in nodes) == pytest.approx(40.0 * 3600.0, rel=0.1)


def test_a_machine_boots_as_its_type_does_and_others_as_all_do() -> None:
    """The boot time of a type comes before that of the run."""
    world = draws(boots={"gpu-x4": Boot.constant(60.0)})
    assert world.of_node("n", MACHINE, "on-demand").boot_seconds == 60.0
    other = an_instance_type(gpu_type="other")
    assert world.of_node("n", other, "on-demand").boot_seconds == 180.0


def test_requests_are_lost_and_throttled_as_often_as_stated() -> None:
    """Half of the lost ones were carried out."""
    world = draws(lost_answer_fraction=0.2, throttled_fraction=0.3)
    found = Counter(world.of_request() for _ in range(4000))
    for outcome, fraction in (("lost", 0.1), ("lost-but-done", 0.1), ("throttled", 0.3), ("heard", 0.5)):
        assert found[outcome] / 4000 == pytest.approx(fraction, abs=0.03)  # type: ignore[index]


def test_a_short_grant_gives_some_nodes_and_not_all() -> None:
    """One node cannot be granted in part."""
    world = draws(short_grant_fraction=0.5)
    assert {world.granted(1) for _ in range(50)} == {1}
    found = Counter(world.granted(4) for _ in range(2000))
    assert set(found) == {1, 2, 3, 4}
    assert found[4] / 2000 == pytest.approx(0.5, abs=0.05)


def test_each_generation_of_a_job_fails_at_a_time_of_its_own() -> None:
    """On average after the stated hours."""
    world = draws(mean_job_failure_hours=3.0)
    assert world.job_runs_seconds("a", 1) == draws(mean_job_failure_hours=3.0).job_runs_seconds("a", 1)
    times = [world.job_runs_seconds("a", generation) for generation in range(2000)]
    assert len(set(times)) == 2000
    assert mean(times) == pytest.approx(3.0 * 3600.0, rel=0.1)
