"""`aws/client/resource_names.py`: names on AWS are short, unique per cluster, in the right partition."""

from __future__ import annotations

import json
import re

import boto3
import botocore.session
import pytest

from boa_daemon.backends.aws.client.calls import AwsCalls, known_regions
from boa_daemon.backends.aws.client.resource_names import (
    bucket_and_prefix,
    bucket_of,
    claim_key,
    domain_of,
    partition_of,
    queue_arn,
    role_of,
    slug_of,
)
from boa_daemon.backends.aws.image_builder.policy import image_policy
from boa_daemon.backends.aws.instances.termination_schedule import termination_policy
from boa_daemon.backends.aws.rights.policy import node_policy, policy
from boa_daemon.backends.aws.stack.settings import StackOptions, stack_settings_of
from boa_daemon.backends.aws.stack.template import stack_template
from boa_daemon.backends.region_names import REGION
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


OTHER_PARTITIONS = (
    "cn-north-1", "us-gov-east-1", "eusc-de-east-1", "us-iso-east-1", "us-isob-east-1", "eu-isoe-west-1",
    "us-isof-south-1",
)  # fmt: skip


def test_every_region_that_botocore_knows_has_its_form_partition_and_domain() -> None:
    """One pattern and one table serve settings, labels, price histories, ARNs and addresses."""
    session = botocore.session.get_session()
    domains = {each["partition"]: each["dnsSuffix"] for each in session.get_data("endpoints")["partitions"]}
    for region in (*known_regions(), *OTHER_PARTITIONS):
        partition = session.get_partition_for_region(region)
        assert (partition_of(region), domain_of(region)) == (partition, domains[partition]), region
        assert AwsSettings(region=region).region == region
        assert re.match(REGION, f"{region}a") is not None


PARTITION_WIDE = ("pricing:GetProducts", "ce:GetCostAndUsage", "iam:CreateServiceLinkedRole")


@pytest.mark.parametrize("region", ["us-gov-west-1", "cn-north-1", "eusc-de-east-1", "sa-east-1"])
@pytest.mark.parametrize(
    "operation", ["pricing:GetProducts", "ce:GetCostAndUsage", "iam:CreateServiceLinkedRole"]
)
def test_no_call_goes_to_another_partition(region: str, operation: str) -> None:
    """Credentials of one partition are none in another: the answer would be that they are invalid."""
    client = AwsCalls(AwsSettings(region=region), session=boto3.session.Session("a", "b"))._client(
        operation, ""
    )

    assert client.meta.partition == partition_of(region)
    assert client.meta.endpoint_url.endswith(domain_of(region))


@pytest.mark.parametrize("region", OTHER_PARTITIONS)
def test_all_that_is_printed_for_a_region_names_its_partition(region: str) -> None:
    """Policies, template, and the addresses of queues."""
    settings = AwsSettings(region=region, cluster="lab", instance_types=("g5.xlarge",), warm_pool_nodes=1)
    site = stack_settings_of(settings, account="123456789012")
    printed = json.dumps(
        [
            policy(site.settings, uses=site.uses, account="123456789012"),
            node_policy(site.settings, site.uses, account="123456789012"),
            stack_template(settings, StackOptions()),
            image_policy(settings, uses=site.uses),
            termination_policy(settings),
        ]
    )
    partitions = set(re.findall(r"arn:(aws[a-z-]*):", printed))

    assert partitions == {partition_of(region)}
    assert site.settings.queue_url.startswith(f"https://sqs.{region}.{domain_of(region)}/")
    assert "us-east-1" not in printed
