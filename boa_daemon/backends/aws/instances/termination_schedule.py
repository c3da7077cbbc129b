"""Schedules on AWS's side that end instances left stopped: one per stop, which needs no daemon to act.

A stopped instance cannot end itself, and its daemon may be gone for good. So before EC2 is asked to stop it,
EventBridge Scheduler gets a one-time schedule to end it, an hour after the latest time at which the daemon
would. The schedule's role may end instances with the cluster's tag and an even life, whose last order was a
stop: the tag of the next run is written before its start, so an old schedule cannot end a running instance.
A schedule deletes itself after it ran. The builder of an image is stopped while its disk is copied. It gets a
schedule too, at the time when it is of no use any more, and the role may end every instance with a builder's
tag.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.client.resource_names import partition_of, schedule_name, slug_of
from boa_daemon.backends.aws.instances.instance_lives import LIFE_TAG
from boa_daemon.backends.aws.instances.launch_request import BUILD_TAG, CLUSTER_TAG
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.tick.facts.warm_pool import LONGEST_SECONDS

AFTER_SECONDS = LONGEST_SECONDS + 3600.0
"""Seconds from its stop until an instance is ended without a daemon; a daemon ends it an hour before."""
_EVEN = tuple(f"*{digit}" for digit in "02468")


def termination_role_name(settings: AwsSettings) -> str:
    """Return the name of the role with which EventBridge Scheduler ends instances left stopped."""
    return f"boa-{slug_of(settings)}-pool-end"


def termination_policy(settings: AwsSettings, *, account: str = "*") -> dict[str, Any]:
    """Return the policy of that role: it may end our stopped instances and image builders, and no others."""
    partition = partition_of(settings.region)
    mine = {f"aws:ResourceTag/{CLUSTER_TAG}": settings.cluster}
    statements = [
        {
            "Sid": sid,
            "Effect": "Allow",
            "Action": ["ec2:TerminateInstances"],
            "Resource": [f"arn:{partition}:ec2:{settings.region}:{account}:instance/*"],
            "Condition": {"StringEquals": mine, "StringLike": {f"aws:ResourceTag/{tag}": values}},
        }
        for sid, tag, values in (("EndStopped", LIFE_TAG, list(_EVEN)), ("EndBuilders", BUILD_TAG, ["?*"]))
    ]
    return {"Version": "2012-10-17", "Statement": statements}


def schedule_termination(calls: AwsCalls, instance: str, life: int, *, now: float) -> None:
    """Schedule the end of an instance `AFTER_SECONDS` after its stop; repeating the call changes nothing.

    Raises:
        CallFailed: when EventBridge Scheduler refuses.
    """
    _schedule(calls, instance, life, at=now + AFTER_SECONDS)


def schedule_builder_termination(calls: AwsCalls, instance: str, *, at: float) -> None:
    """Schedule the end of an image builder at an instant; repeating the call changes nothing.

    Raises:
        CallFailed: when EventBridge Scheduler refuses.
    """
    _schedule(calls, instance, 0, at=at)


def _schedule(calls: AwsCalls, instance: str, life: int, *, at: float) -> None:
    """Make the schedule that ends an instance, unless one of its name exists."""
    settings, when = calls.settings, datetime.fromtimestamp(at, UTC)
    try:
        calls.call(
            "scheduler:CreateSchedule",
            Name=schedule_name(settings, instance, life),
            Description=f"BOA {settings.cluster}: ends what was left stopped",
            ScheduleExpression=f"at({when:%Y-%m-%dT%H:%M:%S})",
            ScheduleExpressionTimezone="UTC",
            FlexibleTimeWindow={"Mode": "OFF"},
            ActionAfterCompletion="DELETE",
            Target={
                "Arn": f"arn:{partition_of(settings.region)}:scheduler:::aws-sdk:ec2:terminateInstances",
                "RoleArn": settings.pool_end_role,
                "Input": json.dumps({"InstanceIds": [instance]}),
                "RetryPolicy": {"MaximumRetryAttempts": 5, "MaximumEventAgeInSeconds": 3600},
            },
        )
    except CallFailed as error:
        if error.code != "ConflictException":
            raise


def most_usd(nodes: int, disk_usd_per_hour: float) -> float:
    """Return the most dollars that stopped nodes cost after their daemon is gone for good."""
    return nodes * disk_usd_per_hour * AFTER_SECONDS / 3600.0
