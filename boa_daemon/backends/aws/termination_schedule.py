"""The end of what stays stopped, on AWS's side: a one-time schedule per stop, which needs no daemon to act.

An instance that is stopped cannot end itself, and its daemon may be gone for good. So before EC2 is asked to
stop it, EventBridge Scheduler is told to end it, an hour after the daemon would at the latest. Its role may
end what bears the cluster's tag and whose life is even, which means that a stop was ordered last: the tag of
the next run is written before its start, so a schedule that is left over ends no instance that runs. It
removes itself when its time has come. The builder of an image is stopped while its disk is copied: it has a
schedule too, at the time when it would be of no use, and the role may end whatever bears a builder's tag.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from boa_daemon.backends.aws.calls import AwsCalls
from boa_daemon.backends.aws.errors import CallFailed
from boa_daemon.backends.aws.instance_lives import LIFE_TAG
from boa_daemon.backends.aws.launch_request import BUILD_TAG, CLUSTER_TAG
from boa_daemon.backends.aws.resource_names import partition_of, schedule_name, slug_of
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.tick.warm_pool import LONGEST_SECONDS

AFTER_SECONDS = LONGEST_SECONDS + 3600.0
"""So long after its stop an instance ends without a daemon; with one it ends an hour before that."""
_EVEN = tuple(f"*{digit}" for digit in "02468")


def termination_role_name(settings: AwsSettings) -> str:
    """Return the name of the role with which EventBridge Scheduler ends what stays stopped."""
    return f"boa-{slug_of(settings)}-pool-end"


def termination_policy(settings: AwsSettings, *, account: str = "*") -> dict[str, Any]:
    """Return the policy of that role: to end what is ours and was told to stop, and nothing else."""
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
    """Have an instance ended a while after its stop, whatever becomes of us; asked again it changes nothing.

    Raises:
        CallFailed: when EventBridge Scheduler does not take it.
    """
    _schedule(calls, instance, life, at=now + AFTER_SECONDS)


def schedule_builder_termination(calls: AwsCalls, instance: str, *, at: float) -> None:
    """Have the builder of an image ended at an instant, whatever becomes of us; asking again changes nothing.

    Raises:
        CallFailed: when EventBridge Scheduler does not take it.
    """
    _schedule(calls, instance, 0, at=at)


def _schedule(calls: AwsCalls, instance: str, life: int, *, at: float) -> None:
    """Make the schedule that ends an instance; one of its name that is there already is the one."""
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
    """Return the most that so many stopped nodes cost after their daemon is gone for good, in dollars."""
    return nodes * disk_usd_per_hour * AFTER_SECONDS / 3600.0
