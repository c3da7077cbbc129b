"""Limits on a plan: hard caps, and the rules against flapping.

A cap is never exceeded. Days and months are calendar days and months in UTC, as on bills.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import fsum, inf
from types import MappingProxyType
from typing import Literal, TypeAlias

from boa_daemon.tick.facts.reasons import SENTENCES, HeldCode
from boa_daemon.units import counted, format_hours
from policies.fast_dataclasses import fast_init
from policies.model import check_positive
from policies.money_text import in_dollars

HeldNumber: TypeAlias = Literal[
    "cap_usd",
    "set_aside_usd",
    "left_usd",
    "spent_usd",
    "ahead_usd",
    "claim_seconds",
    "cap_usd_per_hour",
    "usd_per_hour",
    "cap_nodes",
    "present_nodes",
    "held_seconds",
    "minimum_seconds",
    "restarts_earned_after_seconds",
    "launches",
    "starts",
    "orders",
    "moves",
    "most",
    "seconds",
]
"""The numbers behind such a reason, by their names in JSON; a closed list."""

_NO_NUMBERS: Mapping[HeldNumber, float] = MappingProxyType({})
DAY_SECONDS = 86_400.0
_CENT = 0.005
"""Dollars that are not shown as nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMoney:
    """The money of a purse that leaves no room, in dollars, and when there is room again.

    `reserved_usd` is set aside for what runs or comes: what it may cost until it can have been stopped, or
    for as long as a launch must be affordable. `needed_usd` is the least that the purse must have left for
    what is not done. `room_at` is when the purse's day or month ends, in seconds since the epoch; what is
    reserved and not spent is free sooner, when jobs end.
    """

    spent_usd: float
    reserved_usd: float
    room_at: float
    needed_usd: float = 0.0

    def sentence(self, cap_usd: float | None) -> str:
        """Return the money in words, for a purse with so much for nodes if it is known."""
        at = datetime.fromtimestamp(self.room_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        said = f"{in_dollars(self.spent_usd)} is spent"
        if self.reserved_usd >= _CENT:
            said += f", {in_dollars(self.reserved_usd)} is reserved for what runs or comes"
        if self.needed_usd >= _CENT:
            said += f", it takes {in_dollars(self.needed_usd)} to begin"
        # What is spent stays spent: an end of running jobs gives back what is reserved for them alone.
        left = inf if cap_usd is None else cap_usd - self.spent_usd
        sooner = self.reserved_usd >= _CENT and left >= max(self.needed_usd, _CENT)
        if cap_usd is not None and self.needed_usd > cap_usd:
            return f"{said}, which the cap never has"
        return f"{said}; there is room at {at}{', or sooner when running jobs end' if sooner else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Something that was wanted and is not done: what, its code, the numbers behind it, and the money."""

    what: str
    code: HeldCode
    numbers: Mapping[HeldNumber, float] = field(default_factory=lambda: _NO_NUMBERS)
    money: HeldMoney | None = None

    @property
    def sentence(self) -> str:
        """The reason as a sentence for people, with its subject."""
        return f"{self.what}: {self.why}"

    @property
    def why(self) -> str:
        """The reason for people without its subject; what is spent is said once, with the money."""
        names = self.numbers.keys() - ({"spent_usd"} if self.money is not None else frozenset())
        said = ", ".join(NUMBERS[name](value) for name, value in self.numbers.items() if name in names)
        line = f"{SENTENCES[self.code]}{f' ({said})' if said else ''}"
        cap = self.numbers.get("cap_usd")
        free = None if cap is None else cap - self.numbers.get("set_aside_usd", 0.0)
        return line if self.money is None else f"{line}: {self.money.sentence(free)}"


def _usd_left(usd: float) -> str:
    return f"{in_dollars(usd)} is left" if usd >= 0.0 else f"{in_dollars(-usd)} more than that is taken"


NUMBERS: Mapping[HeldNumber, Callable[[float], str]] = MappingProxyType(
    {
        "cap_usd": lambda usd: f"the cap is {in_dollars(usd)}",
        "set_aside_usd": lambda usd: f"{in_dollars(usd)} of it is for costs without nodes",
        "left_usd": _usd_left,
        "spent_usd": lambda usd: f"{in_dollars(usd)} is spent",
        "ahead_usd": lambda usd: f"by {in_dollars(usd)}",
        "claim_seconds": lambda seconds: (
            f"unless a team behind its share submits more, jobs of this team may start within "
            f"{format_hours(seconds / 3600)}"
        ),
        "cap_usd_per_hour": lambda usd: f"the ceiling is {in_dollars(usd)}/hour",
        "usd_per_hour": lambda usd: f"{in_dollars(usd)}/hour is taken",
        "cap_nodes": lambda nodes: f"the cap is {counted(round(nodes), 'node')}",
        "present_nodes": lambda nodes: f"present: {nodes:,.0f}",
        "held_seconds": lambda seconds: f"for {seconds:,.0f} s so far",
        "minimum_seconds": lambda seconds: f"of at least {seconds:,.0f} s",
        "restarts_earned_after_seconds": lambda seconds: f"of {seconds:,.0f} s",
        "launches": lambda launches: f"launches: {launches:,.0f}",
        "starts": lambda starts: f"starts: {starts:,.0f}",
        "orders": lambda orders: counted(round(orders), "order"),
        "moves": lambda moves: counted(round(moves), "move"),
        "most": lambda moves: f"at most {moves:,.0f}",
        "seconds": lambda seconds: f"in {seconds:,.0f} s",
    }
)
"""How a number is said in a sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedCost:
    """A cost that is paid whether used or not, such as a commitment or a Capacity Block.

    It runs from `begins_at` to `ends_at`, in seconds since the epoch; None is open-ended. An advance payment
    is spread over the time that it covers.
    """

    name: str
    usd_per_hour: float
    begins_at: float | None = None
    ends_at: float | None = None

    def __post_init__(self) -> None:
        check_positive(f"usd_per_hour of {self.name}", self.usd_per_hour)

    def usd_between(self, begin: float, end: float) -> float:
        """Return the dollars that fall between two instants."""
        begin = begin if self.begins_at is None else max(begin, self.begins_at)
        end = end if self.ends_at is None else min(end, self.ends_at)
        return self.usd_per_hour * max(end - begin, 0.0) / 3600.0


def fixed_usd(fixed: Iterable[FixedCost], begin: float, end: float) -> float:
    """Return the dollars of all fixed costs between two instants."""
    return fsum(one.usd_between(begin, end) for one in fixed)


ALLOWED_TICKS = 4.0
"""Ticks may come this many times as far apart as they should without breaking a cap, seen before or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Hard limits; None is no limit.  Money in dollars, time in seconds.

    `usd_per_day` and `usd_per_month` are per calendar day and month (UTC), `usd_per_hour` limits the cost of
    all nodes together at any instant, and `instances` counts all that may exist. The rest says how fast the
    site reacts: `tick_seconds` is the time between two ticks, and `late_tick_seconds` the longest one where
    ticks come late. `checkpoint_seconds` is what a job is given to stop, `refused_seconds` how long the cloud
    may refuse an end, or not answer it, `shutdown_seconds` how long a node may still be billed after the
    cloud has accepted its end, and `unseen_seconds` how long a listing may lag behind a launch. A launch is
    allowed only if everything could run for `least_run_seconds` under every cap: a node given back sooner is
    not worth its boot. `standing_usd_per_hour` is what the site costs without a node, such as a NAT gateway.
    Every cap in dollars first sets aside this cost and the `fixed` ones, which are paid anyway.
    """

    usd_per_day: float | None = None
    usd_per_month: float | None = None
    usd_per_hour: float | None = None
    instances: int | None = None
    tick_seconds: float = 30.0
    late_tick_seconds: float = 0.0
    checkpoint_seconds: float = 90.0
    refused_seconds: float = 60.0
    shutdown_seconds: float = 30.0
    unseen_seconds: float = 300.0
    least_run_seconds: float = 900.0
    standing_usd_per_hour: float = 0.0
    fixed: tuple[FixedCost, ...] = ()

    def __post_init__(self) -> None:
        for name in ("usd_per_day", "usd_per_month", "usd_per_hour", "instances"):
            value = getattr(self, name)
            if value is not None:
                check_positive(name, value)
        for name in ("tick_seconds", "shutdown_seconds", "least_run_seconds"):
            check_positive(name, getattr(self, name))
        for name in (
            "late_tick_seconds",
            "checkpoint_seconds",
            "refused_seconds",
            "unseen_seconds",
            "standing_usd_per_hour",
        ):
            check_positive(name, getattr(self, name), zero=True)

    def beside_usd_per_hour(self, now: float) -> float:
        """Return the site's cost per hour without any node, fixed costs of the next hour included."""
        soon = (one.usd_per_hour for one in self.fixed if one.usd_between(now, now + 3600.0))
        return self.standing_usd_per_hour + fsum(soon)

    @property
    def gap_seconds(self) -> float:
        """The longest time between two ticks, late ones included."""
        return max(self.tick_seconds, self.late_tick_seconds)

    @property
    def end_seconds(self) -> float:
        """The longest time a node may cost after the order to end it: refusals, the next tick, shutdown.

        An end that was refused is tried again by a tick; the try that is accepted may come late as well.
        """
        return self.refused_seconds + self.gap_seconds + self.shutdown_seconds

    @property
    def stop_seconds(self) -> float:
        """The longest time a node may cost after its jobs were told to stop: checkpoint, tick, end."""
        return self.checkpoint_seconds + self.gap_seconds + self.end_seconds

    @property
    def keep_seconds(self) -> float:
        """The longest time a node kept now may cost: the next tick can still stop its jobs in time."""
        return self.gap_seconds + self.stop_seconds

    @property
    def start_seconds(self) -> float:
        """How long a start must be affordable for a team: its useful run, or two ticks and a stop."""
        return max(self.least_run_seconds, self.stop_seconds + 2.0 * self.gap_seconds)

    @property
    def launch_seconds(self) -> float:
        """How long a launch must be affordable: its useful run, or its bill if the cloud's answer is lost."""
        return max(self.least_run_seconds, self.unseen_seconds + self.keep_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """Rules against flapping.

    A running job is left alone for `minimum_hold_seconds` after its start. It is moved or stopped at most
    `moves_per_hour_of_a_job` times within an hour, all jobs together at most `moves_per_hour` times. The same
    order to the same target `loop_times` within `loop_seconds` is a loop. Launches loop if `loop_times` in a
    row, over at least `launch_seconds`, let no job start.
    """

    minimum_hold_seconds: float = 300.0
    moves_per_hour_of_a_job: int = 4
    moves_per_hour: int = 200
    loop_times: int = 8
    loop_seconds: float = 3600.0
    launch_seconds: float = 900.0

    def __post_init__(self) -> None:
        check_positive("minimum_hold_seconds", self.minimum_hold_seconds, zero=True)
        for name in (
            "moves_per_hour_of_a_job",
            "moves_per_hour",
            "loop_times",
            "loop_seconds",
            "launch_seconds",
        ):
            check_positive(name, getattr(self, name))

    @property
    def memory_seconds(self) -> float:
        """How many seconds of recent acts these rules need."""
        return max(self.loop_seconds, 3600.0, self.minimum_hold_seconds)


ActKind: TypeAlias = Literal["give-up", "end", "stop", "start", "terminate", "launch"]


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An order that was given: its kind, the job, node or instance type, and the instant."""

    kind: ActKind
    target: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A period of the calendar, in seconds since the epoch; its end is excluded."""

    begins_at: float
    ends_at: float

    def overlap_seconds(self, begins_at: float, ends_at: float) -> float:
        """Return the seconds of a period that lie in the window."""
        return max(min(ends_at, self.ends_at) - max(begins_at, self.begins_at), 0.0)


def hour_of(now: float) -> Window:
    """Return the hour (UTC) that an instant falls into."""
    begins = now - now % 3600.0
    return Window(begins_at=begins, ends_at=begins + 3600.0)


def day_of(now: float) -> Window:
    """Return the day (UTC) that an instant falls into."""
    begins = now - now % DAY_SECONDS
    return Window(begins_at=begins, ends_at=begins + DAY_SECONDS)


def month_of(now: float) -> Window:
    """Return the calendar month (UTC) that an instant falls into."""
    return _month_of_day(now // DAY_SECONDS)


def period_of(now: float, months: int) -> Window:
    """Return the period of so many calendar months (UTC), the first beginning in January, at an instant."""
    if months == 1:
        return month_of(now)
    date = datetime.fromtimestamp(now, UTC)
    first = (date.month - 1) // months * months + 1
    begins = datetime(date.year, first, 1, tzinfo=UTC)
    ends = datetime(date.year + (first + months > 12), (first + months - 1) % 12 + 1, 1, tzinfo=UTC)
    return Window(begins_at=begins.timestamp(), ends_at=ends.timestamp())


@lru_cache(maxsize=64)
def _month_of_day(day: float) -> Window:
    """Return the month of a day counted from the epoch; cached because every tick asks for it."""
    begins = datetime.fromtimestamp(day * DAY_SECONDS, UTC).replace(day=1)
    ends = (begins + timedelta(days=32)).replace(day=1)
    return Window(begins_at=begins.timestamp(), ends_at=ends.timestamp())
