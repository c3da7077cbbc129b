"""The fake cloud's status checks and scheduled events, from its terms."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from boa_daemon.testing.fake_answers import Answer, Call, ec2_error, ec2_rows
from boa_daemon.testing.fake_terms import CloudFacts, Lifetime

MOST_IDS = 100


def statuses(cloud: CloudFacts, call: Call, state_of: Callable[[Lifetime], str]) -> Answer:
    """Return the status of running instances; unknown ids fail the call, as on EC2."""
    ids = call.numbered("InstanceId")
    if len(ids) > MOST_IDS:
        return ec2_error("InvalidParameterValue", f"at most {MOST_IDS} instance ids; got {len(ids)}")
    lives = {life.id: life for life in cloud.history() if life.region == call.region}
    if unknown := [name for name in ids if name not in lives]:
        return ec2_error("InvalidInstanceID.NotFound", f"The instance ID '{unknown[0]}' does not exist")
    rows = "".join(
        _row(cloud, life)
        for life in lives.values()
        if (not ids or life.id in ids) and state_of(life) == "running"
    )
    empty = ec2_rows("DescribeInstanceStatus", "instanceStatusSet", ())
    body = empty.body.replace(b"<instanceStatusSet>", b"<instanceStatusSet>" + rows.encode())
    return Answer(empty.status, body, empty.headers)


def _row(cloud: CloudFacts, life: Lifetime) -> str:
    checks = {"system": "ok", "instance": "ok", "attachedEbs": "ok"}
    if life.id in cloud.terms.impaired:
        checks[cloud.terms.impaired[life.id]] = "impaired"
    event = ""
    if life.id in cloud.terms.events:
        code, at = cloud.terms.events[life.id]
        event = (
            f"<eventsSet><item><code>{code}</code><description>planned</description>"
            f"<notBefore>{datetime.fromtimestamp(at, UTC).isoformat()}</notBefore></item></eventsSet>"
        )
    return (
        f"<item><instanceId>{life.id}</instanceId><availabilityZone>{life.zone}</availabilityZone>{event}"
        "<instanceState><code>16</code><name>running</name></instanceState>"
        f"<systemStatus><status>{checks['system']}</status></systemStatus>"
        f"<instanceStatus><status>{checks['instance']}</status></instanceStatus>"
        f"<attachedEbsStatus><status>{checks['attachedEbs']}</status></attachedEbsStatus></item>"
    )
