"""`aws/instances/release.py`: instances are ended together or one by one, and again until EC2 shows it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.release import Releaser
from boa_daemon.testing import ManualClock
from boa_daemon.tick.facts.ports import Accepted, Refused, Unknown


class Ends:
    """Calls that note what is ended; `codes` are errors by instance."""

    def __init__(self, codes: dict[str, str] | None = None) -> None:
        self.codes = codes or {}
        self.asked: list[list[str]] = []

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """End instances."""
        assert operation == "ec2:TerminateInstances"
        names = arguments["InstanceIds"]
        self.asked.append(names)
        for name in names:
            if name in self.codes:
                raise CallFailed(operation, self.codes[name], "no")
        return {}


def a_releaser(calls: Ends) -> tuple[Releaser, ManualClock, list[str]]:
    """Return a releaser, its clock, and what it says."""
    clock, said = ManualClock(1000.0), list[str]()
    return Releaser(calls, clock, said.append), clock, said  # type: ignore[arg-type]


def test_one_instance_that_ec2_does_not_know_keeps_no_other_alive() -> None:
    """The batch is refused because of it, so each is ended by itself."""
    calls = Ends({"i-2": "InvalidInstanceID.NotFound"})
    outcomes = a_releaser(calls)[0].terminate(["i-1", "i-2", "i-3"])
    assert calls.asked == [["i-1", "i-2", "i-3"], ["i-1"], ["i-2"], ["i-3"]]
    assert outcomes["i-1"] == outcomes["i-3"] == Accepted()
    assert isinstance(outcomes["i-2"], Unknown)


@pytest.mark.parametrize(
    ("code", "calls"), [("RequestLimitExceeded", 1), ("InternalError", 1), ("UnauthorizedOperation", 3)]
)
def test_a_batch_is_taken_apart_only_when_one_of_it_may_be_the_reason(code: str, calls: int) -> None:
    """A limit of requests concerns all alike."""
    ends = Ends({"i-1": code, "i-2": code})
    a_releaser(ends)[0].terminate(["i-1", "i-2"])
    assert len(ends.asked) == calls


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("RequestLimitExceeded", "throttled"),
        ("UnauthorizedOperation", "denied"),
        ("IncorrectInstanceState", "bad-request"),
    ],
)
def test_an_instance_that_ec2_does_not_end_is_refused_and_not_followed(code: str, kind: str) -> None:
    """The next tick orders its end again."""
    releaser, _, _ = a_releaser(Ends({"i-1": code}))
    outcome = releaser.terminate(["i-1"])["i-1"]
    assert isinstance(outcome, Refused)
    assert outcome.kind == kind
    assert releaser.asked == frozenset()


def test_a_thousand_and_one_instances_are_ended_in_three_calls() -> None:
    """EC2 takes 500 at once."""
    calls = Ends()
    a_releaser(calls)[0].terminate([f"i-{number}" for number in range(1001)])
    assert [len(names) for names in calls.asked] == [500, 500, 1]


def test_an_instance_that_runs_on_is_ended_again_and_said_once_after_a_quarter_of_an_hour() -> None:
    """Each minute, until the listing shows it as ended, or no longer at all."""
    calls = Ends()
    releaser, clock, said = a_releaser(calls)
    releaser.terminate(["i-1"])
    for _ in range(20):
        clock.instant += 30.0
        releaser.follow_up({"i-1": "running"})
    assert len(calls.asked) == 1 + 10
    assert said == []
    clock.instant += 299.0
    releaser.follow_up({"i-1": "running"})
    assert said == []
    for _ in range(2):
        clock.instant += 1.0
        releaser.follow_up({"i-1": "running"})
    assert said == [
        "i-1 was told to end 900 s ago and is still running: it counts as billed until EC2 says terminated"
    ]
    assert releaser.asked == {"i-1"}
    releaser.follow_up({"i-1": "terminated"})
    assert releaser.asked == frozenset()


def test_an_instance_that_shuts_down_is_not_ended_again() -> None:
    """It is on its way."""
    calls = Ends()
    releaser, clock, _ = a_releaser(calls)
    releaser.terminate(["i-1"])
    clock.instant += 61.0
    releaser.follow_up({"i-1": "shutting-down"})
    assert len(calls.asked) == 1
    releaser.follow_up({})
    assert releaser.asked == frozenset()


def test_an_end_without_an_answer_is_repeated_within_seconds_and_then_each_minute() -> None:
    """The tick does not order it again, as the end may have been done; an answer ends the short waits."""
    calls = Ends({"i-1": "ConnectionLost"})
    releaser, clock, _ = a_releaser(calls)
    assert isinstance(releaser.terminate(["i-1"])["i-1"], Unknown)
    tried = [clock.instant]
    for _ in range(200):
        clock.instant += 1.0
        before = len(calls.asked)
        releaser.follow_up({"i-1": "running"})
        tried += [clock.instant] * (len(calls.asked) - before)
    assert [after - before for before, after in pairwise(tried)] == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    calls.codes.clear()
    clock.instant += 60.0
    releaser.follow_up({"i-1": "running"})
    count = len(calls.asked)
    clock.instant += 59.0
    releaser.follow_up({"i-1": "running"})
    assert len(calls.asked) == count
