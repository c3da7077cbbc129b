"""Terminate instances: in one call, one by one if that fails, and again until EC2 shows them ended.

Only instances that the listing showed as ours are terminated. Stopping instances is the task of the warm pool
(`boa_daemon.backends.aws.instances.pool`), for on-demand instances only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.tick.facts.ports import Accepted, Clock, Refused, Unknown
from boa_daemon.tick.facts.rests import END
from policies.model import NodeId

BATCH = 500
MOST_REMEMBERED = 10_000
"""Instances that were told to end and are remembered as such."""
AGAIN_SECONDS, ALARM_SECONDS = 60.0, 900.0
_LIVING = ("pending", "running", "stopping", "stopped")


class Releaser:
    """Ends instances and remembers which it ended; `say` receives alarms as sentences."""

    def __init__(self, calls: AwsCalls, clock: Clock, say: Callable[[str], None]) -> None:
        self._calls, self._clock, self._say = calls, clock, say
        self._asked: dict[NodeId, tuple[float, float]] = {}
        self._unanswered: dict[NodeId, int] = {}
        self._refused: dict[NodeId, str] = {}
        self._alarmed: set[NodeId] = set()
        self._ever: dict[NodeId, None] = {}

    @property
    def asked(self) -> frozenset[NodeId]:
        """The instances that were told to end and that the listing does not show as ended yet."""
        return frozenset(self._asked)

    def has_asked(self, name: NodeId) -> bool:
        """Whether this process has ever told an instance to end."""
        return name in self._ever

    def note(self, ids: Iterable[NodeId]) -> None:
        """Take over that instances were told to end, by us and in another way."""
        self._ever.update(dict.fromkeys(ids))
        while len(self._ever) > MOST_REMEMBERED:
            del self._ever[next(iter(self._ever))]

    def terminate(self, ids: Sequence[NodeId]) -> dict[NodeId, Accepted | Refused | Unknown]:
        """End instances and return the outcome of each."""
        outcomes: dict[NodeId, Accepted | Refused | Unknown] = {}
        self.note(ids)
        for batch in _batches(ids):
            outcomes.update(self._end(batch))
        now = self._clock.now()
        for name, outcome in outcomes.items():
            if isinstance(outcome, Refused) and outcome.kind != "throttled":
                self._refused[name] = outcome.reason
            elif not isinstance(outcome, Refused):
                first, _ = self._asked.get(name, (now, now))
                self._asked[name] = (first, now)
                self._refused.pop(name, None)
            if isinstance(outcome, Unknown):
                self._unanswered[name] = self._unanswered.get(name, 0) + 1
            else:
                self._unanswered.pop(name, None)
        return outcomes

    @property
    def fault(self) -> str:
        """Why instances could not be ended when last told to; empty if all could."""
        refused = dict(self._refused)
        if not refused:
            return ""
        name, said = next(iter(refused.items()))
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        return f"{name}{more} could not be ended, and is billed until it is: {said}"

    def follow_up(self, states: Mapping[NodeId, str]) -> None:
        """End instances again that run on after they were ended, and alarm after `ALARM_SECONDS`.

        `states` is the listing: instance id to state.
        """
        now = self._clock.now()
        for name in [name for name in self._refused if states.get(name, "terminated") not in _LIVING]:
            del self._refused[name]
        for name in [name for name in self._asked if states.get(name, "terminated") == "terminated"]:
            del self._asked[name]
            self._unanswered.pop(name, None)
            self._alarmed.discard(name)
        again = [
            name
            for name, (_, last) in self._asked.items()
            if states[name] in _LIVING and now - last >= self._again_seconds(name)
        ]
        if again:
            self.terminate(again)
        for name, (first, _) in self._asked.items():
            if now - first >= ALARM_SECONDS and name not in self._alarmed:
                self._alarmed.add(name)
                self._say(
                    f"{name} was told to end {now - first:.0f} s ago and is still {states[name]}: "
                    "it counts as billed until EC2 says terminated"
                )

    def _again_seconds(self, name: NodeId) -> float:
        """Return the time between two orders to end an instance: short where EC2 has not answered."""
        times = self._unanswered.get(name)
        return AGAIN_SECONDS if times is None else END.seconds(times=times)

    def _end(self, ids: Sequence[NodeId]) -> dict[NodeId, Accepted | Refused | Unknown]:
        """End a batch; if EC2 refuses the batch because of one instance, end each one by itself."""
        try:
            self._calls.call("ec2:TerminateInstances", InstanceIds=list(ids))
        except CallFailed as error:
            if len(ids) > 1 and error.meaning in (
                "not-found",
                "protected",
                "wrong-state",
                "bad-request",
                "denied",
            ):
                return {name: self._end([name])[name] for name in ids}
            return {name: _outcome(error) for name in ids}
        return {name: Accepted() for name in ids}


def _outcome(error: CallFailed) -> Refused | Unknown:
    """Return the outcome of a failed call. An id that EC2 does not know is left to the next listing."""
    if error.meaning in ("unknown", "not-found"):
        return Unknown(reason=str(error))
    if error.meaning == "throttled":
        return Refused(reason=str(error), kind="throttled", retry_after_seconds=AGAIN_SECONDS)
    kind = "denied" if error.meaning in ("denied", "credentials", "protected") else "bad-request"
    return Refused(reason=str(error), kind="denied" if kind == "denied" else "bad-request")


def _batches(ids: Sequence[NodeId]) -> Iterator[Sequence[NodeId]]:
    for begin in range(0, len(ids), BATCH):
        yield ids[begin : begin + BATCH]
