"""Tiresias and requested widths: widths in the band, and jobs with little service first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.testing import a_class, a_job, an_instance_type
from policies.errors import InvalidProblem
from policies.model import Money, Width
from policies.rivals.long_run_averages import long_run_of
from policies.rivals.requested_widths import HALF_BAND, RentAsRequested, RequestedWidths
from policies.rivals.tiresias import Tiresias
from policies.rivals.width_menu import FixedFleet, WidthMenu
from policies.speedup import Amdahl, Table

# Efficiencies: 1, 0.9, 0.75, 0.55, 0.4.
CURVE = Table(gpus=(1, 2, 4, 8, 16), speeds=(1.0, 1.8, 3.0, 4.4, 6.4))


def asked(efficiency: float = 0.65, **changes: object) -> RequestedWidths:
    """Return the requested widths of one class of two phases of 4 GPU-hours."""
    job_class = a_class(sizes=[4.0, 4.0], curve=CURVE, arrivals_per_hour=2.0)
    return RequestedWidths(menu=WidthMenu(classes={"c": job_class}, gpu_type="gpu"), efficiency=efficiency)


@given(draw=st.floats(0.0, 0.999))
def test_users_request_widths_in_the_band(draw: float) -> None:
    """4 and 8 GPUs are between 0.5 and 0.8; half of the users request each, for all phases of a job."""
    widths = asked().widths_of(a_job(draw=draw))

    assert widths == (Width("gpu", 4 if draw < 0.5 else 8),) * 2


def test_with_an_empty_band_users_request_the_fastest_width_above_it() -> None:
    """No efficiency is within 0.15 of 0.2; the fastest width above has 16 GPUs."""
    assert asked(0.2).widths_of(a_job()) == (Width("gpu", 16),) * 2
    assert HALF_BAND < 0.2


def test_the_planned_averages_are_the_mean_over_users() -> None:
    """Half of the jobs run at 4 GPUs and half at 8."""
    crowd = asked()
    ends = [long_run_of({"c": (Width("gpu", gpus),) * 2}, crowd.menu.classes) for gpus in (4, 8)]

    assert crowd.promise().gpus == pytest.approx(0.5 * (ends[0].gpus + ends[1].gpus))
    assert crowd.promise().mean_jct_hours == pytest.approx(
        0.5 * (ends[0].mean_jct_hours + ends[1].mean_jct_hours)
    )


def test_rent_as_requested_gives_requested_widths_and_fixes_no_nodes() -> None:
    """Each job gets its requested width, whatever other jobs are present."""
    allocation = RentAsRequested(asked=asked()).allocate([a_job("a"), a_job("b", draw=0.7)], now=0.0)

    assert allocation.widths == {"a": Width("gpu", 4), "b": Width("gpu", 8)}
    assert allocation.nodes is None


def a_tiresias(nodes: int = 2) -> Tiresias:
    """Return Tiresias on nodes of four GPUs."""
    return Tiresias(asked=asked(), fleet=FixedFleet(instance_type=an_instance_type(), nodes=nodes))


def test_attained_service_is_gpu_hours_at_the_width() -> None:
    """At 4 GPUs an hour of work takes 4 / 3 GPU-hours: a phase of 4 and half of the next are 8."""
    job = a_job(phase=1, remaining_gpu_hours=2.0)

    assert a_tiresias().attained(job) == pytest.approx((4.0 + 2.0) * 4.0 / 3.0)


def test_jobs_with_little_service_come_first() -> None:
    """At 16 GPU-hours a job falls into the second queue; at scale 2 this one is above it."""
    jobs = [
        a_job("served", phase=1, remaining_gpu_hours=2.0, scale=2.0, arrived_at=0.0),
        a_job("young", remaining_gpu_hours=8.0, arrived_at=9.0),
    ]

    allocation = a_tiresias(nodes=1).allocate(jobs, now=10.0)

    assert a_tiresias().attained(jobs[0]) > 16.0
    assert allocation.widths == {"young": Width("gpu", 4)}
    assert allocation.nodes == {"gpu-x4": 1}
    assert allocation.memory == (1.0,)


def test_a_job_that_does_not_fit_is_passed_over() -> None:
    """On two nodes 8 GPUs do not fit beside 4, and another 4 do."""
    jobs = [a_job("a"), a_job("wide", draw=0.9, arrived_at=1.0), a_job("c", arrived_at=2.0)]

    assert set(a_tiresias().allocate(jobs, now=3.0).widths) == {"a", "c"}


def test_a_job_wider_than_the_fleet_gets_the_whole_fleet() -> None:
    """Otherwise the job would wait for ever."""
    assert a_tiresias(nodes=1).allocate([a_job(draw=0.9)], now=0.0).widths == {"a": Width("gpu", 4)}


def test_between_two_rounds_every_job_keeps_its_width() -> None:
    """A job that arrived waits until the minute ends."""
    money = Money(spent=0.0, elapsed_hours=1.0, memory=(2.0,), memory_age_hours=0.001)
    jobs = [a_job("runs", width=Width("gpu", 4)), a_job("new")]

    assert a_tiresias().allocate(jobs, now=0.0, money=money).widths == {"runs": Width("gpu", 4)}


def test_invalid_efficiencies_and_thresholds_are_refused() -> None:
    """An efficiency is a fraction, and a threshold is positive."""
    with pytest.raises(InvalidProblem, match="from 0 to 1"):
        asked(1.2)
    with pytest.raises(InvalidProblem, match="more than 0"):
        Tiresias(asked=asked(), fleet=a_tiresias().fleet, threshold_gpu_hours=0.0)


def test_curves_given_as_formulas_have_bands_too() -> None:
    """Amdahl's law at 0.95 has efficiencies between 0.5 and 0.8 at widths from 6 to 21."""
    curve = Amdahl(parallel_fraction=0.95, max_gpus=64)
    crowd = RequestedWidths(menu=WidthMenu(classes={"c": a_class(curve=curve)}, gpu_type="gpu"))

    gpus = {crowd.widths_of(a_job(draw=d / 100.0))[0].gpus for d in range(100)}
    assert gpus == set(range(6, 22))
