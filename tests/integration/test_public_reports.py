"""What people report of programs that rent on AWS, recreated under a daemon with a running job.

SkyPilot, dstack, Karpenter, ParallelCluster and others have such reports. A second job needs a
node while something is wrong: it runs where that is possible, or is told what cures it and runs once that is
done; the first job runs on, no node is doubled or left behind, and the bill is EC2's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_days import a_day, with_credentials
from aws_reports import (
    LIST,
    Plain,
    Report,
    done_and_refused,
    empty_listings,
    fails,
    holds,
    refuses,
    without,
)

from boa_daemon.backends.aws.client.errors import CallFailed


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with_credentials(monkeypatch)


A = "us-east-1a"
ENA = (
    "Enhanced networking with the Elastic Network Adapter (ENA) is required for the 'g5.xlarge' instance type"
)
REPORTS: dict[str, Report] = {
    "no capacity with gp3 in a zone": refuses(
        "InsufficientInstanceCapacity", "no sufficient capacity in zones with support for 'gp3' volumes",
        zone=A, status=500,
    ),
    "not supported in a zone": refuses(
        "Unsupported", "Your requested instance type (g5.xlarge) is not supported in your requested "
        "Availability Zone (us-east-1a). Please retry your request by not specifying an Availability Zone",
        zone=A,
    ),
    "unfulfillable capacity": refuses(
        "UnfulfillableCapacity", "Unable to fulfill capacity due to your request configuration", zone=A
    ),
    "a zone without a default subnet": refuses(
        "InvalidInput", "No default subnet for availability zone: 'us-east-1a'.", zone=A
    ),
    "a subnet out of addresses": refuses(
        "InsufficientFreeAddressesInSubnet", "There are not enough free addresses in subnet", zone=A
    ),
    "a subnet for IPv6 alone": refuses(
        "UnsupportedOperation", "Instances in IPv6-only subnets must have IPv6 addresses", zone=A
    ),
    "no volumes in a zone": refuses("InsufficientVolumeCapacity", "There is not enough capacity", zone=A),
    "no addresses in a zone": refuses("InsufficientAddressCapacity", "Not enough addresses", zone=A),
    "a placement group of a zone that is gone": refuses(
        "InvalidPlacementGroup.Unknown", "The Placement Group 'pg' is unknown.", zone=A
    ),
    "a denial for one subnet": refuses(
        "UnauthorizedOperation", "x is not authorized to perform: ec2:RunInstances on resource: arn:aws:ec2:"
        "us-east-1:1:subnet/subnet-1 because no identity-based policy allows it", zone=A, status=403,
    ),
    "a profile that EC2 does not know": refuses(
        "InvalidParameterValue", "Value (arn:aws:iam::1:instance-profile/p) for parameter "
        "iamInstanceProfile.arn is invalid. Invalid IAM Instance Profile ARN",
        cure="[cloud] instance_profile",
    ),
    "an image without ENA": refuses("InvalidParameterCombination", ENA, cure="[cloud] images"),
    "an image of another architecture": refuses(
        "InvalidParameterValue", "The architecture 'x86_64' of the specified instance type does not match "
        "the architecture 'arm64' of the specified AMI.", cure="[cloud] images",
    ),
    "an image of another boot mode": refuses(
        "InvalidParameterValue", "The instance type's supported boot modes are UEFI", cure="[cloud] images"
    ),
    "a disabled image": refuses("InvalidAMIID.Unavailable", "'ami-1' is not available", cure="[cloud] image"),
    "a Marketplace image without its terms": refuses(
        "OptInRequired", "In order to use this AWS Marketplace product you need to accept terms and "
        "subscribe", cure="accept its terms",
    ),
    "a disabled key": refuses(
        "InvalidParameterValue", "The KMS key arn:aws:kms:us-east-1:1:key/k is disabled", cure="enable-key"
    ),
    "the storage of the region is used up": refuses(
        "VolumeLimitExceeded", "You have exceeded your maximum gp3 storage limit of 50 TiB", cure="EBS"
    ),
    "the IOPS of the region are used up": refuses(
        "MaxIOPSLimitExceeded", "Your volume IOPS request exceeds the limit", cure="IOPS"
    ),
    "interfaces of the region are used up": refuses(
        "NetworkInterfaceLimitExceeded", "The maximum number of network interfaces has been reached",
        cure="Service Quotas",
    ),
    "too many security groups": refuses(
        "SecurityGroupsPerInterfaceLimitExceeded", "The maximum number of security groups per interface has "
        "been reached", cure="[cloud] security_groups",
    ),
    "a key pair that is gone": refuses(
        "InvalidKeyPair.NotFound", "The key pair 'k' does not exist", cure="[cloud] key_name"
    ),
    "a launch template that is gone": refuses(
        "InvalidLaunchTemplateName.NotFoundException", "The specified launch template does not exist",
        cure="no launch template",
    ),
    "no default network": refuses(
        "VPCIdNotSpecified", "No default VPC for this user.", cure="[cloud] subnets"
    ),
    "an account that is verified": refuses(
        "PendingVerification", "Your request for accessing resources in this region is being validated",
        cure="verifying",
    ),
    "a tag policy": refuses(
        "TagPolicyViolation", "The tag policy does not allow the value", cure="tag policy"
    ),
    "a service control policy": refuses(
        "UnauthorizedOperation", "x is not authorized to perform: ec2:RunInstances on resource: arn:aws:ec2:"
        "us-east-1:1:instance/* with an explicit deny in a service control policy", status=403,
        cure="organisation's administrator",
    ),
    "an endpoint policy": refuses(
        "UnauthorizedOperation", "x is not authorized to perform: ec2:RunInstances on resource: arn:aws:ec2:"
        "us-east-1:1:instance/* with an explicit deny in a vpc endpoint policy", status=403,
        cure="vpc endpoint policy",
    ),
    "the vCPUs of the account are used up": refuses(
        "VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit of 4 allows",
        cure="Service Quotas",
    ),
    "a launch that was throttled and happened": done_and_refused("RequestLimitExceeded", 503),
    "a launch that failed inside and happened": done_and_refused("InternalError", 500),
    "a launch that was unavailable and happened": done_and_refused("Unavailable", 503),
    "quotas that are throttled": fails(
        "servicequotas:GetServiceQuota", code="TooManyRequestsException", said="Rate exceeded", status=429
    ),
    "no quotas in the region": fails(
        "servicequotas:GetServiceQuota", code="NoSuchResourceException", said="does not exist", status=400
    ),
    "types of zones that cannot be asked for": fails(
        "ec2:DescribeInstanceTypeOfferings", code="InternalError", said="An internal error has occurred",
        status=500,
    ),
    "status checks that are not allowed": fails(
        "ec2:DescribeInstanceStatus", code="UnauthorizedOperation", said="no", status=403
    ),
    "tags that cannot be written yet": fails(
        "ec2:CreateTags", code="InvalidInstanceID.NotFound", said="The instance ID 'i-1' does not exist"
    ),
    "listings without addresses": without("PrivateIpAddress", "PublicDnsName", "NetworkInterfaces"),
    "listings without reasons": without("StateReason", "StateTransitionReason"),
    "listings that are empty for a while": empty_listings(),
}  # fmt: skip
QUICK = ("a zone without a default subnet", "an image without ENA")


@pytest.mark.first_set(1)
@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.exhaustive) for each in REPORTS]
)
def test_what_people_report_of_others_holds_here(tmp_path: Path, name: str) -> None:
    """One job runs all the time; the other runs within minutes, or once what it is told is mended."""
    holds(tmp_path, REPORTS[name])


def test_an_order_to_end_what_is_gone_is_denied_and_stops_nothing(tmp_path: Path) -> None:
    """Rights that go by tags deny an end of what has no tags any more; the next launch happens."""
    with a_day(tmp_path) as day:
        (first,) = day.rig.fake.live()

        def hook(operation: str, arguments: dict[str, Any], plain: Plain) -> Any:
            if operation == "ec2:TerminateInstances" and first.id in arguments["InstanceIds"]:
                said = "You are not authorized to perform this operation."
                raise CallFailed(operation, "UnauthorizedOperation", said, http_status=403)
            answer = plain()
            if operation == LIST:
                for one in answer["Reservations"]:
                    one["Instances"] = [each for each in one["Instances"] if each["InstanceId"] != first.id]
            return answer

        day.hook = hook
        day.rig.fake.end(first.id)
        day.ticks(12.0)
        assert day.statuses() == ["running"]
        assert day.launched() == 2
        assert [life.id for life in day.rig.fake.live()] == [day.rig.fake.history()[1].id]
        assert day.lost() - {"tags"} == set(), day.notes()
