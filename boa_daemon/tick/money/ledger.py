"""The ledger: what was spent, and what is already promised.

Bills are whole micro-dollars, so a million charges add up without drift. A node costs its price by the second
from launch to termination, and at least the minimum (60 s). An intent with an unknown outcome may have become
a node, so it counts as a requested node until it is settled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import fsum

from boa_daemon.tick.facts.limits import DAY_SECONDS, FixedCost, Window, fixed_usd, month_of, period_of
from boa_daemon.tick.facts.ports import Charge
from boa_daemon.tick.facts.state import ClusterState, NodeState
from boa_daemon.units import MICRO_DOLLARS_PER_DOLLAR, SECONDS_PER_HOUR, dollars
from policies.fast_dataclasses import fast_init
from policies.model import InstanceType, Money
from policies.online.pacing import MONTH_HOURS, PERIOD_MONTHS, Pace
from policies.online.rhythm import hour_of_week

COMPUTE = "compute"
MINIMUM_BILLED_SECONDS = 60.0
"""AWS bills Linux instances per second, with a minimum of one minute."""


def micro_dollars_for(instance_type: InstanceType, seconds: float) -> int:
    """Return the price of running a node for some seconds, at least the minimum, in whole micro-dollars."""
    billed = seconds if seconds > MINIMUM_BILLED_SECONDS else MINIMUM_BILLED_SECONDS
    return round(billed * instance_type.usd_per_hour * MICRO_DOLLARS_PER_DOLLAR / SECONDS_PER_HOUR)


def bill(node: NodeState, *, until: float) -> int:
    """Return a node's cost from its launch to an instant, each second at its price, in micro-dollars."""
    return _compute(node, until) + (sum(_extras(node, until).values()) if node.extras else 0)


def bill_by_kind(node: NodeState, *, until: float) -> dict[str, int]:
    """Return a node's bill up to an instant by kind, `compute` first; the parts add up to the bill."""
    return {COMPUTE: _compute(node, until), **_extras(node, until)}


def _extras(node: NodeState, until: float) -> dict[str, int]:
    """Return a node's costs beside compute, by kind: billed by the second, at least a minute."""
    hours = max(until - node.launched_at, MINIMUM_BILLED_SECONDS) / SECONDS_PER_HOUR
    return {kind: round(usd * hours * MICRO_DOLLARS_PER_DOLLAR) for kind, usd in node.extras}


def _compute(node: NodeState, until: float) -> int:
    """Return a node's compute cost from its launch to an instant, in micro-dollars."""
    if not node.prices:
        return micro_dollars_for(node.instance_type, until - node.launched_at)
    until = max(until, node.launched_at + MINIMUM_BILLED_SECONDS)
    begins = [node.launched_at, *(max(at, node.launched_at) for at, _ in node.prices[1:])]
    ends = [*begins[1:], until]
    spent = (
        max(min(end, until) - begin, 0.0) * price
        for begin, end, (_, price) in zip(begins, ends, node.prices, strict=True)
    )
    return round(fsum(spent) * MICRO_DOLLARS_PER_DOLLAR / SECONDS_PER_HOUR)


def bill_within(node: NodeState, window: Window, *, until: float) -> int:
    """Return the part of a node's bill up to an instant that falls into a window, in micro-dollars.

    It is a difference of whole bills, so that the parts of adjacent windows add up to the bill. The minimum
    counts in the window of the launch.
    """
    whole, begin = _bill_to(node, min(until, window.ends_at)), min(until, window.begins_at)
    return whole - _bill_to(node, begin) if begin > node.launched_at else whole


def bill_by_kind_within(node: NodeState, window: Window, *, until: float) -> dict[str, int]:
    """Return the part of a node's bill that falls into a window, by kind; see `bill_within`."""
    ends = [min(until, at) for at in (window.begins_at, window.ends_at)]
    before, after = ({} if at <= node.launched_at else bill_by_kind(node, until=at) for at in ends)
    return {kind: amount - before.get(kind, 0) for kind, amount in after.items()}


def _bill_to(node: NodeState, instant: float) -> int:
    """Return a node's cost up to an instant; 0 before its launch."""
    return bill(node, until=instant) if instant > node.launched_at else 0


def _by_day(node: NodeState, ended_at: float) -> tuple[tuple[int, int], ...]:
    """Return (day since the epoch, micro-dollars) for each day that a final bill falls into."""
    first, last = int(node.launched_at // DAY_SECONDS), int(ended_at // DAY_SECONDS)
    if first == last:
        return ((first, bill(node, until=ended_at)),)
    borders = [_bill_to(node, day * DAY_SECONDS) for day in range(first + 1, last + 1)]
    sums = [0, *borders, bill(node, until=ended_at)]
    return tuple((first + n, after - before) for n, (before, after) in enumerate(pairwise(sums)))


def charge_for(node: NodeState) -> Charge:
    """Return the final bill of a node that has ended."""
    ended_at = node.launched_at if node.ended_at is None else node.ended_at
    days = _by_day(node, ended_at)
    return Charge(
        days=days,
        node=node.id,
        instance_type=node.instance_type.name,
        started_at=node.launched_at,
        ended_at=ended_at,
        micro_dollars=sum(part for _, part in days),
    )


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Final bills, running meters and requested nodes, in whole micro-dollars."""

    settled: int
    running: int
    promised: int

    @classmethod
    def of(cls, state: ClusterState) -> Ledger:
        """Return the ledger at one instant. Launches not listed yet are among the state's requested nodes."""
        promised = running = 0
        now, least = state.now, MINIMUM_BILLED_SECONDS
        for node in state.nodes.values():
            if node.prices or node.extras:
                cost = bill(node, until=now)
            else:  # `micro_dollars_for`, inlined for speed: it runs for every node at each tick
                lived = now - node.launched_at
                billed = lived if lived > least else least
                price = node.instance_type.usd_per_hour
                cost = round(billed * price * MICRO_DOLLARS_PER_DOLLAR / SECONDS_PER_HOUR)
            if node.phase == "requested":
                promised += cost
            else:
                running += cost
        return cls(settled=state.settled_micro_dollars, running=running, promised=promised)

    @property
    def spent_usd(self) -> float:
        """Dollars of final bills and running meters."""
        return dollars(self.settled + self.running)

    @property
    def committed_usd(self) -> float:
        """Dollars spent, and the cost of requested nodes so far, at least their minimum."""
        return dollars(self.settled + self.running + self.promised)


def money_of(
    state: ClusterState,
    pace: Pace | None = None,
    fixed: Iterable[FixedCost] = (),
    *,
    ledger: Ledger | None = None,
) -> Money | None:
    """Return the ledger as a policy sees it; None if no budget accrues. `ledger` is that of the state.

    With a monthly pace every calendar month (UTC) accrues the same money, however long it is. The `fixed`
    costs since the budget began are spent, used or not. If the budget of a pace is at on-demand prices,
    without commitments, the difference to what may be spent is added to both sides.
    """
    opened_at, now = state.books_opened_at, state.now
    if opened_at is None:
        return None
    month = month_of(now)
    period = month if pace is None else period_of(now, PERIOD_MONTHS[pace.period])
    is_monthly = pace is not None and pace.is_monthly
    accrued = _hours_of_mean_months if is_monthly else _hours
    memory, remembered_at = state.memory or ((), now)
    elapsed_hours = accrued(opened_at, now)
    spent = (ledger or Ledger.of(state)).committed_usd + fixed_usd(fixed, opened_at, now)
    if pace is not None:
        spent += pace.covered_per_hour * elapsed_hours
    return Money(
        spent=spent,
        elapsed_hours=elapsed_hours,
        accrual=MONTH_HOURS / _hours(month.begins_at, month.ends_at) if is_monthly else 1.0,
        period_elapsed_hours=accrued(max(period.begins_at, opened_at), now),
        period_left_hours=_hours(now, period.ends_at),
        is_refused=bool(state.cooldowns),
        memory=memory,
        memory_age_hours=_hours(remembered_at, now),
        hour_of_week=hour_of_week(now),
    )


def _hours(begin: float, end: float) -> float:
    return (end - begin) / SECONDS_PER_HOUR


def _hours_of_mean_months(begin: float, end: float) -> float:
    """Return the hours between two instants, counting every calendar month as a mean one."""
    return MONTH_HOURS * (_months(end) - _months(begin))


def _months(at: float) -> float:
    """Return the months from the year 0 to an instant, the last one as a fraction."""
    month = month_of(at)
    date = datetime.fromtimestamp(month.begins_at, UTC)
    return 12 * date.year + date.month + (at - month.begins_at) / (month.ends_at - month.begins_at)


def opening_of(state: ClusterState, pace: Pace, fixed: Iterable[FixedCost] = ()) -> float | None:
    """Return when the budget should begin: later than it did if more is unspent than is carried over."""
    final_bills = Ledger(settled=state.settled_micro_dollars, running=0, promised=0)
    least = money_of(state, pace, fixed, ledger=final_bills)
    if least is None or state.books_opened_at is None:
        return None
    if pace.opening_hours(least) == 0.0:
        # With final bills alone nothing is forfeited, and running nodes only add to them.
        return state.books_opened_at
    money = money_of(state, pace, fixed)
    assert money is not None
    return state.books_opened_at + pace.opening_hours(money) * SECONDS_PER_HOUR
