"""Jobs that share a GPU: mean value analysis, against closed forms and a simulation event by event."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers

from policies.links.gpu_share import gpu_slowdowns, shared_iteration_seconds


def test_jobs_that_share_a_gpu_take_the_time_of_mean_value_analysis() -> None:
    """T_2 = t (1 + t/T) + c (1 + c/T): 2 t without messages, and (1 + 1) (1 + 1/2) where t = c = 1."""
    assert shared_iteration_seconds(2, (1.0, 0.0)) == 2.0
    assert shared_iteration_seconds(2, (1.0, 1.0)) == 3.0
    assert shared_iteration_seconds(3, (1.0, 0.0)) == pytest.approx(3.0)


@given(jobs=integers(1, 8), share=floats(0.0, 100.0))
def test_sharing_is_never_worse_than_turns_nor_better_than_being_alone(jobs: int, share: float) -> None:
    """The busier of GPU and link also sets a lower bound."""
    alone, found = 1.0 + share, shared_iteration_seconds(jobs, (1.0, share))
    assert max(alone, jobs * max(1.0, share)) * (1 - 1e-12) <= found <= jobs * alone * (1 + 1e-12)


def test_a_job_is_slowed_by_its_most_shared_gpu_and_a_lone_job_is_not() -> None:
    """a and b share GPU 1: each meets the other for the part of its time that the other computes."""
    found = gpu_slowdowns({"a": ["0", "1"], "b": ["1"], "c": ["2"]}, {"a": 1.0, "b": 3.0, "c": 0.0})
    assert found == {"a": 1.0 + 1.0 / (1.0 + 3.0), "b": 1.0 + 1.0 / (1.0 + 1.0), "c": 1.0}


@pytest.mark.parametrize("sending", [(0.5, 2.0), (1.0, 1.0), (0.0, 3.0)])
def test_two_unlike_jobs_agree_with_a_simulation_event_by_event(sending: tuple[float, float]) -> None:
    """Durations are random, the GPU is shared equally, and sending is undisturbed: within 3 %."""
    seconds = _events(sending, rounds=40_000)
    found = gpu_slowdowns({"a": [0], "b": [0]}, {"a": sending[0], "b": sending[1]})
    for job, share, took in zip("ab", sending, seconds, strict=True):
        assert took == pytest.approx(found[job] + share, rel=0.03)


def _events(sending: tuple[float, float], *, rounds: int) -> list[float]:
    """Return the mean seconds of an iteration of each of two jobs; computing and sending are exponential."""
    draw = random.Random(5)
    left, computes, done, now = [draw.expovariate(1.0) for _ in sending], [True, True], [0, 0], 0.0
    while min(done) < rounds:
        speed = [1.0 / sum(computes) if on_gpu else 1.0 for on_gpu in computes]
        step = min(left[job] / speed[job] for job in (0, 1))
        now += step
        for job in (0, 1):
            left[job] -= step * speed[job]
            if left[job] > 1e-12:
                continue
            if computes[job] and sending[job]:
                computes[job], left[job] = False, draw.expovariate(1.0 / sending[job])
            else:
                computes[job], left[job] = True, draw.expovariate(1.0)
                done[job] += 1
    return [now / count for count in done]


def test_a_job_alone_on_its_gpus_is_not_slowed() -> None:
    """Job ids are compared by value, not by identity."""
    first, again = "job-one", "job-" + "one"[:3]
    gpus = {first: ["g0", "g1"], "job-two": ["g1", "g2"], "job-three": ["g3"]}
    found = gpu_slowdowns(gpus, {again: 0.0, "job-two": 0.0, "job-three": 0.0})
    assert found == {"job-one": pytest.approx(2.0), "job-two": pytest.approx(2.0), "job-three": 1.0}
