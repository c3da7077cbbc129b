"""Elastic SRPT: who is admitted, who gets more, and when a width is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_class, a_job, an_instance_type
from policies.model import Job, Width
from policies.rivals.elastic_srpt import ElasticSrpt
from policies.rivals.width_menu import FixedFleet, WidthMenu
from policies.speedup import Amdahl, Table

CURVE = Table(gpus=(1, 2, 4), speeds=(1.0, 1.8, 3.0))


def a_policy(nodes: int = 1, *, rescale_hours: float = 0.0, sizes: tuple[float, ...] = (8.0,)) -> ElasticSrpt:
    """Return the policy on nodes of four GPUs."""
    classes = {
        "c": a_class(curve=CURVE, sizes=sizes, rescale_hours=rescale_hours),
        "amdahl": a_class("amdahl", curve=Amdahl(parallel_fraction=0.95, max_gpus=8), sizes=(8.0,)),
    }
    fleet = FixedFleet(instance_type=an_instance_type(), nodes=nodes)
    return ElasticSrpt(menu=WidthMenu(classes=classes, gpu_type="gpu"), fleet=fleet)


def widths(policy: ElasticSrpt, *jobs: Job) -> dict[str, int]:
    """Return the GPUs of each job that runs."""
    return {name: width.gpus for name, width in policy.allocate(jobs, now=0.0).widths.items()}


def test_a_lone_job_gets_the_fleet() -> None:
    """Its fastest width that fits."""
    assert widths(a_policy(), a_job("a")) == {"a": 4}
    assert widths(a_policy(), a_job("a", class_name="amdahl")) == {"a": 4}
    assert widths(a_policy(nodes=2), a_job("a", class_name="amdahl")) == {"a": 8}


def test_the_shortest_jobs_are_admitted_and_the_rest_wait() -> None:
    """Five jobs and four GPUs: one each for the four shortest."""
    jobs = [a_job(f"j{n}", remaining_gpu_hours=float(n + 1)) for n in range(5)]

    assert widths(a_policy(), *reversed(jobs)) == {f"j{n}": 1 for n in range(4)}


def test_weight_divides_the_service() -> None:
    """A long job of weight 9 comes before shorter ones."""
    jobs = [a_job(f"j{n}", remaining_gpu_hours=float(n + 1)) for n in range(5)]
    heavy = a_job("heavy", remaining_gpu_hours=8.0, weight=9.0)

    assert "heavy" in widths(a_policy(), *jobs, heavy)


def test_what_is_left_goes_to_the_shorter_job_first() -> None:
    """Two jobs on four GPUs have two each; three have 2, 1 and 1."""
    jobs = [a_job(f"j{n}", remaining_gpu_hours=float(n + 1)) for n in range(3)]

    assert widths(a_policy(), *jobs[:2]) == {"j0": 2, "j1": 2}
    assert widths(a_policy(), *jobs) == {"j0": 2, "j1": 1, "j2": 1}


def test_a_running_job_is_widened_only_where_that_pays_for_its_restart() -> None:
    """From two GPUs to four saves 8 / 1.8 - 8 / 3 = 1.8 hours."""
    job = a_job("a", remaining_gpu_hours=8.0, width=Width("gpu", 2))

    assert widths(a_policy(rescale_hours=1.7), job) == {"a": 4}
    assert widths(a_policy(rescale_hours=1.8), job) == {"a": 2}


def test_a_running_job_shrinks_only_when_another_would_wait() -> None:
    """With a free GPU the new job takes that; without, all widths are chosen anew."""
    wide = a_job("wide", remaining_gpu_hours=8.0, width=Width("gpu", 4))

    assert widths(a_policy(nodes=2, rescale_hours=9.0), wide, a_job("new")) == {"wide": 4, "new": 4}
    assert widths(a_policy(), wide, a_job("new")) == {"new": 2, "wide": 2}


def test_a_saved_restart_raises_the_worth_of_the_steps_up_to_the_current_width() -> None:
    """Where a restart costs much, a job that holds two GPUs keeps them; else they go to the shortest job."""
    jobs = [
        a_job("long", remaining_gpu_hours=4.0, width=Width("gpu", 2)),
        a_job("other", remaining_gpu_hours=3.0, width=Width("gpu", 2)),
        a_job("new", remaining_gpu_hours=1.0),
    ]

    assert widths(a_policy(), *jobs) == {"new": 2, "other": 1, "long": 1}
    assert widths(a_policy(rescale_hours=5.0), *jobs) == {"new": 1, "other": 2, "long": 1}


@given(
    left=st.lists(st.tuples(st.floats(0.01, 8.0), st.sampled_from((None, 1, 2, 4))), max_size=9),
    nodes=st.integers(1, 3),
)
def test_the_fleet_is_never_exceeded_and_no_job_waits_beside_a_free_gpu(
    left: list[tuple[float, int | None]], nodes: int
) -> None:
    """Whatever the jobs hold; the number of nodes is fixed."""
    jobs, free = [], 4 * nodes
    for number, (hours, gpus) in enumerate(left):
        holds = gpus if gpus is not None and gpus <= free else None
        free -= holds or 0
        width = None if holds is None else Width("gpu", holds)
        jobs.append(a_job(f"j{number}", remaining_gpu_hours=hours, width=width))
    answer = a_policy(nodes=nodes, rescale_hours=0.1).allocate(jobs, now=0.0)

    taken = sum(width.gpus for width in answer.widths.values())
    assert taken <= 4 * nodes
    assert len(answer.widths) == min(len(jobs), 4 * nodes)
    assert answer.nodes == {"gpu-x4": nodes}


def test_the_prices_of_a_ladder_fall() -> None:
    """Each step up is best at a lower price of a GPU-hour than the one before."""
    for name in ("c", "amdahl"):
        rungs = a_policy(nodes=2)._rungs[name, 0]
        prices = [rung.price for rung in rungs[1:]]

        assert prices == sorted(prices, reverse=True)
        assert [rung.gpus for rung in rungs] == sorted({rung.gpus for rung in rungs})
    assert a_policy()._rungs["c", 0][1].price == pytest.approx(0.8 / (2.0 - 1.8))
