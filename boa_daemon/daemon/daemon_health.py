"""How the daemon is: its last decision, what is wrong, what it was told, and what to say of that."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sqlalchemy.exc import SQLAlchemyError

from boa_daemon.clock import SMALL_SECONDS
from boa_daemon.daemon.decision_summary import DecisionSummary
from boa_daemon.tick.decision import Decision
from boa_daemon.units import counted
from policies.online.pacing import Pace

LATE_TICKS, LATE_SECONDS = 3, 60.0
"""After so many intervals and so long without a tick that was done, the daemon is not ready."""


@dataclass(slots=True)
class DaemonHealth:
    """How the daemon is: the last decision, what is wrong, and what it was told."""

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
    pace: Pace | None = None
    done_at: float = field(default_factory=time.monotonic)
    is_late: bool = False
    clock_note: str = ""

    def trouble(self, tick_seconds: float | None) -> str:
        """Return why the daemon is not ready: ticks fail, or do not come to their end; empty where it is.

        Without `tick_seconds` none is waited for: there is no database to tick with.
        """
        if self.fault:
            return self.fault
        silent = time.monotonic() - self.done_at
        if tick_seconds is not None and silent > LATE_TICKS * tick_seconds + LATE_SECONDS:
            return f"no tick came to its end for {silent:.0f} s, and one is due every {tick_seconds:.0f} s"
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
            f"{picture.usd_per_hour:.2f} USD/hour, {counted(picture.nodes, 'node')}, "
            f"{counted(picture.running, 'job')} running, "
            f"{picture.waiting} waiting"
        )


def fault_of(error: Exception) -> str:
    """Return what keeps a tick from being done, and what that means."""
    if isinstance(error, SQLAlchemyError):
        said = str(getattr(error, "orig", None) or error).splitlines()[0][:200]
        what = "Free some space on its disk" if "full" in said else "See to its disk or its server"
        return f"the database cannot be used: {said}. Nothing is started meanwhile. {what}"
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def clock_note(jump_seconds: float) -> str:
    """Return that the machine's clock jumped, and what to do; nothing where it is right."""
    if abs(jump_seconds) <= SMALL_SECONDS:
        return ""
    off = f"{abs(jump_seconds):.0f} s {'ahead' if jump_seconds > 0 else 'behind'}"
    return (
        f"the clock of this machine is {off}: it is not "
        "followed. Set it right; where it is right, restart the daemon"
    )
