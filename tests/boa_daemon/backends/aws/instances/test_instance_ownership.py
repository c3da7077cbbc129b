"""`aws/instances/instance_ownership.py`: which instances are ours, and whose cluster it is."""

from __future__ import annotations

from typing import Any

import pytest
from ec2_rows import LAUNCHED_AT, an_instance

from boa_daemon.backends.aws.instances.instance_ownership import own_instances
from boa_daemon.backends.aws.instances.launch_request import LEASE_TAG, LEDGER_TAG

NOW = LAUNCHED_AT + 600.0


def of_another(name: str = "i-9", *, lease: float = NOW + 60.0, **changes: Any) -> dict[str, Any]:
    """Return an instance of another database, older than those of ours unless told otherwise."""
    tags = {LEDGER_TAG: "theirs", LEASE_TAG: str(int(lease))}
    return an_instance(name, launched_at=changes.pop("at", LAUNCHED_AT - 10.0), tags=tags, **changes)


def of_ours(name: str = "i-1", **changes: Any) -> dict[str, Any]:
    """Return an instance of our database."""
    return an_instance(name, tags={LEDGER_TAG: "ours"}, **changes)


def owned(*listed: dict[str, Any], known: tuple[str, ...] = (), ledger: str = "ours") -> tuple[set[str], str]:
    """Return the names of our instances, and why we should only observe."""
    ours, why = own_instances(listed, known=known, ledger_id=ledger, cluster="lab", now=NOW)
    return {each["InstanceId"] for each in ours}, why


def test_an_instance_is_ours_by_its_tag_or_our_records_and_without_a_tag() -> None:
    """Who has no database of a name owns all that the cluster's tag lists."""
    listed = (of_ours(), an_instance("i-2"), of_another("i-3"), of_another("i-4", at=NOW))
    assert owned(*listed, known=("i-3",))[0] == {"i-1", "i-2", "i-3"}
    assert owned(*listed, ledger="")[0] == {"i-1", "i-2", "i-3", "i-4"}


def test_the_older_database_has_the_cluster() -> None:
    """Both daemons see the same list, and exactly one of them gives way; ties go by the name."""
    for at, gives_way in ((LAUNCHED_AT - 1.0, True), (LAUNCHED_AT + 1.0, False)):
        assert bool(owned(of_ours(), of_another(at=at))[1]) == gives_way
    assert owned(of_ours("i-5"), of_another("i-4", at=LAUNCHED_AT))[1]
    assert not owned(of_ours("i-5"), of_another("i-6", at=LAUNCHED_AT))[1]
    assert not owned(of_ours(), of_another(), of_ours("i-0", launched_at=LAUNCHED_AT - 20.0))[1]


def test_a_database_without_instances_gives_way_to_any_leased_one() -> None:
    """The sentence names the cluster, the other database and what to do."""
    ours, why = owned(of_another(at=NOW), of_another("i-8", at=NOW))
    assert ours == set()
    for words in ("2 instances of cluster lab", "(theirs; ours is ours)", "`boa recover`"):
        assert words in why


@pytest.mark.parametrize(
    "other",
    [
        of_another(lease=NOW),
        an_instance("i-9", launched_at=LAUNCHED_AT - 10.0, tags={LEDGER_TAG: "theirs"}),
        *(of_another(state=state) for state in ("shutting-down", "terminated", "stopping", "stopped")),
    ],
)
def test_what_is_over_or_has_no_lease_has_no_cluster(other: dict[str, Any]) -> None:
    """A daemon that is gone renews no leases, and what ends is nobody's."""
    assert owned(of_ours(), other) == ({"i-1"}, "")


def test_our_own_ended_instances_do_not_make_us_older() -> None:
    """EC2 lists what has ended for an hour; only what runs counts."""
    for state in ("terminated", "shutting-down", "stopped"):
        assert owned(of_ours(state=state, launched_at=LAUNCHED_AT - 99.0), of_another())[1]
