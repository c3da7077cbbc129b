"""Costs on the page: computed once per tick for all open pages, with each start parsed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.money.cost_labels import CostBy
from boa_daemon.dashboard.money import MOST_COSTS, MoneyView
from boa_daemon.store import job_rows
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

NOW = 1_800_000_000.0


@pytest.fixture
def play(tmp_path: Path) -> Any:
    """Yield a daemon that runs three jobs."""
    found = DaemonInAFolder(tmp_path, ManualClock(NOW), {"budget": {"usd_per_hour": 50.0}})
    found.service.submit([job_content(hours=5.0) for _ in range(3)], user="ann")
    tick(found, 4)
    yield found
    found.close()


def tick(play: DaemonInAFolder, times: int = 1) -> None:
    """Tick once per minute, `times` times."""
    for _ in range(times):
        play.daemon.tick()
        play.clock.instant += 60.0


def test_costs_are_computed_once_per_tick_and_question(
    play: DaemonInAFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten equal questions cost one computation; another range, grouping or tick costs a new one."""
    view, asked = MoneyView(play.service), []
    cost = play.service.cost
    monkeypatch.setattr(play.service, "cost", lambda **given: asked.append(given) or cost(**given))
    first = [view.cost(by="class", hours=24.0) for _ in range(10)][-1]
    assert len(asked) == 1
    view.cost(by="user", hours=24.0)
    view.cost(by="class", hours=48.0)
    assert len(asked) == 3
    tick(play)
    second = view.cost(by="class", hours=24.0)
    assert second["as_of"] > first["as_of"]
    assert second["usd"] > first["usd"] > 0.0
    assert second == play.service.cost(by="class", since=second["since"]) | {"as_of": second["as_of"]}


def test_the_number_of_cached_answers_is_limited(play: DaemonInAFolder) -> None:
    """Questions about many ranges do not fill the memory."""
    view = MoneyView(play.service)
    for hours in range(1, 2 * MOST_COSTS):
        view.cost(by="job", hours=float(hours))
    assert len(view._costs) <= MOST_COSTS


def test_the_gpus_of_a_start_are_parsed_once(play: DaemonInAFolder) -> None:
    """A second question about costs has no cache miss."""
    by: CostBy = "job"
    before = play.service.cost(by=by)
    misses = job_rows.slots_of.cache_info().misses
    assert play.service.cost(by=by)["rows"] == before["rows"]
    assert job_rows.slots_of.cache_info().misses == misses > 0
    assert len(before["rows"]) >= 3
