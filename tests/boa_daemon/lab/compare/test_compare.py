"""Comparisons of policies: equal spend, paired ratios, kept runs and reproducibility."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.cli.plan.demo import shipped_settings
from boa_daemon.errors import InputError
from boa_daemon.lab.compare import tune
from boa_daemon.lab.compare.cells import CellResult, Comparison, reordered, with_knob
from boa_daemon.lab.compare.comparison_page import about, decomposition_text, knob_text, table_cells
from boa_daemon.lab.compare.comparison_summary import (
    best_rival,
    decompose,
    floor_of,
    lines_of,
    ratio_of,
    with_ratios,
)
from boa_daemon.lab.compare.run_cells import run_all, whole_part
from boa_daemon.lab.compare.timeline import record
from boa_daemon.lab.compare.tune import TOLERANCE, KnobTrial, _bracket, equal_spend_hours
from boa_daemon.sim.wiring import SimulationSettings, simulate
from boa_daemon.tasks.tasks import AnswerCache, Tasks
from boa_daemon.testing import a_class, a_problem, a_trace, an_instance_type
from policies.errors import InfeasibleBudget, UnknownPolicy
from policies.model import Budget
from policies.registry import POLICIES
from policies.speedup import Amdahl

RIVALS = ("equal-width", "efficiency", "greedy-marginal", "static-fifo", "static-srsf", "static-equal")


def some_settings() -> SimulationSettings:
    """Return twenty jobs of two classes, one every ten minutes, on nodes of four GPUs."""
    names = ["wide", "narrow"] * 10
    return SimulationSettings(
        trace=a_trace(*(600.0 * n for n in range(20)), class_names=names),
        problem=a_problem(
            a_class("wide", curve=Amdahl(parallel_fraction=0.98, max_gpus=16), arrivals_per_hour=3.0),
            a_class("narrow", curve=Amdahl(parallel_fraction=0.6, max_gpus=4), arrivals_per_hour=3.0),
        ),
        instance_types={"gpu": an_instance_type()},
        budget=Budget(amount=20.0),
    )


def a_comparison(**changes: Any) -> Comparison:
    """Return a comparison at one budget."""
    values: dict[str, Any] = {
        "shared": some_settings(),
        "budgets": (Budget(amount=20.0),),
        "rivals": ("equal-width", "greedy-marginal"),
    }
    return Comparison(**(values | changes))


def run(comparison: Comparison, folder: Path | None = None) -> list[CellResult]:
    """Run all cells in this process."""
    return run_all(comparison, Tasks(kept=AnswerCache(folder)))


@pytest.fixture(scope="module")
def all_rows() -> tuple[Comparison, list[CellResult]]:
    """Run every rival at one budget with two seeds."""
    comparison = a_comparison(rivals=RIVALS, seeds=2)
    return comparison, run(comparison)


@pytest.mark.exhaustive
def test_every_cell_has_a_row_with_references_before_rivals(
    all_rows: tuple[Comparison, list[CellResult]],
) -> None:
    """Rivals follow seed by seed."""
    comparison, rows = all_rows

    expected = [("boa", 0), ("boa", 1), *((rival, seed) for seed in (0, 1) for rival in RIVALS)]
    assert [(row.policy, row.seed) for row in rows] == expected
    assert len(rows) == comparison.cells


def test_a_partly_done_comparison_reports_its_complete_seeds(
    all_rows: tuple[Comparison, list[CellResult]],
) -> None:
    """A complete seed has the reference and every rival; the whole comparison reports itself."""
    comparison, rows = all_rows
    told = 0
    for done in range(len(rows) + 1):
        part = whole_part(comparison, rows[:done])
        if part is None:
            continue
        told += 1
        kept = {(row.budget, row.seed) for row in part[1]}
        assert len(part[1]) == len(kept) * (1 + len(comparison.rivals))
        assert {line.seeds for line in lines_of(*part)} <= set(range(1, comparison.seeds + 1))
    assert told > 1
    assert whole_part(comparison, rows) == (comparison, rows)


def test_a_row_says_whether_it_is_at_equal_spend(all_rows: tuple[Comparison, list[CellResult]]) -> None:
    """Equal means within 1 % of the spend of the reference with the same seed."""
    _, rows = all_rows
    spent = {row.seed: row.mean_usd_per_hour for row in rows if row.policy == "boa"}

    for row in rows:
        assert row.target_usd_per_hour == spent[row.seed]
        off = abs(row.mean_usd_per_hour / spent[row.seed] - 1.0)
        assert row.at_equal_spend == (off <= TOLERANCE)


def test_no_row_beats_the_lower_bound(all_rows: tuple[Comparison, list[CellResult]]) -> None:
    """The bound is computed for the spend of the row."""
    for row in all_rows[1]:
        assert row.mean_jct_hours >= row.lower_bound_mean_jct_hours


def test_a_row_can_be_run_again_from_its_knob(all_rows: tuple[Comparison, list[CellResult]]) -> None:
    """The settings of the row give the same run to the bit."""
    comparison, rows = all_rows
    for row in rows:
        again = simulate(comparison.settings_of_row(row))
        assert (again.mean_jct_hours, again.mean_usd_per_hour) == (row.mean_jct_hours, row.mean_usd_per_hour)


@pytest.mark.exhaustive
def test_rivals_spend_within_three_per_cent_of_the_reference() -> None:
    """Each row says whether it is within 1 %.

    Its mean JCT at equal spend is interpolated between two settings.
    """
    settings = shipped_settings("30/h")
    comparison = a_comparison(
        shared=settings, budgets=(settings.budget,), rivals=("greedy-marginal", "equal-width")
    )
    boa, *rivals = run(comparison)

    for rival in rivals:
        off = abs(rival.mean_usd_per_hour / boa.mean_usd_per_hour - 1.0)
        assert off < 0.03
        assert rival.at_equal_spend == (off <= TOLERANCE)
        assert rival.equal_spend_mean_jct_hours is not None
    assert any(rival.at_equal_spend for rival in rivals)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the policies of the runs that begin."""
    begun: list[str] = []
    real = tune.prepare
    monkeypatch.setattr(tune, "prepare", lambda settings: begun.append(settings.policy) or real(settings))
    return begun


def test_only_new_and_changed_runs_are_done_again(tmp_path: Path, ran: list[str]) -> None:
    """A repeated comparison runs nothing; another boot time changes every run."""
    first = run(a_comparison(rivals=("equal-width",)), tmp_path)
    assert set(ran) == {"boa", "equal-width"}
    ran.clear()

    assert run(a_comparison(rivals=("equal-width",)), tmp_path) == first
    assert ran == []
    run(a_comparison(rivals=("equal-width", "efficiency")), tmp_path)
    assert set(ran) == {"efficiency"}
    run(a_comparison(rivals=("equal-width",), shared=replace(some_settings(), boot_seconds=60.0)), tmp_path)
    assert set(ran) == {"boa", "equal-width", "efficiency"}


def test_another_seed_is_another_order_of_the_same_jobs() -> None:
    """The instants of arrival stay; seed 0 is the trace itself."""
    trace = some_settings().trace
    other = reordered(trace, 3)

    assert reordered(trace, 0) is trace
    assert other != trace
    assert other == reordered(trace, 3)
    assert [job.arrived_at_seconds for job in other.jobs] == [job.arrived_at_seconds for job in trace.jobs]
    assert sorted((j.id, j.class_name) for j in other.jobs) == sorted(
        (j.id, j.class_name) for j in trace.jobs
    )


def test_the_interval_of_a_ratio_is_students_t_on_logarithms() -> None:
    """For two pairs, t with one degree of freedom at 97.5 % is tan(0.475 pi)."""
    ratio = ratio_of([1.0, 4.0])

    half = math.tan(0.475 * math.pi) * math.log(4.0) / 2.0
    assert ratio.mean == pytest.approx(2.0)
    assert ratio.low == pytest.approx(2.0 * math.exp(-half))
    assert ratio.high == pytest.approx(2.0 * math.exp(half))
    assert ratio_of([1.5]).low is None


def test_ratios_are_paired_by_seed(all_rows: tuple[Comparison, list[CellResult]]) -> None:
    """Each row is divided by the reference with its seed; the summary is the geometric mean."""
    comparison, rows = all_rows
    boa = {row.seed: row.mean_jct_hours for row in rows if row.policy == "boa"}

    for document in with_ratios(rows):
        assert document["ratio"] == document["mean_jct_hours"] / boa[document["seed"]]
    line = next(line for line in lines_of(comparison, rows) if line.policy == "static-fifo")
    pair = [row.mean_jct_hours / boa[row.seed] for row in rows if row.policy == "static-fifo"]
    assert line.ratio.mean == pytest.approx(math.sqrt(pair[0] * pair[1]))
    assert line.ratio.low is not None
    assert line.ratio.low <= line.ratio.mean


def a_trial(spend: float, hours: float) -> KnobTrial:
    """Return a run with some spend and mean JCT."""
    result = simulate(replace(some_settings(), policy="equal-width"))
    return KnobTrial(knob={}, result=replace(result, mean_usd_per_hour=spend, mean_jct_hours=hours))


def test_mean_jct_at_equal_spend_is_interpolated_between_two_settings() -> None:
    """A spend half way between them has the mean JCT half way."""
    trials = [a_trial(8.0, 4.0), a_trial(12.0, 2.0)]

    assert equal_spend_hours(trials, 10.0) == pytest.approx(3.0)
    assert equal_spend_hours([*trials, a_trial(9.0, 1.0)], 10.0) == 1.0
    assert equal_spend_hours(trials[1:], 10.0) is None


def test_the_floor_is_below_every_row_of_seed_0_and_falls_with_spend(
    all_rows: tuple[Comparison, list[CellResult]],
) -> None:
    """The floor is computed for the trace of seed 0."""
    comparison, rows = all_rows
    floor = floor_of(comparison, rows)

    for row in (row for row in rows if row.seed == 0):
        assert np.interp(row.mean_usd_per_hour, floor.spends, floor.bound_hours) <= row.mean_jct_hours + 1e-9
    finite = floor.bound_hours[np.isfinite(floor.bound_hours)]
    assert (np.diff(finite) <= 1e-12).all()


def test_the_best_rival_has_the_lowest_mean_jct_at_equal_spend(
    all_rows: tuple[Comparison, list[CellResult]],
) -> None:
    """Without rivals there is none."""
    comparison, rows = all_rows
    lines = lines_of(comparison, rows)
    best = best_rival(lines, 20.0)

    assert best is not None
    paid = [line.ratio_at_equal_spend.mean for line in lines[1:] if line.ratio_at_equal_spend]
    assert best.ratio_at_equal_spend is not None
    assert best.ratio_at_equal_spend.mean == min(paid)
    assert best_rival(lines[:1], 20.0) is None


def test_a_timeline_adds_up_to_the_run() -> None:
    """Money sums to the bill, rented GPUs to GPU-hours, and used GPUs to work and overheads."""
    settings = replace(some_settings(), policy="static-equal")
    result, run = simulate(settings), record(settings)
    step = 2.0 * float(run.hours[0])

    assert run.usd_per_hour.sum() * step == pytest.approx(result.spent_usd, rel=1e-3)
    assert run.gpus_rented.sum() * step == pytest.approx(result.gpu_hours_rented, rel=1e-3)
    assert run.gpus_used.sum() * step == pytest.approx(
        result.gpu_hours_used + result.gpu_hours_overhead, rel=1e-3
    )
    assert run.jct_hours.mean() == pytest.approx(result.mean_jct_hours)
    assert (run.queue >= 0.0).all()


def test_cells_show_settings_and_the_deviation_from_equal_spend(
    all_rows: tuple[Comparison, list[CellResult]],
) -> None:
    """A percentage is shown only where the spend is not equal."""
    comparison, rows = all_rows
    lines = {line.policy: line for line in lines_of(comparison, rows)}

    assert knob_text(lines["boa"], "usd_per_hour").endswith("/h")
    assert " nodes" in knob_text(lines["static-equal"], "usd_per_hour")
    assert knob_text(lines["efficiency"], "gpus").startswith("at least ")
    for line in lines.values():
        assert ("%" in table_cells(line, "usd_per_hour")[4]) != line.at_equal_spend
    assert "95 % intervals" in about(comparison)


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"nodes": (1.0, 1.0)}, "1 node"),
        ({"nodes": (1.0, 2.0)}, "1-2 nodes"),
        ({"nodes": (2.0, 2.0)}, "2 nodes"),
        ({"gpus_per_job": (1.0, 1.0), "share": (0.25, 0.25)}, "1 GPU/job, +25%"),
        ({"gpus_per_job": (1.0, 1.0), "nodes": (3.0, 3.0)}, "1 GPU/job, 3 nodes"),
    ],
)
def test_a_setting_of_one_is_said_in_the_singular(
    all_rows: tuple[Comparison, list[CellResult]], knobs: dict[str, tuple[float, float]], said: str
) -> None:
    """A range, and any other number, is plural."""
    line = lines_of(*all_rows)[0]
    assert knob_text(replace(line, knobs=knobs), "usd_per_hour") == said


@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        ({"budgets": (Budget(amount=20.0), Budget(amount=8.0, unit="gpus"))}, InputError, "one unit"),
        ({"budgets": (Budget(amount=20.0), Budget(amount=20.0))}, InputError, "twice"),
        ({"budgets": (Budget(amount=20.0), Budget(amount=0.1))}, InfeasibleBudget, "too small"),
        ({"rivals": ("equal-wdith",)}, UnknownPolicy, "Did you mean"),
    ],
)
def test_wrong_budgets_and_policies_are_refused(
    changes: dict[str, Any], kind: type[Exception], says: str
) -> None:
    """`check` raises the error."""
    with pytest.raises(kind, match=says):
        a_comparison(**changes).check()


def test_a_knob_becomes_settings() -> None:
    """A planning budget is set on the run, and every other value is an option of the policy."""
    settings = with_knob(some_settings(), {"planning_budget": 7.0, "nodes": 3})

    assert settings.planning_budget == Budget(amount=7.0)
    assert settings.options.nodes == 3


def test_equal_width_and_efficiency_meet_the_spend_by_splitting_jobs(
    all_rows: tuple[Comparison, list[CellResult]],
) -> None:
    """A share of the jobs gets the next setting, so the spend is within 1.5 %."""
    for row in all_rows[1]:
        if row.policy in {"equal-width", "efficiency"}:
            assert abs(row.mean_usd_per_hour / row.target_usd_per_hour - 1.0) <= 0.015
            assert "share" in row.knob


def test_the_gain_over_a_fleet_is_elasticity_times_optimisation(
    all_rows: tuple[Comparison, list[CellResult]],
) -> None:
    """Elasticity compares the best fleet with the best rule, and optimisation the best rule with BOA."""
    comparison, rows = all_rows
    lines = lines_of(comparison, rows)

    why = decompose(rows, lines, 20.0)

    assert why is not None
    assert why.rule in {"equal-width", "efficiency"}
    assert why.fleet.startswith("static-")
    assert why.total.mean == pytest.approx(why.elasticity.mean * why.optimisation.mean)
    by_policy = {line.policy: line.ratio_at_equal_spend for line in lines}
    best = by_policy[why.rule]
    assert best is not None
    assert why.optimisation.mean == pytest.approx(best.mean)
    assert f"{why.rule}, explains a factor of {why.elasticity.mean:.2f} [" in decomposition_text(why)


def test_without_a_fleet_the_gain_is_not_decomposed(
    all_rows: tuple[Comparison, list[CellResult]],
) -> None:
    """The result is None."""
    comparison, rows = all_rows
    lines = [line for line in lines_of(comparison, rows) if not line.policy.startswith("static-")]

    assert decompose(rows, lines, 20.0) is None


@pytest.mark.exhaustive
def test_every_rival_can_be_tuned() -> None:
    """Every policy gives rows, and none beats the bound."""
    comparison = a_comparison(rivals=tuple(name for name in POLICIES if name != "boa"))
    comparison.check()

    for row in run(comparison):
        assert row.mean_jct_hours >= row.lower_bound_mean_jct_hours
        assert row.equal_spend_mean_jct_hours is not None


CAPPED = ("pollux", "pollux-autoscale", "equal-width", "efficiency", "srpt", "a-srpt", "dally")


@pytest.fixture(scope="module")
def capped_rows() -> tuple[Comparison, list[CellResult]]:
    """Run two caps (two or three nodes of 4 USD/h) at a budget that neither can spend."""
    comparison = a_comparison(rivals=CAPPED, budgets=(Budget(amount=500.0),), caps=(2, 3))
    comparison.check()
    return comparison, run(comparison)


@pytest.mark.exhaustive
def test_no_policy_exceeds_the_cap_on_nodes(capped_rows: tuple[Comparison, list[CellResult]]) -> None:
    """All jobs end."""
    comparison, rows = capped_rows
    assert len(rows) == comparison.cells == 2 * (1 + len(CAPPED))

    for row in rows:
        again = simulate(comparison.settings_of_row(row))
        assert again.most_nodes <= row.max_nodes
        assert again.finished == again.jobs
        assert again.mean_jct_hours == row.mean_jct_hours


@pytest.mark.exhaustive
def test_each_cap_has_its_own_reference(capped_rows: tuple[Comparison, list[CellResult]]) -> None:
    """Spend targets and ratios use BOA's run at the same cap."""
    comparison, rows = capped_rows
    spent = {row.max_nodes: row.mean_usd_per_hour for row in rows if row.policy == "boa"}
    assert all(row.target_usd_per_hour == spent[row.max_nodes] for row in rows)

    lines = lines_of(comparison, rows)
    assert [line.max_nodes for line in lines if line.policy == "boa"] == [2, 3]
    assert all(line.ratio.mean == pytest.approx(1.0) for line in lines if line.policy == "boa")
    narrow, wide = (row for row in rows if row.policy == "boa")
    assert wide.mean_jct_hours < narrow.mean_jct_hours


def test_several_budgets_with_several_caps_are_refused() -> None:
    """The same cap twice is refused too."""
    with pytest.raises(InputError, match="several caps, not both"):
        a_comparison(budgets=(Budget(amount=20.0), Budget(amount=30.0)), caps=(2, 3)).check()
    with pytest.raises(InputError, match="same cap twice"):
        a_comparison(caps=(2, 2)).check()


def test_a_paced_reference_runs_untuned_and_learns() -> None:
    """The rival `boa` is tuned to its spend and does not learn."""
    shared = replace(some_settings(), learns=True)
    comparison = a_comparison(shared=shared, reference="boa-paced", rivals=("boa",))
    assert comparison.settings(comparison.references()[0]).learns
    paced, tuned = run(comparison)

    assert paced.knob == {"planning_budget": 20.0}
    again = simulate(replace(shared, policy="boa-paced"))
    assert (again.mean_jct_hours, again.mean_usd_per_hour) == (paced.mean_jct_hours, paced.mean_usd_per_hour)
    assert not comparison.settings_of_row(tuned).learns
    assert tuned.target_usd_per_hour == paced.mean_usd_per_hour


@given(
    spends=st.lists(st.floats(1.0, 10.0), min_size=1, max_size=40).map(sorted),
    target=st.floats(0.5, 10.5),
    guess=st.one_of(st.none(), st.integers(-50, 60)),
)
def test_the_bracket_search_finds_the_last_setting_below_the_target(
    spends: list[float], target: float, guess: int | None
) -> None:
    """The result does not depend on the first guess; both ends of the bracket are run."""
    asked: set[int] = set()

    def spend(n: int) -> float:
        asked.add(n)
        return spends[n]

    low = _bracket(spend, target, len(spends), guess=guess)
    assert low == sum(value < target for value in spends) - 1
    assert {n for n in (low, low + 1) if 0 <= n < len(spends)} <= asked
