"""The money of a team: what is left of each cap, in this window and the next."""

from __future__ import annotations

from boa_daemon.tick.facts.limits import DAY_SECONDS, month_of
from boa_daemon.tick.facts.team_money import TeamMoney

NOON = 40.5 * DAY_SECONDS


def test_each_cap_has_its_rest_in_this_window_and_its_whole_value_in_the_next() -> None:
    """Caps on the day and the month each have their own windows; without caps the list is empty."""
    purse = TeamMoney(day_cap_usd=5.0, spent_today_usd=2.0, month_cap_usd=50.0, spent_month_usd=30.0)
    found = list(purse.left(NOON))

    assert [(code, cap, left) for code, _, cap, left in found] == [
        ("team-day-cap", 5.0, 3.0),
        ("team-day-cap", 5.0, 5.0),
        ("team-month-cap", 50.0, 20.0),
        ("team-month-cap", 50.0, 50.0),
    ]
    month = month_of(NOON)
    begins = [window.begins_at for _, window, _, _ in found]
    assert begins == [40 * DAY_SECONDS, 41 * DAY_SECONDS, month.begins_at, month.ends_at]
    assert list(TeamMoney().left(NOON)) == []
