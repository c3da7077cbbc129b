"""The comparison of policies that the library offers as `boa_daemon.compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from boa_daemon.lab.compare.cells import REFERENCE, Cell, Comparison
from boa_daemon.lab.compare.comparison_page import knob_text
from boa_daemon.lab.compare.comparison_summary import lines_of
from boa_daemon.lab.compare.run_cells import rival_cells, run_all
from boa_daemon.lab.compare.tune import run_cell
from boa_daemon.library.results import Compared
from boa_daemon.sim.wiring import SimulationSettings
from boa_daemon.tasks.tasks import AnswerCache, Tasks
from boa_daemon.tasks.workers import workers_on
from policies.registry import DEFAULT_POLICY, find_policy


def compared(settings: SimulationSettings, policies: Sequence[str], *, seeds: int, on: str) -> Compared:
    """Return policies compared on the same jobs, each tuned to spend what BOA spends.

    Raises:
        InputError: without workers.
        UnknownPolicy: when there is no policy of a name.
    """
    rivals = tuple(dict.fromkeys(find_policy(name).name for name in policies if name != REFERENCE))
    comparison = Comparison(shared=settings, budgets=(settings.budget,), rivals=rivals, seeds=seeds)
    comparison.check()
    with Tasks(workers_on(on), AnswerCache.for_user()) as tasks:
        rows = run_all(comparison, tasks)
    lines = lines_of(comparison, rows)
    return Compared(
        title=f"Policies for {settings.budget}",
        document={"reference": REFERENCE, "summary": [line.to_document() for line in lines]},
        rows=[
            {
                "policy": line.policy,
                "mean_jct_hours": line.mean_jct_hours,
                "p95_jct_hours": line.p95_jct_hours,
                "mean_usd_per_hour": line.mean_usd_per_hour,
                "ratio": line.ratio.mean,
            }
            for line in lines
        ],
        ratios={line.policy: line.ratio.mean for line in lines},
    )


def as_the_daemon(settings: SimulationSettings, *, seed: int) -> SimulationSettings:
    """Return the settings of the reference run of `boa compare`: the daemon's policy, which learns."""
    comparison = _with_the_daemon(settings, ())
    return comparison.settings(Cell(policy=DEFAULT_POLICY, budget=settings.budget, seed=seed))


def at_equal_money(
    settings: SimulationSettings, rivals: Sequence[str], *, seed: int
) -> list[tuple[str, SimulationSettings, float]]:
    """Tune rivals to spend what the daemon's policy spends on the same jobs, as `boa compare` does.

    Each is its tuned setting in words, the settings of its run, and its mean JCT in hours for the same money,
    which is interpolated where no setting spends it.
    """
    comparison = _with_the_daemon(settings, tuple(rivals))
    reference = Cell(policy=DEFAULT_POLICY, budget=settings.budget, seed=seed)
    with Tasks(workers_on(None), AnswerCache.for_user()) as tasks:
        rows = [
            row
            for _, row in tasks.each(
                lambda cell: run_cell(comparison, cell, tasks),
                [reference],
                then=lambda cell, row: rival_cells(comparison, cell, row),
            )
        ]
    words = {line.policy: knob_text(line, settings.budget.unit) for line in lines_of(comparison, rows)}
    by_policy = {row.policy: row for row in rows}
    return [
        (words[name], comparison.settings_of_row(by_policy[name]), by_policy[name].paid_jct_hours)
        for name in rivals
    ]


def _with_the_daemon(settings: SimulationSettings, rivals: tuple[str, ...]) -> Comparison:
    return Comparison(
        shared=replace(settings, learns=True),
        budgets=(settings.budget,),
        rivals=rivals,
        reference=DEFAULT_POLICY,
    )
