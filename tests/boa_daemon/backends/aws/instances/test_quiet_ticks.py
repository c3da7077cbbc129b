"""`instances/quiet_ticks.py`: a quiet site makes about one call per tick, probes included."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from types import SimpleNamespace

import boto3
import pytest
from aws_rigs import AwsRig, RigMaker, a_launch, ends

from boa_daemon.backends.aws.instances.event_rules import PATTERNS
from boa_daemon.backends.aws.instances.events import Notice
from boa_daemon.backends.aws.instances.quiet_ticks import LISTING, LISTING_SECONDS, QUIET_SECONDS
from boa_daemon.backends.aws.rights.resource_policies import queue_policy
from boa_daemon.testing.fake_terms import Terms

TICK_SECONDS = 30.0


def tick(rig: AwsRig) -> bool:
    """Take one tick as the daemon does; return whether it listed the instances."""
    rig.pass_time(TICK_SECONDS)
    before = rig.cloud.calls.counts[LISTING]
    rig.cloud.renew([node.id for node in rig.cloud.nodes() if node.ended_at is None])
    rig.cloud.offers()
    rig.cloud.refresh()
    return rig.cloud.calls.counts[LISTING] > before


def a_queue(rig: AwsRig) -> None:
    """Give the cloud a queue of warnings that works."""
    sqs, events = (boto3.client(name, region_name="us-east-1") for name in ("sqs", "events"))
    url = sqs.create_queue(QueueName="warnings")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    document = json.dumps(queue_policy("warnings", arn, arn.split(":")[4]))
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": document})
    for name, pattern in PATTERNS.items():
        events.put_rule(Name=name, EventPattern=json.dumps(pattern), State="ENABLED")
        events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
    rig.cloud = rig.another(queue_url=url)
    rig.cloud._listener = SimpleNamespace(fault="", close=lambda: None)  # type: ignore[assignment]


@pytest.fixture
def quiet(make_rig: RigMaker, request: pytest.FixtureRequest) -> AwsRig:
    """Two nodes, where nothing has happened for a while; with a queue where the parameter says so."""
    rig = make_rig(terms=Terms(boot_seconds=60.0, list_prices={"g5.xlarge": 1.006}))
    if getattr(request, "param", False):
        a_queue(rig)
    rig.cloud.refresh()
    rig.cloud.launch(a_launch(rig.offer(), 2))
    assert all(tick(rig) for _ in range(int(QUIET_SECONDS / TICK_SECONDS)))
    for _ in range(10):
        tick(rig)
    return rig


def until_one_is_skipped(rig: AwsRig) -> None:
    """Tick until the next tick but one may be without a listing."""
    assert any(not tick(rig) for _ in range(20))
    assert any(tick(rig) for _ in range(4))


@pytest.mark.parametrize(
    ("quiet", "most_calls", "most_ticks"), [(False, 1.11, 3), (True, 1.61, 7)],
    indirect=["quiet"], ids=["no queue", "a queue"],
)  # fmt: skip
def test_probes_do_not_add_to_the_calls_of_ticks(quiet: AwsRig, most_calls: float, most_ticks: int) -> None:
    """Two hours make few calls per tick; nets are probed, and no listing is older than some ticks."""
    quiet.cloud.calls.counts.clear()
    quiet.cloud.quiet._counted = 0
    quiet.cloud.quiet._owed = 0
    listed = [tick(quiet) for _ in range(240)]
    counts = quiet.cloud.calls.counts

    # The queue's listener makes nine calls of SQS for each look at the queue's policy.
    assert sum(number for name, number in counts.items() if not name.startswith("sqs:")) / 240 <= most_calls
    assert counts["sqs:GetQueueAttributes"] <= 240 / 6
    assert min(counts["ec2:DescribeInstanceStatus"], counts["pricing:GetProducts"]) >= 38
    assert counts["ec2:CreateTags"] >= 24
    assert min(counts["ec2:RunInstances"], counts["ec2:TerminateInstances"]) >= 19
    assert max(len(list(run)) for was, run in itertools.groupby(listed) if not was) <= most_ticks
    assert (quiet.cloud.ages()["instances"] or 0.0) <= most_ticks * TICK_SECONDS


@pytest.mark.parametrize(
    "stir",
    [
        lambda rig: rig.cloud.notices.add(
            Notice(kind="spot-warning", node=rig.cloud.nodes()[0].id, at=rig.clock.now())
        ),
        lambda rig: rig.cloud.notices.add(
            Notice(kind="state-change", node=rig.cloud.nodes()[0].id, at=rig.clock.now(), state="running")
        ),
        lambda rig: rig.cloud.launch(a_launch(rig.offer(), name="t9-more")),
        lambda rig: rig.cloud.terminate(ends(rig.cloud.nodes()[0].id)),
        lambda rig: rig.cloud.ask_anew(),
        lambda rig: rig.pass_time(LISTING_SECONDS),
    ],
    ids=["a warning", "an event of an instance", "a launch", "an end", "SIGHUP", "a late tick"],
)
def test_what_happens_is_looked_at_at_once(quiet: AwsRig, stir: Callable[[AwsRig], object]) -> None:
    """After what may have changed the list, the next tick asks for it, however many probes there were."""
    until_one_is_skipped(quiet)
    quiet.cloud.quiet._owed = 10
    stir(quiet)

    assert tick(quiet)


def test_an_end_that_nothing_tells_is_seen_by_the_fourth_tick(quiet: AwsRig) -> None:
    """Then every tick lists, until nothing has changed for ten minutes."""
    until_one_is_skipped(quiet)
    quiet.cloud.quiet._owed = 10
    node = quiet.cloud.nodes()[0].id
    quiet.fake.end(node)
    ticks = [tick(quiet) for _ in range(int(QUIET_SECONDS / TICK_SECONDS))]

    assert all(ticks[3:]), ticks
    assert quiet.cloud.nodes()
