"""`aws/instances/termination_schedule.py`: a schedule ends stopped nodes, but no running nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from aws_rigs import CATALOG, AwsRig, a_launch, a_rig, ends
from request_shapes import request_shapes

from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.doctor.account import Doctor
from boa_daemon.backends.aws.instances.termination_schedule import AFTER_SECONDS, termination_policy
from boa_daemon.testing.fake_checks import ACCOUNT
from boa_daemon.testing.fake_iam import Principal
from boa_daemon.tick.facts.actions import TerminateNode
from boa_daemon.tick.facts.ports import Accepted, Launched
from boa_daemon.tick.facts.warm_pool import LONGEST_SECONDS

ROLE = f"arn:aws:iam::{ACCOUNT}:role/boa-boa-pool-end"
HOUR = 3600.0


@pytest.fixture
def rig() -> Iterator[AwsRig]:
    """AWS in process, with the termination role that `boa up` makes."""
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
    """Return the name of a stopped instance."""
    order = a_stop(rig)
    assert rig.cloud.terminate([order]) == {order.node: Accepted()}
    rig.pass_time(120.0)
    rig.cloud.nodes()
    return order.node


def test_a_stopped_node_is_ended_by_its_schedule_without_a_daemon(rig: AwsRig) -> None:
    """The schedule ends it after the longest time that a daemon keeps it, and not before."""
    with request_shapes() as shapes:
        a_stopped_one(rig)
    rig.pass_time(LONGEST_SECONDS)
    assert len(rig.fake.live()) == 1
    rig.pass_time(AFTER_SECONDS - LONGEST_SECONDS)

    assert rig.fake.live() == []
    assert (shapes.counts["scheduler:CreateSchedule"], shapes.faults) == (1, [])


def test_a_schedule_does_not_end_a_node_that_was_started_again(rig: AwsRig) -> None:
    """The number of its life is odd then, and the role may end even lives only."""
    name = a_stopped_one(rig)
    started = rig.cloud.launch(replace(a_launch(rig.offer(), name="t2-launch-0"), starts=(f"{name}~2",)))
    assert started == Launched(nodes=(f"{name}~3",))
    rig.pass_time(2.0 * AFTER_SECONDS)

    assert [life.id for life in rig.fake.live()] == [name]
    assert rig.fake.scheduler.refused == [name]
    assert rig.fake.scheduler.schedules == {}


def test_the_termination_role_cannot_end_instances_of_another_cluster(rig: AwsRig) -> None:
    """The scheduler's call is refused, and the instance lives on."""
    other = rig.another(cluster="theirs", pool_end_role="")
    order = a_stop(rig, other, name="theirs")
    # The role belongs to this cluster, so the other cluster may not use it.
    other.calls.settings = other.calls.settings.model_copy(update={"pool_end_role": ROLE})
    other.terminate([order])
    rig.pass_time(AFTER_SECONDS)

    assert len(rig.fake.live()) == 1
    assert rig.fake.scheduler.refused == [order.node]


def test_a_node_without_a_schedule_is_terminated_instead_of_stopped(rig: AwsRig) -> None:
    """A stopped node without a schedule could be left behind."""
    rig.fake.faults.plan("CreateSchedule", "error:AccessDeniedException", times=9)
    order = a_stop(rig)
    assert rig.cloud.terminate([order]) == {order.node: Accepted()}
    assert rig.fake.live() == []


def test_a_lost_answer_makes_no_second_schedule(rig: AwsRig) -> None:
    """The schedule is made again under the same name, and the node is stopped."""
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
        (ROLE, "ok", "ends 25 h after its stop: $1.10 at the most for 2"),
        ("", "warning", "$32.00 a month for 2, until somebody types `boa gc`"),
    ],
)
def test_the_doctor_says_what_an_abandoned_warm_pool_may_cost(
    rig: AwsRig, role: str, status: str, said: str
) -> None:
    """The amount is in dollars, with and without the termination role."""
    found = list(Doctor(rig.another(pool_end_role=role), CATALOG, rig.clock)._pool())

    assert (found[0].name, found[0].status) == ("end of the warm pool", status)
    assert said in found[0].said
