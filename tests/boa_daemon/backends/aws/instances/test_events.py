"""`aws/instances/events.py`: messages of the interruption queue become notices about nodes."""

from __future__ import annotations

import json
import threading

import boto3
import pytest
from aws_rigs import START, AwsRig, RigMaker, a_launch

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.instances import events
from boa_daemon.backends.aws.instances.events import InterruptionQueue, Listener, Notice, Notices
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.facts.ports import Launched


def a_queue(rig: AwsRig, wakes: list[int]) -> InterruptionQueue:
    """Return the queue that the fake cloud sends its events to."""
    url = boto3.client("sqs", region_name="us-east-1").create_queue(QueueName="warnings")["QueueUrl"]
    rig.fake.terms.event_queue = "warnings"
    return InterruptionQueue(rig.cloud.calls, url, rig.cloud.notices, lambda: wakes.append(1))


def a_spot_node(rig: AwsRig) -> str:
    """Launch a spot node and let it boot."""
    outcome = rig.cloud.launch(a_launch(rig.offer(market="spot")))
    assert isinstance(outcome, Launched)
    rig.pass_time(120.0)
    rig.cloud.nodes()
    return outcome.nodes[0]


def test_a_spot_warning_calls_for_a_tick_and_sets_the_end_of_the_node(make_rig: RigMaker) -> None:
    """The node is terminating until two minutes later, and the message is deleted from the queue."""
    rig, wakes = make_rig(Terms(), market="spot"), [0][:0]
    queue = a_queue(rig, wakes)
    name = a_spot_node(rig)
    rig.fake.warn(name)

    [notice] = queue.poll_once(wait_seconds=0)
    [node] = rig.cloud.nodes()
    assert (notice.kind, notice.node) == ("spot-warning", name)
    assert (node.phase, node.ends_by) == ("terminating", rig.clock.now() + 120.0)
    assert wakes == [1]
    assert queue.poll_once(wait_seconds=0) == []


def test_a_node_that_shuts_itself_down_is_billed_until_its_event(make_rig: RigMaker) -> None:
    """EC2's reason has no time in this case, so the end is the time of the state change."""
    rig, wakes = make_rig(Terms(shutdown_seconds=30.0)), [0][:0]
    queue = a_queue(rig, wakes)
    outcome = rig.cloud.launch(a_launch(rig.offer()))
    assert isinstance(outcome, Launched)
    rig.pass_time(500.0)
    rig.fake.end(outcome.nodes[0])
    rig.pass_time(100.0)
    queue.poll_once(wait_seconds=0)
    [node] = rig.cloud.nodes()

    assert node.ended_at == START + 500.0


def test_unreadable_messages_are_counted_and_deleted(rig: AwsRig) -> None:
    """They call for no tick and do not stay in the queue."""
    wakes: list[int] = []
    queue = a_queue(rig, wakes)
    sqs = boto3.client("sqs", region_name="us-east-1")
    for body in ("not json", "[]", "{}", json.dumps({"detail-type": "x", "detail": {}, "time": "yesterday"})):
        sqs.send_message(QueueUrl=queue._queue_url, MessageBody=body)
    queue.poll_once(wait_seconds=0)

    assert queue.unreadable == 4
    assert wakes == []
    attributes = sqs.get_queue_attributes(QueueUrl=queue._queue_url, AttributeNames=["All"])["Attributes"]
    assert attributes["ApproximateNumberOfMessages"] == "0"
    assert attributes["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_the_listener_receives_a_warning_in_its_own_thread(make_rig: RigMaker) -> None:
    """The warning calls for a tick and becomes a notice."""
    rig = make_rig(Terms(), market="spot")
    queue = a_queue(rig, [])
    name = a_spot_node(rig)
    heard = threading.Event()
    listener = Listener(
        InterruptionQueue(rig.cloud.calls, queue._queue_url, rig.cloud.notices, heard.set),
        rig.said.append,
        wait_seconds=0,
    )
    try:
        rig.fake.warn(name)
        assert heard.wait(120.0)
    finally:
        listener.close()
        listener.join(30.0)
    assert rig.cloud.notices.ends_by(name) is not None


def test_the_listener_reports_a_missing_queue_once(rig: AwsRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks again after half a minute each time, and says only once that warnings cannot be received."""
    pauses: list[float | None] = []

    class Over(threading.Event):
        """An end that comes with the third pause."""

        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout)
            if len(pauses) == 3:
                self.set()
            return self.is_set()

    monkeypatch.setattr(events, "Event", Over)
    url = "https://sqs.us-east-1.amazonaws.com/123456789012/gone"
    listener = Listener(InterruptionQueue(rig.cloud.calls, url, Notices(), lambda: None), rig.said.append)
    listener.join(120.0)

    assert pauses == [30.0] * 3
    assert rig.cloud.calls.counts["sqs:ReceiveMessage"] == 3
    assert [sentence.partition(":")[0] for sentence in rig.said] == ["spot warnings cannot be received"]


def test_a_repeated_notice_keeps_the_earliest_end() -> None:
    """Only the first spot warning of a node counts as new."""
    notices = Notices()
    first = notices.add(Notice(kind="spot-warning", node="i-1", at=100.0))
    again = notices.add(Notice(kind="spot-warning", node="i-1", at=90.0))

    assert (first, again) == (True, False)
    assert notices.ends_by("i-1") == 210.0
    assert notices.ends_by("i-2") is None


def test_rebalance_advice_is_not_acted_on() -> None:
    """A rebalance notice is not new information and sets no end for the node."""
    notices = Notices()

    assert notices.add(Notice(kind="rebalance", node="i-1", at=1.0)) is False
    assert notices.ends_by("i-1") is None


def test_only_the_newest_notices_are_kept() -> None:
    """With `keep=2`, the oldest of three notices is dropped."""
    notices = Notices(keep=2)
    for number in range(3):
        notices.add(Notice(kind="spot-warning", node=f"i-{number}", at=1.0))

    assert notices.ends_by("i-0") is None
    assert notices.ends_by("i-2") == 121.0


def test_polling_a_missing_queue_raises_call_failed(rig: AwsRig) -> None:
    """The error names the call `sqs:ReceiveMessage`."""
    url = "https://sqs.us-east-1.amazonaws.com/123456789012/gone"
    queue = InterruptionQueue(rig.cloud.calls, url, Notices(), lambda: None)

    with pytest.raises(CallFailed, match="sqs:ReceiveMessage"):
        queue.poll_once(wait_seconds=0)


@pytest.mark.parametrize(
    "detail_type",
    ["EC2 Instance State-change Notification", "EC2 Spot Instance Interruption Warning",
     "EC2 Instance Rebalance Recommendation"],
)  # fmt: skip
def test_events_of_other_instances_of_the_account_wake_nobody(rig: AwsRig, detail_type: str) -> None:
    """EventBridge sends those of the whole account: they push nothing of ours out, and cost no listing."""
    outcome = rig.cloud.launch(a_launch(rig.offer()))
    assert isinstance(outcome, Launched)
    rig.cloud.nodes()
    rig.pass_time(600.0)
    rig.cloud.nodes()
    wakes: list[int] = []
    queue = InterruptionQueue(rig.cloud.calls, "https://queue", rig.cloud.notices, lambda: wakes.append(1))

    def told(name: str) -> None:
        detail = {"instance-id": name, "state": "shutting-down"}
        body = {"detail-type": detail_type, "source": "aws.ec2", "time": "2027-01-15T09:00:00Z"}
        queue.take([{"Body": json.dumps(body | {"detail": detail})}])

    before = rig.cloud.notices.count
    for number in range(50):
        told(f"i-{number:017x}")
    assert (rig.cloud.notices.count, wakes) == (before, [])
    told(outcome.nodes[0])
    assert rig.cloud.notices.count == before + 1
    # A launch that no listing shows yet may be what a notice is about.
    rig.cloud.launch(a_launch(rig.offer(), name="t2-launch"))
    told("i-0123456789abcdef0")
    assert rig.cloud.notices.count == before + 2
