"""`aws/instances/instance_health.py`: which instances should be left, and when."""

from __future__ import annotations

from typing import Any, cast

import pytest
from ec2_rows import Answers, failed, instant

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.instances.instance_health import ASK_SECONDS, InstanceHealth
from boa_daemon.backends.aws.instances.node_states import EVENT_SECONDS, IMPAIRED_SECONDS
from boa_daemon.testing import ManualClock

NOW = 1_800_000_000.0


class Asked:
    """The health of instances, as EC2's rows of status say."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.clock = ManualClock(NOW)
        self.calls = Answers(DescribeInstanceStatus=lambda **_: rows)
        self.health = InstanceHealth(cast(AwsCalls, self.calls), self.clock)
        self.again(*rows, after=0.0)

    def again(
        self, *rows: dict[str, Any], after: float = ASK_SECONDS, running: tuple[str, ...] = ("i-1",)
    ) -> None:
        """Ask later, when the rows are others."""
        self.calls.operations["DescribeInstanceStatus"] = lambda **_: rows
        self.clock.instant += after
        self.health.refresh(running)

    def leave(self, name: str = "i-1") -> tuple[float, float] | None:
        """Return since when an instance has a fault and when it should be left, from NOW on."""
        fault = self.health.fault(name)
        return None if fault is None else (fault.since - NOW, fault.leave_at - NOW)


def checked(
    status: str = "impaired", *, since: float | None = None, part: str = "SystemStatus"
) -> dict[str, Any]:
    """Return a row with one status check."""
    details = [] if since is None else [{"Name": "reachability", "ImpairedSince": instant(NOW + since)}]
    return {"InstanceId": "i-1", part: {"Status": status, "Details": details}}


def scheduled(
    at: float | None, said: str = "retirement", code: str = "instance-retirement"
) -> dict[str, Any]:
    """Return a row with one scheduled event."""
    event = {"Code": code, "Description": said} | ({} if at is None else {"NotBefore": instant(NOW + at)})
    return {"InstanceId": "i-1", "Events": [event]}


@pytest.mark.parametrize("status", ["ok", "initializing", "insufficient-data", "not-applicable", ""])
def test_only_an_impaired_check_is_a_fault(status: str) -> None:
    """A node that boots has no answer yet."""
    assert Asked(checked(status)).leave() is None
    assert Asked({"InstanceId": "i-1", "SystemStatus": None, "Events": None}).leave() is None


@pytest.mark.parametrize("part", ["SystemStatus", "InstanceStatus", "AttachedEbsStatus"])
def test_jobs_leave_some_minutes_after_the_first_check_failed(part: str) -> None:
    """The earliest of several; the sentence says what is impaired."""
    row = checked(since=-60.0, part=part)
    row[part]["Details"].append({"ImpairedSince": instant(NOW - 90.0)})
    assert Asked(row).leave() == (-90.0, IMPAIRED_SECONDS - 90.0)


def test_without_an_instant_of_ec2_the_fault_counts_from_the_first_look() -> None:
    """Later looks do not put off the deadline; once it is well, a new fault begins anew."""
    asked = Asked(checked())
    asked.again(checked())
    assert asked.leave() == (0.0, IMPAIRED_SECONDS)
    asked.again()
    assert asked.leave() is None
    asked.again(checked())
    assert asked.leave() == (3 * ASK_SECONDS, 3 * ASK_SECONDS + IMPAIRED_SECONDS)


def test_jobs_leave_before_a_scheduled_event_and_not_for_one_that_is_over() -> None:
    """EC2 keeps past events in the list; an event without a time says nothing."""
    assert Asked(scheduled(9000.0)).leave() == (0.0, 9000.0 - EVENT_SECONDS)
    for row in (scheduled(None), scheduled(9.0, "[Completed] retirement"), scheduled(9.0, "[Canceled] x")):
        assert Asked(row).leave() is None


def test_an_event_has_a_fault_of_its_own_since_it_became_known() -> None:
    """Another event is another fault; the same one stays."""
    asked = Asked(scheduled(9000.0))
    asked.again(scheduled(9000.0))
    assert asked.leave() == (0.0, 9000.0 - EVENT_SECONDS)
    asked.again(scheduled(9000.0, code="system-reboot"))
    assert asked.leave() == (2 * ASK_SECONDS, 9000.0 - EVENT_SECONDS)


def test_of_several_faults_that_counts_which_has_jobs_leave_first() -> None:
    """An event in a minute comes before a check that has just failed."""
    soon = checked(since=0.0) | scheduled(EVENT_SECONDS + 60.0)
    assert Asked(soon).leave() == (0.0, 60.0)
    late = checked(since=0.0) | scheduled(9000.0)
    assert Asked(late).leave() == (0.0, IMPAIRED_SECONDS)


def test_ec2_is_asked_every_third_minute_in_batches_or_at_once_when_told() -> None:
    """A hundred ids are one question."""
    asked = Asked()
    names = tuple(f"i-{number:03}" for number in range(101))
    asked.again(after=ASK_SECONDS - 0.1, running=names)
    assert len(asked.calls.asked) == 1
    asked.again(after=0.1, running=names)
    assert [len(call["InstanceIds"]) for _, call in asked.calls.asked] == [1, 100, 1]
    asked.health.forget()
    asked.again(after=0.0)
    assert len(asked.calls.asked) == 4
    assert asked.health.age_seconds() == 0.0


def test_without_instances_nothing_is_asked_and_nothing_is_wrong() -> None:
    """What was known of others is over."""
    asked = Asked(checked())
    asked.again(running=())
    assert (asked.leave(), len(asked.calls.asked), asked.health.as_of) == (None, 1, NOW + ASK_SECONDS)


@pytest.mark.parametrize(
    ("code", "is_told"), [("UnauthorizedOperation", True), ("InvalidInstanceID.NotFound", False)]
)
def test_a_question_that_fails_leaves_what_is_known(code: str, is_told: bool) -> None:
    """An instance that has just ended is no failure; the next answer clears what was said."""
    asked = Asked(checked())
    error = failed("ec2:DescribeInstanceStatus", code)
    asked.calls.operations["DescribeInstanceStatus"] = error
    asked.clock.instant += ASK_SECONDS
    asked.health.refresh(["i-1"])
    assert asked.leave() == (0.0, IMPAIRED_SECONDS)
    assert bool(asked.health.failed) == is_told
    assert (asked.health.age_seconds(), InstanceHealth(cast(AwsCalls, None), asked.clock).age_seconds()) == (
        ASK_SECONDS,
        None,
    )
    asked.again()
    assert (asked.health.failed, asked.leave()) == ("", None)
