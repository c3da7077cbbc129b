"""What is ours of what has our tags: by the token of the launch, and by tags that only services set."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.backends.aws.instances.copied_tags import copied_sentence, made_by_others
from boa_daemon.backends.aws.instances.launch_request import client_token

OURS = client_token("t1-launch-0", ledger_id="b", attempt=0, place="a")
UUID = "3f6f1d20-6d2b-4b5c-8f0e-000000000001"


def tagged(*keys: str, **fields: Any) -> dict[str, Any]:
    """Return a resource with tags of these keys."""
    return {"Tags": [{"Key": key, "Value": "x"} for key in keys], **fields}


@pytest.mark.parametrize(
    ("resource", "made_by"),
    [
        (tagged("boa:cluster", ClientToken=OURS), ""),
        (tagged("boa:cluster"), ""),
        (tagged("boa:cluster", ClientToken=""), ""),
        (tagged("boa:cluster", ClientToken=UUID, InstanceLifecycle="spot"), ""),
        (tagged("boa:cluster", "aws:createdBy", ClientToken=OURS), ""),
        (tagged("boa:cluster", ClientToken=UUID), f"a launch with the token {UUID[:40]}"),
        (tagged("boa:cluster", "aws:eks:cluster-name", ClientToken=OURS), "EKS"),
        (tagged("boa:cluster", "aws:ec2:fleet-id", InstanceLifecycle="spot"), "an EC2 fleet"),
        (tagged("boa:cluster", "aws:backup:source-resource"), "AWS Backup"),
    ],
)
def test_who_made_it_is_said_only_where_it_is_known(resource: dict[str, Any], made_by: str) -> None:
    """A token that is missing or of EC2's own making says nothing."""
    assert made_by_others(resource) == made_by


def test_people_are_told_how_to_take_the_tags_off() -> None:
    """With the id and the command."""
    said = copied_sentence({"InstanceId": "i-1", "InstanceType": "g5.xlarge"}, "AWS Backup", "lab")
    assert "i-1 (g5.xlarge) has the tags of a node of cluster lab, and AWS Backup made it" in said
    assert "delete-tags --resources i-1" in said
