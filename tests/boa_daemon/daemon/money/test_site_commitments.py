"""Commitments and capacity blocks: their cost is fixed, and nodes that they cover cost nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.money.costs import FIXED_ROW, with_fixed_costs
from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock, a_node, a_state
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.limits import Caps, FixedCost
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.cap_projection import CapProjection
from boa_daemon.tick.money.commitments import CommitmentLevel, SiteCommitments
from boa_daemon.tick.money.ledger import bill, money_of
from policies.model import Budget, GpuType, InstanceType, JobClass, Phase, Problem
from policies.online.pacing import Pace
from policies.site import Site
from policies.speedup import Table

HOUR, NOON = 3600.0, 1_800_014_400.0
SMALL = InstanceType(name="g5.xlarge", gpu_type="a10g", gpus=1, usd_per_hour=1.0)
OTHER = InstanceType(name="g6.xlarge", gpu_type="l4", gpus=1, usd_per_hour=0.8)
PLAN = """
as_of = 2027-01-01
source = "a test"
[[commitments]]
name = "ours"
kind = "compute"
discounts = {g5 = 0.2}
usd_per_hour = 1.2
"""
BLOCK = """
[[blocks]]
name = "now"
instance_type = "g5.xlarge"
instances = 2
begins = 2027-01-15T00:00:00Z
ends = 2027-01-16T00:00:00Z
usd = 24.0
"""


def a_plan(usd: float = 1.2, *, ends_at: float | None = None) -> SiteCommitments:
    """Return a commitment with 20 % off g5: 1.2 USD/h pay for one and a half nodes."""
    cost = FixedCost(name="ours", usd_per_hour=usd, ends_at=ends_at)
    return SiteCommitments(levels=(CommitmentLevel(cost=cost, rates={"g5.xlarge": 0.8}),), machines=(SMALL,))


def nodes_of(*names: str, **changes: Any) -> list[NodeState]:
    """Return nodes that are launched one second apart."""
    return [
        replace(a_node(name, kind=SMALL), launched_at=NOON + number, **changes)
        for number, name in enumerate(names)
    ]


def test_a_commitment_covers_nodes_in_launch_order_the_last_one_partly() -> None:
    """1.2 USD/h at 0.8 per node: the first node is free, the second costs half, the third its full price."""
    found = a_plan().priced(nodes_of("a", "b", "c"), {}, NOON + 2.0)

    assert [node.usd_per_hour for node in found.values()] == pytest.approx([0.0, 0.5, 1.0])


def test_coverage_passes_to_later_nodes_and_changes_no_past_cost() -> None:
    """When the first node ends after an hour, the next ones are covered; bills sum both parts."""
    first, later = nodes_of("a", "b", "c"), NOON + HOUR
    before = a_plan().priced(first, {}, NOON + 2.0)
    ended = [replace(first[0], ended_at=later, phase="terminated", idle_since=None), *first[1:]]
    after = a_plan().priced(ended, before, later)

    assert [after[name].usd_per_hour for name in "abc"] == pytest.approx([0.0, 0.0, 0.5])
    assert bill(after["a"], until=later) == 0
    whole = (bill(after["b"], until=later + HOUR), bill(after["c"], until=later + HOUR))
    assert list(whole) == pytest.approx([0.5e6, 1.5e6], rel=1e-3)
    assert a_plan().priced(ended, after, later + 60.0) == after, "nothing is new: nothing is written"


def test_spot_stopped_and_reserved_nodes_and_the_last_hour_are_not_covered() -> None:
    (node,) = nodes_of("a")
    for other in (
        replace(node, market="spot"),
        replace(node, market="reserved"),
        replace(node, phase="stopped"),
    ):
        assert a_plan().priced([other], {}, NOON)["a"].usd_per_hour == other.usd_per_hour
    assert a_plan(ends_at=NOON + HOUR - 1.0).priced([node], {}, NOON)["a"].usd_per_hour == 1.0
    assert a_plan(ends_at=NOON + HOUR).priced([node], {}, NOON)["a"].usd_per_hour == 0.0


def a_site(machine: InstanceType = SMALL, budget: float = 10.0) -> Site:
    """Return a site with one class of jobs."""
    curve = Table(gpus=(1, 2, 4), speeds=(1.0, 1.8, 3.0))
    phase = Phase(size_gpu_hours=1.0, speedups={machine.gpu_type: curve})
    return Site(
        problem=Problem(
            classes=(JobClass(name="c", phases=(phase,), arrivals_per_hour=4.0),),
            gpu_types=(GpuType(name=machine.gpu_type, usd_per_gpu_hour=machine.usd_per_hour),),
        ),
        budget=Budget(amount=budget),
        instance_types={machine.gpu_type: machine},
    )


def test_the_plan_has_the_budget_left_plus_the_covered_usage() -> None:
    """A budget of 10 USD/h minus 4 of fixed cost, plus 5 of usage that the fixed cost covers, is 11."""
    site = a_plan(4.0).under(a_site(), NOON)
    assert (site.budget.amount, site.covered_per_hour) == pytest.approx((11.0, 1.0))
    assert site.free == ((frozenset({"a10g"}), pytest.approx(5.0)),)

    thin = a_plan(4.0).under(a_site(budget=3.0), NOON)
    assert (thin.budget.amount, thin.free) == (pytest.approx(5.0), site.free), "what is paid is used"
    elsewhere = replace(a_plan(4.0), machines=(OTHER,)).under(a_site(OTHER), NOON)
    assert (elsewhere.budget.amount, elsewhere.free) == (pytest.approx(6.0), ())
    assert a_plan(4.0, ends_at=NOON).under(a_site(), NOON) == a_site()


def test_the_credit_of_the_pace_counts_dollars_paid() -> None:
    """After ten hours: 100 USD accrued, 40 fixed and 12 for nodes leave a credit of 48."""
    site, plan = a_plan(4.0).under(a_site(), NOON), a_plan(4.0)
    pace = Pace(budget=site.budget.amount, window_hours=100.0, covered_per_hour=site.covered_per_hour)
    state = a_state(now=NOON + 10.0 * HOUR, settled_micro_dollars=12_000_000, books_opened_at=NOON)
    money = money_of(state, pace, plan.fixed)

    assert money is not None
    assert pace.budget * money.elapsed_hours - money.spent == pytest.approx(10.0 * 10.0 - 40.0 - 12.0)


def test_fixed_costs_use_up_part_of_every_cap() -> None:
    """A commitment of 2 USD/h leaves 2 of the daily 50 USD and takes 2 of the hourly 3."""
    state = a_state(now=NOON)
    rooms = []
    for fixed in ((), (FixedCost(name="f", usd_per_hour=2.0, begins_at=NOON - 86_400.0),)):
        storage = CapProjection(state, Caps(usd_per_day=50.0, usd_per_hour=3.0, fixed=fixed))
        of_day = storage.numbers("cap-day")
        left = of_day["cap_usd"] - of_day.get("set_aside_usd", 0.0)
        rooms.append((of_day["cap_usd"], left, storage.numbers("cap-hour")["usd_per_hour"]))
    assert rooms == [(50.0, 50.0, 0.0), (50.0, 2.0, 2.0)]


def test_fixed_costs_appear_in_every_breakdown() -> None:
    """Fixed costs are a row of their own, or a part of each day."""
    fixed, begin = a_plan(1.0).fixed, NOON - NOON % 86_400.0
    (row,) = with_fixed_costs([], fixed, by="job", since=begin, now=begin + 36.0 * HOUR)
    assert (row["name"], row["usd"]) == (FIXED_ROW, pytest.approx(36.0))
    days = with_fixed_costs([], fixed, by="day", since=begin, now=begin + 36.0 * HOUR)
    assert [row["usd"] for row in days] == pytest.approx([24.0, 12.0])
    assert with_fixed_costs([], fixed, by="kind", since=begin, now=begin + HOUR) == [
        {"name": FIXED_ROW, "usd": pytest.approx(1.0)}
    ]
    assert with_fixed_costs([], (), by="job", since=begin, now=begin + HOUR) == []


def settings_with(folder: Path, key: str, text: str) -> Mapping[str, Mapping[str, Any]]:
    """Return settings with a file of commitments or of blocks."""
    (folder / f"{key}.toml").write_text(text)
    return {
        "budget": {"usd_per_hour": 4.0, "usd_per_day_cap": 100.0},
        "cloud": {"instance_types": ["g5.xlarge"], "boot_seconds": 0.0, key: str(folder / f"{key}.toml")},
    }


def test_a_daemon_bills_covered_nodes_at_zero_and_the_commitment_for_all_hours(tmp_path: Path) -> None:
    """A job runs for an hour on one covered node, and only the commitment costs money."""
    clock = ManualClock(NOON)
    play = DaemonInAFolder(tmp_path, clock, settings_with(tmp_path, "commitments", PLAN))
    play.service.submit([job_content("a", hours=1.0)], user="ann")
    for _ in range(70):
        play.daemon.tick()
        assert not play.daemon.standing.fault
        clock.instant += 60.0
    rows = {row["name"]: row["usd"] for row in play.service.cost(since=NOON)["rows"]}
    play.close()

    assert rows.pop(FIXED_ROW) == pytest.approx(1.2 * 70.0 / 60.0)
    assert set(rows.values()) <= {0.0}


def test_an_elastic_job_prefers_committed_instances(tmp_path: Path) -> None:
    """With the commitment the job runs on eight g5 nodes, without it on no g5 node."""
    (tmp_path / "classes.yaml").write_text(
        "gpu_types: {a10g: {instance_type: g5.xlarge}, l4: {instance_type: g6.xlarge}}\n"
        "classes: [{name: default, arrivals_per_hour: 0.5, phases: [{size_gpu_hours: 20.0, speedup: {"
        "a10g: {amdahl: {parallel_fraction: 0.98, max_gpus: 8}},"
        " l4: {amdahl: {parallel_fraction: 0.98, max_gpus: 8}}}}]}]\n"
    )

    def held(name: str, more: dict[str, str]) -> dict[str, int]:
        folder = tmp_path / name
        folder.mkdir()
        settings = {
            "budget": {"usd_per_hour": 10.0, "usd_per_day_cap": 500.0},
            "cloud": {"instance_types": ["g5.xlarge", "g6.xlarge"], "market": "planned"} | more,
            "workload": {"classes": str(tmp_path / "classes.yaml")},
        }
        planner = Planner(Settings.model_validate(settings))
        site = planner.paid.under(planner.record([]).site, NOON)
        assert "a10g@spot" in site.instance_types
        assert [kinds for kinds, _ in site.free] == [frozenset({"a10g"})] * len(more)
        clock = ManualClock(NOON)
        play = DaemonInAFolder(folder, clock, settings)
        play.service.submit(
            [job_content("a", hours=20.0, min_gpus=None, max_gpus=None, elastic=True)], user="ann"
        )
        for _ in range(5):
            play.daemon.tick()
            assert not play.daemon.standing.fault
            clock.instant += 60.0
        (row,) = play.service.jobs()["jobs"]
        play.close()
        return {row["gpu_type"]: row["gpus"]}

    (tmp_path / "held.toml").write_text(PLAN.replace("1.2", "4.8288"))

    assert held("with", {"commitments": str(tmp_path / "held.toml")}) == {"a10g": 8}
    assert "a10g" not in held("without", {})


def test_the_fee_of_a_block_is_spread_over_its_hours(tmp_path: Path) -> None:
    """24 USD for a day are 1 USD/h, and the plan has two free instances."""
    planner = Planner(
        DaemonInAFolder(tmp_path, ManualClock(NOON), settings_with(tmp_path, "blocks", BLOCK)).settings
    )
    (cost,) = planner.paid.fixed
    site = planner.paid.under(planner.record([]).site, NOON)

    assert cost.usd_per_hour == pytest.approx(1.0)
    assert cost.usd_between(NOON - 7 * 86_400.0, NOON + 7 * 86_400.0) == pytest.approx(24.0)
    assert site.free == ((frozenset({"a10g"}), pytest.approx(2.0 * planner.on_demand["a10g"].usd_per_hour)),)
    (node,) = nodes_of("a")
    assert planner.paid.priced([node], {}, NOON)["a"].usd_per_hour == 1.0, "it is not in the block"


def test_an_invalid_commitment_file_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"commitments.toml:7: .*unknown family 'g55'"):
        DaemonInAFolder(
            tmp_path, ManualClock(NOON), settings_with(tmp_path, "commitments", PLAN.replace("g5 ", "g55 "))
        )


def test_a_best_effort_budget_is_stated_in_dollars_paid(tmp_path: Path) -> None:
    """With a budget far below the load, the plan has no free usage and budgets the 1.3 USD/h as set."""
    settings = dict(settings_with(tmp_path, "commitments", PLAN)) | {"budget": {"usd_per_hour": 1.3}}
    (tmp_path / "classes.yaml").write_text(
        "gpu_types: {a10g: {instance_type: g5.xlarge}}\n"
        "classes: [{name: default, arrivals_per_hour: 50.0, phases: [{size_gpu_hours: 1.0,"
        " speedup: {a10g: {table: {1: 1.0}}}}]}]\n"
    )
    play = DaemonInAFolder(
        tmp_path, ManualClock(NOON), settings | {"workload": {"classes": str(tmp_path / "classes.yaml")}}
    )
    play.daemon.tick()
    assert not play.daemon.standing.fault
    record = play.daemon._record(play.storage)
    play.close()

    assert record.best_effort is not None
    assert (record.best_effort.budget, record.site.budget.amount) == (1.3, 1.3)
    assert record.site.free == ()
