"""Pollux: the shares are the best possible, rounds take a minute, and the node count follows a band."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_class, a_job, an_instance_type
from policies.errors import InvalidProblem
from policies.model import Job, Money, Width
from policies.rivals.pollux import HALF_BAND, SPEEDUP_FLOOR, GoodputShares
from policies.rivals.width_menu import WidthMenu
from policies.speedup import Amdahl, Table

STEEP = Table(gpus=(1, 2, 4), speeds=(1.0, 1.9, 3.6))
FLAT = Table(gpus=(1, 2, 3), speeds=(1.0, 1.2, 1.3))
WIDE = Amdahl(parallel_fraction=0.98, max_gpus=16)
CURVES = {"steep": STEEP, "flat": FLAT, "wide": WIDE}
JOBS = st.lists(
    st.tuples(st.sampled_from(sorted(CURVES)), st.floats(0.0, 5000.0), st.integers(0, 3)),
    min_size=1,
    max_size=4,
).map(
    lambda drawn: [
        a_job(
            f"j{n}",
            class_name=name,
            arrived_at=-age,
            restarts=restarts,
            width=None if restarts == 0 else Width("gpu", 1),
        )
        for n, (name, age, restarts) in enumerate(drawn)
    ]
)


def a_policy(*, least: int = 1, most: int = 1, **changes: Any) -> GoodputShares:
    """Return Pollux for three classes on nodes of four GPUs; a restart takes 30 s."""
    classes = {
        name: a_class(name, curve=curve, rescale_hours=30.0 / 3600.0) for name, curve in CURVES.items()
    }
    return GoodputShares(
        menu=WidthMenu(classes=classes, gpu_type="gpu"),
        instance_type=an_instance_type(),
        least_nodes=least,
        most_nodes=most,
        **changes,
    )


def badness(jobs: list[Job], gpus: tuple[int, ...], fleet: int) -> float:
    """Return the sum of inverse speed-ups over the fair share, from the paper's fitness."""
    total = 0.0
    for job, k in zip(jobs, gpus, strict=True):
        curve = CURVES[job.class_name]
        fair = math.ceil(fleet / len(jobs))
        base = max(float(curve.speed_at(w)) for w in curve.whole_widths() if w <= fair)
        speedup = float(curve.speed_at(k)) / base if k else 0.0
        age = -job.arrived_at
        if k != (job.width.gpus if job.width else -1):
            speedup *= max(age - 30.0 * job.restarts, 0.0) / (age + 30.0)
        total += 1.0 / (speedup + SPEEDUP_FLOOR)
    return total


@given(jobs=JOBS)
def test_no_other_shares_are_fitter(jobs: list[Job]) -> None:
    """The shares are compared with every way to give out four GPUs."""
    policy = a_policy()

    widths = policy.shares(jobs, 4, now=0.0)

    chosen = tuple(widths[job.id].gpus if job.id in widths else 0 for job in jobs)
    choices = [[0, *(int(w) for w in CURVES[job.class_name].whole_widths() if w <= 4)] for job in jobs]
    best = min(badness(jobs, c, 4) for c in itertools.product(*choices) if sum(c) <= 4)
    assert sum(chosen) <= 4
    assert badness(jobs, chosen, 4) == pytest.approx(best)


def test_between_two_rounds_widths_and_nodes_stay() -> None:
    """Running jobs keep their GPUs, and a new job waits."""
    policy = a_policy(least=2, most=2)
    jobs = [a_job("runs", class_name="wide", width=Width("gpu", 3)), a_job("new", class_name="steep")]
    money = Money(spent=0.0, elapsed_hours=1.0, memory=(2.0,), memory_age_hours=59.0 / 3600.0)

    allocation = policy.allocate(jobs, now=3600.0, money=money)

    assert allocation.widths == {"runs": Width("gpu", 3)}
    assert allocation.nodes == {"gpu-x4": 2}
    assert allocation.memory is None


def test_a_round_is_due_after_a_minute() -> None:
    """All jobs then get new widths, and the memory of the round is renewed."""
    policy = a_policy(least=2, most=2)
    money = Money(spent=0.0, elapsed_hours=1.0, memory=(2.0,), memory_age_hours=60.0 / 3600.0)

    allocation = policy.allocate([a_job("new", class_name="wide")], now=3600.0, money=money)

    assert allocation.widths == {"new": Width("gpu", 8)}
    assert allocation.memory == (2.0,)


def test_a_job_that_was_restarted_often_keeps_its_width() -> None:
    """Three GPUs are 1.3 times as fast as one, but ten restarts in 400 s cost more than that."""
    often = a_job("a", class_name="flat", arrived_at=-400.0, restarts=10, width=Width("gpu", 1))
    never = a_job("a", class_name="flat", arrived_at=-4000.0, width=Width("gpu", 1))

    assert a_policy().shares([often], 4, now=0.0) == {"a": Width("gpu", 1)}
    assert a_policy().shares([never], 4, now=0.0) == {"a": Width("gpu", 3)}


@given(jobs=JOBS, before=st.integers(0, 8), utility=st.floats(0.2, 0.9))
def test_the_node_count_stays_in_its_limits(jobs: list[Job], before: int, utility: float) -> None:
    """Without jobs it is the least number of nodes."""
    policy = a_policy(least=0, most=8, utility=utility)

    assert 1 <= policy.nodes_for(jobs, before, now=0.0) <= 8
    assert policy.nodes_for([], before, now=0.0) == 0


def test_the_node_count_changes_only_when_utility_leaves_its_band() -> None:
    """For one job of Amdahl's law utility s(4 n) / 4 n is 0.94 on one node, 0.88 on two, 0.77 on four."""
    job = [a_job("a", class_name="wide", arrived_at=-1e6)]
    inside = a_policy(least=0, most=4, utility=0.88)

    assert inside.nodes_for(job, 1, now=0.0) == 1
    assert a_policy(least=0, most=4, utility=0.94 - 1.1 * HALF_BAND).nodes_for(job, 1, now=0.0) == 4
    assert inside.nodes_for(job, 0, now=0.0) == 2


@pytest.mark.parametrize("changes", [{"utility": 0.0}, {"utility": 1.5}, {"least": 2, "most": 1}])
def test_invalid_utilities_and_node_limits_are_refused(changes: dict[str, Any]) -> None:
    """A utility is a fraction, and the least number of nodes is at most the largest."""
    with pytest.raises(InvalidProblem):
        a_policy(**changes)
