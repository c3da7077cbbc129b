"""The fake cloud's rules for images: names are unique, snapshots have tags, and both take time.

moto makes an image at once, of any instance, under any name, and refuses tags for its snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from boa_daemon.testing.fake_answers import Answer, Call, ec2_error
from boa_daemon.testing.fake_terms import CloudFacts, Lifetime

_IMAGE = re.compile(rb"<imageId>(ami-[0-9a-z]+)</imageId>")


def create(
    cloud: CloudFacts, call: Call, lives: Mapping[str, Lifetime], forward: Callable[[bytes], Answer]
) -> Answer:
    """Make an image of an existing instance's disk."""
    life, ec2 = lives.get(call.query["InstanceId"]), cloud.backend(call.region)
    if life is None or life.ended_at is not None:
        return ec2_error("InvalidInstanceID.NotFound", "The instance does not exist")
    if any(image.name == call.query["Name"] for image in ec2.amis.values()):
        return ec2_error("InvalidAMIName.Duplicate", f"AMI name {call.query['Name']} is already in use")
    if call.query.get("DryRun", "").lower() == "true":
        return cloud.error("DryRunOperation")
    query = {key: value for key, value in call.query.items() if not key.startswith("TagSpecification.")}
    answer = forward(call.with_query(query))
    found = _IMAGE.search(answer.body)
    if answer.status == 200 and found:
        image = ec2.amis[found[1].decode()]
        image.creation_date = datetime.fromtimestamp(int(cloud.clock()), tz=UTC).replace(tzinfo=None)
        image.instance_id = life.id
        image.add_tags(call.tags("image"))
        image.ebs_snapshot.add_tags(call.tags("snapshot"))
        advance(cloud, call)
    return answer


def advance(cloud: CloudFacts, call: Call) -> None:
    """Update the states of the images that were made here to the current time."""
    for image in cloud.backend(call.region).amis.values():
        if image.instance_id is not None and image.state != "failed":
            age = cloud.clock() - image.creation_date.replace(tzinfo=UTC).timestamp()
            is_there = age >= cloud.terms.image_seconds
            image.state = "available" if is_there else "pending"
            image.ebs_snapshot.status = "completed" if is_there else "pending"


def delete_snapshot(cloud: CloudFacts, call: Call) -> Answer | None:
    """Refuse to delete the snapshot of an image."""
    wanted = call.query["SnapshotId"]
    if any(image.ebs_snapshot.id == wanted for image in cloud.backend(call.region).amis.values()):
        return ec2_error("InvalidSnapshot.InUse", f"The snapshot {wanted} is currently in use")
    return None
