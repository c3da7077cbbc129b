"""End all resources of a cluster, and report what is left in each region and when billing stopped."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from boa_daemon.backends.aws.instances.sweep import OwnedResource, ResourceKind, Sweeper
from boa_daemon.tick.facts.ports import Clock

KINDS: Sequence[ResourceKind] = ("instance", "volume", "network-interface", "spot-request")
_LOOK_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What is left in a region, and how many resources were ended, `of_warm_pool` of them stopped instances.

    `stopped_at` is when billing stopped; None if nothing was billed.
    """

    region: str
    left: dict[ResourceKind, int]
    ended: int
    stopped_at: float | None
    failed: dict[str, str]
    of_warm_pool: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing of ours is left and nothing failed to end."""
        return not any(self.left.values()) and not self.failed

    def row(self) -> dict[str, Any]:
        """Return the receipt as a row of JSON."""
        return {
            "region": self.region,
            "instances": self.left["instance"],
            "volumes": self.left["volume"],
            "network_interfaces": self.left["network-interface"],
            "spot_requests": self.left["spot-request"],
            "ended": self.ended,
            "of_warm_pool": self.of_warm_pool,
            "billing_stopped_at": None if self.stopped_at is None else iso_time(self.stopped_at),
            "failed": self.failed,
        }


def iso_time(instant: float) -> str:
    """Return an instant as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(instant, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def end_everything(
    sweeper: Sweeper,
    region: str,
    *,
    clock: Clock,
    wait_seconds: float = 300.0,
    sleep: Callable[[float], None] = time.sleep,
    which: Callable[[OwnedResource], bool] = lambda found: True,
) -> Receipt:
    """End our resources in a region, repeat until none is left or the time is up, and return the receipt.

    Ended instances release disks and interfaces only once they are down, so each round looks for those again.

    Raises:
        CallFailed: when AWS cannot be asked.
    """
    deadline = clock.now() + wait_seconds
    ended: set[str] = set()
    instances: set[str] = set()
    stopped_ones: set[str] = set()
    failed: dict[str, str] = {}
    is_tried = False
    while True:
        found = [each for each in sweeper.find(region=region) if which(each)]
        # However short the time, end everything once.
        if not found or (is_tried and clock.now() >= deadline):
            break
        is_tried = True
        failed = sweeper.release(found)
        ended.update(each.id for each in found if each.id not in failed)
        instances.update(each.id for each in found if each.kind == "instance")
        stopped_ones.update(each.id for each in found if each.is_stopped)
        sleep(min(_LOOK_SECONDS, max(deadline - clock.now(), 0.0)))
    left = Counter(each.kind for each in found)
    stopped = sweeper.billing_stopped_at(sorted(instances), region=region) if instances else None
    remaining = {each.id for each in found}
    return Receipt(
        region=region,
        left={kind: left[kind] for kind in KINDS},
        ended=len(ended),
        stopped_at=stopped,
        failed={name: why for name, why in failed.items() if name in remaining},
        of_warm_pool=len(stopped_ones & ended),
    )
