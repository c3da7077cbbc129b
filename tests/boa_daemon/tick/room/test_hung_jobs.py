"""Jobs that hang are ended when their time is over, after the required number of looks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boa_daemon.testing import a_job, a_state
from boa_daemon.tick.facts.retries import Silence
from boa_daemon.tick.facts.state import ClusterState, JobTerms
from boa_daemon.tick.room.hung_jobs import hung_jobs

NOW = 1000.0


def silent(*silences: Silence) -> ClusterState:
    """Return a state in which job a is silent and job b is not."""
    state = a_state(a_job("a"), a_job("b"), now=NOW)
    job = replace(state.jobs["a"], terms=JobTerms(silences=silences))
    return replace(state, jobs={**state.jobs, "a": job})


def since(at: float, *, looks_left: int = 0, limit: float = 100.0) -> Silence:
    """Return a silence without steps."""
    return Silence(kind="no-step", since=at, limit_seconds=limit, looks_left=looks_left)


@pytest.mark.parametrize(
    ("silence", "ends", "wakes"),
    [
        (since(NOW - 99.0), (), [NOW + 1.0]),
        (since(NOW - 100.0), ("a",), []),
        (since(NOW - 101.0), ("a",), []),
        (since(NOW - 100.0, looks_left=1), (), [NOW + 1.0]),
        (since(NOW - 101.0, looks_left=2), (), [NOW + 1.0]),
        (since(NOW - 40.0, looks_left=2), (), [NOW + 60.0]),
    ],
)
def test_a_silent_job_is_ended_when_its_limit_is_reached_and_no_look_is_left(
    silence: Silence, ends: tuple[str, ...], wakes: list[float]
) -> None:
    """Before its limit the wake-up is at the limit; with a look left it is one second later."""
    found, at = hung_jobs(silent(silence))
    assert (tuple(found), at) == (ends, wakes)


def test_of_several_silences_the_first_that_is_over_is_the_reason() -> None:
    """Silences that are not over still set a wake-up."""
    found, wakes = hung_jobs(silent(since(NOW - 50.0), since(NOW - 200.0), since(NOW - 300.0)))
    assert found == {"a": "made no step for 200 s"}
    assert wakes == [NOW + 50.0]
    assert hung_jobs(silent()) == ({}, [])
