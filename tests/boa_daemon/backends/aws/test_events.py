"""`backends/aws/events.py`: what a queue tells becomes what the listing knows."""

from __future__ import annotations

import json
import threading
import time

import boto3
import pytest
from aws_rigs import START, AwsRig, RigMaker, a_launch

from boa_daemon.backends.aws.errors import CallFailed
from boa_daemon.backends.aws.events import InterruptionQueue, Listener, Notice, Notices
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.ports import Launched


def a_queue(rig: AwsRig, wakes: list[int]) -> InterruptionQueue:
    """Return the queue that the fake cloud fills."""
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


def test_a_warning_wakes_and_says_until_when(make_rig: RigMaker) -> None:
    """From EC2 through the queue to the node, and the message is gone afterwards."""
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


def test_a_node_that_ends_itself_is_billed_until_its_event(make_rig: RigMaker) -> None:
    """EC2's reason bears no time then, so the state change says when."""
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


def test_what_is_no_event_is_counted_and_deleted(rig: AwsRig) -> None:
    """Or it would come back for ever."""
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


def test_a_listener_hears_while_others_work(make_rig: RigMaker) -> None:
    """A warning calls for a tick from the thread that reads; closing ends the thread."""
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


def test_a_listener_says_once_that_it_hears_nothing(rig: AwsRig) -> None:
    """And does not ask again at once."""
    url = "https://sqs.us-east-1.amazonaws.com/123456789012/gone"
    listener = Listener(InterruptionQueue(rig.cloud.calls, url, Notices(), lambda: None), rig.said.append)
    deadline = time.monotonic() + 120.0
    while not rig.said and time.monotonic() < deadline:
        time.sleep(0.02)
    listener.close()
    listener.join(30.0)

    assert [sentence.partition(":")[0] for sentence in rig.said] == ["spot warnings cannot be received"]


def test_notices_come_twice_and_out_of_order() -> None:
    """The earliest instant holds, and only the first of a kind is news."""
    notices = Notices()
    first = notices.add(Notice(kind="spot-warning", node="i-1", at=100.0))
    again = notices.add(Notice(kind="spot-warning", node="i-1", at=90.0))

    assert (first, again) == (True, False)
    assert notices.ends_by("i-1") == 210.0
    assert notices.ends_by("i-2") is None


def test_rebalance_advice_is_not_acted_on() -> None:
    """It may come long before anything happens, or nothing may happen."""
    notices = Notices()

    assert notices.add(Notice(kind="rebalance", node="i-1", at=1.0)) is False
    assert notices.ends_by("i-1") is None


def test_notes_do_not_grow_for_ever() -> None:
    """The oldest make room."""
    notices = Notices(keep=2)
    for number in range(3):
        notices.add(Notice(kind="spot-warning", node=f"i-{number}", at=1.0))

    assert notices.ends_by("i-0") is None
    assert notices.ends_by("i-2") == 121.0


def test_a_queue_that_is_gone_is_a_clear_error(rig: AwsRig) -> None:
    """The caller decides when to try again."""
    url = "https://sqs.us-east-1.amazonaws.com/123456789012/gone"
    queue = InterruptionQueue(rig.cloud.calls, url, Notices(), lambda: None)

    with pytest.raises(CallFailed, match="sqs:ReceiveMessage"):
        queue.poll_once(wait_seconds=0)
