"""`aws/instances/leases.py`: which leases are renewed, and what is said when they cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances.launch_request import LEASE_TAG
from boa_daemon.backends.aws.instances.leases import LeaseRenewer

HOUR = 3600.0


class Tags:
    """Calls that note what is tagged, and fail when told to."""

    def __init__(self) -> None:
        self.written: list[tuple[list[str], str]] = []
        self.fails = False

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Tag instances."""
        assert operation == "ec2:CreateTags"
        if self.fails:
            raise CallFailed(operation, "UnauthorizedOperation", "no")
        [tag] = arguments["Tags"]
        assert tag["Key"] == LEASE_TAG
        self.written.append((arguments["Resources"], tag["Value"]))
        return {}


def an_instance(name: str, *, until: float | None, state: str = "running") -> dict[str, Any]:
    """Return an instance with a lease, as EC2 lists it."""
    tags = [] if until is None else [{"Key": LEASE_TAG, "Value": str(int(until))}]
    return {"InstanceId": name, "State": {"Name": state}, "Tags": tags}


@pytest.mark.parametrize(
    ("until", "state", "is_renewed"),
    [
        (1000.0 + HOUR, "running", False),
        (1000.0 + 0.75 * HOUR, "running", False),
        (1000.0 + 0.75 * HOUR - 1.0, "running", True),
        (999.0, "running", True),
        (None, "running", True),
        (1000.0 + HOUR + 60.0, "running", False),
        (1000.0 + HOUR + 61.0, "running", True),
        (999.0, "pending", True),
        (999.0, "stopped", True),
        (999.0, "shutting-down", False),
        (999.0, "terminated", False),
    ],
)
def test_a_lease_is_renewed_once_a_quarter_has_passed_and_shortened_when_too_long(
    until: float | None, state: str, is_renewed: bool
) -> None:
    """A lease of an hour, at instant 1000; one more than a minute too long was written by a wrong clock."""
    tags = Tags()
    LeaseRenewer(tags, seconds=HOUR, say=print).renew(  # type: ignore[arg-type]
        [an_instance("i", until=until, state=state)], now=1000.0
    )
    assert tags.written == ([(["i"], str(int(1000.0 + HOUR)))] if is_renewed else [])


def test_the_oldest_lease_is_renewed_early_after_three_quiet_minutes() -> None:
    """So a daemon that may not write the tag any more is noticed before a node powers off."""
    tags = Tags()
    renewer = LeaseRenewer(tags, seconds=HOUR, say=print)  # type: ignore[arg-type]
    nodes = [an_instance("new", until=4600.0), an_instance("old", until=4500.0)]
    for now, names in ((1000.0, []), (1170.0, []), (1171.0, ["old"])):
        renewer.renew(nodes, now=now)
        assert [name for each, _ in tags.written for name in each] == names
    renewer.renew(nodes, now=1200.0)
    assert len(tags.written) == 1


def test_more_than_500_leases_are_renewed_in_batches() -> None:
    """EC2 takes no more in one call."""
    tags = Tags()
    nodes = [an_instance(f"i-{number}", until=None) for number in range(1001)]
    LeaseRenewer(tags, seconds=HOUR, say=print).renew(nodes, now=0.0)  # type: ignore[arg-type]
    assert [len(names) for names, _ in tags.written] == [500, 500, 1]


def test_a_failure_is_said_and_stands_until_a_renewal_succeeds() -> None:
    """It does not go away because nothing is due; it does when no instance is left."""
    tags, said = Tags(), list[str]()
    tags.fails = True
    renewer = LeaseRenewer(tags, seconds=HOUR, say=said.append)  # type: ignore[arg-type]
    renewer.renew([an_instance("i", until=None)], now=0.0)
    assert said[0].startswith("1 leases were not renewed; their nodes power off when they end: ")
    assert renewer.fault == said[0]
    renewer.renew([an_instance("i", until=HOUR)], now=0.0)
    assert renewer.fault == said[0]
    tags.fails = False
    renewer.renew([an_instance("i", until=None)], now=60.0)
    assert renewer.fault == ""

    tags.fails = True
    renewer.renew([an_instance("i", until=None)], now=120.0)
    assert renewer.fault
    renewer.renew([], now=180.0)
    assert renewer.fault == ""
