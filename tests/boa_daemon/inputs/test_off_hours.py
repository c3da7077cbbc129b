"""Off hours: how windows are written, and errors."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.off_hours import working_time

TUESDAY = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("texts", "worked"),
    [
        (["sat-sun"], 5 * 24.0),
        (["Saturday", "sunday"], 5 * 24.0),
        (["20:00-08:00"], 7 * 12.0),
        (["20:00-08:00", "sat-sun"], 5 * 12.0),
        (["mon-fri 18:30-06:30", "sat-sun"], 5 * 12.0 + 6.5 - 6.5),
        (["fri-mon 00:00-12:00"], 7 * 24.0 - 4 * 12.0),
        (["2026-12-02/2026-12-04"], 4 * 24.0),
    ],
)
def test_off_hours_reduce_the_worked_hours_of_a_week(texts: list[str], worked: float) -> None:
    """The week starts on a Tuesday."""
    found = working_time(texts, TUESDAY, boot_hours=0.0)
    extra = 6.5 if texts[0].startswith("mon-fri") else 0.0  # Saturday begins during Friday's night window.

    assert found.worked(168.0) == pytest.approx(worked, abs=extra + 1e-9)


def test_windows_repeat_weekly_and_are_followed_by_a_boot() -> None:
    """The fifth week loses the weekend and half an hour of boot."""
    found = working_time(["sat-sun"], TUESDAY, boot_hours=0.5)

    assert found.worked(5 * 168.0) - found.worked(4 * 168.0) == pytest.approx(5 * 24.0 - 0.5)


def test_work_starts_after_a_window_that_covers_the_start() -> None:
    """At two in the morning the night window has six hours left."""
    found = working_time(["20:00-08:00"], TUESDAY.replace(hour=2), boot_hours=0.0)

    assert found.start(0.0) == 6.0


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["weekends"], "are no window"),
        (["20-8"], "are no window"),
        (["sat 20:00"], "are no window"),
        (["25:00-26:00"], "there is no such time"),
        (["2026-13-01/2026-13-02"], "are no days"),
        (["mon-sun"], "leave no time to work"),
        (["08:00-08:00"], "leave no time to work"),
        ([""], "are no window"),
    ],
)
def test_invalid_windows_are_refused(texts: list[str], says: str) -> None:
    """The error gives the reason."""
    with pytest.raises(InputError, match=says):
        working_time(texts, TUESDAY, boot_hours=0.0)


def test_days_of_the_week_need_a_start_date() -> None:
    """Hours from an unknown day have no Saturday."""
    with pytest.raises(InputError, match=r"need a day.*--start"):
        working_time(["sat"], None, boot_hours=0.0)


def test_a_named_zone_keeps_its_clock_when_the_clocks_change() -> None:
    """Berlin leaves summer time on 2026-10-25: before it 08:00 is 06:00 UTC, after it 07:00 UTC."""
    start = datetime(2026, 10, 24, tzinfo=UTC)
    found = working_time(["20:00-08:00 Europe/Berlin"], start, boot_hours=0.0)

    assert found.start(0.0) == 6.0
    # Twelve hours are worked each day; the night of the change has 13 hours.
    assert found.start(12.5) == 24.0 + 7.5
    assert found.start(24.5) == 48.0 + 7.5
    assert found.worked(18.0) == 12.0
    assert found.worked(24.0 + 19.0) == 24.0


def test_windows_of_several_zones_and_days_of_a_zone() -> None:
    """A day begins at the zone's midnight."""
    start = datetime(2026, 12, 1, tzinfo=UTC)

    assert working_time(["2026-12-01/2026-12-01 Asia/Tokyo"], start, boot_hours=0.0).start(0.0) == 15.0
    assert working_time(["tue America/New_York"], start, boot_hours=0.0).start(5.5) == 29.5
    assert working_time(["20:00-08:00 UTC", "tue Etc/GMT-1"], start, boot_hours=0.0).start(0.0) == 32.0


def test_an_unknown_zone_is_refused_with_the_nearest_name() -> None:
    """A typo is no window without a zone."""
    with pytest.raises(InputError, match="Europe/Berlin"):
        working_time(["20:00-08:00 Europe/Berln"], TUESDAY, boot_hours=0.0)
