"""Forecast of when jobs end: running jobs by their remaining work, waiting jobs after GPUs become free."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drafts import a_plan, gpus, with_columns

from boa_daemon.daemon.service.finish_forecast import JobEstimate, forecast_finishes
from boa_daemon.testing import a_class, a_job, a_node, a_state, some_slots
from boa_daemon.tick.facts.limits import Held, HeldMoney
from boa_daemon.tick.facts.state import ClusterState
from policies.model import JobClass, Phase, Width
from policies.speedup import Table

CLASS = JobClass(
    name="c",
    phases=(Phase(size_gpu_hours=8.0, speedups={"gpu": Table(gpus=(1, 2, 4), speeds=(1.0, 2.0, 4.0))}),),
)


def known(spread: float) -> dict[str, JobEstimate]:
    """Return the estimates of two jobs of eight GPU-hours."""
    return {name: JobEstimate(job_class=CLASS, size_gpu_hours=8.0, spread=spread) for name in ("a", "b")}


def one_waits() -> ClusterState:
    """Return a state in which "a" runs on four GPUs with half its work left and "b" waits for the GPUs."""
    return a_state(
        a_job("a", remaining_gpu_hours=4.0, width=Width("gpu", 4)),
        a_job("b", remaining_gpu_hours=8.0),
        nodes=[a_node("n1")],
        held={"a": some_slots("n1", 0, 1, 2, 3)},
        now=0.0,
    )


PLAN = a_plan(
    widths={"a": Width("gpu", 4), "b": Width("gpu", 4)}, slots={}, waiting={"b": "gpus-to-fall-free"}
)


def test_a_waiting_job_starts_when_the_running_one_ends() -> None:
    """The running job ends after 1 h, the waiting one 2 h later; without spread the intervals are narrow."""
    found = forecast_finishes(one_waits(), PLAN, known(0.0), boot_hours=0.1)

    assert found["a"].at == pytest.approx(3600.0, rel=0.05)
    assert found["b"].at == pytest.approx(3 * 3600.0, rel=0.05)
    assert found["b"].usd == pytest.approx(8.0)
    assert found["b"].high == pytest.approx(found["b"].at, rel=0.05)


def test_uncertain_sizes_widen_the_interval_and_a_waiting_job_adds_its_start() -> None:
    """The interval of the waiting job is wider than that of the job it waits for."""
    found = forecast_finishes(one_waits(), PLAN, known(0.5), boot_hours=0.1)
    first, second = found["a"], found["b"]

    assert first.low < first.at < first.high
    assert second.high - second.low > first.high - first.low
    assert first.usd_low < first.usd < first.usd_high
    assert "in nine of ten cases" in first.sentence(0.0)


def test_a_launched_node_counts_after_its_boot_and_without_room_no_end_is_known() -> None:
    """With a new node that boots for 0.5 h, the waiting job ends after 2.5 h; without nodes it has no end."""
    state = one_waits()
    machine = state.nodes["n1"].instance_type
    more = replace(PLAN, launches={machine.name: 1}, instance_types={machine.name: machine})
    alone = replace(state, nodes={}, jobs={"b": state.jobs["b"]})

    assert forecast_finishes(state, more, known(0.0), boot_hours=0.5)["b"].at == pytest.approx(
        2.5 * 3600.0, rel=0.05
    )
    assert forecast_finishes(alone, PLAN, known(0.0), boot_hours=0.5) == {}


def test_every_one_of_3000_waiting_jobs_gets_an_end() -> None:
    """3000 jobs of two hours each run one after the other on four GPUs."""
    names = ("a", *(f"b{number}" for number in range(3000)))
    first, *others = (a_job(name, remaining_gpu_hours=8.0, width=None) for name in names)
    state = a_state(
        replace(first, width=Width("gpu", 4)), *others,
        nodes=[a_node("n1")], held={"a": some_slots("n1", 0, 1, 2, 3)}, now=0.0,
    )  # fmt: skip
    plan = a_plan(
        widths=dict.fromkeys(names, Width("gpu", 4)),
        slots={},
        waiting=dict.fromkeys(names[1:], "gpus-to-fall-free"),
    )
    about = JobEstimate(job_class=CLASS, size_gpu_hours=8.0, spread=0.0)
    found = forecast_finishes(state, plan, dict.fromkeys(names, about), boot_hours=0.1)

    assert found.keys() == set(names)
    assert found["b2999"].at == pytest.approx(2.0 * 3001 * 3600.0)


def test_a_waiting_job_is_told_when_it_should_start() -> None:
    """It starts when the jobs before it have ended; a running job has no start ahead."""
    jobs = [a_job("a", remaining_gpu_hours=2.0), a_job("b", arrived_at=1.0, remaining_gpu_hours=1.0)]
    state = a_state(*jobs, nodes=[a_node("n", gpus=1)], held={"a": some_slots("n", 0)}, now=10.0)
    plan = a_plan(widths=gpus(a=1, b=1), waiting={"b": "node-limit"})
    known = {name: JobEstimate(job_class=a_class(), size_gpu_hours=2.0, spread=0.5) for name in ("a", "b")}
    found = forecast_finishes(state, plan, known, boot_hours=0.0)
    assert found["a"].starts_at is None
    assert found["b"].starts_at == pytest.approx(found["a"].at)
    assert "It should start in 2.00 h" in found["b"].sentence(10.0)


DAY_ENDS = 8 * 3600.0
HELD = Held(
    what="1 m",
    code="cap-day",
    money=HeldMoney(spent_usd=9.0, reserved_usd=0.5, room_at=DAY_ENDS),
)


def test_a_job_that_waits_for_a_cap_of_the_day_starts_once_the_day_rolls() -> None:
    """Without a node, it starts at the end of the day plus a boot, and the sentence says both."""
    state = one_waits()
    alone = replace(state, nodes={}, jobs={"b": state.jobs["b"]})
    plan = with_columns(PLAN, widths={"b": Width("gpu", 4)}, waiting={"b": "cap-day"}, held=(HELD,))

    found = forecast_finishes(alone, plan, known(0.0), boot_hours=0.5)["b"]

    assert found.starts_at == pytest.approx(DAY_ENDS + 1800.0)
    assert found.opens_at == DAY_ENDS
    assert "in 8.50 h, a boot after its cap has room again at 1970-01-01T08:00" in found.sentence(0.0)


def test_money_that_has_accrued_starts_nobody_while_a_cap_keeps_every_node_away() -> None:
    """Nothing is rented: a job that waits for money to accrue starts when the cap has room again, too."""
    state = one_waits()
    alone = replace(state, nodes={}, jobs={"b": state.jobs["b"]})
    plan = with_columns(PLAN, widths={"b": Width("gpu", 4)}, waiting={"b": "budget"}, held=(HELD,))

    assert forecast_finishes(alone, plan, known(0.0), boot_hours=0.5)["b"].starts_at == DAY_ENDS + 1800.0


@pytest.mark.parametrize(("room_at", "starts"), [(DAY_ENDS, 3600.0), (900.0, 900.0 + 1800.0)])
def test_a_job_at_a_cap_starts_on_what_comes_first(room_at: float, starts: float) -> None:
    """GPUs that fall free after one hour, or the next day's money and a boot."""
    held = replace(HELD, money=HeldMoney(spent_usd=9.0, reserved_usd=0.5, room_at=room_at))
    plan = with_columns(PLAN, waiting={"b": "cap-day"}, held=(held,))

    found = forecast_finishes(one_waits(), plan, known(0.0), boot_hours=0.5)["b"]

    assert found.starts_at == pytest.approx(starts, rel=0.05)
    assert (found.opens_at is None) == (starts == 3600.0)
