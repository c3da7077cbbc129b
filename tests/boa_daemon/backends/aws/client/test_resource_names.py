"""`aws/client/resource_names.py`: names on AWS are short, unique per cluster, in the right partition."""

from __future__ import annotations

from boa_daemon.backends.aws.client.resource_names import (
    bucket_and_prefix,
    bucket_of,
    claim_key,
    partition_of,
    queue_arn,
    role_of,
    slug_of,
)
from boa_daemon.backends.settings import AwsSettings


def test_different_cluster_names_give_different_slugs() -> None:
    """A slug has at most 24 characters; a short plain name is its own slug."""
    slugs = {slug_of(AwsSettings(cluster=name)) for name in ("lab", "LAB", "lab_", "lab" * 12, "lab" * 13)}
    assert len(slugs) == 5
    assert "lab" in slugs
    assert max(map(len, slugs)) <= 24


def test_a_uri_is_split_into_bucket_and_prefix() -> None:
    """The prefix keeps its slash or is empty; the key of the cluster claim has its own prefix."""
    assert bucket_and_prefix("s3://b/jobs/") == ("b", "jobs/")
    assert bucket_and_prefix("s3://b") == ("b", "")
    assert bucket_of("s3://b/jobs") == "b"
    assert claim_key(AwsSettings(cluster="lab")) == "boa-leader/lab.json"


def test_arns_use_the_partition_of_their_region() -> None:
    """The account of a queue comes from its URL, and otherwise from the caller."""
    china = AwsSettings(region="cn-north-1", instance_profile="path/nodes")
    assert [partition_of(region) for region in ("us-east-1", "us-gov-west-1", "cn-north-1")] == [
        "aws", "aws-us-gov", "aws-cn",
    ]  # fmt: skip
    assert queue_arn(china, "https://sqs/123/q", "9") == "arn:aws-cn:sqs:cn-north-1:123:q"
    assert queue_arn(china, "https://fake/queue/q", "9") == "arn:aws-cn:sqs:cn-north-1:9:q"
    assert role_of(china, "9") == "arn:aws-cn:iam::9:role/nodes"
    assert role_of(AwsSettings(), "9") == ""
