"""Gittins' index: from sizes, from what a job had, and from the jobs that left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_class, a_job, an_instance_type
from policies.model import Job, Width
from policies.rivals.baselines import StaticSrsf
from policies.rivals.gittins import MOST_SIZES, PRIOR, GittinsOrder, SizeSample
from policies.rivals.width_menu import FixedFleet, WidthMenu
from policies.speedup import Table


def a_policy(width: int = 4, nodes: int = 1, rescale_hours: float = 0.0) -> GittinsOrder:
    """Return the policy with one width for all, linear speeds, and classes of 2 and 20 hours."""
    curve = Table(gpus=(1, 2, 4), speeds=(1.0, 2.0, 4.0))
    classes = {
        name: a_class(name, curve=curve, sizes=(size,), rescale_hours=rescale_hours)
        for name, size in (("small", 2.0), ("large", 20.0))
    }
    queue = StaticSrsf(
        menu=WidthMenu(classes=classes, gpu_type="gpu"),
        fleet=FixedFleet(instance_type=an_instance_type(), nodes=nodes),
        plans=dict.fromkeys(classes, (Width("gpu", width),)),
    )
    return GittinsOrder(queue=queue)


def a_sample(*sizes: float) -> SizeSample:
    """Return a sample of these sizes alone."""
    sample = SizeSample(1.0)
    sample._sorted = sorted(sizes)
    return sample


@pytest.mark.parametrize(
    ("sizes", "attained", "set_up", "index"),
    [
        # One size: the index is one over what is left.
        ((4.0,), 1.0, 0.0, 1 / 3),
        ((4.0,), 1.0, 1.0, 1 / 4),
        # Two thirds end within 1: 2 of 3, and each is served for 1.
        ((1.0, 1.0, 10.0), 0.0, 0.0, 2 / 3),
        # After that, only the long one is left.
        ((1.0, 1.0, 10.0), 1.0, 0.0, 1 / 9),
        # To serve all is better than to stop after the first: 2 / 3 against 1 / 2.
        ((1.0, 2.0), 0.0, 0.0, 2 / 3),
        # With a set-up of 2 for each job it pays to serve longer: 2 for 4 + 4, not 1 for 2 + 4.
        ((1.0, 3.0), 0.0, 2.0, 2 / 8),
    ],
)
def test_the_index_by_hand(sizes: tuple[float, ...], attained: float, set_up: float, index: float) -> None:
    """The largest ratio of jobs that end to the service for it."""
    assert a_sample(*sizes).index(attained, set_up=set_up) == pytest.approx(index)


@given(
    sizes=st.lists(st.floats(0.1, 50.0), min_size=1, max_size=20),
    attained=st.floats(0.0, 40.0),
    set_up=st.floats(0.0, 5.0),
)
def test_the_index_is_the_best_of_all_stopping_times(
    sizes: list[float], attained: float, set_up: float
) -> None:
    """By trying each of them on the definition."""
    left = [size - attained for size in sizes if size > attained]
    ratios = [
        (sum(one <= d for one in left) / len(left)) / (set_up + sum(min(one, d) for one in left) / len(left))
        for d in left
    ]

    found = a_sample(*sizes).index(attained, set_up=set_up)

    assert found == pytest.approx(max(ratios) if ratios else 1.0 / (set_up + 1.0))


def test_without_experience_the_smaller_class_goes_first() -> None:
    """The stated sizes stand for sizes, until jobs end; a job's own size is unknown."""
    policy = a_policy()
    jobs = [
        a_job("large", class_name="large", remaining_gpu_hours=20.0),
        a_job("small", class_name="small", remaining_gpu_hours=6.0, scale=3.0),
    ]

    assert list(policy.allocate(jobs, now=0.0).widths) == ["small"]


def test_the_own_size_of_a_job_is_not_used() -> None:
    """Two jobs that had nothing yet have one index, however long they are."""
    policy = a_policy()
    short = a_job("short", class_name="small", remaining_gpu_hours=0.2, scale=0.1)
    long = a_job("long", class_name="small", remaining_gpu_hours=20.0, scale=10.0)

    assert policy.index_of(short) == pytest.approx(policy.index_of(long))


def test_jobs_that_left_teach_the_sizes_of_their_class() -> None:
    """After many short jobs of the large class, a job of it that had more than those goes last."""
    policy = a_policy(nodes=10)
    for number in range(MOST_SIZES + 5):
        policy.allocate([_large(f"j{number}", scale=0.01, left=0.1)], now=0.0)
    policy.allocate([], now=0.0)

    fresh, old = _large("fresh", scale=1.0, left=20.0), _large("old", scale=1.0, left=15.0)
    assert len(policy.sizes["large"]._sorted) == MOST_SIZES + PRIOR
    assert policy.index_of(fresh) == pytest.approx(1.0 / 0.2, rel=0.2)
    assert policy.index_of(old) < 0.1
    assert list(a_policy_with(policy, [old, fresh])) == ["fresh"]


def _large(name: str, *, scale: float, left: float) -> Job:
    return a_job(name, class_name="large", scale=scale, remaining_gpu_hours=left)


def a_policy_with(learnt: GittinsOrder, jobs: list[Job]) -> list[str]:
    """Return who runs on one node after what another policy learnt."""
    policy = a_policy()
    policy.sizes = learnt.sizes
    return list(policy.allocate(jobs, now=0.0).widths)


def test_a_job_that_runs_is_ahead_of_an_equal_one_that_waits() -> None:
    """The other one would have to restart."""
    policy = a_policy(rescale_hours=0.5)
    waits = a_job("a", class_name="large", remaining_gpu_hours=20.0)
    runs = a_job("b", class_name="large", remaining_gpu_hours=20.0, width=Width("gpu", 4))

    assert list(policy.allocate([waits, runs], now=0.0).widths) == ["b"]


@given(count=st.integers(0, 9), nodes=st.integers(1, 3))
def test_the_fleet_is_filled_and_never_exceeded(count: int, nodes: int) -> None:
    """Two jobs of two GPUs fit on a node."""
    jobs = [a_job(f"j{n}", class_name="small") for n in range(count)]
    answer = a_policy(width=2, nodes=nodes).allocate(jobs, now=0.0)

    assert len(answer.widths) == min(count, 2 * nodes)
    assert answer.nodes == {"gpu-x4": nodes}
