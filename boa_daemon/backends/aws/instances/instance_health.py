"""Status checks and scheduled events of our running instances, asked for every three minutes for all of them.

EC2 lists an impaired instance as `running`, and bills it; only DescribeInstanceStatus tells. The answer also
has the events that EC2 schedules: retirement, stop, reboot, maintenance. The call is made beside the tick,
in the thread that refreshes prices. Without the right to it, the checks are unknown and nothing else changes;
it is asked on, because a right that was taken away may be given back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.node_states import EVENT_SECONDS, IMPAIRED_SECONDS
from boa_daemon.tick.facts.ports import Clock

ASK_SECONDS = 170.0
"""Seconds between questions: with a refresh each minute, every third asks."""
_ID_BATCH = 100
_CHECKS = (
    ("SystemStatus", "its host"), ("InstanceStatus", "the instance"), ("AttachedEbsStatus", "its disks")
)  # fmt: skip
_OVER = ("[Completed]", "[Canceled]")


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFault:
    """Why an instance should be left, since when, and the instant at which its jobs should have left it."""

    why: str
    since: float
    leave_at: float


class InstanceHealth:
    """Keeps what EC2 said of the health of our instances; one thread asks, others read."""

    def __init__(self, calls: AwsCalls, clock: Clock) -> None:
        self._calls, self._clock = calls, clock
        self._faults: Mapping[str, HealthFault] = {}
        self._ask_at = 0.0
        self.as_of: float | None = None
        self.failed = ""

    def forget(self) -> None:
        """Ask again at the next refresh."""
        self._ask_at = 0.0

    def refresh(self, instances: Collection[str]) -> None:
        """Ask for the status of running instances."""
        now = self._clock.now()
        if now < self._ask_at:
            return
        self._ask_at = now + ASK_SECONDS
        if not instances:
            self._faults, self.as_of, self.failed = {}, now, ""
            return
        found: dict[str, HealthFault] = {}
        names = sorted(instances)
        try:
            for begin in range(0, len(names), _ID_BATCH):
                for row in self._calls.pages(
                    "ec2:DescribeInstanceStatus",
                    "InstanceStatuses",
                    InstanceIds=names[begin : begin + _ID_BATCH],
                ):
                    fault = self._fault(row, now)
                    if fault is not None:
                        found[row["InstanceId"]] = fault
        except CallFailed as error:
            if error.meaning == "not-found":
                # One of them has just ended: the next listing shows which.
                return
            self.failed = str(error)
            return
        self._faults, self.as_of, self.failed = found, now, ""

    def fault(self, instance: str) -> HealthFault | None:
        """Return why an instance should be left; None if it is well, or if that is not known."""
        return self._faults.get(instance)

    def age_seconds(self) -> float | None:
        """Return the age of the last answer in seconds; None without one."""
        return None if self.as_of is None else self._clock.now() - self.as_of

    def _fault(self, row: Mapping[str, Any], now: float) -> HealthFault | None:
        """Return the fault that one row tells: the event or the failed check that has jobs leave first."""
        before = self._faults.get(row["InstanceId"])
        found = [*_events(row, now, before)]
        for key, whose in _CHECKS:
            check = row.get(key) or {}
            if check.get("Status") != "impaired":
                continue
            told = [_instant(each.get("ImpairedSince")) for each in check.get("Details", ())]
            since = min((at for at in told if at is not None), default=None)
            if since is None:
                since = now if before is None else before.since
            why = f"EC2's status check of {whose} is impaired"
            found.append(HealthFault(why=why, since=since, leave_at=since + IMPAIRED_SECONDS))
        return min(found, key=lambda fault: fault.leave_at, default=None)


def _events(row: Mapping[str, Any], now: float, before: HealthFault | None) -> list[HealthFault]:
    """Return the scheduled events of a row; jobs leave `EVENT_SECONDS` before one."""
    found = []
    for event in row.get("Events") or ():
        at = _instant(event.get("NotBefore"))
        if at is None or str(event.get("Description", "")).startswith(_OVER):
            continue
        when = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        why = f"EC2 has scheduled {event.get('Code', 'an event')} for {when}"
        since = before.since if before is not None and before.why == why else now
        found.append(HealthFault(why=why, since=since, leave_at=at - EVENT_SECONDS))
    return found


def _instant(value: object) -> float | None:
    return value.timestamp() if isinstance(value, datetime) else None
