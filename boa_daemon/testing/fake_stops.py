"""The fake cloud's rules for stops and starts: all instances or none, on-demand only, within the stock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from boa_daemon.testing.fake_answers import Answer, Call, ec2_error, reason_time
from boa_daemon.testing.fake_launch import quota_left, stock_left
from boa_daemon.testing.fake_terms import CloudFacts, Lifetime


def _refused(cloud: CloudFacts, call: Call, lives: Mapping[str, Lifetime]) -> Answer | None:
    """Return why instances cannot be stopped or started; None if they can."""
    for name in call.numbered("InstanceId"):
        life = lives.get(name)
        if life is None or life.region != call.region:
            return ec2_error("InvalidInstanceID.NotFound", f"The instance ID '{name}' does not exist")
        if life.ended_at is not None:
            return ec2_error("IncorrectInstanceState", f"The instance '{name}' is not in a state for that")
        if life.market == "spot":
            return ec2_error("UnsupportedOperation", "You can't stop the Spot Instance")
    return cloud.error("DryRunOperation") if call.query.get("DryRun", "").lower() == "true" else None


def stop(
    cloud: CloudFacts, call: Call, lives: Mapping[str, Lifetime], forward: Callable[[], Answer]
) -> Answer:
    """Stop instances; an instance that is stopped already stays stopped."""
    no = _refused(cloud, call, lives)
    if no is not None:
        return no
    answer, now = forward(), cloud.clock()
    for name in call.numbered("InstanceId"):
        life = lives[name]
        if life.stopped_at is None:
            life.stopped_at, life.reason = now, f"User initiated ({reason_time(now)})"
    return answer


def start(
    cloud: CloudFacts, call: Call, lives: Mapping[str, Lifetime], forward: Callable[[], Answer]
) -> Answer:
    """Start stopped instances if their zone has room for them; LaunchTime is reset."""
    no = _refused(cloud, call, lives)
    if no is not None:
        return no
    names, now = call.numbered("InstanceId"), cloud.clock()
    for name in names:
        life = lives[name]
        if life.stopped_at is None:
            continue
        if now - life.stopped_at < cloud.terms.shutdown_seconds:
            return ec2_error("IncorrectInstanceState", f"The instance '{name}' is still stopping")
        if quota_left(cloud, life.instance_type, life.market, life.region) < 1:
            return cloud.error("VcpuLimitExceeded")
        if stock_left(cloud, life.instance_type, life.zone, life.market) < 1:
            return ec2_error("InsufficientInstanceCapacity", f"no capacity of {life.instance_type}", 500)
    answer = forward()
    for name in names:
        life = lives[name]
        if life.stopped_at is not None:
            life.runs.append((life.launched_at, life.stopped_at))
            life.launched_at, life.stopped_at, life.reason = float(int(now)), None, ""
            life.fails_to_start = cloud.terms.launch_failures.get(life.instance_type, "")
            launched = datetime.fromtimestamp(life.launched_at, tz=UTC).replace(tzinfo=None)
            cloud.backend(call.region).get_instance(name).launch_time = launched
    return answer
