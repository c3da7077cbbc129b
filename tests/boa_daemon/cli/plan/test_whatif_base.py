"""The base of a comparison: a stream, a list or a trace, with what is assumed of it in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boa_daemon.cli.plan.whatif_base import WhatIfFlags, of_plan, of_trace
from boa_daemon.errors import InputError, MissingPrice

CLASSES = """
gpu_types: {gpu: {usd_per_gpu_hour: 2.0}}
classes: [{name: c, arrivals_per_hour: 1.0, phases: [{size_gpu_hours: 1.0, speedup: {table: {1: 1}}}]}]
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a site."""
    monkeypatch.chdir(tmp_path)
    Path("classes.yaml").write_text(CLASSES)
    Path("free.yaml").write_text(CLASSES.replace("gpu_types: {gpu: {usd_per_gpu_hour: 2.0}}\n", ""))
    Path("jobs.csv").write_text("job_id,class_name\na,c\n")
    Path("trace.csv").write_text("job_id,arrived_at_seconds,class_name\na,0,c\n")
    Path("world.yaml").write_text("spot: {price_fraction: 0.5, mean_interruption_hours: 9}\n")


def flags(**changes: Any) -> WhatIfFlags:
    """Return the flags of a command."""
    words: dict[str, Any] = {
        "classes": Path("classes.yaml"),
        "budget": "4/h",
        "quota": [],
        "boot_seconds": 60.0,
    }
    return WhatIfFlags(**({"world": None} | words | changes))


@pytest.mark.parametrize(
    ("jobs", "changes", "error", "said"),
    [
        (None, {"classes": None}, InputError, "nothing to compare: --classes is missing"),
        (None, {"budget": None}, InputError, "nothing to compare: --budget is missing"),
        (None, {"quota": ["gpu=2"]}, InputError, "a quota is for a list or a trace"),
        (None, {"classes": Path("free.yaml")}, MissingPrice, "compares dollars"),
        (Path("jobs.csv"), {"quota": ["gpux=2"]}, InputError, "unknown type 'gpux'"),
    ],
)
def test_a_plan_needs_classes_a_budget_and_prices(
    jobs: Path | None, changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    """The error says what is missing."""
    with pytest.raises(error, match=said):
        of_plan(jobs, None, flags(**changes))


def test_a_list_has_quotas_and_boots_and_a_stream_has_neither() -> None:
    """Spot is that of the world, or the default's."""
    stream, listed = of_plan(None, None, flags()), of_plan(Path("jobs.csv"), None, flags(quota=["gpu=2"]))
    assert (stream.base.kind, listed.base.kind) == ("stream", "list")
    assert listed.base.scenario.quota == {"gpu": 2}
    assert (listed.assumed["list"], listed.assumed["boot"]) == ("jobs.csv", "60 seconds")
    assert "boot" not in stream.assumed
    assert stream.assumed["the base's budget"] == "4/h"
    assert stream.base.spot.price_fraction == 0.3
    assert of_plan(None, None, flags(world=Path("world.yaml"))).base.spot.price_fraction == 0.5
    assert stream.more([]) == {}


def test_a_trace_is_simulated_with_its_boots() -> None:
    """What spot would be is said although the base does without."""
    with pytest.raises(InputError, match="no budget"):
        of_trace(Path("trace.csv"), flags(budget=None))
    found = of_trace(Path("trace.csv"), flags(classes=None, quota=["gpu=3"]))
    assert (found.name, found.base.kind, found.base.scenario.quota) == ("trace.csv", "trace", {"gpu": 3})
    assert found.base.scenario.spot is None
    assert found.assumed["boot"] == "60 seconds, waited for and paid"
    assert found.assumed["price of gpu"] == "$2.00 per hour, 1 x gpu"
    assert found.assumed["classes"] == "classes.yaml"
    assert "30% of the price on demand" in found.assumed["spot, where asked for"]
    spot = of_trace(Path("trace.csv"), flags(world=Path("world.yaml")))
    assert spot.base.scenario.spot is not None
    assert "taken back after 9 hours on average" in spot.assumed["spot, where asked for"]
