"""Further public reports of renting on AWS: members of each class that the mends were not made from.

The trackers of SkyPilot, dstack, Karpenter, cluster-autoscaler, ParallelCluster, Ray, Terraform's provider
and boto3 have them: credentials, launches, prices, queries and the network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_days import with_credentials
from aws_reports import LIST, RUN, Plain, Report, at_first, everything, fails, holds, listed_as, refuses

A = "us-east-1a"
ON = "is not authorized to perform: ec2:RunInstances on resource: arn:aws:ec2:us-east-1:1:instance/*"


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with_credentials(monkeypatch)


def _twice(answer: dict[str, Any]) -> dict[str, Any]:
    return answer | {"Reservations": [*answer["Reservations"], *answer["Reservations"]]}


def _one_page_for_ever() -> Report:
    def hook(operation: str, arguments: dict[str, Any], plain: Plain) -> Any:
        if operation == LIST:
            return {"Reservations": [], "NextToken": "the same again"}
        return plain()

    return Report(hook, cure="names a page as the next one that we had", runs=False)


REPORTS: dict[str, Report] = {
    "a configuration that a zone does not support": refuses(
        "Unsupported", "The requested configuration is currently not supported. Please check the "
        "documentation for supported configurations.", zone=A,
    ),
    "a configuration that no zone supports": refuses(
        "Unsupported", "The requested configuration is currently not supported.", cure="[cloud] zones",
        heals=250.0,
    ),
    "an open reservation that others fill": refuses(
        "ReservationCapacityExceeded", "The requested reservation does not have sufficient compatible and "
        "available capacity for this request", zone=A,
    ),
    "capacity of a host in a zone": refuses(
        "InsufficientHostCapacity", "There is not enough capacity on the Dedicated Host", zone=A, status=500
    ),
    "a code with the prefix of a fleet": refuses(
        "Server.InsufficientInstanceCapacity", "We currently do not have sufficient g5.xlarge capacity",
        zone=A, status=500,
    ),
    "no capacity in any zone": refuses(
        "InsufficientInstanceCapacity", "We currently do not have sufficient capacity", status=500,
        cure="other zones, types and markets",
    ),
    "a subnet that is gone": refuses(
        "InvalidSubnetID.NotFound", "The subnet ID 'subnet-1' does not exist", zone=A
    ),
    "a volume type that a zone lacks": refuses(
        "VolumeTypeNotAvailableInZone", "The volume type is not available in this zone", zone=A
    ),
    "a cluster placement group that the type cannot join": refuses(
        "InvalidParameterCombination", "Cluster placement groups are not supported by the 'g5.xlarge' "
        "instance type. Specify a supported instance type or change the placement group strategy",
        cure="[cloud] placement_groups",
    ),
    "more interfaces than the type takes": refuses(
        "AttachmentLimitExceeded", "Interface count 8 exceeds the limit for g5.xlarge", cure="limit"
    ),
    "a card index that the type lacks": refuses(
        "InvalidParameterValue", "The network card index '4' exceeds the maximum of '0'", cure="[cloud] efa"
    ),
    "a group of another network": refuses(
        "InvalidParameter", "Security group sg-1 and subnet subnet-1 belong to different networks.",
        cure="[cloud] security_groups",
    ),
    "a disk smaller than its snapshot": refuses(
        "InvalidBlockDeviceMapping", "Volume of size 8GB is smaller than snapshot 'snap-1', expect size >= "
        "75GB", cure="[cloud] volume_gib",
    ),
    "an image that was deregistered": refuses(
        "InvalidAMIID.NotFound", "The image id '[ami-1]' does not exist", cure="[cloud] image"
    ),
    "a snapshot that was deleted": refuses(
        "InvalidSnapshot.NotFound", "The snapshot 'snap-1' does not exist.", cure="[cloud] image"
    ),
    "an encoded denial": refuses(
        "UnauthorizedOperation", "You are not authorized to perform this operation. Encoded authorization "
        "failure message: aGVsbG8", status=403, cure="decode-authorization-message",
    ),
    "a permissions boundary that allows nothing": refuses(
        "UnauthorizedOperation", f"x {ON} because no permissions boundary allows the ec2:RunInstances action",
        status=403, cure="permissions boundary",
    ),
    "a session policy that allows nothing": refuses(
        "UnauthorizedOperation", f"x {ON} because no session policy allows the ec2:RunInstances action",
        status=403, cure="session policy",
    ),
    "a resource control policy": refuses(
        "UnauthorizedOperation", f"x {ON} with an explicit deny in a resource control policy", status=403,
        cure="organisation's administrator",
    ),
    "tags that may not be set at a launch": refuses(
        "UnauthorizedOperation", "x is not authorized to perform: ec2:CreateTags on resource: arn:aws:ec2:"
        "us-east-1:1:instance/* because no identity-based policy allows the ec2:CreateTags action",
        status=403, cure="boa iam",
    ),
    "a role that may not be passed": refuses(
        "UnauthorizedOperation", "x is not authorized to perform: iam:PassRole on resource: arn:aws:iam::1:"
        "role/nodes because no identity-based policy allows the iam:PassRole action", status=403,
        cure="iam:PassRole",
    ),
    "an account without a subscription": refuses(
        "OptInRequired", "You are not subscribed to this service. Please go to http://aws.amazon.com to "
        "subscribe.", status=401, cure="Enable the region",
    ),
    "a blocked account": refuses(
        "Blocked", "This account is currently blocked and not recognized as a valid account.",
        cure="AWS Support",
    ),
    "a free plan": refuses(
        "InvalidParameterCombination", "The specified instance type is not eligible for Free Tier.",
        cure="free plan",
    ),
    "no running instance of the quota": refuses(
        "InstanceLimitExceeded", "Your quota allows for 0 more running instance(s). You requested at least 1",
        cure="Service Quotas",
    ),
    "a token with other arguments, once": at_first(
        RUN, "IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent with "
        "arguments used in previous request(s).", times=1, status=400,
    ),
    "launches that are throttled for a while": at_first(
        RUN, "RequestLimitExceeded", "Request limit exceeded.", times=5, status=503
    ),
    "launches that are not available for a while": at_first(
        RUN, "Unavailable", "The service is unavailable. Please try again shortly.", times=3, status=503
    ),
    "tags that two write at once": at_first(
        RUN, "ConcurrentTagAccess", "Too many concurrent writes to tags", times=2, status=400
    ),
    "a listing that one bad id poisons": at_first(
        LIST, "InvalidInstanceID.NotFound", "The instance ID 'i-0' does not exist", times=2, status=400
    ),
    "a listing without a subject": at_first(
        LIST, "InternalError", "An internal error has occurred", times=3, status=500
    ),
    "a token that is sent as expired": at_first(
        LIST, "ExpiredToken", "The security token included in the request is expired", times=3, status=400
    ),
    "a listing that has each instance twice": listed_as(_twice),
    "pages that never end": _one_page_for_ever(),
    "status checks that one bad id poisons": fails(
        "ec2:DescribeInstanceStatus", code="InvalidInstanceID.NotFound", said="The instance IDs 'i-1, i-2' "
        "do not exist",
    ),
    "a price list that may not be read": fails(
        "pricing:GetProducts", code="AccessDeniedException", said="User is not authorized", status=400
    ),
    "subnets that may not be listed": fails(
        "ec2:DescribeSubnets", code="UnauthorizedOperation", said="no", status=403
    ),
    "an index of disks that is down": fails(
        "ec2:DescribeVolumes", "ec2:DescribeNetworkInterfaces", code="Unavailable", said="no", status=503
    ),
    "a queue that is over its limit": fails(
        "sqs:ReceiveMessage", code="AWS.SimpleQueueService.OverLimit", said="Too many messages in flight",
        status=403,
    ),
    "single sign-on that has expired": everything(
        "NoCredentials", "Error loading SSO Token: Token for x has expired", cure="aws sso login", status=401
    ),
    "a metadata service one hop too far": everything(
        "NoCredentials", "Unable to locate credentials", cure="metadata service", status=401
    ),
    "a clock that is off": everything("RequestExpired", "Request has expired.", cure="clock", status=400),
    "a session token that is missing": everything(
        "AuthFailure", "AWS was not able to validate the provided access credentials", status=401,
        cure="Renew the credentials",
    ),
    "a role of a role that may not be assumed": everything(
        "NoCredentials", "AssumeRole gave none: AccessDenied: x is not authorized to perform: sts:AssumeRole",
        cure="AssumeRole", status=401,
    ),
    "a proxy that wants a password": everything(
        "ProxyFailed", "Tunnel connection failed: 407 Proxy Authentication Required", cure="HTTPS_PROXY"
    ),
    "a proxy that opens TLS": everything(
        "TlsFailed", "certificate verify failed: self-signed certificate", cure="AWS_CA_BUNDLE"
    ),
    "names that are not resolved": everything(
        "ConnectionLost", "Could not connect to the endpoint URL", cure="Check the network"
    ),
}  # fmt: skip
QUICK = ("an open reservation that others fill", "a listing that has each instance twice")


@pytest.mark.first_set(1)
@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.exhaustive) for each in REPORTS]
)
def test_what_others_are_told_of_holds_here(tmp_path: Path, name: str) -> None:
    """One job runs all the time; the other runs within minutes, or once what it is told is mended."""
    holds(tmp_path, REPORTS[name])
