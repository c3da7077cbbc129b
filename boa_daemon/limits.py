"""What holds a plan back: hard caps on money and machines, and the rules against flapping.

A cap is never exceeded, whatever happens. A day and a month are those of the calendar in UTC, as bills are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Literal, TypeAlias

from policies.model import check_positive

HeldCode: TypeAlias = Literal[
    "cap-day",
    "cap-month",
    "cap-instances",
    "minimum-hold",
    "moves-per-hour",
    "loop",
]
"""Why something that the policy wanted is not done; a closed list."""

_NO_NUMBERS: Mapping[str, float] = MappingProxyType({})
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Something that was wanted and is not done: what, which code, and the numbers behind it."""

    what: str
    code: HeldCode
    numbers: Mapping[str, float] = field(default_factory=lambda: _NO_NUMBERS)

    @property
    def sentence(self) -> str:
        """The refusal for people."""
        said = ", ".join(f"{name} {value:,.6g}" for name, value in self.numbers.items())
        return f"{self.what}: {SENTENCES[self.code]}{f' ({said})' if said else ''}"


SENTENCES: Mapping[HeldCode, str] = MappingProxyType(
    {
        "cap-day": "the cap on dollars per day leaves no room for it",
        "cap-month": "the cap on dollars per month leaves no room for it",
        "cap-instances": "the cap on instances is reached",
        "minimum-hold": "it started too recently to be moved",
        "moves-per-hour": "it was moved as often as an hour allows",
        "loop": "the same was tried too often; see `boa decisions`; it rests until the hour is over",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Hard limits. None is no limit.

    `tick_seconds` is how often the plan is looked at, `wind_down_seconds` how long a node may live after its
    jobs were told to stop: checkpoint, termination, and the cloud's own delay. A launch is allowed only if
    everything that runs could go on for `least_run_seconds` under every cap: a node that would be given back
    before it did anything is not worth its boot.
    """

    usd_per_day: float | None = None
    usd_per_month: float | None = None
    instances: int | None = None
    tick_seconds: float = 30.0
    wind_down_seconds: float = 120.0
    least_run_seconds: float = 900.0

    def __post_init__(self) -> None:
        for name in ("usd_per_day", "usd_per_month", "instances"):
            value = getattr(self, name)
            if value is not None:
                check_positive(name, value)
        for name in ("tick_seconds", "wind_down_seconds", "least_run_seconds"):
            check_positive(name, getattr(self, name))

    @property
    def keep_seconds(self) -> float:
        """How far ahead a node that is kept now may still cost: two ticks, one of them late, and its end."""
        return 2.0 * self.tick_seconds + self.wind_down_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """Rules against flapping.

    A job that runs is left alone for `minimum_hold_seconds` after its start and is started at most
    `starts_per_hour` times; one that was started `loop_starts` times within an hour is not started again.
    An instance type of which
    `loop_nodes` nodes ended within an hour without ever having carried a job is not rented.
    """

    minimum_hold_seconds: float = 300.0
    starts_per_hour: int = 4
    loop_starts: int = 10
    loop_nodes: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of the calendar, in seconds since the epoch; the end does not belong to it."""

    begins_at: float
    ends_at: float


def day_of(now: float) -> Window:
    """Return the day (UTC) that an instant falls into."""
    begins = now - now % DAY_SECONDS
    return Window(begins_at=begins, ends_at=begins + DAY_SECONDS)


def month_of(now: float) -> Window:
    """Return the calendar month (UTC) that an instant falls into."""
    begins = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    ends = (begins + timedelta(days=32)).replace(day=1)
    return Window(begins_at=begins.timestamp(), ends_at=ends.timestamp())
