"""`aws/instances/rehearsals.py`: whether a launch and an end would be refused now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from ec2_rows import Answers, failed

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.rehearsals import REHEARSE_SECONDS, Rehearsals
from boa_daemon.testing import ManualClock
from boa_daemon.tick.facts.offers import Offer

OFFERS = [Offer(instance_type="gpu-x4", zone=zone) for zone in ("a", "b")]
DRY = failed("ec2:RunInstances", "DryRunOperation")


class Site:
    """Rehearsals of two offers and two instances; the answers are set by a test."""

    def __init__(self) -> None:
        self.clock, self.launched = ManualClock(1000.0), list[str]()
        self.answer: CallFailed | None = DRY
        self.calls = Answers(TerminateInstances=failed("ec2:TerminateInstances", "DryRunOperation"))
        launcher = SimpleNamespace(rehearse=self._rehearse)
        self.rehearsals = Rehearsals(cast(Any, self.calls), cast(Any, launcher), self.clock)
        self.look(after=0.0)

    def _rehearse(self, offer: Offer) -> CallFailed | None:
        self.launched.append(offer.zone)
        return self.answer

    def look(
        self, running: tuple[str, ...] = ("i-1", "i-2"), *, after: float = REHEARSE_SECONDS, **how: Any
    ) -> Any:
        """Refresh some time later."""
        self.clock.instant += after
        self.rehearsals.refresh(OFFERS, running, **how)
        return self.rehearsals

    @property
    def ended(self) -> list[str]:
        """The instances whose end was rehearsed."""
        assert all(call["DryRun"] is True for _, call in self.calls.asked)
        return [call["InstanceIds"][0] for _, call in self.calls.asked]


def test_offers_and_instances_are_rehearsed_one_after_the_other_every_few_minutes() -> None:
    """The first look after a start asks nothing; an end is a dry run, always."""
    site = Site()
    site.look(after=REHEARSE_SECONDS - 0.1)
    assert (site.launched, site.ended) == ([], [])
    site.look(after=0.1)
    for _ in range(3):
        site.look()
    assert (site.launched, site.ended) == (["b", "a", "b", "a"], ["i-2", "i-1", "i-2", "i-1"])
    site.rehearsals.forget()
    site.look(after=0.0)
    assert len(site.launched) == 5


def test_in_turn_only_one_of_both_is_rehearsed_each_time() -> None:
    """All offers and all instances have their turn; without instances a launch has it each time."""
    site = Site()
    for _ in range(8):
        site.look(in_turn=True)
    assert (site.launched, site.ended) == (["b", "a", "b", "a"], ["i-1", "i-2", "i-1", "i-2"])
    for _ in range(2):
        site.look((), in_turn=True)
    assert (len(site.launched), len(site.ended)) == (6, 4)


@pytest.mark.parametrize(
    ("code", "is_fault"),
    [
        ("UnauthorizedOperation", True),
        ("InvalidAMIID.NotFound", True),
        ("InvalidSubnetID.NotFound", True),
        ("InsufficientInstanceCapacity", False),
        ("VcpuLimitExceeded", False),
        ("RequestLimitExceeded", False),
        ("InternalError", False),
    ],
)
def test_a_launch_that_would_be_refused_is_told_unless_by_the_market(code: str, is_fault: bool) -> None:
    """What the market refuses passes, and is told where a job waits; a fault stays until it would work."""
    site = Site()
    site.answer = failed("ec2:RunInstances", code)
    said = site.look().launch_fault
    assert said.startswith("a launch of gpu-x4/b/on-demand would be refused: ") if is_fault else said == ""
    site.answer = failed("ec2:RunInstances", "InsufficientInstanceCapacity")
    assert site.look().launch_fault == said
    for well in (None, DRY):
        site.answer = well
        assert site.look().launch_fault == ""
        site.answer = failed("ec2:RunInstances", "UnauthorizedOperation")
        assert site.look().launch_fault != ""


@pytest.mark.parametrize(
    ("code", "is_fault"),
    [
        ("UnauthorizedOperation", True),
        ("OperationNotPermitted", True),
        ("InvalidInstanceID.NotFound", False),
        ("IncorrectInstanceState", False),
        ("RequestLimitExceeded", False),
    ],
)
def test_an_end_that_would_be_refused_is_told_with_its_instance(code: str, is_fault: bool) -> None:
    """An instance that has ended meanwhile says nothing; without instances there is nothing to end."""
    site = Site()
    well = site.calls.operations["TerminateInstances"]
    site.calls.operations["TerminateInstances"] = failed("ec2:TerminateInstances", code)
    said = site.look().end_fault
    assert (
        said.startswith("i-2 could not be ended now, and is billed until it is: ") if is_fault else said == ""
    )
    site.calls.operations["TerminateInstances"] = failed("ec2:TerminateInstances", "RequestLimitExceeded")
    assert site.look().end_fault == said
    site.calls.operations["TerminateInstances"] = well
    assert site.look().end_fault == ""
    site.calls.operations["TerminateInstances"] = failed("ec2:TerminateInstances", "UnauthorizedOperation")
    assert site.look().end_fault != ""
    assert site.look(()).end_fault == ""
