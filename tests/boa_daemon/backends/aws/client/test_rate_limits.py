"""`aws/client/rate_limits.py`: which calls share a bucket of tokens."""

from __future__ import annotations

import pytest

from boa_daemon.backends.aws.client.calls import OPERATIONS
from boa_daemon.backends.aws.client.rate_limits import OWN_RATES, bucket_name


@pytest.mark.parametrize(
    ("operation", "bucket"),
    [
        ("ec2:RunInstances", "ec2:RunInstances"),
        ("ec2:TerminateInstances", "ec2:TerminateInstances"),
        ("ec2:CreateTags", "ec2:CreateTags"),
        ("ec2:StopInstances", "other"),
        ("ec2:DescribeInstances", "describe"),
        ("events:ListRuleNamesByTarget", "describe"),
        ("iam:GetRole", "describe"),
        ("sqs:ReceiveMessage", "sqs"),
        ("s3:ListObjectsV2", "s3"),
        ("ssm:GetParameter", "ssm"),
        ("ssm:SendCommand", "ssm"),
        ("iam:CreateServiceLinkedRole", "other"),
    ],
)
def test_a_call_has_its_own_bucket_or_that_of_its_service_or_kind(operation: str, bucket: str) -> None:
    """Ends never wait behind launches, and reading never behind changes."""
    assert bucket_name(operation) == bucket


def test_every_call_has_a_bucket_that_refills() -> None:
    """EC2 lets an account launch two, and end five, a second for long; we take half, others the rest."""
    assert {bucket_name(operation) for operation in OPERATIONS} <= {*OWN_RATES}
    assert all(size >= 1.0 and refill > 0.0 for size, refill in OWN_RATES.values())
    assert OWN_RATES["ec2:RunInstances"][1] <= 1.0
    assert OWN_RATES["ec2:TerminateInstances"][1] <= 2.5
