"""Dally: jobs with little service go first, the network counts, and jobs wait for few nodes for a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_class, a_job, an_instance_type
from policies.model import AllReduce, Job, Money, Width
from policies.rivals.baselines import StaticSrsf
from policies.rivals.dally import Dally
from policies.rivals.width_menu import FixedFleet, WidthMenu

NEED = AllReduce(message_bytes=5e8, compute_seconds=0.5)


def a_dally(network: AllReduce | None = None, *, width: int = 2, nodes: int = 1) -> Dally:
    """Return the policy on nodes of four GPUs with one class of 8 GPU-hours."""
    menu = WidthMenu(classes={"c": a_class(sizes=[4.0, 4.0], network=network)}, gpu_type="gpu")
    fleet = FixedFleet(instance_type=an_instance_type(), nodes=nodes)
    return Dally(queue=StaticSrsf(menu=menu, fleet=fleet, plans={"c": (Width("gpu", width),) * 2}))


def test_attained_service_is_gpu_hours_at_the_width() -> None:
    """At 2 GPUs (speed 1.8) an hour of work takes 2 / 1.8 GPU-hours; 5 of 8 hours are done."""
    assert a_dally().attained(a_job(phase=1, remaining_gpu_hours=3.0)) == pytest.approx(5.0 * 2.0 / 1.8)
    assert a_dally().attained(a_job(remaining_gpu_hours=8.0)) == 0.0


def test_a_job_with_little_service_stops_one_with_much() -> None:
    """Both need the same four GPUs; the young job gets them, though it came later."""
    served = a_job("served", phase=1, remaining_gpu_hours=1.0, width=Width("gpu", 4))
    young = a_job("young", arrived_at=60.0, remaining_gpu_hours=8.0)

    assert set(a_dally(width=4).allocate([served, young], now=90.0).widths) == {"young"}


def test_on_one_level_the_older_job_goes_first() -> None:
    """Jobs of nearly equal service do not take turns."""
    older = a_job("older", phase=1, remaining_gpu_hours=3.5)
    newer = a_job("newer", arrived_at=1.0, phase=1, remaining_gpu_hours=4.0)

    assert list(a_dally(width=4).allocate([newer, older], now=2.0).widths) == ["older"]


@pytest.mark.parametrize(
    ("gpu_hours", "level"), [(0.2, 0), (0.25, 1), (0.9, 1), (1.1, 2), (3.9, 2), (4.1, 3)]
)
def test_each_level_holds_four_times_the_service_of_the_one_before(gpu_hours: float, level: int) -> None:
    """Levels end at 0.25, 1 and 4 GPU-hours; on one GPU a GPU-hour is an hour of work."""
    policy = a_dally(width=1)
    job = a_job(phase=int(gpu_hours > 4.0), remaining_gpu_hours=8.0 - gpu_hours)

    assert policy.attained(job) == pytest.approx(gpu_hours)
    assert policy._rank(job)[0] == level


def test_among_jobs_of_equal_service_the_one_that_sends_more_goes_first() -> None:
    """Its service counts for less, as it sends for more than half of its computing time."""
    quiet, sends = a_dally(), a_dally(NEED)
    job = a_job(phase=1, remaining_gpu_hours=3.0)

    assert sends.share_of(job) > 0.5
    assert sends._rank(job) < quiet._rank(job)


def test_a_job_waits_for_few_nodes_until_its_timer_ends() -> None:
    """The timer is the sending share of its hours; a job that does not send does not wait."""
    job = a_job(remaining_gpu_hours=8.0)
    policy = a_dally(NEED)
    hours = 8.0 / 1.8 * policy.share_of(job)

    assert policy.allocate([job], now=3600.0 * hours * 0.99).compact == {"a"}
    assert policy.allocate([job], now=3600.0 * hours * 1.01).compact == frozenset()
    assert a_dally().allocate([job], now=0.0).compact == frozenset()
    assert a_dally(NEED, width=1).allocate([job], now=0.0).compact == frozenset()


@given(left=st.lists(st.floats(0.1, 8.0), max_size=9), nodes=st.integers(1, 3))
def test_dally_fills_its_fleet_and_never_exceeds_it(left: list[float], nodes: int) -> None:
    """As many jobs run as fit, and the number of nodes is fixed."""
    jobs: list[Job] = [
        a_job(f"j{n}", remaining_gpu_hours=hours, phase=int(hours < 4.0)) for n, hours in enumerate(left)
    ]
    allocation = a_dally(nodes=nodes).allocate(jobs, now=0.0)

    assert len(allocation.widths) == min(len(jobs), 2 * nodes)
    assert allocation.nodes == {"gpu-x4": nodes}


def test_between_two_rounds_every_job_keeps_its_width() -> None:
    """A job that arrived waits until the minute ends."""
    money = Money(spent=0.0, elapsed_hours=1.0, memory=(1.0,), memory_age_hours=0.001)
    jobs = [a_job("runs", width=Width("gpu", 2)), a_job("new")]

    assert a_dally().allocate(jobs, now=0.0, money=money).widths == {"runs": Width("gpu", 2)}
