"""`DescribeInstanceTopology` of the fake cloud: at most 100 ids, and no answer for most types."""

from __future__ import annotations

from xml.sax.saxutils import escape

from boa_daemon.testing.fake_answers import Answer, Call, ec2_error, ec2_rows
from boa_daemon.testing.fake_terms import CloudFacts

MOST_IDS = 100


def topology(cloud: CloudFacts, call: Call) -> Answer:
    """Return the network nodes above instances, from the terms."""
    ids = call.numbered("InstanceId")
    if len(ids) > MOST_IDS:
        return ec2_error("InvalidParameterValue", f"at most {MOST_IDS} instance ids; got {len(ids)}")
    if ids and "MaxResults" in call.query:
        return ec2_error("InvalidParameterCombination", "MaxResults does not go with instance ids")
    lives = {life.id: life for life in cloud.history() if life.region == call.region}
    if unknown := [name for name in ids if name not in lives]:
        return ec2_error("InvalidInstanceID.NotFound", f"The instance ID '{unknown[0]}' does not exist")
    listed = "".join(
        f"<item><instanceId>{life.id}</instanceId><instanceType>{life.instance_type}</instanceType>"
        f"<availabilityZone>{life.zone}</availabilityZone><networkNodeSet>"
        + "".join(f"<item>{escape(node)}</item>" for node in nodes)
        + "</networkNodeSet></item>"
        for life in lives.values()
        if (not ids or life.id in ids)
        and (nodes := cloud.terms.network_nodes.get(life.id))
        and life.is_running
    )
    empty = ec2_rows("DescribeInstanceTopology", "instanceSet", ())
    return Answer(
        empty.status, empty.body.replace(b"<instanceSet>", b"<instanceSet>" + listed.encode()), empty.headers
    )
