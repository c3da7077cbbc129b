"""The market as the page shows it: what the plan needs is computed once for each plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.dashboard import market
from boa_daemon.dashboard.market import MarketView
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content


def test_what_the_plan_needs_is_computed_once_for_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each open page asks every minute; a class that is planned besides those of jobs makes another plan."""
    play = DaemonInAFolder(tmp_path, ManualClock(1_800_014_400.0))
    asked: list[Any] = []
    compute = market.swings
    monkeypatch.setattr(market, "swings", lambda *given: asked.append(given) or compute(*given))
    try:
        play.service.submit([job_content(hours=1.0)], user="ann")
        play.daemon.tick()
        view = MarketView(play.service)
        rows = [view.document()["room"] for _ in range(5)][-1]
        assert len(asked) == 1
        assert [row["needed_nodes"] for row in rows] != [None] * len(rows)
        play.daemon.planner.planned["other[x]"] = replace(
            play.daemon.planner.classes["default"], name="other[x]"
        )
        play.daemon.classes_besides = frozenset({"other[x]"})
        view.document()
        assert len(asked) == 2
    finally:
        play.close()
