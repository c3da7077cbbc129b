"""Store decisions: the state, the choice, the alternative, what was held back, and the reasons.

The state is stored for every tick that acts, and once in ten minutes for ticks that do not; `boa replay`
repeats a decision from it. Each policy is stored once, in its own table.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, delete, or_, select, update

from boa_daemon.errors import InputError
from boa_daemon.store.database import Database
from boa_daemon.store.database_setup import StoreOfOthers, StoreWentBack
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.sql import SqlStore, kind_and_target, put
from boa_daemon.store.tables import DECISIONS, META, POLICIES
from boa_daemon.tick.explain.runner_up import Alternatives, action_choice
from boa_daemon.tick.facts.actions import Action, StartJob
from boa_daemon.tick.facts.codec import CachingEncoder, digest, dumps, pack, unpack
from boa_daemon.tick.facts.limits import Held
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.money.spending import gpu_prices_in_use
from policies.model import JobId, Width

QUIET_SECONDS = 600.0
KEPT_STATES_SECONDS, KEPT_SECONDS = 14 * 86_400.0, 90 * 86_400.0
_LISTED = 50
"""Actions and reasons of one tick in an answer; of actions beyond them no alternative is computed."""

_REWORDED = re.compile(r"^idle for 0 s, and no job needs it")
"""What earlier releases recorded of a node whose last job had ended in the same tick."""

MOST_NODES = 32
"""Nodes that are listed of one start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What decisions and orders are asked for: those about a job, a user, a node, or of a kind of action.

    Empty ones leave all. `launched_by` is the id of the launch that made the node. A decision is about a user
    if an action is for one of the user's jobs; decisions recorded before users were are found by job only.
    """

    job: str = ""
    user: str = ""
    node: str = ""
    kind: str = ""
    launched_by: str = ""

    @property
    def words(self) -> tuple[tuple[str, ...], ...]:
        """Texts of a decision: of each of these, one."""
        # What was held back has no kind of its own, and a launch does not know its nodes yet.
        kind = "" if self.kind == HELD else self.kind
        asked = (
            (self.job,),
            (self.user,),
            (kind,),
            tuple(name for name in (self.node, self.launched_by) if name),
        )
        return tuple(names for names in asked if any(names))

    def is_in(self, decision: Mapping[str, Any]) -> bool:
        """Return whether one action, or something held back, fits all that is asked for."""
        if self == EVERYTHING:
            return True
        if any(self._fits(action) for action in decision["actions"]):
            return True
        if self.user or self.kind not in ("", HELD):
            return False
        named = {self.job, self.node} - {""}
        # As words: the name of job a-1 is part of that of job a-10.
        return any(named <= set(held["what"].split()) for held in decision["held"])

    def _fits(self, action: Mapping[str, Any]) -> bool:
        if self.kind and action["kind"] != self.kind:
            return False
        if self.job and action["target"] != self.job:
            return False
        if self.user and action.get("user") != self.user:
            return False
        if not self.node:
            return True
        made = bool(self.launched_by) and action["id"] == self.launched_by
        return made or self.node == action["target"] or self.node in action.get("nodes", ())

    def shortened(self, decision: Mapping[str, Any]) -> dict[str, Any]:
        """Return a decision with some of its actions and notes, those that fit first, and counts of all."""
        actions, held = decision["actions"], decision["held"]
        if len(actions) > _LISTED:
            actions = sorted(actions, key=lambda action: not self._fits(action))[:_LISTED]
        if len(held) > _LISTED:
            named = {self.job, self.node} - {""}
            held = sorted(held, key=lambda note: not named <= set(note["what"].split()))[:_LISTED]
        return {
            **decision,
            "actions": actions,
            "action_counts": dict(Counter(action["kind"] for action in decision["actions"])),
            "held": held,
            "held_counts": decision.get("held_counts")
            or dict(Counter(note["code"] for note in decision["held"])),
        }

    def orders(self, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the orders that fit: by their job, by who gave them or whose job it is, and by kind."""
        return [
            row
            for row in rows
            if not self.node
            and (not self.job or row["target"] == self.job)
            and (not self.user or row["user"] == self.user or f" of {self.user} " in f"{row['said']} ")
            and (not self.kind or row["what"] == self.kind)
        ]


HELD = "held"
"""Asked for as a kind: what was held back."""
EVERYTHING = About()

Speed = Callable[[str, int, Width], float]
"""A function from class, phase and width to speed; 0 when the speed is unknown."""


class DaemonStore(SqlStore):
    """A store that also records decisions and their reasons, and claims a start's GPUs with its intent."""

    def __init__(self, database: Database, queue: JobQueue) -> None:
        super().__init__(database)
        self.queue = queue
        self.policy_hash = ""
        self.speed: Speed = lambda _name, _phase, _width: 0.0
        self.prices: Mapping[str, float] = {}
        self._kept_state_at = float("-inf")
        self._recorded = 0
        """The last tick that this process recorded; 0 before the first."""
        self._recorded_in: str | None = None
        """The name of the database in which it was recorded, if it had one."""
        self._held_before: frozenset[tuple[str, str]] = frozenset()
        """What the last recorded tick held back: what, and the code."""
        self._scribe = CachingEncoder()
        database.is_ours = self._check_name
        self.last_text = ""
        """The state of the last recorded tick as JSON text."""

    @cached_property
    def known_name(self) -> str:
        """The database's name, which is asked for once."""
        return self.name

    def use_policy(self, name: str, document: str) -> None:
        """Store a policy, and attribute later decisions to it."""
        with self.database.write() as connection:
            put(connection, POLICIES, hash=name, document=pack(document))
        self.policy_hash = name

    def record_intents(self, actions: Sequence[Action], *, at: float) -> None:
        """Record intents, and claim the GPUs of starts in the same transaction."""
        with self.database.write():
            super().record_intents(actions, at=at)
            self.queue.claim([action for action in actions if _is_start(action)], at=at)  # type: ignore[misc]

    def record_decision(self, state: ClusterState, actions: Sequence[Action], plan: Plan) -> None:
        """Record the state and the decision of a tick."""
        text = self._scribe.text_of(state)
        keeps = bool(actions) or state.now - self._kept_state_at >= QUIET_SECONDS
        # Summarise and compress before the transaction, so that submissions wait only for the row.
        row = {
            "tick": state.tick,
            "at": state.now,
            "inputs": digest(text),
            "outputs": digest(dumps(list(actions))),
            "policy": self.policy_hash,
            "actions": len(actions),
            "summary": json.dumps(self._summary(state, actions, plan), separators=(",", ":")),
            "state": pack(text) if keeps else None,
        }
        self.last_text = text
        with self.database.write() as connection:
            self._check_it_is_the_same(connection)
            put(connection, META, key="tick", value=json.dumps(state.tick))
            put(connection, DECISIONS, **row)
        self._recorded = state.tick
        self._held_before = frozenset((held.what, held.code) for held in plan.held)
        if keeps:
            self._kept_state_at = state.now

    def _check_it_is_the_same(self, connection: Connection) -> None:
        """Return if the database still holds what this process recorded last.

        Raises:
            StoreWentBack: when an older copy took its place.
        """
        query = select(META.c.key, META.c.value).where(META.c.key.in_(("name", "tick")))
        rows = {row.key: json.loads(row.value) for row in connection.execute(query)}
        if int(rows.get("tick", 0)) < self._recorded:
            recorded, self._recorded = self._recorded, 0
            raise StoreWentBack(
                f"an older copy took the place of the database: its last tick is {rows.get('tick', 0)}, and "
                f"{recorded} was recorded"
            )
        self._recorded_in = rows.get("name")

    def _check_name(self, connection: Connection) -> None:
        """Return if the database still has the name of the one in which this process recorded its last tick.

        Raises:
            StoreOfOthers: when it has not.
        """
        if self._recorded_in is None:
            return
        found = connection.scalar(select(META.c.value).where(META.c.key == "name"))
        if found is None or json.loads(found) != self._recorded_in:
            raise StoreOfOthers(
                f"another database took the place of {self._recorded_in} while this daemon ran. Put the own "
                "one back, or restart the daemon"
            )

    def _summary(self, state: ClusterState, actions: Sequence[Action], plan: Plan) -> dict[str, Any]:
        """Return the figures of a decision: choice, runner-up, costs, and what was held back."""
        found = Alternatives.of(state, plan)
        chosen, other = self._options(state, plan, found)
        return {
            "usd_per_hour": state.usd_per_hour,
            "nodes": len(state.nodes),
            "jobs": len(state.jobs),
            "chosen": chosen,
            "runner_up": other,
            "waiting": dict(Counter(plan.jobs.waiting.values())),
            "held": [
                {"what": held.what, "code": held.code, "numbers": dict(held.numbers)}
                for held in self._notes(plan)
            ],
            "held_counts": dict(Counter(held.code for held in plan.held)),
            # All of them: each job, node and user is to be found.
            "actions": [
                self._listed(state, action, found if number < _LISTED else None)
                for number, action in enumerate(actions)
            ],
        }

    def _notes(self, plan: Plan) -> Sequence[Held]:
        """Return the notes to record of what is held back: all new ones, and a few of each other code.

        So a job among thousands is found by the tick that began to hold it back. Ticks that go on with that
        do not name all of them again, which would fill a disk.
        """
        if len(plan.held) <= _LISTED:
            return plan.held
        new = [held for held in plan.held if (held.what, held.code) not in self._held_before]
        place: Counter[str] = Counter()
        others: list[tuple[int, Held]] = []
        for held in plan.held:
            if (held.what, held.code) in self._held_before:
                place[held.code] += 1
                others.append((place[held.code], held))
        others.sort(key=lambda item: item[0])
        return [*new, *(held for _, held in others[: max(_LISTED - len(new), 0)])]

    def _options(
        self, state: ClusterState, plan: Plan, found: Alternatives
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the choice and the runner-up: the one change that would cost the least more.

        When the policy puts no price on money, the runner-up is to leave everything as it is.
        """
        job, terms = found.nearest, self._terms(state, plan.jobs.widths)
        if job is None:
            widths = {name: one.job.width for name, one in state.jobs.items() if one.job.width is not None}
            others = self._terms(state, widths)
            name, cost, other_cost = "change nothing", None, None
        else:
            one = found.jobs[job]
            others = {**terms, **self._terms(state, {job: one.other})}
            name = f"{one.other} in place of {one.width} for job {job}"
            cost, other_cost = found.costs
        return (
            {**_costs(state, terms), "usd_of_money_and_waiting": cost},
            {"name": name, **_costs(state, others), "usd_of_money_and_waiting": other_cost},
        )

    def _terms(self, state: ClusterState, widths: Mapping[JobId, Width]) -> dict[JobId, _Term]:
        """Return the GPUs of each width, their dollars per hour, and the hours until the job ends."""
        prices = {**self.prices, **gpu_prices_in_use(state)}
        terms: dict[JobId, _Term] = {}
        # Thousands of jobs share a few widths, each one object.
        rates: dict[tuple[str, int, int], tuple[float, float]] = {}
        for name, width in widths.items():
            job = state.jobs[name].job
            key = job.class_name, job.phase, id(width)
            rate = rates.get(key)
            if rate is None:
                usd_per_hour = width.gpus * prices.get(width.gpu_type, 0.0)
                rate = rates[key] = self.speed(job.class_name, job.phase, width), usd_per_hour
            speed, usd_per_hour = rate
            terms[name] = width.gpus, usd_per_hour, job.remaining_gpu_hours / speed if speed > 0.0 else 0.0
        return terms

    def _listed(self, state: ClusterState, action: Action, found: Alternatives | None) -> dict[str, Any]:
        """Return an action as a document with its alternative, if any are given, and the user and nodes."""
        kind, target = kind_and_target(action)
        document: dict[str, Any] = {"id": action.id, "kind": kind, "target": target, "reason": action.reason}
        record = self.queue.active.get(JobId(target))
        if record is not None:
            document["user"] = record.user
            job = state.all_jobs.get(record.id)
            slots = action.slots if isinstance(action, StartJob) else () if job is None else job.slots
            # In the order of the slots, each node once.
            document["nodes"] = list(dict.fromkeys(slot.node for slot in slots))[:MOST_NODES]
        choice = None if found is None else action_choice(state, action, found.jobs)
        return document if choice is None else {**document, "choice": choice.document}

    def decisions(
        self, *, limit: int, with_actions: bool = False, about: About = EVERYTHING
    ) -> list[dict[str, Any]]:
        """Return the newest decisions, without their states, that are about something."""
        columns = [column for column in DECISIONS.c if column.name != "state"]
        query = select(*columns).order_by(DECISIONS.c.tick.desc())
        if with_actions:
            query = query.where(DECISIONS.c.actions > 0)
        for names in about.words:
            # Names are text within the summary: the database leaves out most rows, `is_in` decides.
            texts = (json.dumps(name)[1:-1] for name in names)
            query = query.where(or_(*(DECISIONS.c.summary.contains(text, autoescape=True) for text in texts)))
        found: list[dict[str, Any]] = []
        with self.database.read() as connection:
            for row in connection.execute(query.limit(limit) if about == EVERYTHING else query):
                decision = _decision(row)
                if about.is_in(decision):
                    found.append(about.shortened(decision))
                if len(found) >= limit:
                    break
        return found

    def decision_record(self, tick: int) -> dict[str, Any]:
        """Return the whole record of a decision, for a file that `boa replay` reads.

        Raises:
            InputError: when there is no such decision, or its state was not stored.
        """
        with self.database.read() as connection:
            row = connection.execute(select(DECISIONS).where(DECISIONS.c.tick == tick)).first()
            if row is None:
                raise InputError(f"there is no decision {tick}", hint="`boa decisions` lists them")
            if row.state is None:
                raise InputError(
                    f"decision {tick} did nothing and its state was not kept",
                    hint="Choose one with actions: `boa decisions --acting`",
                )
            policy = connection.scalar(select(POLICIES.c.document).where(POLICIES.c.hash == row.policy))
        if policy is None:
            raise InputError(f"the policy of decision {tick} was not kept")
        return {
            **_decision(row),
            "policy_document": json.loads(unpack(policy)),
            "state": json.loads(unpack(row.state)),
        }

    def forget_old(self, now: float) -> None:
        """Delete states older than 14 days and decisions older than 90 days."""
        with self.database.write() as connection:
            old = DECISIONS.c.at < now - KEPT_STATES_SECONDS
            connection.execute(
                update(DECISIONS).where(old, DECISIONS.c.state.is_not(None)).values(state=None)
            )
            connection.execute(delete(DECISIONS).where(DECISIONS.c.at < now - KEPT_SECONDS))


_Term = tuple[int, float, float]
"""GPUs of a job, dollars per hour, and hours until its end."""


def _costs(state: ClusterState, terms: Mapping[JobId, _Term]) -> dict[str, float]:
    """Return the cost per hour of widths, the hours until their jobs end, and the jobs without GPUs."""
    gpus, usd, hours = 0, 0.0, 0.0
    for of_job in terms.values():
        gpus += of_job[0]
        usd += of_job[1]
        hours += of_job[2]
    return {
        "gpus": gpus,
        "usd_per_hour": usd,
        "job_hours_left": hours,
        "jobs_without_gpus": len(state.jobs) - len(terms),
    }


def _is_start(action: Action) -> bool:
    return kind_and_target(action)[0] == "start"


def _decision(row: Any) -> dict[str, Any]:
    summary = json.loads(row.summary)
    for action in summary["actions"]:
        action["reason"] = _REWORDED.sub("no job is left on it, and none needs it", action["reason"])
    return {
        "tick": row.tick,
        "at": row.at,
        "inputs_hash": row.inputs,
        "outputs_hash": row.outputs,
        "policy": row.policy,
        **summary,
    }
