"""Days of a whole daemon on the fake AWS in process: ticks, refreshes, sweeps and looks at its nets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import boto3
import pytest
from aws_rigs import AwsRig, a_rig

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.event_rules import PATTERNS
from boa_daemon.backends.aws.rights.resource_policies import queue_policy
from boa_daemon.daemon.loop.clockwork import REFRESH_SECONDS, SWEEP_SECONDS
from boa_daemon.daemon.watch.safety_nets import LOOK_SECONDS
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import FAKE_CREDENTIALS

TYPE, TICK, PRICE, EXTRAS = "g5.xlarge", 30.0, 1.006, 0.026918
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "budget": {"usd_per_hour": 9.0, "usd_per_day_cap": 300.0, "max_instances": 6},
    "cloud": {"provider": "aws", "instance_types": [TYPE]},
    "daemon": {"tick_seconds": TICK, "idle_hold_seconds": 60.0},
}
Hook: TypeAlias = Callable[[str, dict[str, Any], Callable[[], Any]], Any]


class Day:
    """A daemon on the fake AWS, with a hook between it and each call."""

    def __init__(self, folder: Path, rig: AwsRig, *, is_whole: bool = False, database: str = "") -> None:
        """Open the daemon; one that `is_whole` refreshes facts, sweeps and looks at its nets, too."""
        self.rig = rig
        self.play = DaemonInAFolder(folder, rig.clock, SETTINGS, rented_from=rig.cloud, database=database)
        self.jobs: list[str] = []
        self.hook: Hook | None = None
        self.is_whole = is_whole
        self._done_at: dict[str, float] = {}
        calls = rig.cloud.calls
        real = calls._call_once

        def once(operation: str, region: str, arguments: Any) -> Any:
            def plain() -> Any:
                return real(operation, region, arguments)

            return plain() if self.hook is None else self.hook(operation, dict(arguments), plain)

        calls._call_once = once  # type: ignore[method-assign]

    def submit(self, count: int = 1, *, hours: float = 0.3) -> None:
        """Submit jobs of one GPU."""
        content = [job_content(f"j{len(self.jobs) + each}", hours=hours) for each in range(count)]
        self.jobs += self.play.service.submit(content, user="ann")["jobs"]

    def ticks(self, minutes: float) -> None:
        """Let time pass."""
        for _ in range(round(minutes * 60.0 / TICK)):
            self.step()

    def until(self, is_so: Callable[[], object], *, minutes: float) -> None:
        """Let time pass until something is so, but not longer."""
        for _ in range(round(minutes * 60.0 / TICK)):
            if is_so():
                return
            self.step()

    def step(self) -> None:
        """Do what the daemon's threads do in the time of one tick, and let it pass."""
        if self.is_whole:
            self.poll()
            self._at(REFRESH_SECONDS, self.rig.cloud.refresh)
            self._at(SWEEP_SECONDS[1], self.play.daemon.sweep)
        self.play.daemon.tick()
        if self.is_whole:
            self._at(LOOK_SECONDS, self.play.daemon.look_at_nets)
        self.rig.pass_time(TICK)

    def poll(self) -> None:
        """Read the queue of warnings, as the listener's thread does."""

    def _at(self, seconds: float, do: Callable[[], object]) -> None:
        now, name = self.rig.clock.now(), do.__name__
        if now - self._done_at.get(name, float("-inf")) >= seconds:
            self._done_at[name] = now
            do()

    def statuses(self) -> list[str]:
        """Return how the jobs are, in the order of submission."""
        return [str(self.play.service.job(job)["status"]) for job in self.jobs]

    def lost(self) -> set[str]:
        """Return the nets that the metric shows as lost."""
        text = self.play.daemon.metrics.text().decode()
        rows = [row for row in text.splitlines() if row.startswith("boa_safety_net_lost{")]
        return {row.partition('net="')[2].partition('"')[0] for row in rows if row.endswith(" 1.0")}

    def alerts(self) -> list[str]:
        """Return the sentences of all alerts, the newest first."""
        return [str(row["sentence"]) for row in self.play.daemon.alerts.latest(10_000)]

    def notes(self) -> list[str]:
        """Return the notes of the status."""
        return list(self.play.service.status()["notes"])

    def launched(self) -> int:
        """Return how many instances were ever launched."""
        return len(self.rig.fake.history())

    def charged(self) -> float:
        """Return the dollars of final bills."""
        return float(self.play.storage.store.settled_micro_dollars()) / 1e6

    def billed(self) -> float:
        """Return what EC2 bills, counted from the launch: compute, disk and address."""
        hours = sum((life.ended_at or 0.0) - life.launched_at for life in self.rig.fake.history()) / 3600.0
        return hours * (PRICE + EXTRAS)

    def ends_well(self, launched: int) -> None:
        """Run on for an hour at most; all ends, with so many instances launched and the bill of EC2."""
        self.until(lambda: set(self.statuses()) == {"finished"} and not self.rig.fake.live(), minutes=60.0)
        self.ticks(2.0)
        assert self.statuses() == ["finished"] * len(self.jobs)
        assert self.rig.fake.live() == []
        assert self.launched() == launched
        assert self.charged() == pytest.approx(self.billed(), rel=0.01)


class QueueOfWarnings:
    """Reads the queue once per tick, in place of the listener's thread."""

    def __init__(self, day: Day) -> None:
        self._queue, self.fault = day.rig.cloud._queue(), ""

    def poll(self) -> None:
        """Read what is there."""
        try:
            self._queue.poll_once(0)
            self.fault = ""
        except CallFailed as error:
            self.fault = f"spot warnings cannot be received: {error}"

    def close(self) -> None:
        """Do nothing."""


def make_warnings() -> str:
    """Make the queue of warnings with its rules, or what of them is missing; return its address."""
    sqs, events = (boto3.client(name, region_name="us-east-1") for name in ("sqs", "events"))
    url = str(sqs.create_queue(QueueName="warnings")["QueueUrl"])
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    document = json.dumps(queue_policy("warnings", arn, arn.split(":")[4]))
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": document})
    for name, pattern in PATTERNS.items():
        events.put_rule(Name=name, EventPattern=json.dumps(pattern), State="ENABLED")
        events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
    return url


def with_credentials(patch: pytest.MonkeyPatch) -> None:
    """Set made-up credentials, and remove the machine's own AWS settings."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_CONFIG_FILE"):
        patch.delenv(name, raising=False)
    for name, value in (*FAKE_CREDENTIALS.items(), ("AWS_EC2_METADATA_DISABLED", "true")):
        patch.setenv(name, value)


@contextmanager
def a_day(folder: Path, terms: Terms | None = None, **settings: Any) -> Iterator[Day]:
    """Yield a whole day with a queue of warnings, on which a job of 200 hours runs on its one node."""
    terms = terms or Terms(
        boot_seconds=60.0, shutdown_seconds=30.0, vcpu_quotas={"L-DB2E81BA": 64, "L-3819A6DF": 64}
    )
    values = {"instance_types": (TYPE,), "zones": ("us-east-1a", "us-east-1b")} | settings
    with ExitStack() as stack:
        rig = stack.enter_context(a_rig("process", terms, **values))
        rig.cloud = rig.another(queue_url=make_warnings())
        rig.cloud.listen = lambda wake: None  # type: ignore[method-assign]
        day = Day(folder, rig, is_whole=True)
        stack.callback(day.play.close)
        queue = QueueOfWarnings(day)
        rig.cloud._listener, day.poll = queue, queue.poll  # type: ignore[assignment, method-assign]
        day.submit(hours=200.0)
        day.ticks(6.0)
        assert day.statuses() == ["running"]
        yield day


def fails(*operations: str, code: str, status: int = 400, said: str = "said by a test") -> Hook:
    """Return a hook that fails calls of these operations, or of all, with a code."""

    def hook(operation: str, arguments: dict[str, Any], plain: Callable[[], Any]) -> Any:
        if not operations or operation in operations:
            raise CallFailed(operation, code, said, http_status=status)
        return plain()

    return hook
