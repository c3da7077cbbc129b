"""The daemon's SQL store: intents before their acts, bills, cool-downs, and the number of the tick.

Data that ticks read is also in memory, written through, because the process is the only writer. After a
failed write `reload` restores memory from disk.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import inf
from typing import Any

from sqlalchemy import Connection, Table, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from boa_daemon.store.database import Database
from boa_daemon.store.memory import GIVEN_UP_SECONDS
from boa_daemon.store.tables import CHARGE_DAYS, CHARGES, COOLDOWNS, INTENTS, META
from boa_daemon.tick.facts.actions import (
    Action,
    EndGeneration,
    GiveUpJob,
    LaunchNodes,
    StartJob,
    StopJob,
    TerminateNode,
    act_of,
)
from boa_daemon.tick.facts.codec import dumps, loads
from boa_daemon.tick.facts.limits import DAY_SECONDS, Act
from boa_daemon.tick.facts.offers import OF_PEOPLE, Cooldown, cooled, covers, scope_of
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.ports import Charge, Launched, OpenLaunch, Outcome, Refused, Unknown
from boa_daemon.tick.facts.state import ClusterState

HOUR = 3600.0
REMEMBERED_SECONDS = 2.0 * HOUR
"""Age, before the newest act, beyond which the rules against flapping need no acts."""
LAUNCHES_SECONDS = 10.0
"""Seconds after which launches of the last hour are read again, if none was recorded since."""
OPEN, DONE = "open", "done"
"""An intent is open until its outcome is known; a launch's intent, until all of its nodes were listed."""


def kind_and_target(action: Action) -> tuple[str, str]:
    """Return the kind of an action and its target: a job, a node or an offer."""
    if isinstance(action, StartJob):
        return "start", action.job
    if isinstance(action, StopJob):
        return "stop", action.job
    if isinstance(action, EndGeneration):
        return "end", action.job
    if isinstance(action, GiveUpJob):
        return "give-up", action.job
    if isinstance(action, TerminateNode):
        return "terminate", action.node
    return "launch", action.offer_key


def put(connection: Connection, table: Table, **values: Any) -> None:
    """Insert a row, or replace the one with the same key."""
    connection.execute(_upsert(connection.dialect.name, table, tuple(values)), values)


@cache
def _upsert(dialect_name: str, table: Table, names: tuple[str, ...]) -> Any:
    """Return the upsert of these columns; cached, as building takes ten times as long as writing."""
    statement = (sqlite if dialect_name == "sqlite" else postgresql).insert(table)
    keys = [column.name for column in table.primary_key.columns]
    rest = {name: statement.excluded[name] for name in names if name not in keys}
    if not rest:
        return statement.on_conflict_do_nothing(index_elements=keys)
    return statement.on_conflict_do_update(index_elements=keys, set_=rest)


class SqlStore:
    """Implements `Store`."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.charged_until = 0.0
        """Until when standing costs are charged; `StandingCosts` sets it."""
        self.reload()

    def reload(self) -> None:
        """Reload the data that ticks read from the database."""
        with self.database.read() as connection:
            meta = {row.key: json.loads(row.value) for row in connection.execute(select(META))}
            self._settled = int(connection.scalar(select(func.sum(CHARGES.c.micro_dollars))) or 0)
            days = select(CHARGE_DAYS.c.day, func.sum(CHARGE_DAYS.c.micro_dollars)).group_by(
                CHARGE_DAYS.c.day
            )
            self._by_day = {int(day): int(amount) for day, amount in connection.execute(days)}
            self._charged = set(connection.scalars(select(CHARGES.c.node)))
            self._cooldowns = {
                row.scope: Cooldown(until=row.until, times=row.times, kind=row.kind)
                for row in connection.execute(select(COOLDOWNS))
            }
            launches = select(INTENTS).where(INTENTS.c.status == OPEN, INTENTS.c.kind == "launch")
            self._unseen = {row.id: _open_launch(row) for row in connection.execute(launches)}
            self._acts = self._recent_acts(connection)
        self._recent_launches: tuple[float, list[tuple[float, str, Outcome]]] = (-inf, [])
        self._tick = int(meta.get("tick", 0))
        self._books_opened_at: float | None = meta.get("books_opened_at")
        memory = meta.get("memory")
        self._memory = None if memory is None else (tuple(map(float, memory[0])), float(memory[1]))

    def _recent_acts(self, connection: Connection) -> dict[str, Act]:
        """Return recent acts in order of time, without refused ones."""
        last = connection.scalar(select(func.max(INTENTS.c.at))) or 0.0
        recent = select(INTENTS).where(INTENTS.c.at >= last - REMEMBERED_SECONDS)
        return {
            row.id: act_of(loads(row.action), at=row.at)
            for row in connection.execute(recent.order_by(INTENTS.c.at, INTENTS.c.id))
            if not (row.outcome and isinstance(loads(row.outcome), Refused))
        }

    @property
    def tick(self) -> int:
        """The number of the last tick."""
        return self._tick

    def never_below(self, tick: int) -> None:
        """Number later ticks above `tick`, so that a restored database does not name acts twice."""
        if tick > self._tick:
            self._write_meta("tick", tick)
            self._tick = tick

    def next_tick(self) -> int:
        """Return the number of the new tick; its decision stores the number before any act."""
        self._tick += 1
        return self._tick

    def record_intent(self, action: Action, *, at: float) -> None:
        """Record an action before it is tried."""
        self.record_intents([action], at=at)

    def record_intents(self, actions: Sequence[Action], *, at: float) -> None:
        """Record several actions before they are tried, in one transaction."""
        rows = []
        for action in actions:
            kind, target = kind_and_target(action)
            rows.append(
                {
                    "id": action.id,
                    "at": at,
                    "kind": kind,
                    "target": target,
                    "action": dumps(action),
                    "status": OPEN,
                    "seen": "[]",
                }
            )
        if rows:
            with self.database.write() as connection:
                connection.execute(insert(INTENTS), rows)
        for action in actions:
            self._acts[action.id] = act_of(action, at=at)
            if isinstance(action, LaunchNodes):
                self._unseen[action.id] = OpenLaunch(action=action, at=at)

    def record_outcome(self, action: Action, outcome: Outcome, *, at: float) -> None:
        """Record the outcome of an action."""
        self.record_outcomes([(action, outcome)], at=at)

    def record_outcomes(self, outcomes: Sequence[tuple[Action, Outcome]], *, at: float) -> None:
        """Record the outcomes of several actions, in one transaction."""
        if not outcomes:
            return
        with self.database.write() as connection:
            for action, outcome in outcomes:
                nodes = json.dumps(outcome.nodes) if isinstance(outcome, Launched) else None
                is_open = isinstance(outcome, Unknown) or bool(nodes)
                connection.execute(
                    update(INTENTS)
                    .where(INTENTS.c.id == action.id)
                    .values(outcome=dumps(outcome), nodes=nodes, status=OPEN if is_open else DONE)
                )
                if isinstance(outcome, Refused):
                    self._acts.pop(action.id, None)
                if isinstance(action, LaunchNodes) and not isinstance(outcome, Unknown):
                    self._settle(connection, action, outcome, at)
        if any(isinstance(action, LaunchNodes) for action, _ in outcomes):
            self._recent_launches = -inf, self._recent_launches[1]

    def _settle(self, connection: Connection, launch: LaunchNodes, outcome: Outcome, at: float) -> None:
        """Record the nodes that a launch must show, and start cool-downs for what was refused."""
        if isinstance(outcome, Launched):
            open_again = [
                scope
                for scope in self._cooldowns
                if covers(scope, launch.offer_key, together=launch.together)
            ]
            for scope in open_again:
                connection.execute(delete(COOLDOWNS).where(COOLDOWNS.c.scope == scope))
                del self._cooldowns[scope]
            known = self._unseen.get(launch.id)
            if known is not None:
                self._keep_unseen(connection, replace(known, nodes=outcome.nodes))
            outcome = outcome.short or outcome
        else:
            self._unseen.pop(launch.id, None)
        if isinstance(outcome, Refused):
            self._cool(connection, launch, outcome, at)

    def _cool(self, connection: Connection, launch: LaunchNodes, refused: Refused, at: float) -> None:
        """Start cool-downs for the refused scopes."""
        self._rest(connection, refused.scopes_of(launch), refused, at)

    def close_offers(self, refused: Refused, *, at: float) -> None:
        """Start cool-downs for the scopes of a refusal that came after its launch was accepted."""
        with self.database.write() as connection:
            self._rest(connection, refused.scopes, refused, at)

    def _rest(self, connection: Connection, scopes: Iterable[str], refused: Refused, at: float) -> None:
        for scope in scopes:
            rest = cooled(
                self._cooldowns.get(scope),
                kind=refused.kind,
                at=at,
                retry_after_seconds=refused.retry_after_seconds,
                scope=scope,
            )
            put(connection, COOLDOWNS, scope=scope, until=rest.until, times=rest.times, kind=rest.kind)
            self._cooldowns[scope] = rest

    def _keep_unseen(self, connection: Connection, launch: OpenLaunch) -> None:
        """Keep a launch open until all of its nodes were listed."""
        name, status = launch.action.id, OPEN if launch.unseen else DONE
        seen = json.dumps(sorted(launch.seen))
        connection.execute(update(INTENTS).where(INTENTS.c.id == name).values(seen=seen, status=status))
        if launch.unseen:
            self._unseen[name] = launch
        else:
            self._unseen.pop(name, None)

    def unsettled(self) -> Sequence[OpenLaunch]:
        """Return launches whose outcome is unknown, or whose nodes were not all listed yet."""
        return list(self._unseen.values())

    def record_seen(self, launched_by: str, nodes: Collection[str]) -> None:
        """Record that nodes of a launch were listed; the launch is settled once all were."""
        launch = self._unseen.get(launched_by)
        if launch is not None:
            with self.database.write() as connection:
                self._keep_unseen(connection, replace(launch, seen=launch.seen | frozenset(nodes)))

    def give_up(self, launched_by: str, reason: str, *, at: float) -> None:
        """Settle a launch with the nodes that were listed, and start a cool-down."""
        launch = self._unseen.get(launched_by)
        refused = Refused(reason=reason, retry_after_seconds=GIVEN_UP_SECONDS)
        with self.database.write() as connection:
            values = {"status": DONE, "outcome": dumps(refused)}
            connection.execute(update(INTENTS).where(INTENTS.c.id == launched_by).values(values))
            if launch is not None:
                self._cool(connection, launch.action, refused, at)
        self._unseen.pop(launched_by, None)
        self._recent_launches = -inf, self._recent_launches[1]

    def open_mended(self, now: float) -> None:
        """End the rests of refusals that a person cures, such as denials: somebody says that it is done."""
        mended = [scope for scope, rest in self._cooldowns.items() if rest.kind in OF_PEOPLE]
        with self.database.write() as connection:
            for scope in mended:
                connection.execute(delete(COOLDOWNS).where(COOLDOWNS.c.scope == scope))
                del self._cooldowns[scope]

    def cooldowns(self, now: float) -> Mapping[str, Cooldown]:
        """Return the refused scopes whose cool-down is not over."""
        return {scope: rest for scope, rest in self._cooldowns.items() if rest.until > now}

    def look_at_launches(self, now: float) -> None:
        """Read the launches of the last hour for `refused_launches`, if they may have changed."""
        read_at = self._recent_launches[0]
        if 0.0 <= now - read_at < LAUNCHES_SECONDS:
            return
        launches = (
            select(INTENTS.c.at, INTENTS.c.target, INTENTS.c.outcome)
            .where(INTENTS.c.kind == "launch", INTENTS.c.outcome.is_not(None), INTENTS.c.at > now - HOUR)
            .order_by(INTENTS.c.at, INTENTS.c.id)
        )
        with self.database.read() as connection:
            rows = [(row.at, row.target, loads(row.outcome)) for row in connection.execute(launches)]
        self._recent_launches = now, rows

    def refused_launches(self, now: float) -> Mapping[str, tuple[float, str]]:
        """Return by offer when and why its last launch was refused, unless its type was launched since.

        The answer is from memory, as of the last `look_at_launches`: the status must come when the database
        does not answer.
        """
        found: dict[str, tuple[float, str]] = {}
        for at, target, outcome in self._recent_launches[1]:
            if at <= now - HOUR:
                continue
            refused: Outcome | None = outcome
            kind = scope_of(target).instance_type
            if isinstance(outcome, Launched) and outcome.nodes:
                found = {key: said for key, said in found.items() if scope_of(key).instance_type != kind}
                refused = outcome.short
            if isinstance(refused, Refused):
                found[target] = (at, refused.reason)
        return found

    def record_charge(self, charge: Charge) -> None:
        """Append a final bill; a second one for the same node is ignored."""
        if charge.node in self._charged:
            return
        with self.database.write() as connection:
            _insert_charge(connection, charge)
        self._count_charge(charge)

    def amend_charge(self, charge: Charge) -> int:
        """Replace a final bill by another one; return the difference in micro-dollars. Without a bill: 0."""
        if charge.node not in self._charged:
            return 0
        before = self._settled
        with self.database.write() as connection:
            self._reopen_charge(charge.node)
            _insert_charge(connection, charge)
        self._count_charge(charge)
        return self._settled - before

    def _count_charge(self, charge: Charge) -> None:
        self._charged.add(charge.node)
        self._settled += charge.micro_dollars
        for day, part in _days_of(charge):
            self._by_day[day] = self._by_day.get(day, 0) + part

    def reopen_charges(self, nodes: Collection[str]) -> None:
        """Withdraw final bills: the nodes live, and are billed again when they end."""
        for node in sorted(self._charged.intersection(nodes)):
            self._reopen_charge(node)

    def _reopen_charge(self, node: str) -> None:
        with self.database.write() as connection:
            amount = connection.scalar(select(CHARGES.c.micro_dollars).where(CHARGES.c.node == node)) or 0
            days = select(CHARGE_DAYS.c.day, CHARGE_DAYS.c.micro_dollars).where(CHARGE_DAYS.c.node == node)
            parts = connection.execute(days).all()
            connection.execute(delete(CHARGES).where(CHARGES.c.node == node))
            connection.execute(delete(CHARGE_DAYS).where(CHARGE_DAYS.c.node == node))
        self._charged.discard(node)
        self._settled -= int(amount)
        for day, part in parts:
            self._by_day[int(day)] -= int(part)

    def settled_micro_dollars(self) -> int:
        """Return the sum of all final bills."""
        return self._settled

    def settled_since(self, at: float) -> int:
        """Return micro-dollars of final bills for the day of an instant and later days."""
        first = int(at // DAY_SECONDS)
        return sum(part for day, part in self._by_day.items() if day >= first)

    def standing_charged_until(self) -> float:
        """Return until when standing costs are charged; 0 when none are."""
        return self.charged_until

    def newest_charges(self, kind: str) -> tuple[float, int, int] | None:
        """Return the newest start among a kind's charges, with the sum and number of charges from then."""
        query = (
            select(CHARGES.c.started_at, func.sum(CHARGES.c.micro_dollars), func.count())
            .where(CHARGES.c.instance_type == kind)
            .group_by(CHARGES.c.started_at)
            .order_by(CHARGES.c.started_at.desc())
            .limit(1)
        )
        with self.database.read() as connection:
            row = connection.execute(query).first()
        return None if row is None else (float(row[0]), int(row[1]), int(row[2]))

    def acts_since(self, at: float) -> Sequence[Act]:
        """Return the acts since an instant, in order of time, without refused launches."""
        for name in [name for name, act in self._acts.items() if act.at < at - REMEMBERED_SECONDS]:
            del self._acts[name]
        return sorted((act for act in self._acts.values() if act.at >= at), key=lambda act: act.at)

    def books_opened_at(self, now: float) -> float:
        """Return the instant from which the budget accrues; the first call sets it."""
        if self._books_opened_at is None:
            self.reopen_books(now)
        return now if self._books_opened_at is None else self._books_opened_at

    def reopen_books(self, at: float) -> None:
        """Set the instant from which the budget accrues."""
        self._write_meta("books_opened_at", at)
        self._books_opened_at = at

    def record_memory(self, memory: tuple[float, ...], *, at: float) -> None:
        """Store the policy's memory."""
        self._write_meta("memory", [memory, at])
        self._memory = (memory, at)

    def memory(self) -> tuple[tuple[float, ...], float] | None:
        """Return the policy's last memory and its instant."""
        return self._memory

    def record_decision(self, state: ClusterState, actions: Sequence[Action], plan: Plan) -> None:
        """Store the number of the tick."""
        del actions, plan
        self._write_meta("tick", state.tick)

    @property
    def name(self) -> str:
        """A unique name of the database, generated on first use."""
        with self.database.read() as connection:
            found = connection.scalar(select(META.c.value).where(META.c.key == "name"))
        if found is not None:
            return str(json.loads(found))
        made = secrets.token_hex(4)
        self._write_meta("name", made)
        return made

    def flag(self, key: str) -> bool:
        """Return a stored flag; False if it was never set."""
        with self.database.read() as connection:
            found = connection.scalar(select(META.c.value).where(META.c.key == key))
        return found is not None and bool(json.loads(found))

    def set_flag(self, key: str, value: bool) -> None:
        """Store a flag."""
        self._write_meta(key, value)

    def _write_meta(self, key: str, value: object) -> None:
        with self.database.write() as connection:
            put(connection, META, key=key, value=json.dumps(value))


def _days_of(charge: Charge) -> tuple[tuple[int, int], ...]:
    return charge.days or ((int(charge.started_at // DAY_SECONDS), charge.micro_dollars),)


def _insert_charge(connection: Connection, charge: Charge) -> None:
    connection.execute(
        insert(CHARGES).values(
            node=charge.node,
            instance_type=charge.instance_type,
            started_at=charge.started_at,
            ended_at=charge.ended_at,
            micro_dollars=charge.micro_dollars,
        )
    )
    connection.execute(
        insert(CHARGE_DAYS),
        [{"node": charge.node, "day": day, "micro_dollars": part} for day, part in _days_of(charge)],
    )


def _open_launch(row: Any) -> OpenLaunch:
    return OpenLaunch(
        action=loads(row.action),
        at=row.at,
        nodes=None if row.nodes is None else tuple(json.loads(row.nodes)),
        seen=frozenset(json.loads(row.seen)),
    )
