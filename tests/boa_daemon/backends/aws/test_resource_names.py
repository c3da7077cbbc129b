"""What things are called on AWS: short enough, apart from each other, and with ARNs of their partition."""

from __future__ import annotations

from boa_daemon.backends.aws.resource_names import (
    bucket_and_prefix,
    bucket_of,
    claim_key,
    partition_of,
    queue_arn,
    role_of,
    slug_of,
)
from boa_daemon.backends.settings import AwsSettings


def test_two_clusters_never_share_a_slug() -> None:
    """What is cut or changed bears a part of a digest of the whole name."""
    slugs = {slug_of(AwsSettings(cluster=name)) for name in ("lab", "LAB", "lab_", "lab" * 12, "lab" * 13)}
    assert len(slugs) == 5
    assert "lab" in slugs
    assert max(map(len, slugs)) <= 24


def test_a_uri_is_a_bucket_and_a_prefix_with_its_slash() -> None:
    """Or none, where there is no prefix; the claim on a cluster stands outside of it."""
    assert bucket_and_prefix("s3://b/jobs/") == ("b", "jobs/")
    assert bucket_and_prefix("s3://b") == ("b", "")
    assert bucket_of("s3://b/jobs") == "b"
    assert claim_key(AwsSettings(cluster="lab")) == "boa-leader/lab.json"


def test_arns_are_of_the_partition_of_their_region() -> None:
    """A queue's owner is in its address; one that has none there is ours."""
    china = AwsSettings(region="cn-north-1", instance_profile="path/nodes")
    assert [partition_of(region) for region in ("us-east-1", "us-gov-west-1", "cn-north-1")] == [
        "aws", "aws-us-gov", "aws-cn",
    ]  # fmt: skip
    assert queue_arn(china, "https://sqs/123/q", "9") == "arn:aws-cn:sqs:cn-north-1:123:q"
    assert queue_arn(china, "https://fake/queue/q", "9") == "arn:aws-cn:sqs:cn-north-1:9:q"
    assert role_of(china, "9") == "arn:aws-cn:iam::9:role/nodes"
    assert role_of(AwsSettings(), "9") == ""
