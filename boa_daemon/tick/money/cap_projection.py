"""What the hard caps leave while a plan decides how long each node may cost money.

There is a purse for the day and one for the month (UTC), and for the next day and month if a node launched
now could run into them. Money is in micro-dollars. A projection is rounded up, so that the rounding of bills
cannot break a cap.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from boa_daemon.tick.facts.limits import (
    Caps,
    Held,
    HeldMoney,
    HeldNumber,
    Window,
    day_of,
    fixed_usd,
    month_of,
)
from boa_daemon.tick.facts.reasons import CapCode, HeldCode
from boa_daemon.tick.facts.state import ClusterState, NodeState
from boa_daemon.tick.money.ledger import MINIMUM_BILLED_SECONDS, bill_within
from boa_daemon.units import MICRO_DOLLARS_PER_DOLLAR, SECONDS_PER_HOUR, dollars, micro_dollars
from policies.model import NodeId

_ROUNDING = 5.0
"""Micro-dollars by which a node's bill, split by window and kind, may exceed price times time."""


_Row: TypeAlias = tuple[CapCode, float | None, Callable[[float], Window], int]


@dataclass(slots=True, kw_only=True)
class _Purse:
    """A cap in one calendar window, and what is left of it, in micro-dollars."""

    code: CapCode
    window: Window
    cap: int
    left: float
    spent: float = 0.0


class CapProjection:
    """What each cap leaves while nodes run until given instants."""

    def __init__(self, state: ClusterState, caps: Caps, *, ending: Collection[NodeId] = ()) -> None:
        """Count every node as kept, except those in `ending` and those already terminating."""
        self._now, self._caps = state.now, caps
        nodes = [node for node in state.nodes.values() if node.phase != "terminated"]
        # A stopped node is not a running instance: only the dollars of its disk count.
        self._stopped = {node.id for node in nodes if node.phase == "stopped"}
        self._present = len(nodes) - len(self._stopped)
        self._prices = {node.id: node.usd_per_hour for node in nodes}
        self._rates = {node.id: most_per_second(node) for node in nodes}
        self._least = {node.id: node.launched_at + MINIMUM_BILLED_SECONDS for node in nodes}
        self._until = dict.fromkeys(self._rates, state.now)
        self._staying = set(self._rates)
        self._usd_per_hour = sum(self._prices.values()) + caps.beside_usd_per_hour(state.now)
        self._present_usd_per_hour = self._usd_per_hour
        self._purses = list(self._open(state, nodes))
        for node in nodes:
            seen_at = state.now if node.is_listed else max(state.now, node.launched_at + caps.unseen_seconds)
            self._go_on(node.id, seen_at + caps.keep_seconds)
        for name in (*ending, *(node.id for node in nodes if node.phase == "terminating")):
            self.end(name)
        for node in nodes:
            if node.phase == "terminating" and node.ends_by is not None:
                # The cloud that takes it back, or an image build, may keep it until then.
                self._go_on(node.id, max(node.ends_by, self._until[node.id]))

    def _open(self, state: ClusterState, nodes: Sequence[NodeState]) -> Iterator[_Purse]:
        """Yield a purse for every window in which a node launched now could cost money."""
        caps, horizon = self._caps, state.now + self._caps.launch_seconds
        rows: tuple[_Row, ...] = (
            ("cap-day", caps.usd_per_day, day_of, state.settled_today_micro_dollars),
            ("cap-month", caps.usd_per_month, month_of, state.settled_month_micro_dollars),
        )
        for code, usd, window_of, bills in rows:
            if usd is None:
                continue
            window = window_of(state.now)
            cap = micro_dollars(usd) - _standing(window, caps)
            charged = _standing(window, caps) - _standing(window, caps, since=state.standing_charged_until)
            meters = sum(bill_within(node, window, until=state.now) for node in nodes)
            rounding = _ROUNDING * len(nodes)
            yield _Purse(
                code=code,
                window=window,
                cap=cap,
                left=cap + charged - bills - meters - rounding,
                spent=bills + meters - charged,
            )
            if horizon > window.ends_at:
                after = window_of(window.ends_at)
                cap = micro_dollars(usd) - _standing(after, caps)
                yield _Purse(code=code, window=after, cap=cap, left=cap - rounding)

    @property
    def broken(self) -> CapCode | None:
        """The cap that could break, if any."""
        caps = self._caps
        if caps.instances is not None and len(self._staying - self._stopped) > caps.instances:
            return "cap-instances"
        if caps.usd_per_hour is not None and self._usd_per_hour > caps.usd_per_hour + 1e-9:
            return "cap-hour"
        return next((purse.code for purse in self._purses if purse.left < 0.0), None)

    @property
    def is_overspent(self) -> bool:
        """Whether money could run out, whatever the number of nodes."""
        return any(purse.left < 0.0 for purse in self._purses)

    def end(self, name: NodeId) -> None:
        """Count a node as given back now; the cloud may refuse that for a while."""
        self._leave(name, self._now + self._caps.end_seconds)

    def stop(self, name: NodeId) -> None:
        """Count a node as given back once its jobs have stopped."""
        self._leave(name, self._now + self._caps.stop_seconds)

    def wait(self, name: NodeId) -> None:
        """Count a node as given back at the next tick, whatever its jobs do."""
        self._leave(name, self._now + self._caps.gap_seconds + self._caps.end_seconds)

    def look_ahead(self) -> None:
        """Count every staying node as running for as long as a launch must be affordable."""
        for name in self._staying:
            self._go_on(name, max(self._now + self._caps.launch_seconds, self._until[name]))

    def room_for(self, usd_per_hour: float) -> tuple[float, CapCode]:
        """Return how many more nodes at a price every cap has room for, and the cap that limits them.

        Nodes that end take up room until they are gone.
        """
        caps, rate = self._caps, usd_per_hour * MICRO_DOLLARS_PER_DOLLAR / SECONDS_PER_HOUR
        rooms: list[tuple[float, CapCode]] = [(inf, "cap-instances")]
        if caps.instances is not None:
            rooms.append((float(max(caps.instances - self._present, 0)), "cap-instances"))
        if caps.usd_per_hour is not None:
            left = max(caps.usd_per_hour - self._present_usd_per_hour, 0.0)
            rooms.append((left / usd_per_hour, "cap-hour"))
        for purse in self._purses:
            cost = rate * self._ahead(purse.window) + _ROUNDING
            rooms.append((max(purse.left, 0.0) / cost, purse.code))
        return min(rooms)

    def add(self, usd_per_hour: float, count: int) -> None:
        """Count nodes that are launched now."""
        rate = usd_per_hour * MICRO_DOLLARS_PER_DOLLAR / SECONDS_PER_HOUR
        self._present += count
        self._usd_per_hour += count * usd_per_hour
        self._present_usd_per_hour += count * usd_per_hour
        for purse in self._purses:
            purse.left -= count * (rate * self._ahead(purse.window) + _ROUNDING)

    def _ahead(self, window: Window) -> float:
        """Return how long a node launched now may cost in a window.

        The window of the launch bears the minimum billing, even if the window ends before the minimum does.
        """
        seconds = window.overlap_seconds(self._now, self._now + self._caps.launch_seconds)
        return max(seconds, MINIMUM_BILLED_SECONDS) if window.begins_at <= self._now else seconds

    def numbers(self, code: CapCode) -> dict[HeldNumber, float]:
        """Return the numbers behind a refusal."""
        caps = self._caps
        if code == "cap-instances":
            return {"cap_nodes": float(caps.instances or 0), "present_nodes": float(self._present)}
        if code == "cap-hour":
            return {
                "cap_usd_per_hour": caps.usd_per_hour or 0.0,
                "usd_per_hour": self._present_usd_per_hour,
            }
        purse = self._tightest(code)
        aside = _standing(purse.window, caps)
        return {
            "cap_usd": dollars(purse.cap + aside),
            **({"set_aside_usd": dollars(aside)} if aside else {}),
            "left_usd": dollars(round(purse.left)),
        }

    def _tightest(self, code: CapCode) -> _Purse:
        """Return the purse of a cap that has the least left."""
        return min((purse for purse in self._purses if purse.code == code), key=lambda purse: purse.left)

    def held(self, what: str, code: CapCode, *, usd_per_hour: float = 0.0) -> Held:
        """Return why something is not done, with the numbers and the money behind it.

        `usd_per_hour` is the price of the nodes that are not launched, as many as are needed together.
        """
        return Held(what=what, code=code, numbers=self.numbers(code), money=self._money(code, usd_per_hour))

    def _money(self, code: CapCode, usd_per_hour: float) -> HeldMoney | None:
        """Return the money behind a refusal; None for a cap that is not about dollars in a window."""
        if code in ("cap-instances", "cap-hour"):
            return None
        purse = self._tightest(code)
        return HeldMoney(
            spent_usd=dollars(round(purse.spent)),
            reserved_usd=max(dollars(round(purse.cap - purse.spent - purse.left)), 0.0),
            room_at=purse.window.ends_at,
            needed_usd=usd_per_hour * self._ahead(purse.window) / SECONDS_PER_HOUR,
        )

    @property
    def dry_at(self) -> float | None:
        """When keeping the staying nodes could break a cap, today or after midnight; None if never."""
        rate, keep = sum(self._rates[name] for name in self._staying), self._caps.keep_seconds
        if rate <= 0.0:
            return None
        wakes: list[float] = []
        for purse in self._purses:
            if purse.window.begins_at <= self._now:
                at = self._now + purse.left / rate
                anew = purse.window.ends_at + purse.cap / rate - keep
                wakes += [at, anew] if at + keep <= purse.window.ends_at else [anew]
        return max(min(wakes), self._now + 1.0) if wakes else None

    def opens_at(self, refused: Collection[HeldCode], *, is_moving: bool) -> float | None:
        """Return when there may be room again: at the next tick if nodes come or go, or in a new window."""
        wakes = [purse.window.ends_at for purse in self._purses if purse.code in refused]
        if is_moving or len(self._staying) < len(self._rates):
            wakes.append(self._now + self._caps.tick_seconds)
        return min(wakes, default=None)

    def _leave(self, name: NodeId, until: float) -> None:
        if name in self._staying:
            self._staying.remove(name)
            self._usd_per_hour -= self._prices[name]
        self._go_on(name, until)

    def _go_on(self, name: NodeId, until: float) -> None:
        """Let a node cost until an instant, and at least its minimum."""
        until = max(until, self._least[name])
        before, self._until[name] = self._until[name], until
        for purse in self._purses:
            change = purse.window.overlap_seconds(self._now, until)
            if before > self._now:
                change -= purse.window.overlap_seconds(self._now, before)
            purse.left -= change * self._rates[name]


def _standing(window: Window, caps: Caps, *, since: float = 0.0) -> int:
    """Return the site's cost in a window without any node, in micro-dollars.

    Costs by the hour count from `since` on; fixed costs always count, because no bill holds them.
    """
    stands = caps.standing_usd_per_hour * window.overlap_seconds(since, inf) / SECONDS_PER_HOUR
    return micro_dollars(stands + fixed_usd(caps.fixed, window.begins_at, window.ends_at))


def most_per_second(node: NodeState) -> float:
    """Return the most that a node may cost per second from now on, in micro-dollars."""
    price = node.usd_per_hour
    if node.market == "spot":
        price = max(price, node.instance_type.usd_per_hour + node.extra_usd_per_hour)
    return price * MICRO_DOLLARS_PER_DOLLAR / SECONDS_PER_HOUR
