"""Why the cloud rents nothing: the last refusal of each type and market, until a launch of it succeeds."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from boa_daemon.tick.actions import LaunchNodes
from boa_daemon.tick.offers import Offer
from boa_daemon.tick.ports import Launched, Refused, Unknown

KEPT_SECONDS = 3600.0
"""A refusal that nobody repeated for so long says nothing about now."""
_LOG = logging.getLogger("boa.daemon")


@dataclass(slots=True)
class RefusedLaunches:
    """What was refused, when and why; and what has no room left, which is said once in the log."""

    _last: dict[str, tuple[float, str]] = field(default_factory=dict)
    _full: set[str] = field(default_factory=set)

    def take(self, action: LaunchNodes, outcome: Launched | Refused | Unknown, now: float) -> None:
        """Take in what became of an order."""
        offer = action.offer or Offer(instance_type=action.instance_type.name)
        if isinstance(outcome, Refused):
            self._last[offer.key.rstrip("/")] = (now, outcome.reason)
        elif isinstance(outcome, Launched) and outcome.nodes:
            kind = offer.instance_type
            self._last = {key: said for key, said in self._last.items() if key.partition("/")[0] != kind}

    def see(self, offers: Iterable[Offer]) -> None:
        """Log offers of which a quota or the stock newly leaves none."""
        full = {offer.key for offer in offers if offer.nodes_left == 0}
        for key in sorted(full - self._full):
            _LOG.info("no more of %s can be rented: the quota or the stock leaves none", key)
        self._full = full

    def sentences(self, now: float) -> Mapping[str, str]:
        """Return a sentence on each refusal that is young, by what was asked for."""
        return {
            key: f"the last launch of {key} was refused {now - at:.0f} s ago: {why}"
            for key, (at, why) in self._last.items()
            if now - at < KEPT_SECONDS
        }
