"""What money was for: parts that add up to the bills, with the idle figure of every other grouping."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from boa_daemon.daemon.money.cost_labels import UNUSED_ROW
from boa_daemon.daemon.money.cost_uses import cost_uses
from boa_daemon.daemon.money.costs import cost_rows, team_costs
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.limits import FixedCost

NOON = 1_800_014_400.0


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonInAFolder]:
    """Yield a daemon on which jobs of two teams came, ran, and ended over some hours."""
    teams = {"red": {"members": ["ann"]}, "blue": {"members": ["bob"]}}
    found = DaemonInAFolder(tmp_path_factory.mktemp("uses"), ManualClock(NOON), {"teams": teams})
    for hour in range(5):
        users = ("ann", "bob", "eve")[: 1 + hour % 3]
        for user in users:
            found.service.submit([job_content(hours=0.4 + 0.2 * hour)], user=user)
        for _ in range(12):
            found.daemon.tick()
            found.clock.instant += 300.0
    found.daemon.tick()
    yield found
    found.close()


@pytest.mark.parametrize("since", [0.0, NOON, NOON + 5000.0, NOON + 3.0 * 3600.0])
def test_the_parts_add_up_and_idle_is_the_same_everywhere(play: DaemonInAFolder, since: float) -> None:
    """Whatever the range begins with: a boot, a running job, an idle node."""
    queue, now = play.storage.queue, play.clock.instant
    uses = cost_uses(queue, since=since, now=now)
    for by in ("job", "user", "team", "class"):
        rows = {row["name"]: row["usd"] for row in cost_rows(queue, by=by, since=since, now=now)}
        assert sum(rows.values()) == pytest.approx(uses.usd), by
        assert rows.get(UNUSED_ROW, 0.0) == pytest.approx(uses.idle_usd, abs=1e-6), by
    assert min(uses.to_document().values()) >= -1e-9
    assert uses.jobs_usd > 0.0
    assert uses.idle_usd > 0.0


def test_what_is_paid_anyway_is_a_part(play: DaemonInAFolder) -> None:
    """A commitment of 2 USD/h since two hours adds 4 dollars."""
    now = play.clock.instant
    fixed = FixedCost(name="ours", usd_per_hour=2.0, begins_at=now - 7200.0)
    plain = cost_uses(play.storage.queue, since=NOON, now=now)
    uses = cost_uses(play.storage.queue, since=NOON, now=now, fixed=[fixed])
    assert uses.fixed_usd == pytest.approx(4.0)
    assert uses.usd == pytest.approx(plain.usd + 4.0)


@pytest.mark.parametrize("since", [NOON, NOON + 5000.0])
def test_a_teams_costs_add_up_to_its_row(play: DaemonInAFolder, since: float) -> None:
    """By job and day, boots included; a team without jobs has none."""
    queue, now = play.storage.queue, play.clock.instant
    rows = {row["name"]: row for row in cost_rows(queue, by="team", since=since, now=now)}
    for team in ("red", "blue"):
        costs = team_costs(queue, team, since=since, now=now)
        assert sum(usd for _, _, usd, _ in costs) == pytest.approx(rows[team]["usd"])
        assert sum(hours for *_, hours in costs) == pytest.approx(rows[team]["gpu_hours"])
    assert team_costs(queue, "green", since=since, now=now) == []
