"""`aws/instances/node_from_instance.py`: a node from EC2's description, and what it is billed."""

from __future__ import annotations

from typing import Any

import pytest
from ec2_rows import LAUNCHED_AT, an_instance

from boa_daemon.backends.aws.instances.launch_request import (
    EXTRAS_TAG,
    INTENT_TAG,
    LEASE_TAG,
    MARKET_TAG,
    PRICE_TAG,
    RESERVATION_TAG,
)
from boa_daemon.backends.aws.instances.node_from_instance import (
    a_type,
    ended_at,
    lease_of,
    market_path,
    node_of,
    reservation_of,
    tags_of_instance,
)
from boa_daemon.testing import an_instance_type
from boa_daemon.tick.facts.state import NodeState

KINDS = {"gpu-x4": an_instance_type(), "gpu-x8": an_instance_type(gpus=8)}
TAGS = {PRICE_TAG: "3", INTENT_TAG: "t1-launch-0", EXTRAS_TAG: "disk=0.5"}
END = 1_800_003_600.0
ENDED = {"StateTransitionReason": "User initiated (2027-01-15 09:00:00 GMT)"}
TAKEN_BACK = {"StateReason": {"Code": "Server.SpotInstanceTermination"}, "InstanceLifecycle": "spot"}
NEVER_RAN = {"StateReason": {"Code": "Server.InsufficientInstanceCapacity"}}


def node(state: str = "running", *, tags: dict[str, str] | None = None, **changes: Any) -> NodeState:
    """Return the node of an instance; changes with a capital letter are of its description."""
    described = {key: changes.pop(key) for key in [*changes] if key[0].isupper()}
    return node_of(
        an_instance(state=state, tags=TAGS if tags is None else tags, **described), KINDS, **changes
    )


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("pending", "requested"),
        ("running", "ready"),
        ("shutting-down", "terminating"),
        ("stopping", "terminating"),
        ("stopped", "terminating"),
        ("terminated", "terminated"),
        ("hibernating", "terminating"),
    ],
)
def test_only_what_ec2_calls_terminated_is_gone(state: str, phase: str) -> None:
    """A state that we do not know takes no jobs, and is not called gone; only the gone have an end."""
    found = node(state, **ENDED)
    assert (found.phase, found.ended_at) == (phase, END if phase == "terminated" else None)
    assert found.idle_since == (LAUNCHED_AT if phase == "ready" else None)


def test_a_node_that_leaves_is_terminating_while_it_still_runs() -> None:
    """Its jobs move at once; what has ended is not brought back by a late warning."""
    for leaving in ({"is_leaving": True}, {"ends_by": END}):
        assert [node(state, **leaving).phase for state in ("pending", "running", "terminated")] == [
            "terminating",
            "terminating",
            "terminated",
        ]
    assert node(ends_by=END).ends_by == END


def test_a_node_is_idle_since_it_was_ready_and_has_the_tags_of_its_launch() -> None:
    """The house's own tags are for cost reports: those of BOA, of AWS and the name are not among them."""
    house = {"team": "vision", "Name": "n", "aws:x": "1", "boa:y": "2", "App": "a"}
    found = node(
        tags=TAGS | house, ready_at=LAUNCHED_AT + 90.0, name="i-1~3", Placement={"AvailabilityZone": "a"}
    )
    assert (found.idle_since, found.id, found.launched_by) == (LAUNCHED_AT + 90.0, "i-1~3", "t1-launch-0")
    assert (found.tags, found.zone) == ((("App", "a"), ("team", "vision")), "a")
    assert (found.gpus, found.extras) == ((None,) * 4, (("disk", 0.5),))
    assert node().id == "i-1"


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "-1", "0", "1e-7", "1e7"])
def test_a_price_tag_that_boa_did_not_write_leaves_the_catalogue(text: str) -> None:
    """No tag makes a node free, or dearer than anything is."""
    assert node(tags={PRICE_TAG: text}).usd_per_hour == 4.0


def test_the_price_at_launch_is_that_of_the_tag() -> None:
    """Also where the catalogue has another one by now."""
    assert node().prices == ((LAUNCHED_AT, 3.0),)
    assert node(tags={PRICE_TAG: "0.000001"}).usd_per_hour == 1e-6


def test_an_unknown_type_costs_its_tag_or_as_much_as_the_dearest() -> None:
    """Errors raise our bill; a known type is the catalogue's."""
    assert [a_type("new", KINDS, usd).usd_per_hour for usd in (5.0, None)] == [5.0, 8.0]
    assert (a_type("new", KINDS, None).gpus, a_type("gpu-x8", KINDS, 1.0)) == (1, KINDS["gpu-x8"])


@pytest.mark.parametrize(
    ("lifecycle", "tag", "market"),
    [
        ("spot", "on-demand", "spot"),
        ("spot", "reserved", "spot"),
        (None, "reserved", "reserved"),
        ("capacity-block", "reserved", "reserved"),
        (None, "spot", "on-demand"),
        (None, "", "on-demand"),
    ],
)
def test_ec2_says_what_is_spot_and_our_tag_what_is_reserved(
    lifecycle: str | None, tag: str, market: str
) -> None:
    """List prices that change are charged to nodes on demand alone."""
    found = node(
        tags=TAGS | {MARKET_TAG: tag},
        InstanceLifecycle=lifecycle,
        charged=lambda name, path: ((path[0][0], 9.0),),
    )
    assert (found.market, found.prices[-1][1]) == (market, 9.0 if market == "on-demand" else 3.0)


def test_a_spot_node_pays_the_last_price_before_its_launch_and_all_later_ones() -> None:
    """A price of the very instant of the launch is that of the launch; without one the tag's holds."""
    at = LAUNCHED_AT
    changes = [(at - 20.0, 1.0), (at, 2.0), (at + 10.0, 4.0)]
    assert market_path(at, 3.0, changes) == ((at, 2.0), (at + 10.0, 4.0))
    assert market_path(at, 3.0, changes[2:]) == ((at, 3.0), (at + 10.0, 4.0))
    assert market_path(at, 3.0, [(at - 9.0, 7.0), (at - 5.0, 1.0)]) == ((at, 1.0),)


def test_compute_is_free_from_the_shutdown_on_and_extras_are_not() -> None:
    """EC2 bills the compute of running instances; prices after that instant are no longer paid."""
    later = [(LAUNCHED_AT + 60.0, 2.0), (END + 60.0, 9.0)]
    found = node("shutting-down", spot_prices=later, InstanceLifecycle="spot", **ENDED)
    assert found.prices == ((LAUNCHED_AT, 3.0), (LAUNCHED_AT + 60.0, 2.0), (END, 0.0))
    assert found.usd_per_hour == 0.5
    assert node("shutting-down").usd_per_hour == 3.5
    assert node("stopping", **ENDED).usd_per_hour == 3.5


def test_no_bill_ends_before_it_begins() -> None:
    """EC2's reason may be that of an earlier life: the end is the launch at the earliest."""
    early = {"stopped_at": LAUNCHED_AT - 99.0}
    assert node("terminated", **early).ended_at == LAUNCHED_AT
    assert node("shutting-down", **early).prices == ((LAUNCHED_AT, 3.0), (LAUNCHED_AT, 0.0))


def test_ec2s_own_word_on_the_end_comes_first() -> None:
    """What we noted stands in only where EC2 says nothing; without both the bill stays open."""
    noted = END + 30.0
    assert node("terminated", stopped_at=noted, **ENDED).ended_at == END
    assert node("terminated", stopped_at=noted).ended_at == noted
    assert node("terminated").ended_at is None


def test_only_what_cannot_have_run_is_free_of_everything() -> None:
    """A launch that failed, or one that we ended while it was pending; if it may have run it is charged."""
    free = ((LAUNCHED_AT, 0.0),)
    for never in ({**NEVER_RAN, "may_have_run": False}, {"is_ended_pending": True, "may_have_run": False}):
        found = node("terminated", **ENDED, **never)
        assert (found.prices, found.extras, found.ended_at) == (free, (), LAUNCHED_AT)
        charged = node("terminated", **ENDED, **(never | {"may_have_run": True}))
        assert (charged.usd_per_hour, charged.ended_at) == (3.5, END)
    assert node("terminated", may_have_run=False, **ENDED).ended_at == END


def test_a_spot_node_that_ec2_took_back_in_its_first_hour_costs_its_disk() -> None:
    """From one hour on it is charged in full."""
    soon, late = (
        {"LaunchTime": an_instance(launched_at=END - age)["LaunchTime"]} for age in (3599.0, 3600.0)
    )
    found = [node("terminated", **ENDED, **TAKEN_BACK, **each) for each in (soon, late)]
    assert [each.usd_per_hour for each in found] == [0.5, 3.5]
    assert found[0].ended_at == END


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ("User initiated (2027-01-15 09:00:00 GMT)", END),
        ("User initiated (2027-01-15 09:00:00 UTC)", END),
        ("User initiated (2027-13-15 09:00:00 GMT)", None),
        ("User initiated", None),
        ("", None),
        (None, None),
    ],
)
def test_the_end_is_read_from_the_reason_in_utc(
    said: str | None, at: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the time zone of this machine is."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    import time

    time.tzset()
    try:
        assert ended_at({"StateTransitionReason": said}) == at
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("text", "at"),
    [("12", 12.0), ("", None), ("soon", None), ("-1", None), ("1.5", None), ("٣", None), ("9" * 16, None)],
)
def test_a_lease_is_a_whole_number_of_seconds_or_none(text: str, at: float | None) -> None:
    """Digits of other scripts, and numbers that are no instant, are no lease."""
    assert lease_of(an_instance(tags={LEASE_TAG: text})) == at
    assert lease_of(an_instance()) is None


def test_tags_and_reservations_are_read_wherever_ec2_writes_them() -> None:
    """Network interfaces have a `TagSet`; a tag may lack its value; EC2's reservation is before our tag."""
    assert tags_of_instance({"TagSet": [{"Key": "a"}, {"Value": "lost"}]}) == {"a": ""}
    assert tags_of_instance({}) == {}
    tagged = an_instance(tags={RESERVATION_TAG: "cr-1"})
    assert [reservation_of(each) for each in (tagged, tagged | {"CapacityReservationId": "cr-2"}, {})] == [
        "cr-1",
        "cr-2",
        "",
    ]
