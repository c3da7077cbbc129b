"""The comparison of policies that the library offers as `boa_daemon.compare`."""

from __future__ import annotations

from collections.abc import Sequence

from boa_daemon.lab.compare.cells import REFERENCE, Comparison
from boa_daemon.lab.compare.comparison_summary import lines_of
from boa_daemon.lab.compare.run_cells import run_all
from boa_daemon.library.results import Compared
from boa_daemon.sim.wiring import SimulationSettings
from boa_daemon.tasks.tasks import AnswerCache, Tasks
from boa_daemon.tasks.workers import workers_on
from policies.registry import find_policy


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
