"""A-SRPT: the virtual machine, and the order of jobs from its virtual ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_class, a_job, an_instance_type
from policies.model import Width
from policies.rivals.a_srpt import VirtualMachine, VirtualOrder
from policies.rivals.baselines import StaticSrsf
from policies.rivals.width_menu import FixedFleet, WidthMenu
from policies.speedup import Table


def a_policy(width: int = 2, nodes: int = 1) -> VirtualOrder:
    """Return the policy on nodes of four GPUs, with one width for all jobs and linear speeds."""
    curve = Table(gpus=(1, 2, 4), speeds=(1.0, 2.0, 4.0))
    menu = WidthMenu(classes={"c": a_class(curve=curve)}, gpu_type="gpu")
    fleet = FixedFleet(instance_type=an_instance_type(), nodes=nodes)
    return VirtualOrder(queue=StaticSrsf(menu=menu, fleet=fleet, plans={"c": (Width("gpu", width),)}))


def test_the_virtual_machine_stops_a_long_job_for_a_short_one() -> None:
    """At four GPU-hours an hour, 8 from 0 and 2 from 1: the short job ends at 1.5, the long one at 2.5."""
    machine = VirtualMachine(speed=4.0)
    machine.add("long", 8.0, weight=1.0, at=0.0)
    machine.add("short", 2.0, weight=1.0, at=1.0)
    machine.run_until(9.0)

    assert machine.ended == {"short": pytest.approx(1.5), "long": pytest.approx(2.5)}
    assert list(machine.ended) == ["short", "long"]


@given(works=st.lists(st.floats(0.1, 20.0), min_size=1, max_size=12), looks=st.integers(1, 9))
def test_jobs_that_arrive_together_end_shortest_first(works: list[float], looks: int) -> None:
    """The n-th end is the sum of the n least works, however often the machine is run."""
    machine = VirtualMachine(speed=2.0)
    for number, work in enumerate(works):
        machine.add(str(number), work, weight=1.0, at=0.0)
    end = sum(works) / 2.0
    for look in range(1, looks + 1):
        machine.run_until(end * look / looks)
    machine.run_until(end + 1.0)

    sums = [sum(sorted(works)[: n + 1]) / 2.0 for n in range(len(works))]
    assert list(machine.ended.values()) == pytest.approx(sums)


def test_a_running_job_is_never_stopped() -> None:
    """A short job that arrives waits for free GPUs."""
    policy = a_policy(width=4)
    long = a_job("long", remaining_gpu_hours=9.0)
    assert policy.allocate([long], now=0.0).widths == {"long": Width("gpu", 4)}

    runs = a_job("long", remaining_gpu_hours=9.0, width=Width("gpu", 4))
    short = a_job("short", arrived_at=60.0, remaining_gpu_hours=0.1)
    assert set(policy.allocate([runs, short], now=60.0).widths) == {"long"}


def test_jobs_start_in_the_order_of_the_virtual_ends() -> None:
    """Three jobs wait for one place: the shortest goes first, and a new job goes after those that ended."""
    policy = a_policy(width=4)
    waiting = [a_job("c", remaining_gpu_hours=6.0), a_job("a", remaining_gpu_hours=2.0), a_job("b")]
    assert list(policy.allocate(waiting, now=0.0).widths) == ["b"]

    # After 3 hours at 4 GPU-hours an hour the machine has ended all three jobs, so a shorter one goes last.
    late = a_job("late", arrived_at=3.0 * 3600.0, remaining_gpu_hours=0.1)
    assert policy.order([*waiting, late], now=3.0 * 3600.0) == ["b", "a", "c", "late"]


def test_a_job_that_left_still_delays_others_on_the_virtual_machine() -> None:
    """The policy keeps the state of its virtual machine between calls."""
    policy = a_policy(width=4)
    policy.allocate([a_job("first", remaining_gpu_hours=4.0)], now=0.0)
    late = [a_job("x", arrived_at=1800.0, remaining_gpu_hours=3.0)]
    policy.allocate(late, now=1800.0)

    # The first job has 2 GPU-hours left then, less than the 3 of x: x ends at 0.5 + 0.5 + 0.75 h.
    policy.allocate(late, now=2.0 * 3600.0)
    assert policy.machine.ended == {"x": pytest.approx(1.75)}


def test_the_machine_serves_the_least_work_over_weight_and_names_decide_ties() -> None:
    """8 over 4 is less than 3 over 1; of equal jobs the first name goes first."""
    machine = VirtualMachine(speed=1.0)
    for job, work, weight in (("light", 3.0, 1.0), ("heavy", 8.0, 4.0), ("also", 3.0, 1.0)):
        machine.add(job, work, weight=weight, at=0.0)
    assert machine.order() == ["heavy", "also", "light"]
    machine.run_until(8.0)
    assert (machine.ended, machine.left, machine.weights) == (
        {"heavy": 8.0},
        {"also": 3.0, "light": 3.0},
        {"also": 1.0, "light": 1.0},
    )
    machine.run_until(2.0)
    assert machine.now == 8.0
    machine.run_until(30.0)
    assert (machine.now, machine.ended) == (30.0, {"heavy": 8.0, "also": 11.0, "light": 14.0})


def test_running_jobs_stay_and_others_start_in_virtual_order_where_they_fit() -> None:
    """Of two waiting jobs the short one starts; a job that ended virtually goes first until it leaves."""
    policy = a_policy()
    running = a_job("runs", remaining_gpu_hours=9.0, width=Width("gpu", 2))
    jobs = [
        running,
        a_job("long", remaining_gpu_hours=8.0),
        a_job("short", scale=0.25, remaining_gpu_hours=0.25),
    ]
    found = policy.allocate(jobs, now=0.0)
    assert (list(found.widths), found.nodes) == (["runs", "short"], {"gpu-x4": 1})
    assert policy.order(jobs, now=60.0)[0] == "short"
    assert set(policy.machine.left) == {"runs", "long", "short"}
    assert "short" in policy.order(jobs, now=3600.0)
    assert "short" in policy.machine.ended
    assert "short" not in policy.order(jobs[:2], now=3600.0)
    assert "short" not in policy.machine.ended
    assert a_policy(width=4).allocate(jobs[1:], now=0.0).widths == {"short": Width("gpu", 4)}
