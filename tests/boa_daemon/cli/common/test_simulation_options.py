"""The world of a simulation is that of the file, with the changes of the flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boa_daemon.cli.common.simulation_options import settings_in_world
from boa_daemon.errors import InputError
from boa_daemon.sim.wiring import SimulationSettings
from policies.model import Budget

CLASSES = """
gpu_types: {gpu: {usd_per_gpu_hour: 2.0}}
classes: [{name: c, phases: [{size_gpu_hours: 1.0, speedup: {table: {1: 1}}}]}]
"""


def read(
    folder: Path, *, world: str = "", trace: str = "a,0,c\n", unit: Any = "usd_per_hour", **flags: Any
) -> SimulationSettings:
    """Return the settings of a trace beside its classes."""
    (folder / "classes.yaml").write_text(CLASSES)
    (folder / "trace.csv").write_text(f"job_id,arrived_at_seconds,class_name\n{trace}")
    (folder / "world.yaml").write_text(world)
    words: dict[str, Any] = {"spot": False, "boot": None, "world": folder / "world.yaml" if world else None}
    budget = Budget(amount=4.0, unit=unit)
    return settings_in_world(folder / "trace.csv", None, budget, **(words | flags))


SPOT = "spot: {price_fraction: 0.5, mean_interruption_hours: 9}\n"


def test_without_flags_the_world_is_that_of_the_file_or_a_plain_one(tmp_path: Path) -> None:
    """The classes are those beside the trace."""
    plain = read(tmp_path)
    assert [one.name for one in plain.problem.classes] == ["c"]
    assert (plain.world.spot, plain.world.boots) == (None, {})
    spot = read(tmp_path, world=SPOT).world.spot
    assert spot is not None
    assert (spot.price_fraction, spot.mean_interruption_hours) == (0.5, 9.0)


def test_a_flag_adds_a_spot_market_and_replaces_no_stated_one(tmp_path: Path) -> None:
    """Boot times of a flag replace those of the world."""
    added = read(tmp_path, spot=True).world.spot
    stated = read(tmp_path, world=SPOT, spot=True).world.spot
    assert added is not None
    assert stated is not None
    assert (added.price_fraction, stated.price_fraction) == (0.3, 0.5)
    assert read(tmp_path, boot="constant:60").world.boots


def test_a_plan_on_both_markets_needs_both(tmp_path: Path) -> None:
    """A spot market, and a budget in dollars."""
    both = read(tmp_path, world=SPOT, plan_spot=True)
    assert {machine.kind.is_spot for machine in both.instance_types.values()} == {True, False}
    assert {machine.kind.is_spot for machine in read(tmp_path, world=SPOT).instance_types.values()} == {False}
    for flags in ({}, {"spot": True, "unit": "gpus"}):
        with pytest.raises(InputError, match="--plan-spot needs a spot market and a budget in dollars"):
            read(tmp_path, plan_spot=True, **flags)


def test_a_class_that_the_file_lacks_is_refused(tmp_path: Path) -> None:
    """The error names it."""
    with pytest.raises(InputError, match="'d'"):
        read(tmp_path, trace="a,0,d\n")
