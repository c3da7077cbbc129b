"""A store in memory, for simulations: exact sums, and the last records of each kind."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from boa_daemon.tick.facts.actions import Action, LaunchNodes, act_of
from boa_daemon.tick.facts.limits import DAY_SECONDS, Act
from boa_daemon.tick.facts.offers import Cooldown, cooled, covers
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.ports import Charge, Launched, OpenLaunch, Outcome, Refused, Unknown
from boa_daemon.tick.facts.state import ClusterState
from policies.fast_dataclasses import replace
from policies.model import NodeId

GIVEN_UP_SECONDS = 60.0
"""Cool-down of an offer after a launch whose nodes never appeared."""

MOST_ACTS = 20_000
"""Largest number of acts to remember; the oldest are dropped."""


class MemoryStore:
    """Keeps exact sums and the last `keep` records, so that a long simulation stays small.

    It remembers the last `acts` orders for the rules against flapping; 0 disables that.
    """

    def __init__(self, keep: int = 1000, *, acts: int = MOST_ACTS) -> None:
        self.outcomes: deque[tuple[Action, Outcome, float]] = deque(maxlen=keep)
        self.charges: deque[Charge] = deque(maxlen=keep)
        self._tick, self._most_acts = 0, acts
        self._unseen: dict[str, OpenLaunch] = {}
        self._cooldowns: dict[str, Cooldown] = {}
        self._acts: OrderedDict[str, tuple[Action, float]] = OrderedDict()
        self._charged: set[NodeId] = set()
        self._settled = 0
        self._settled_by_day: dict[int, int] = {}
        self._books_opened_at: float | None = None
        self._memory: tuple[tuple[float, ...], float] | None = None

    def next_tick(self) -> int:
        """Return the number of the tick that begins."""
        self._tick += 1
        return self._tick

    def record_intent(self, action: Action, *, at: float) -> None:
        """Record an action before it is tried; a launch stays open until its nodes are known."""
        self.record_intents((action,), at=at)

    def record_outcome(self, action: Action, outcome: Outcome, *, at: float) -> None:
        """Record an outcome; unless it is unknown, close the action. Refused launches start a cool-down."""
        self.record_outcomes(((action, outcome),), at=at)

    def record_intents(self, actions: Sequence[Action], *, at: float) -> None:
        """Record several actions."""
        acts, most = self._acts, self._most_acts
        for action in actions:
            if most:
                acts[action.id] = action, at
                if len(acts) > most:
                    acts.popitem(last=False)
            if isinstance(action, LaunchNodes):
                self._unseen[action.id] = OpenLaunch(action=action, at=at)

    def record_outcomes(self, outcomes: Sequence[tuple[Action, Outcome]], *, at: float) -> None:
        """Record several outcomes."""
        for action, outcome in outcomes:
            self.outcomes.append((action, outcome, at))
            if isinstance(action, LaunchNodes) and not isinstance(outcome, Unknown):
                if isinstance(outcome, Refused):
                    self._acts.pop(action.id, None)
                self._settle(action, outcome, at)

    def _settle(self, launch: LaunchNodes, outcome: Outcome, at: float) -> None:
        """Record the nodes that a launch must show, and start cool-downs for what was refused."""
        if isinstance(outcome, Launched):
            self._cooldowns = {
                scope: rest
                for scope, rest in self._cooldowns.items()
                if not covers(scope, launch.offer_key, together=launch.together)
            }
            open_launch = self._unseen.get(launch.id)
            if open_launch is not None:
                self._keep_unseen(replace(open_launch, nodes=outcome.nodes))
            outcome = outcome.short or outcome
        else:
            self._unseen.pop(launch.id, None)
        if isinstance(outcome, Refused):
            self._cool(launch, outcome, at)

    def _cool(self, launch: LaunchNodes, refused: Refused, at: float) -> None:
        """Start cool-downs for the refused scopes."""
        self._rest(refused.scopes_of(launch), refused, at)

    def close_offers(self, refused: Refused, *, at: float) -> None:
        """Start cool-downs for the scopes of a refusal that came after its launch was accepted."""
        self._rest(refused.scopes, refused, at)

    def _rest(self, scopes: Iterable[str], refused: Refused, at: float) -> None:
        for scope in scopes:
            self._cooldowns[scope] = cooled(
                self._cooldowns.get(scope),
                kind=refused.kind,
                at=at,
                retry_after_seconds=refused.retry_after_seconds,
                scope=scope,
            )

    def _keep_unseen(self, launch: OpenLaunch) -> None:
        """Keep a launch open until all of its nodes were listed."""
        if launch.unseen:
            self._unseen[launch.action.id] = launch
        else:
            self._unseen.pop(launch.action.id, None)

    def unsettled(self) -> Sequence[OpenLaunch]:
        """Return launches whose outcome is unknown, or whose nodes were not all listed yet."""
        return list(self._unseen.values())

    def record_seen(self, launched_by: str, nodes: Collection[NodeId]) -> None:
        """Record that nodes of a launch were listed; the launch is settled once all were."""
        launch = self._unseen.get(launched_by)
        if launch is not None:
            self._keep_unseen(replace(launch, seen=launch.seen | frozenset(nodes)))

    def give_up(self, launched_by: str, reason: str, *, at: float) -> None:
        """Settle a launch with the nodes that were listed, and start a cool-down."""
        launch = self._unseen.pop(launched_by, None)
        if launch is not None:
            refused = Refused(reason=reason, retry_after_seconds=GIVEN_UP_SECONDS)
            self.outcomes.append((launch.action, refused, at))
            self._cool(launch.action, refused, at)

    def cooldowns(self, now: float) -> Mapping[str, Cooldown]:
        """Return the refused scopes whose cool-down is not over."""
        return {scope: rest for scope, rest in self._cooldowns.items() if rest.until > now}

    def record_charge(self, charge: Charge) -> None:
        """Append a final bill; a second one for the same node is ignored."""
        if charge.node not in self._charged:
            self._charged.add(charge.node)
            self.charges.append(charge)
            self._settled += charge.micro_dollars
            for day, part in charge.days:
                self._settled_by_day[day] = self._settled_by_day.get(day, 0) + part

    def reopen_charges(self, nodes: Collection[NodeId]) -> None:
        """Withdraw final bills, because the nodes live."""
        if self._charged.isdisjoint(nodes):
            return
        for found in [charge for charge in self.charges if charge.node in nodes]:
            self._charged.discard(found.node)
            self.charges.remove(found)
            self._settled -= found.micro_dollars
            for day, part in found.days:
                self._settled_by_day[day] -= part

    def settled_micro_dollars(self) -> int:
        """Return the sum of all final bills."""
        return self._settled

    def settled_since(self, at: float) -> int:
        """Return micro-dollars of final bills for the day of an instant and later days."""
        first = int(at // DAY_SECONDS)
        return sum(part for day, part in self._settled_by_day.items() if day >= first)

    def standing_charged_until(self) -> float:
        """Return 0: a simulation has no standing costs."""
        return 0.0

    def acts_since(self, at: float) -> Sequence[Act]:
        """Return the acts since an instant, in order of time."""
        found: list[Act] = []
        for action, then in reversed(self._acts.values()):
            if then < at:
                break
            found.append(act_of(action, at=then))
        return found[::-1]

    def books_opened_at(self, now: float) -> float:
        """Return the instant from which the budget accrues; the first call sets it."""
        if self._books_opened_at is None:
            self._books_opened_at = now
        return self._books_opened_at

    def reopen_books(self, at: float) -> None:
        """Set the instant from which the budget accrues."""
        self._books_opened_at = at

    def record_memory(self, memory: tuple[float, ...], *, at: float) -> None:
        """Store the policy's memory."""
        self._memory = (memory, at)

    def memory(self) -> tuple[tuple[float, ...], float] | None:
        """Return the policy's last memory and its instant."""
        return self._memory

    def record_decision(self, state: ClusterState, actions: Sequence[Action], plan: Plan) -> None:
        """Store nothing: the simulation sees each decision itself."""
