"""Names of a cluster's AWS resources: slugs, roles, queues, schedules and buckets, and their ARNs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from types import MappingProxyType

from boa_daemon.backends.settings import AwsSettings

LONGEST_SLUG = 24
"""Most characters of a slug: a bucket's name has at most 63, 39 of them for `boa`, account and region."""


_PARTITIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "cn-": ("aws-cn", "amazonaws.com.cn"),
        "us-gov-": ("aws-us-gov", "amazonaws.com"),
        "eusc-": ("aws-eusc", "amazonaws.eu"),
        "us-iso-": ("aws-iso", "c2s.ic.gov"),
        "us-isob-": ("aws-iso-b", "sc2s.sgov.gov"),
        "eu-isoe-": ("aws-iso-e", "cloud.adc-e.uk"),
        "us-isof-": ("aws-iso-f", "csp.hci.ic.gov"),
        "eu-isof-": ("aws-iso-f", "csp.hci.ic.gov"),
    }
)
"""Beginnings of regions to partition and domain, as botocore has them, which takes long to import."""
_HOMES: Mapping[str, str] = MappingProxyType({"aws": "us-east-1", "aws-cn": "cn-northwest-1"})
"""Partition to the region whose Pricing API and Cost Explorer serve all of it; others: each its own."""


def _partition_and_domain(region: str) -> tuple[str, str]:
    found = (both for begin, both in _PARTITIONS.items() if region.startswith(begin))
    return next(found, ("aws", "amazonaws.com"))


def partition_of(region: str) -> str:
    """Return the partition of a region, the second part of its ARNs."""
    return _partition_and_domain(region)[0]


def domain_of(region: str) -> str:
    """Return the domain of AWS's addresses in a region."""
    return _partition_and_domain(region)[1]


def home_region(region: str) -> str:
    """Return the region where prices and costs of a region's partition are asked for."""
    return _HOMES.get(partition_of(region), region)


def slug_of(settings: AwsSettings) -> str:
    """Return a short form of the cluster's name for buckets, queues and roles, whose names have limits."""
    slug = re.sub(r"[^a-z0-9-]", "-", settings.cluster.lower()).strip("-")
    if len(slug) <= LONGEST_SLUG and slug == settings.cluster:
        return slug
    digest = hashlib.sha256(settings.cluster.encode()).hexdigest()[:6]
    return f"{slug[: LONGEST_SLUG - 7].strip('-')}-{digest}"


def control_role_name(settings: AwsSettings) -> str:
    """Return the name of the daemon's role."""
    return f"boa-{slug_of(settings)}-control"


def queue_arn(settings: AwsSettings, url: str, account: str) -> str:
    """Return the ARN of a queue by its URL."""
    owner, name = url.rstrip("/").split("/")[-2:]
    # A fake's queue URL may have no account; CloudFormation completes ${AWS::AccountId}.
    whose = owner if owner.isdigit() or owner.startswith("${") else account
    return f"arn:{partition(settings)}:sqs:{settings.region}:{whose}:{name}"


def partition(settings: AwsSettings) -> str:
    """Return the partition of the settings."""
    return partition_of(settings.region)


def ec2_service(settings: AwsSettings) -> str:
    """Return EC2's service principal."""
    # In China alone a service has a name of its own there.
    return "ec2.amazonaws.com.cn" if partition(settings) == "aws-cn" else "ec2.amazonaws.com"


def everything_of(settings: AwsSettings, account: str, kind: str) -> str:
    """Return the ARN pattern of all EC2 resources of a kind in the region."""
    return f"arn:{partition(settings)}:ec2:{settings.region}:{account}:{kind}/*"


def schedule_name(settings: AwsSettings, instance: str, life: int) -> str:
    """Return the name of the schedule that ends a stopped instance."""
    return f"boa-{slug_of(settings)}-{instance}-{life}"


def claim_key(settings: AwsSettings) -> str:
    """Return the key of the object with the claim on the cluster; nodes cannot write it."""
    return f"boa-leader/{slug_of(settings)}.json"


def bucket_of(uri: str) -> str:
    """Return the bucket of s3://bucket/prefix."""
    return bucket_and_prefix(uri)[0]


def role_of(settings: AwsSettings, account: str) -> str:
    """Return the ARN of the instance profile's role, which has the same name; empty without a profile."""
    name = settings.instance_profile.rpartition("/")[2]
    return f"arn:{partition(settings)}:iam::{account}:role/{name}" if name else ""


def bucket_and_prefix(uri: str) -> tuple[str, str]:
    """Return (bucket, prefix with its slash) of s3://bucket/prefix."""
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    return bucket, f"{prefix.rstrip('/')}/" if prefix.rstrip("/") else ""
