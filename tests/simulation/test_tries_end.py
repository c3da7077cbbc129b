"""A job that tries a width goes back soon after, also where nothing else happens for hours."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from boa_daemon.lab.compare.study_file import load_study
from boa_daemon.sim.wiring import prepare
from boa_daemon.tick.decide.decision import Decision

STUDY = Path(__file__).resolve().parents[2] / "benchmarks" / "results.yaml"


def test_a_decision_follows_each_try_within_two_minutes() -> None:
    """In five weeks of few large jobs no try, of two minutes, lasts until the next arrival or end."""
    case = load_study(STUDY).of_group("weeks").cases[-1]
    ticks: list[tuple[float, bool]] = []

    def look(decision: Decision) -> None:
        reasons = decision.plan.jobs.reasons
        tries = any("a try of" in reasons.get(job, "") for job in decision.plan.jobs.widths)
        ticks.append((decision.state.now, tries))

    prepare(replace(case.comparison.shared, policy="boa-paced", learns=True)).finish(look)

    after = [later - now for (now, tries), (later, _) in pairwise(ticks) if tries]
    assert len(after) > 10
    assert max(after) <= 120.0
