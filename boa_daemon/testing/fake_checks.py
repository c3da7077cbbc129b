"""The checks that AWS makes of a request: actions, resources and condition keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote

from boa_daemon.testing.fake_answers import Call

ACCOUNT = "123456789012"
Context: TypeAlias = Mapping[str, str | Sequence[str]]
Check: TypeAlias = tuple[str, str, Context]
"""An action, the ARN of its resource, and the condition keys of the request."""
_FREE = frozenset({"sts:GetCallerIdentity"})
_LAUNCH_PARTS = ("instance", "volume", "network-interface", "spot-instances-request")
_BUCKET_SETTINGS = {
    "policy": "BucketPolicy",
    "encryption": "EncryptionConfiguration",
    "lifecycle": "LifecycleConfiguration",
    "publicAccessBlock": "BucketPublicAccessBlock",
}
"""Query parameters of bucket requests, and their IAM actions."""


def checks_of(call: Call, tags_of: Callable[[str, str], Mapping[str, str]]) -> list[Check]:
    """Return the checks that AWS makes of a request; `tags_of(region, id)` are a resource's tags."""
    if f"{call.service}:{call.operation}" in _FREE:
        return []
    base: dict[str, str | Sequence[str]] = {"aws:RequestedRegion": call.region}
    makers: Mapping[str, Callable[..., Iterator[Check]]] = {
        "ec2": _ec2_checks, "ssm": _ssm_checks, "sqs": _sqs_checks, "s3": _s3_checks,
        "scheduler": _schedule_checks,
    }  # fmt: skip
    if call.service in makers:
        return list(makers[call.service](call, tags_of, base))
    if call.service == "sns":
        return [("sns:Publish", call.query.get("TopicArn", "*"), base)]
    if call.service == "iam" and call.operation == "SimulatePrincipalPolicy":
        return [("iam:SimulatePrincipalPolicy", call.query["PolicySourceArn"], base)]
    return [(f"{call.service}:{call.operation}", "*", base)]


def _ec2_checks(
    call: Call, tags_of: Callable[[str, str], Mapping[str, str]], base: dict[str, Any]
) -> Iterator[Check]:
    action = f"ec2:{call.operation}"
    if call.operation.startswith("Describe"):
        yield action, "*", base
        return
    if call.operation == "RunInstances":
        yield from _launch_checks(call, base)
        return
    if call.operation == "CreateImage":
        yield from _image_checks(call, tags_of, base)
        return
    kinds = {"Instance": "instance", "SpotInstanceRequest": "spot-instances-request"}
    ids = [(kind, name) for key, kind in kinds.items() for name in call.numbered(f"{key}Id")]
    ids += [("volume", call.query["VolumeId"])] if "VolumeId" in call.query else []
    kept = (("image", "ImageId"), ("snapshot", "SnapshotId"))
    for kind, key in kept:
        if key in call.query:
            known = base | _tagged("aws:ResourceTag", tags_of(call.region, call.query[key]))
            yield action, f"arn:aws:ec2:{call.region}::{kind}/{call.query[key]}", known
    card = call.query.get("NetworkInterfaceId")
    ids += [("network-interface", card)] if card else []
    ids += [("instance", name) for name in call.numbered("ResourceId")]
    wanted = {
        call.query[f"Tag.{number}.Key"]: call.query.get(f"Tag.{number}.Value", "")
        for number in range(1, 1 + sum(key.startswith("Tag.") and key.endswith(".Key") for key in call.query))
    }
    for kind, name in ids:
        context = base | _tagged("aws:ResourceTag", tags_of(call.region, name))
        if wanted:
            context |= _tagged("aws:RequestTag", wanted) | {"aws:TagKeys": list(wanted)}
        yield action, _ec2_arn(call, kind, name), context


def _image_checks(
    call: Call, tags_of: Callable[[str, str], Mapping[str, str]], base: dict[str, Any]
) -> Iterator[Check]:
    """Yield the checks of making an image: on its instance, and on the resources created and tagged."""
    name = call.query["InstanceId"]
    mine = base | _tagged("aws:ResourceTag", tags_of(call.region, name))
    yield "ec2:CreateImage", _ec2_arn(call, "instance", name), mine
    for kind in ("image", "snapshot"):
        tags, arn = call.tags(kind), f"arn:aws:ec2:{call.region}::{kind}/*"
        context = base | _tagged("aws:RequestTag", tags) | {"aws:TagKeys": list(tags)}
        yield "ec2:CreateImage", arn, context
        if tags:
            yield "ec2:CreateTags", arn, context | {"ec2:CreateAction": "CreateImage"}


def _launch_checks(call: Call, base: dict[str, Any]) -> Iterator[Check]:
    query = call.query
    inputs = [f"arn:aws:ec2:{call.region}::image/{query.get('ImageId', '')}"]
    subnet = query.get("SubnetId") or query.get("NetworkInterface.1.SubnetId") or "subnet-default"
    inputs.append(_ec2_arn(call, "subnet", subnet))
    groups = call.numbered("SecurityGroupId") or call.numbered("NetworkInterface.1.SecurityGroupId")
    inputs += [_ec2_arn(call, "security-group", name) for name in groups or ["sg-default"]]
    for key, kind in (
        ("KeyName", "key-pair"),
        ("Placement.GroupName", "placement-group"),
        ("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId",
         "capacity-reservation"),
    ):  # fmt: skip
        if key in query:
            inputs.append(_ec2_arn(call, kind, query[key]))
    for arn in inputs:
        yield "ec2:RunInstances", arn, base
    machine = {
        "ec2:InstanceType": query["InstanceType"],
        "ec2:MetadataHttpTokens": query.get("MetadataOptions.HttpTokens", "optional"),
    }
    is_spot = query.get("InstanceMarketOptions.MarketType") == "spot"
    for kind in _LAUNCH_PARTS if is_spot else _LAUNCH_PARTS[:-1]:
        tags = call.tags(kind)
        context = base | _tagged("aws:RequestTag", tags) | {"aws:TagKeys": list(tags)}
        yield "ec2:RunInstances", _ec2_arn(call, kind, "*"), context | (machine if kind == "instance" else {})
        if tags:
            yield (
                "ec2:CreateTags", _ec2_arn(call, kind, "*"), context | {"ec2:CreateAction": "RunInstances"}
            )  # fmt: skip
    profile = query.get("IamInstanceProfile.Name") or query.get("IamInstanceProfile.Arn", "")
    if profile:
        role = f"arn:aws:iam::{ACCOUNT}:role/{profile.rpartition('/')[2]}"
        yield "iam:PassRole", role, base | {"iam:PassedToService": "ec2.amazonaws.com"}


def _ssm_checks(
    call: Call, tags_of: Callable[[str, str], Mapping[str, str]], base: dict[str, Any]
) -> Iterator[Check]:
    """Yield the checks of a call to SSM; a command is checked on its document and on each instance."""
    action = f"ssm:{call.operation}"
    if call.operation == "SendCommand":
        yield action, f"arn:aws:ssm:{call.region}::document/{call.document['DocumentName']}", base
        for name in call.document["InstanceIds"]:
            tags = tags_of(call.region, name)
            context = base | _tagged("ssm:resourceTag", tags) | _tagged("aws:ResourceTag", tags)
            yield action, _ec2_arn(call, "instance", name), context
    elif call.operation == "GetParameter":
        yield action, f"arn:aws:ssm:{call.region}::parameter{call.document['Name']}", base
    else:
        yield action, "*", base


def _sqs_checks(
    call: Call, tags_of: Callable[[str, str], Mapping[str, str]], base: dict[str, Any]
) -> Iterator[Check]:
    del tags_of
    url = (
        str(call.document.get("QueueUrl", ""))
        or call.query.get("QueueUrl", "")
        or call.path.partition("?")[0]
    )
    action = {"DeleteMessageBatch": "DeleteMessage"}.get(call.operation, call.operation)
    yield f"sqs:{action}", f"arn:aws:sqs:{call.region}:{ACCOUNT}:{url.rpartition('/')[2]}", base


def _s3_checks(
    call: Call, tags_of: Callable[[str, str], Mapping[str, str]], base: dict[str, Any]
) -> Iterator[Check]:
    """Yield the check of a call to S3: to list a bucket, or to read or write an object."""
    del tags_of
    path, _, query = call.path.partition("?")
    bucket, _, key = unquote(path).lstrip("/").partition("/")
    if not key and (setting := _BUCKET_SETTINGS.get(query.split("=")[0])):
        yield f"s3:Get{setting}", f"arn:aws:s3:::{bucket}", base
        return
    if not key:
        action = "s3:ListBucket" if call.operation in ("GET", "HEAD") else f"s3:{call.operation}"
        prefix = dict(parse_qsl(query, keep_blank_values=True)).get("prefix", "")
        yield action, f"arn:aws:s3:::{bucket}", base | {"s3:prefix": prefix}
        return
    action = {"PUT": "s3:PutObject", "POST": "s3:PutObject", "DELETE": "s3:DeleteObject"}.get(
        call.operation, "s3:GetObject"
    )
    yield action, f"arn:aws:s3:::{bucket}/{key}", base


def _schedule_checks(
    call: Call, tags_of: Callable[[str, str], Mapping[str, str]], base: dict[str, Any]
) -> Iterator[Check]:
    """Yield the checks of a schedule: on the schedule, and on the role that it passes."""
    del tags_of
    name = call.path.partition("?")[0].rpartition("/")[2]
    arn = f"arn:aws:scheduler:{call.region}:{ACCOUNT}:schedule/default/{name}"
    yield f"scheduler:{call.operation}", arn, base
    role = call.document["Target"]["RoleArn"]
    yield "iam:PassRole", role, base | {"iam:PassedToService": "scheduler.amazonaws.com"}


def _ec2_arn(call: Call, kind: str, name: str) -> str:
    """Return the ARN of an EC2 resource in our account."""
    return f"arn:aws:ec2:{call.region}:{ACCOUNT}:{kind}/{name}"


def _tagged(key: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags as condition keys."""
    return {f"{key}/{name}": value for name, value in tags.items()}
