"""What people report of programs that rent on AWS, recreated under a daemon with a running job.

SkyPilot, dstack, Karpenter, ParallelCluster and others have such reports. A second job needs a
node while something is wrong: it runs where that is possible, or is told what cures it and runs once that is
done; the first job runs on, no node is doubled or left behind, and the bill is EC2's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aws_days import Day, Hook, a_day, with_credentials

from boa_daemon.backends.aws.client.errors import CallFailed

WAIT_MINUTES, HEAL_MINUTES = 8.0, 20.0
RUN, LIST = "ec2:RunInstances", "ec2:DescribeInstances"
Plain = Callable[[], Any]


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with_credentials(monkeypatch)


@dataclass(frozen=True)
class Report:
    """What a hook does to calls, and what is expected: the job `runs` meanwhile, or is told the `cure`."""

    hook: Hook
    cure: str = ""
    runs: bool = True
    heals: float = HEAL_MINUTES


def refuses(code: str, said: str, *, cure: str = "", zone: str = "", status: int = 400) -> Report:
    """Return the report of launches that are refused, in one zone or in all."""

    def hook(operation: str, arguments: dict[str, Any], plain: Plain) -> Any:
        if operation == RUN and (not zone or zone in _place(arguments)) and not arguments.get("DryRun"):
            raise CallFailed(RUN, code, said, http_status=status)
        return plain()

    return Report(hook, cure, runs=bool(zone))


def fails(*operations: str, code: str, said: str, status: int = 400) -> Report:
    """Return the report of other calls that fail: the job runs all the same."""

    def hook(operation: str, arguments: dict[str, Any], plain: Plain) -> Any:
        if operation in operations:
            raise CallFailed(operation, code, said, http_status=status)
        return plain()

    return Report(hook)


def _place(arguments: dict[str, Any]) -> str:
    """Return the zone of a launch; the zones of the default subnets are known by their order."""
    subnet = arguments.get("SubnetId", "")
    return str(_ZONES.get(subnet, arguments.get("Placement", {}).get("AvailabilityZone", "")))


_ZONES: dict[str, str] = {}


def without(*keys: str) -> Report:
    """Return the report of listings that lack parts of an instance, as soon after a launch."""

    def hook(operation: str, arguments: dict[str, Any], plain: Plain) -> Any:
        answer = plain()
        if operation == LIST:
            for instance in (each for one in answer["Reservations"] for each in one["Instances"]):
                for key in keys:
                    instance.pop(key, None)
        return answer

    return Report(hook)


def _done_and_refused(code: str, status: int) -> Report:
    """Return the report of a launch that happens although its answer refuses it, once."""
    done: list[str] = []

    def hook(operation: str, arguments: dict[str, Any], plain: Plain) -> Any:
        answer = plain()
        if operation == RUN and not done and not arguments.get("DryRun"):
            done.append(code)
            raise CallFailed(RUN, code, "as said", http_status=status)
        return answer

    return Report(hook)


def _empty_listings() -> Report:
    """Return the report of listings that are empty for a while, as of an index that lags."""
    seen: list[str] = []

    def hook(operation: str, arguments: dict[str, Any], plain: Plain) -> Any:
        answer = plain()
        if operation == LIST and len(seen) < 3:
            seen.append("")
            return answer | {"Reservations": []}
        return answer

    return Report(hook)


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
    "a launch that was throttled and happened": _done_and_refused("RequestLimitExceeded", 503),
    "a launch that failed inside and happened": _done_and_refused("InternalError", 500),
    "a launch that was unavailable and happened": _done_and_refused("Unavailable", 503),
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
    "listings that are empty for a while": _empty_listings(),
}  # fmt: skip
QUICK = ("a zone without a default subnet", "an image without ENA")


@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.exhaustive) for each in REPORTS]
)
def test_what_people_report_of_others_holds_here(tmp_path: Path, name: str) -> None:
    """One job runs all the time; the other runs within minutes, or once what it is told is mended."""
    report = REPORTS[name]
    with a_day(tmp_path) as day:
        _note_zones(day)
        (first,) = day.rig.fake.live()
        day.hook = report.hook
        day.submit(hours=0.1)
        day.ticks(WAIT_MINUTES)
        statuses = day.statuses()
        assert statuses[0] == "running"
        if report.runs:
            assert statuses[1] in ("running", "finished"), (statuses, _said(day))
        else:
            assert statuses[1] not in ("running", "finished", "failed")
            assert any(report.cure in each for each in _said(day)), _said(day)
        day.hook = None
        day.ticks(report.heals)
        assert day.statuses() == ["running", "finished"], _said(day)
        assert [life.id for life in day.rig.fake.live()] == [first.id]
        assert day.launched() == 2
        assert day.play.storage.store.unsettled() == []
        ended = sum((life.ended_at or 0.0) - life.launched_at for life in day.rig.fake.history()[1:])
        assert day.charged() == pytest.approx(ended / 3600.0 * 1.032918, rel=0.02)


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


def _note_zones(day: Day) -> None:
    by_zone = day.rig.fake.backend("us-east-1").subnets.values()
    _ZONES.update({one.id: one.availability_zone for each in by_zone for one in each.values()})


def _said(day: Day) -> list[str]:
    """Return everything that people can read about the second job and the site."""
    return [day.play.service.explain(day.jobs[1])["text"], *day.notes(), *day.alerts()]
