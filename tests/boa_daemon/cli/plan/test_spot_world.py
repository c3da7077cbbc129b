"""A spot price history as a world: its price, its interruptions, and a plan and a simulation in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from boa_daemon.sim.world_settings import Spot

# p4d.24xlarge costs 21.957642 USD/h on demand in the shipped catalogue.
ON_DEMAND = 21.957642
PRICES = [
    ("2026-11-01T00:00", 0.25),
    ("2026-11-02T00:00", 0.5),
    ("2026-11-02T06:00", 1.0),
    ("2026-11-02T08:00", 0.25),
]
# 24 h at a quarter, 6 h at a half, 2 h at the whole; the last price holds the mean of these, 32/3 h.
MEAN = (24 * 0.25 + 6 * 0.5 + 2 * 1.0 + 32 / 3 * 0.25) / (32 + 32 / 3)
CLASSES = """
gpu_types: {a100: {instance_type: p4d.24xlarge}}
classes: [{name: c, arrivals_per_hour: 1.0, phases: [{size_gpu_hours: 8.0, speedup: {table: {8: 8.0}}}]}]
"""


def entry(at: str, part: float, *, zone: str = "us-east-1a", kind: str = "p4d.24xlarge") -> dict[str, str]:
    """Return an entry of a history."""
    return {
        "AvailabilityZone": zone,
        "InstanceType": kind,
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": f"{part * ON_DEMAND:.6f}",
        "Timestamp": f"{at}:00+00:00",
    }


def made(folder: Path, entries: Sequence[dict[str, str]], *flags: str) -> dict[str, Any]:
    """Import a history as a world; return the answer."""
    (folder / "h.json").write_text(json.dumps({"SpotPriceHistory": entries}))
    arguments = ["prices", "import", "--from", "spot-history", str(folder / "h.json"), "-o", "json"]
    arguments += ["--out", str(folder / "p.csv"), "--world", str(folder / "w.yaml"), *flags]
    done = CliRunner().invoke(app, arguments)
    if done.exception is not None:
        raise done.exception
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_plan_and_a_simulation_in_the_world_of_a_history(tmp_path: Path) -> None:
    """The plan pays the mean price over time, the simulation the price of the moment."""
    world = made(tmp_path, [entry(at, part) for at, part in reversed(PRICES)])["world"]
    assert (world["zone"], world["hours"], world["reached_on_demand"]) == ("us-east-1a", 32.0, 1)
    assert world["mean_price_fraction"] == pytest.approx(MEAN)
    assert world["mean_interruption_hours"] == 12.0
    steps = (tmp_path / "w-prices.csv").read_text().split()
    assert steps == ["at_seconds,price_fraction", "0,0.25", "86400,0.5", "108000,1", "115200,0.25"]
    (tmp_path / "c.yaml").write_text(CLASSES)
    # Jobs of one hour on a node each: a job in the first hour costs a quarter, one after 26 hours a half.
    (tmp_path / "t.csv").write_text("job_id,arrived_at_seconds,class_name\na,0,c\nb,93600,c\n")
    common = [
        "--classes",
        str(tmp_path / "c.yaml"),
        "--budget",
        "40/h",
        "--world",
        str(tmp_path / "w.yaml"),
        "-o",
        "json",
    ]
    calm = (tmp_path / "w.yaml").read_text().replace("hours: 12.0", "hours: 1.0e+6")
    (tmp_path / "w.yaml").write_text(calm + "on_demand: false\n")
    plan = json.loads(CliRunner().invoke(app, ["plan", *common]).stdout)
    assert plan["mean_spend"] == pytest.approx(MEAN * ON_DEMAND, rel=1e-4)
    trace = ["--trace", str(tmp_path / "t.csv"), "--boot-seconds", "0"]
    run = json.loads(CliRunner().invoke(app, ["simulate", *trace, *common]).stdout)
    assert run["spent_usd"] == pytest.approx((0.25 + 0.5) * ON_DEMAND, rel=0.02)


def test_prices_at_that_of_on_demand_are_interruptions(tmp_path: Path) -> None:
    """Twice in eight hours is once in four: more often than the default, so it holds."""
    parts = {0: 0.5, 1: 1.0, 2: 1.2, 3: 0.5, 5: 1.0, 8: 0.5}
    entries = [entry(f"2026-11-01T0{hour}:00", part) for hour, part in parts.items()]
    world = made(tmp_path, entries)["world"]
    assert (world["reached_on_demand"], world["mean_interruption_hours"]) == (2, 4.0)
    assert "as often as the price came to that on demand" in world["notes"][1]


def test_the_cheapest_zone_is_taken_and_another_can_be(tmp_path: Path) -> None:
    """By its mean over time."""
    entries = [entry(at, part) for at, part in PRICES]
    entries += [
        entry("2026-11-01T00:00", 0.3, zone="us-east-1b"),
        entry("2026-11-03T00:00", 0.31, zone="us-east-1b"),
    ]
    assert made(tmp_path, entries)["world"]["zone"] == "us-east-1b"
    assert made(tmp_path, entries, "--zone", "us-east-1a")["world"]["hours"] == 32.0


@pytest.mark.parametrize(
    ("more", "flags", "said"),
    [
        (
            [entry("2026-11-01T00:00", 0.3, kind="p5.48xlarge")],
            [],
            "Add --instance-type: p4d.24xlarge, p5.48xlarge",
        ),
        ([entry("2026-11-01T00:00", 0.3, zone="us-west-2a")], [], "Add --region, or --zone"),
        ([], ["--zone", "us-east-1z"], "no spot price of p4d.24xlarge in us-east-1z. It has us-east-1a"),
        ([], ["--instance-type", "p4d.24xlarg"], "p4d.24xlarge"),
        ([], ["--world", "w.json"], "the world is YAML. Write w.yaml"),
    ],
)
def test_what_is_not_one_price_is_refused(
    more: list[dict[str, str]], flags: list[str], said: str, tmp_path: Path
) -> None:
    """A world has one price over time."""
    with pytest.raises(InputError) as refused:
        made(tmp_path, [*(entry(at, part) for at, part in PRICES), *more], *flags)
    assert said in str(refused.value)
    assert not (tmp_path / "w.yaml").exists()


def test_a_mean_is_over_time() -> None:
    """Nine rows of one hour and one of ten are not ten of one length; the same prices in even steps are."""
    uneven = Spot(prices=((0.0, 0.2), (36000.0, 0.8), (39600.0, 0.2)))
    even = Spot(prices=tuple((3600.0 * hour, 0.8 if hour == 10 else 0.2) for hour in range(11)))
    # 10 h at 0.2, 1 h at 0.8, and the mean step of 5.5 h at 0.2.
    assert uneven.mean_listed_fraction == pytest.approx((10 * 0.2 + 0.8 + 5.5 * 0.2) / 16.5)
    assert even.mean_listed_fraction == pytest.approx((10 * 0.2 + 0.8) / 11)
    assert Spot(prices=((0.0, 0.4),)).mean_listed_fraction == 0.4
