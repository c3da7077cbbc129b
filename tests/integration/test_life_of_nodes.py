"""What EC2, AWS and people do to a node that runs: the ledger says what EC2 charges, and nothing waits.

Each row changes the one node of a whole day, on which a job of many hours runs. Half an hour later the job
runs, on this node or on another one; people were told if it was lost; and once the job is cancelled nothing
runs any more, and the final bills are what EC2 charges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from aws_days import EXTRAS, PRICE, Day, a_day, fails, with_credentials

from boa_daemon.testing.fake_terms import Lifetime, Terms

LIST = "ec2:DescribeInstances"
DISK = EXTRAS - 0.005
"""USD per hour of a stopped node: its disk, without the address."""
RUNS_MINUTES, ENDS_MINUTES, SEEN = 30.0, 40.0, 120.0
Edit: TypeAlias = Callable[[dict[str, Any], float], dict[str, Any] | None]


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with_credentials(monkeypatch)


@dataclass(frozen=True)
class Row:
    """What is done to the node, what people are told, and whether another node takes its place."""

    do: Callable[[Day, Lifetime], None]
    says: str = ""
    is_lost: bool = True
    spot: bool = False
    unseen_seconds: float = 0.0
    """How much later than EC2 the bill may end: EC2 does not say when it stopped an instance."""


def ended(reason: str) -> Callable[[Day, Lifetime], None]:
    """Return the end of a node for a reason."""
    return lambda day, life: day.rig.fake.end(life.id, reason)


def stopped(reason: str) -> Callable[[Day, Lifetime], None]:
    """Return the stop of a node for a reason."""
    return lambda day, life: day.rig.fake.stop(life.id, reason)


def listed(edit: Edit) -> Callable[[Day, Lifetime], None]:
    """Return a change of how EC2 lists the node: what it lists, by the seconds since; None hides it."""

    def do(day: Day, life: Lifetime) -> None:
        since = day.rig.clock.now()

        def hook(operation: str, arguments: dict[str, Any], plain: Callable[[], Any]) -> Any:
            answer = plain()
            if operation != LIST:
                return answer
            rows = [each for row in answer["Reservations"] for each in row["Instances"]]
            seconds = day.rig.clock.now() - since
            found = [edit(each, seconds) if each["InstanceId"] == life.id else each for each in rows]
            return answer | {"Reservations": [{"Instances": [each for each in found if each is not None]}]}

        day.hook = hook

    return do


def hidden(seconds: float) -> Callable[[Day, Lifetime], None]:
    """Return a node that EC2 does not list for a while, neither by tag nor by id."""
    return listed(lambda each, since: None if since < seconds else each)


def with_state(*states: tuple[float, str]) -> Callable[[Day, Lifetime], None]:
    """Return a node whose state EC2 lists otherwise up to so many seconds from now."""

    def edit(each: dict[str, Any], since: float) -> dict[str, Any]:
        said = next((state for until, state in states if since < until), "")
        return each | {"State": {"Name": said, "Code": 0}} if said else each

    return listed(edit)


def _then(*steps: Callable[[Day, Lifetime], None]) -> Callable[[Day, Lifetime], None]:
    def do(day: Day, life: Lifetime) -> None:
        for step in steps:
            step(day, life)

    return do


def _fails_next(reason: str) -> Callable[[Day, Lifetime], None]:
    """Return the end of a node whose successors fail at their launch for ten minutes."""

    def do(day: Day, life: Lifetime) -> None:
        day.rig.fake.terms.launch_failures["g5.xlarge"] = f"{reason}: said by EC2"
        day.rig.fake.end(life.id, "Server.InternalError: Internal error")
        day.ticks(10.0)
        day.rig.fake.terms.launch_failures.clear()

    return do


def _suspended(day: Day, life: Lifetime) -> None:
    """AWS stops the instances of the account, and refuses launches for ten minutes."""
    day.rig.fake.stop(life.id, "Server.AccountSuspended: The account was suspended")
    day.hook = fails("ec2:RunInstances", "ec2:StartInstances", code="Blocked", status=403)
    day.ticks(10.0)
    day.hook = None


ROWS: dict[str, Row] = {
    "ended from inside": Row(ended("Client.InstanceInitiatedShutdown: Instance initiated shutdown")),
    "ended by a fault of its host": Row(ended("Server.InternalError: Internal error")),
    "ended for its disk": Row(ended("Client.VolumeLimitExceeded: Volume limit exceeded")),
    "ended for its key": Row(ended("Client.InvalidKMSKey.InvalidState: The key is disabled")),
    "ended by a reason that is new": Row(ended("Server.SomethingNew: said by EC2")),
    "ended without a reason": Row(ended("")),
    "ended, and said to shut down again": Row(
        _then(ended("Server.InternalError: x"), with_state((120.0, "terminated"), (240.0, "shutting-down")))
    ),
    "hibernated by a person": Row(
        stopped("Client.UserInitiatedHibernate: User initiated hibernate"),
        "was stopped, and not by us",
        unseen_seconds=SEEN,
    ),
    "stopped from inside": Row(
        stopped("Client.InstanceInitiatedShutdown: Instance initiated shutdown"),
        "was stopped, and not by us",
        unseen_seconds=SEEN,
    ),
    "stopped by a fault": Row(
        stopped("Server.InternalError: Internal error"), "was stopped, and not by us", unseen_seconds=SEEN
    ),
    "stopped without a reason": Row(stopped(""), "was stopped, and not by us", unseen_seconds=SEEN),
    "stopped with a suspended account": Row(_suspended, "was stopped, and not by us", unseen_seconds=SEEN),
    "hidden for two looks": Row(hidden(75.0), is_lost=False),
    "hidden for four minutes": Row(hidden(240.0), is_lost=False),
    "hidden for ten minutes": Row(hidden(600.0), "is missing from EC2's list"),
    "in a state that is new": Row(with_state((60.0, "migrating")), is_lost=False),
    "in another subnet": Row(listed(lambda each, _: each | {"SubnetId": "subnet-9"}), is_lost=False),
    "without tags in the answer": Row(
        listed(lambda each, since: {**each, "Tags": []} if since < 90.0 else each), is_lost=False
    ),
    "without its metadata service": Row(
        listed(lambda each, _: each | {"MetadataOptions": {"HttpEndpoint": "disabled"}}), is_lost=False
    ),
    "whose successors have no capacity": Row(_fails_next("Server.InsufficientInstanceCapacity"), "failed"),
    "whose successors have no snapshot": Row(_fails_next("Client.InvalidSnapshot.NotFound"), "failed"),
    "whose successors are over a limit of disks": Row(_fails_next("Client.VolumeLimitExceeded"), "failed"),
    "spot, stopped by EC2": Row(
        stopped("Server.SpotInstanceShutdown: x"), "was stopped", spot=True, unseen_seconds=SEEN
    ),
    "spot, ended by a person": Row(
        ended("Client.UserInitiatedShutdown: User initiated shutdown"), "was ended, and not by us", spot=True
    ),
    "spot, without capacity": Row(ended("Server.InsufficientInstanceCapacity: x"), spot=True),
}
QUICK = ("hidden for ten minutes", "spot, stopped by EC2")


def _charged(day: Day) -> float:
    """Return what EC2 charges for all instances: those that failed at their launch are free."""
    usd = 0.0
    for life in day.rig.fake.history():
        if life.fails_with:
            continue
        price = 0.4 * PRICE if life.market == "spot" else PRICE
        assert life.ended_at is not None
        runs = [*life.runs, (life.launched_at, life.stopped_at or life.ended_at)]
        usd += sum((end - begin) / 3600.0 * (price + EXTRAS) for begin, end in runs)
        if life.stopped_at is not None:
            usd += (life.ended_at - life.stopped_at) / 3600.0 * DISK
    return usd


@pytest.mark.first_set(1)
@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.exhaustive) for each in ROWS]
)
def test_the_ledger_says_what_ec2_charges_and_the_job_goes_on(tmp_path: Path, name: str) -> None:
    """By then; and nothing of ours is left after the end of the job."""
    row = ROWS[name]
    terms = Terms(
        boot_seconds=60.0, shutdown_seconds=30.0, vcpu_quotas={"L-DB2E81BA": 64, "L-3819A6DF": 64},
        spot_fraction=0.4,
    )  # fmt: skip
    market = {"market": "spot"} if row.spot else {}
    with a_day(tmp_path, terms, **market) as day:
        day.ticks(15.0)
        (life,) = day.rig.fake.live()
        row.do(day, life)
        day.ticks(RUNS_MINUTES)
        assert day.statuses() == ["running"]
        (now,) = [each for each in day.rig.fake.live() if each.stopped_at is None]
        assert (now.id != life.id) == row.is_lost
        said = [*day.alerts(), *day.rig.said]
        assert not row.says or any(row.says in each for each in said), said
        day.hook = None
        day.play.service.cancel(day.jobs[0], user="ann", is_admin=True)
        day.until(lambda: not day.rig.fake.live(), minutes=ENDS_MINUTES)
        day.ticks(5.0)
        assert day.rig.fake.live() == []
        truth, late = _charged(day), row.unseen_seconds / 3600.0 * (PRICE + EXTRAS)
        assert 0.985 * truth - 0.003 <= day.charged() <= 1.015 * truth + 0.003 + late
