"""The termination schedule ends stopped nodes without a daemon, and never a running one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from aws_rigs import CATALOG, AwsRig, a_launch, a_rig, ends
from request_shapes import request_shapes

from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.doctor import Doctor
from boa_daemon.backends.aws.termination_schedule import AFTER_SECONDS, termination_policy
from boa_daemon.testing.fake_checks import ACCOUNT
from boa_daemon.testing.fake_iam import Principal
from boa_daemon.tick.actions import TerminateNode
from boa_daemon.tick.ports import Accepted, Launched
from boa_daemon.tick.warm_pool import LONGEST_SECONDS

ROLE = f"arn:aws:iam::{ACCOUNT}:role/boa-boa-pool-end"
HOUR = 3600.0


@pytest.fixture
def rig() -> Iterator[AwsRig]:
    """AWS in process, with the role that `boa up` makes."""
    with a_rig("process", warm_pool_nodes=2, pool_end_role=ROLE) as made:
        made.fake.iam.principals["end"] = Principal(
            ROLE, [termination_policy(made.settings, account=ACCOUNT)]
        )
        yield made


def a_stop(rig: AwsRig, cloud: AwsCloud | None = None, *, name: str = "") -> TerminateNode:
    """Return the order to stop an instance that was launched and is ready."""
    cloud = cloud or rig.cloud
    outcome = cloud.launch(a_launch(rig.offer(), name=name))
    assert isinstance(outcome, Launched)
    rig.pass_time(100.0)
    cloud.nodes()
    [order] = ends(*outcome.nodes)
    return replace(order, stops=True)


def a_stopped_one(rig: AwsRig) -> str:
    """Return an instance that was stopped."""
    order = a_stop(rig)
    assert rig.cloud.terminate([order]) == {order.node: Accepted()}
    rig.pass_time(120.0)
    rig.cloud.nodes()
    return order.node


def test_what_is_stopped_ends_when_its_daemon_is_gone_for_good(rig: AwsRig) -> None:
    """An hour after the daemon would have ended it, and not before; nobody of ours does anything."""
    with request_shapes() as shapes:
        a_stopped_one(rig)
    rig.pass_time(LONGEST_SECONDS)
    assert len(rig.fake.live()) == 1
    rig.pass_time(AFTER_SECONDS - LONGEST_SECONDS)

    assert rig.fake.live() == []
    assert (shapes.counts["scheduler:CreateSchedule"], shapes.faults) == (1, [])


def test_a_node_that_was_started_again_is_not_ended_by_its_old_schedule(rig: AwsRig) -> None:
    """Its life is odd by then, and the role may end even ones alone."""
    name = a_stopped_one(rig)
    started = rig.cloud.launch(replace(a_launch(rig.offer(), name="t2-launch-0"), starts=(f"{name}~2",)))
    assert started == Launched(nodes=(f"{name}~3",))
    rig.pass_time(2.0 * AFTER_SECONDS)

    assert [life.id for life in rig.fake.live()] == [name]
    assert rig.fake.scheduler.refused == [name]
    assert rig.fake.scheduler.schedules == {}


def test_the_role_ends_nothing_of_anybody_else(rig: AwsRig) -> None:
    """Neither what another cluster stopped, nor what bears no tag."""
    other = rig.another(cluster="theirs", pool_end_role="")
    order = a_stop(rig, other, name="theirs")
    # With our role, which is not theirs to use.
    other.calls.settings = other.calls.settings.model_copy(update={"pool_end_role": ROLE})
    other.terminate([order])
    rig.pass_time(AFTER_SECONDS)

    assert len(rig.fake.live()) == 1
    assert rig.fake.scheduler.refused == [order.node]


def test_what_cannot_be_scheduled_is_ended_and_not_stopped(rig: AwsRig) -> None:
    """No instance is stopped that nothing would end."""
    rig.fake.faults.plan("CreateSchedule", "error:AccessDeniedException", times=9)
    order = a_stop(rig)
    assert rig.cloud.terminate([order]) == {order.node: Accepted()}
    assert rig.fake.live() == []


def test_an_answer_that_was_lost_makes_no_second_schedule(rig: AwsRig) -> None:
    """The stop is asked for again under the same name, which is there already."""
    rig.fake.faults.plan("CreateSchedule", "lost", times=1)
    rig.cloud.terminate([a_stop(rig)])
    for _ in range(3):
        rig.pass_time(61.0)
        rig.cloud.nodes()

    assert [life.stopped_at is not None for life in rig.fake.live()] == [True]
    assert len(rig.fake.scheduler.schedules) == 1


@pytest.mark.parametrize(
    ("role", "status", "said"),
    [
        (ROLE, "ok", "ends 25 h after its stop: 1.10 USD at the most for 2"),
        ("", "warning", "32.00 USD a month for 2, until somebody types `boa gc`"),
    ],
)
def test_the_doctor_says_the_largest_loss(rig: AwsRig, role: str, status: str, said: str) -> None:
    """In dollars, with and without the role."""
    found = list(Doctor(rig.another(pool_end_role=role), CATALOG, rig.clock)._pool())

    assert (found[0].name, found[0].status) == ("end of the warm pool", status)
    assert said in found[0].said
