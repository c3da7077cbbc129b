"""The policy for building images: what a launch needs, and to stop builders and to make and delete images.

The policy is separate because the daemon neither makes nor deletes images.
"""

from __future__ import annotations

from typing import Any

from boa_daemon.backends.aws.client.resource_names import partition_of
from boa_daemon.backends.aws.instances.images import IMAGE_TAG
from boa_daemon.backends.aws.instances.launch_request import CLUSTER_TAG
from boa_daemon.backends.aws.rights.policy import policy
from boa_daemon.backends.aws.rights.policy_statements import Statement, UsedResources, actions_of
from boa_daemon.backends.settings import AwsSettings

_OF_THE_DAEMON = (
    "Read",
    "Images",
    "Account",
    "LaunchInputs",
    "LaunchInstances",
    "LaunchParts",
    "TagAtLaunch",
    "Release",
    "WarmPool",
    "PassNodeRole",
    "ScheduleEnds",
    "PassPoolEndRole",
    "CommandDocument",
    "CommandNodes",
    "CommandAnswers",
    "AskOwnRights",
    "NeverForeign",
)
"""Statements that image builds share with the daemon; of `WarmPool` they need only the stop."""


def image_policy(
    settings: AwsSettings, *, uses: UsedResources, account: str = "*", role: str = ""
) -> dict[str, Any]:
    """Return the policy of the person who types `boa image`; `role` is the ARN of that person's role."""
    whole = policy(
        settings.model_copy(update={"warm_pool_nodes": 1}), uses=uses, account=account, control_role=role
    )
    shared = [each for each in whole["Statement"] if each["Sid"] in _OF_THE_DAEMON]
    return {"Version": "2012-10-17", "Statement": [*shared[:-1], *_baking(settings, account), shared[-1]]}


def _baking(settings: AwsSettings, account: str) -> list[Statement]:
    """Return the statements on images and snapshots: create them with our tag, delete those that have it."""
    here = f"arn:{partition_of(settings.region)}:ec2:{settings.region}"
    kept = [f"{here}::image/*", f"{here}::snapshot/*"]
    made_with = {f"aws:RequestTag/{IMAGE_TAG}": settings.cluster}
    made_before = {f"aws:ResourceTag/{IMAGE_TAG}": settings.cluster}
    mine = {f"aws:ResourceTag/{CLUSTER_TAG}": settings.cluster}
    region = {"aws:RequestedRegion": settings.region}
    rows: tuple[tuple[str, list[str], list[str], dict[str, str]], ...] = (
        ("ReadSnapshots", actions_of("baked"), ["*"], region),
        ("ImageOfInstance", actions_of("bake"), [f"{here}:{account}:instance/*"], mine),
        ("MakeImage", actions_of("bake"), kept, made_with),
        ("TagImage", actions_of("tag"), kept, {**made_with, "ec2:CreateAction": "CreateImage"}),
        ("RemoveImage", actions_of("unbake"), kept, made_before),
    )
    return [
        {
            "Sid": sid,
            "Effect": "Allow",
            "Action": actions,
            "Resource": resources,
            "Condition": {"StringEquals": wanted},
        }
        for sid, actions, resources, wanted in rows
    ]
