"""Safety nets and facts from outside: the loss of each is a note, an alert and a metric, as is its return.

A net works unseen until it is needed, so each is probed while nothing happens: the queue of spot warnings and
its rules, the leases, the price list, the backup, the notifiers. A fault is noted at once, and alerted when
it has lasted `GRACE_SECONDS`: a call that failed once is no loss.

No list names the nets: cloud, engine and daemon name theirs where they keep why each is lost (`nets`). A test
denies every call that the daemon makes by itself, one by one, and wants each denial told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from boa_daemon.units import format_hours

GRACE_SECONDS = 60.0
LOOK_SECONDS = 30.0
"""Seconds between two looks: with probes every three minutes, a loss is told within five minutes."""


@dataclass(slots=True)
class _Loss:
    since: float
    said: str
    is_alerted: bool = False


class SafetyNets:
    """Keeps which nets are lost, and since when; `tell` sends an alert with its key."""

    def __init__(self, tell: Callable[[str, str], None], show: Callable[[str, bool], None]) -> None:
        self._tell, self._show = tell, show
        self._losses: dict[str, _Loss] = {}
        self._names: set[str] = set()

    def look_at(self, nets: Mapping[str, Callable[[], str]], *, now: float) -> None:
        """Ask each net why it is lost, if it is; those that have never been lost are shown as well."""
        for name in nets.keys() - self._names:
            self._names.add(name)
            self._show(name, False)
        self.look({name: said for name, why in nets.items() if (said := why())}, now=now)

    def look(self, faults: Mapping[str, str], *, now: float) -> None:
        """Take the present faults by net; alert about new losses, and about nets that work again."""
        for name, said in faults.items():
            loss = self._losses.setdefault(name, _Loss(since=now, said=said))
            loss.said = said
            self._show(name, True)
            if not loss.is_alerted and now - loss.since >= GRACE_SECONDS:
                loss.is_alerted = True
                self._tell(f"lost:{name}:{int(loss.since)}", f"{name}: lost: {said}")
        for name in [name for name in self._losses if name not in faults]:
            loss = self._losses.pop(name)
            self._show(name, False)
            if loss.is_alerted:
                lasted = format_hours((now - loss.since) / 3600.0)
                self._tell(f"back:{name}:{int(now)}", f"{name}: works again, after {lasted}")

    def notes(self) -> list[str]:
        """Return a sentence on each net that is lost."""
        return [f"{name}: {loss.said}" for name, loss in sorted(self._losses.items())]
