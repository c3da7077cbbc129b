"""Resources that have our tags and were not made by us: people and services copy tags along.

"Launch more like this", a launch template or an Auto Scaling group made of an instance, a backup that is
restored: each copies the tags of a node onto something of somebody else. Nothing is ended that we did not
make. Two things are not copied: the token of the launch, which EC2 lists, and the tags that begin with
``aws:``, which the service that made the resource sets and nobody else can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boa_daemon.backends.aws.instances.launch_request import CLUSTER_TAG, TOKEN_PREFIX
from boa_daemon.backends.aws.instances.node_from_instance import tags_of_instance

_OF_SERVICES: Mapping[str, str] = {
    "aws:autoscaling:": "an Auto Scaling group",
    "aws:backup:": "AWS Backup",
    "aws:cloudformation:": "a CloudFormation stack",
    "aws:ec2:fleet": "an EC2 fleet",
    "aws:ec2launchtemplate:": "a launch template",
    "aws:ec2spot:fleet": "a spot fleet",
    "aws:eks:": "EKS",
    "aws:elasticmapreduce:": "EMR",
    "aws:servicecatalog:": "Service Catalog",
}
"""Who makes resources with such tags; our launches have none of them."""


def made_by_others(resource: Mapping[str, Any]) -> str:
    """Return who made a resource with our tags, if that is known and it was not us; else an empty text.

    Without a token in the answer nothing is known. EC2 may have made the token of a spot instance itself.
    """
    for key in tags_of_instance(resource):
        service = next((name for begin, name in _OF_SERVICES.items() if key.startswith(begin)), "")
        if service:
            return service
    token = str(resource.get("ClientToken") or "")
    is_spot = resource.get("InstanceLifecycle") == "spot"
    if token and not is_spot and not token.startswith(TOKEN_PREFIX):
        return f"a launch with the token {token[:40]}"
    return ""


def copied_sentence(instance: Mapping[str, Any], made_by: str, cluster: str) -> str:
    """Return what people are told of an instance that has our tags and is not ours."""
    name = instance["InstanceId"]
    return (
        f"{name} ({instance['InstanceType']}) has the tags of a node of cluster {cluster}, and {made_by} "
        "made it: BOA leaves it alone and counts none of its cost. If it has the user data of the node as "
        "well, that ends it with its lease. Take the tags off it: "
        f"aws ec2 delete-tags --resources {name} --tags Key={CLUSTER_TAG}"
    )
