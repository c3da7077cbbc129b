"""The health of the daemon: its last decision, its faults, orders such as going down, and messages."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from boa_daemon.clock import SMALL_SECONDS
from boa_daemon.daemon.watch.decision_summary import DecisionSummary
from boa_daemon.daemon.watch.purse_alerts import Purse
from boa_daemon.store.database_troubles import explain, trouble_of
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.pending_ends import PendingEnd
from boa_daemon.tick.facts.ports import Refused
from boa_daemon.units import counted
from policies.model import NodeId
from policies.money_text import in_dollars
from policies.online.pacing import Pace

LATE_TICKS, LATE_SECONDS = 3, 60.0
"""The daemon is not ready after this many tick intervals plus this many seconds without a complete tick."""


@dataclass(slots=True)
class DaemonHealth:
    """The daemon's state: its last decision, its faults, and orders such as going down.

    `fault` says why ticks fail, `plan_fault` why the last plan stays in use; both are empty when all is well.
    `tick_seconds` is the duration of the last tick. `reattached` counts the jobs and instances found at the
    start. `done_at` is the monotonic time of the last complete tick; `is_late` says that its delay was
    alerted.
    """

    decision: Decision | None = None
    picture: DecisionSummary | None = None
    fault: str = ""
    tick_seconds: float = 0.0
    is_started: bool = False
    is_ready: bool = False
    is_down: bool = False
    reattached: tuple[int, int] = (0, 0)
    started_at: float = 0.0
    notes: list[str] = field(default_factory=list)
    plan_fault: str = ""
    purses: tuple[Purse, ...] = ()
    pace: Pace | None = None
    priced: tuple[tuple[Pace, int], list[dict[str, Any]], bool] | None = None
    worth: tuple[tuple[Pace, int], dict[str, Any] | None] | None = None
    done_at: float = field(default_factory=time.monotonic)
    is_late: bool = False
    clock_note: str = ""
    gap_note: str = ""
    setting_warnings: tuple[str, ...] = ()
    """Sentences about settings in force that do not go together."""
    settings_note: str = ""
    """Why the settings in force are not those of the files; empty when they are."""

    def trouble(self, tick_seconds: float | None) -> str:
        """Return why the daemon is not ready: ticks fail or do not complete; empty when it is ready.

        Without `tick_seconds` no tick is expected, because there is no database.
        """
        if self.fault:
            return self.fault
        silent = time.monotonic() - self.done_at
        if tick_seconds is not None and silent > LATE_TICKS * tick_seconds + LATE_SECONDS:
            return f"no tick completed for {silent:.0f} s, and one is due every {tick_seconds:.0f} s"
        return "" if self.is_ready else "the first tick is not done"

    @property
    def line(self) -> str:
        """The state in one line, for systemd."""
        picture = self.picture
        if self.fault:
            return f"in trouble: {self.fault}"
        if picture is None:
            return "starting"
        return (
            f"{in_dollars(picture.usd_per_hour)}/hour, {counted(picture.nodes, 'node')}, "
            f"{counted(picture.running, 'job')} running, "
            f"{picture.waiting} waiting"
        )


def fault_of(error: Exception) -> str:
    """Return why a tick failed, and what that means."""
    kind = trouble_of(error)
    if isinstance(error, SQLAlchemyError):
        said, remedy = explain(error, kind)
        return f"the database cannot be used: {said}. Nothing is started meanwhile. {remedy}"
    if kind is not None and isinstance(error, OSError | MemoryError | sqlite3.Error):
        said, remedy = explain(error, kind)
        return f"the state folder cannot be used: {said}. Nothing is started meanwhile. {remedy}"
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def pending_end_sentence(node: NodeId, end: PendingEnd, usd_per_hour: float | None, *, now: float) -> str:
    """Return what people are told of a node that the cloud does not end: why, its cost, and what to do."""
    seconds = max(now - end.since, 0.0)
    since = f"for {seconds:.0f} s the cloud has" if seconds >= 1.0 else "the cloud has"
    how = "refused to end it" if isinstance(end.said, Refused) else "not answered the order"
    cost = "its price" if usd_per_hour is None else f"{in_dollars(usd_per_hour)}/hour"
    return (
        f"{node} is not ended: {since} {how} ({end.said.reason.rstrip('.')}). It costs {cost} until it ends, "
        "and caps can be broken by that. BOA tries again every minute; mend the cause, or end it in the "
        "cloud's own console"
    )


def clock_note(jump_seconds: float) -> str:
    """Return a note that the machine's clock jumped, with the remedy; empty without a jump."""
    if abs(jump_seconds) <= SMALL_SECONDS:
        return ""
    off = f"{abs(jump_seconds):.0f} s {'ahead' if jump_seconds > 0 else 'behind'}"
    return (
        f"the clock of this machine is {off}, and the daemon does "
        "not follow it. Correct the clock; if it is right, restart the daemon"
    )
