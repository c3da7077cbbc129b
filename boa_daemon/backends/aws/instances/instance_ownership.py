"""Ownership of instances: the tag `boa:books` names the database that rented an instance."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from boa_daemon.backends.aws.instances.launch_request import LEDGER_TAG
from boa_daemon.backends.aws.instances.node_from_instance import lease_of, tags_of_instance
from policies.model import NodeId


def own_instances(
    listed: Sequence[dict[str, Any]], *, known: Collection[NodeId], ledger_id: str, cluster: str, now: float
) -> tuple[list[dict[str, Any]], str]:
    """Return the instances that our database rented or knows, and why the cluster is another daemon's, if so.

    It is if another database has a leased instance that is older than all running ones of ours.
    """
    ours: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for instance in listed:
        theirs = tags_of_instance(instance).get(LEDGER_TAG, "")
        is_ours = not theirs or not ledger_id or theirs == ledger_id
        (ours if is_ours or instance["InstanceId"] in known else others).append(instance)
    living = [each for each in others if each["State"]["Name"] in ("pending", "running")]
    leased = [each for each in living if (lease_of(each) or 0.0) > now]
    own = [each for each in ours if each["State"]["Name"] in ("pending", "running")]
    oldest = min(leased, key=_age_of, default=None)
    if oldest is None or not all(_age_of(oldest) < _age_of(each) for each in own):
        return ours, ""
    return ours, (
        f"{len(leased)} instances of cluster {cluster} were rented by another database "
        f"({tags_of_instance(oldest)[LEDGER_TAG]}; ours is {ledger_id}): another daemon works for "
        "this cluster, or this database was lost. This one only observes. Give each cluster a name "
        "of its own ([cloud] cluster), or take the instances over with `boa recover`"
    )


def _age_of(instance: Mapping[str, Any]) -> tuple[float, str]:
    """Return a sort key that puts the oldest instance first, the same for every daemon."""
    return instance["LaunchTime"].timestamp(), instance["InstanceId"]
