"""A day of jobs at a cap on instances, on a whole daemon whose jobs take their time to stop."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.decide.decision import Decision

TICK_SECONDS = 60.0
BOOT_SECONDS = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What to run: nodes at most, seconds that a stop takes, and how often jobs arrive."""

    seed: int
    nodes: int = 4
    stop_seconds: float = 60.0
    hours: float = 5.0
    arrivals_per_hour: float = 6.0


def ticks_of(day: Day, folder: Path) -> Iterator[Decision]:
    """Yield the decision of every tick of a day of random jobs."""
    draw, clock = random.Random(day.seed), ManualClock(1_700_000_000.0)
    settings = {
        "budget": {"usd_per_hour": 4.0 * day.nodes, "max_instances": day.nodes, "usd_per_day_cap": 10_000.0},
        "cloud": {"instance_types": ["g4dn.12xlarge"], "boot_seconds": BOOT_SECONDS},
        "daemon": {"tick_seconds": TICK_SECONDS},
    }
    play = DaemonInAFolder(folder, clock, settings)
    play.runner._checkpoint = day.stop_seconds
    begins_at = arrives_at = clock.instant
    number = 0
    while clock.instant < begins_at + 3600.0 * day.hours:
        while arrives_at <= clock.instant:
            hours = draw.lognormvariate(0.7, 1.2)
            content = job_content(
                f"j{number}", hours=hours, max_gpus=16, stop_grace_seconds=max(day.stop_seconds, 1.0)
            )
            play.service.submit([content], user="ann")
            number += 1
            arrives_at += draw.expovariate(day.arrivals_per_hour / 3600.0)
        found = play.daemon.tick()
        assert found is not None, play.daemon.standing.fault
        yield found
        clock.instant += TICK_SECONDS
    play.close()
