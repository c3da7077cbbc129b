"""The phases of a run, its place and its cost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.cli.run.run_phases import RunMeter, RunPhases, phase_of, place_of

NODE = {"id": "i-1", "instance_type": "g5.xlarge", "market": "spot", "zone": "us-east-1a", "phase": "ready"}


def a_job(**changes: Any) -> dict[str, Any]:
    return {"nodes": [], "status": "queued", "step": None, "generation": 0, "gpus": 0} | changes


@pytest.mark.parametrize(
    ("job", "phase", "has_printed", "is_called"),
    [
        ({}, None, False, "planning"),
        ({}, "requested", False, "booting"),
        ({}, "ready", False, "starting"),
        ({}, "terminating", False, "planning"),
        ({"nodes": ["i-1"], "generation": 1}, "ready", False, "starting"),
        ({"nodes": ["i-1"], "generation": 1}, "ready", True, "running"),
        ({"nodes": ["i-1"], "generation": 1, "step": 3}, "ready", False, "running"),
        # The step of an earlier start does not count for the present start.
        ({"nodes": ["i-1"], "generation": 2, "step": 3}, "ready", False, "starting"),
        ({"nodes": ["i-1"], "status": "cancelling"}, "ready", True, "stopping"),
    ],
)
def test_the_phase_follows_from_job_nodes_and_output(
    job: dict[str, Any], phase: str | None, has_printed: bool, is_called: str
) -> None:
    """Only output of the newest start counts."""
    nodes = [] if phase is None else [NODE | {"phase": phase}]
    assert phase_of(a_job(**job), nodes, has_printed=has_printed) == is_called


def test_the_place_of_a_job_is_its_nodes_or_the_booting_node() -> None:
    """A job without nodes has no place."""
    assert place_of(a_job(nodes=["i-1"], gpus=2), [NODE]) == "2 GPUs on i-1 g5.xlarge spot us-east-1a"
    assert place_of(a_job(), [NODE | {"phase": "requested"}]) == "i-1 g5.xlarge spot us-east-1a"
    assert not place_of(a_job(), [])


@given(
    looks=st.lists(
        st.tuples(
            st.sampled_from(["planning", "booting", "running"]),
            st.floats(min_value=0.0, max_value=100.0),
            st.floats(min_value=0.0, max_value=1.0),
        ),
        min_size=1,
    )
)
def test_phases_add_up(looks: list[tuple[Any, float, float]]) -> None:
    """Seconds and dollars of all phases are those of the run, and two successive phases differ."""
    phases, at, usd = RunPhases(), 0.0, 0.0
    phases.take("starting the daemon", at=at, usd=usd)
    for name, seconds, more in looks:
        at, usd = at + seconds, usd + more
        phases.take(name, at=at, usd=usd)
    phases.close(at=at, usd=usd)

    assert sum(phase.seconds for phase in phases.found) == pytest.approx(at)
    assert sum(phase.usd for phase in phases.found) == pytest.approx(usd)
    assert all(a.name != b.name for a, b in zip(phases.found, phases.found[1:], strict=False))


def test_the_minimum_bill_of_a_new_node_belongs_to_the_boot() -> None:
    """The planning phase before it costs nothing."""
    phases = RunPhases()
    phases.take("planning", at=0.0, usd=0.0)
    ended = phases.take("booting", at=5.0, usd=0.0168)
    phases.take("booting", at=9.0, usd=0.0168)

    assert ended is not None
    assert ended.usd == 0.0
    assert phases.found[-1].usd == pytest.approx(0.0168)


def test_the_meter_of_an_own_daemon_counts_all_nodes() -> None:
    """Earlier costs of a node do not count; a node that has left the list still counts."""
    meter = RunMeter(is_own=True, before={"old": 3.0})
    assert meter.read(None, [{"id": "old", "usd": 3.5}, {"id": "new", "usd": 0.25}]) == pytest.approx(0.75)
    assert meter.read(None, [{"id": "new", "usd": 0.5}]) == pytest.approx(1.0)
    assert RunMeter(is_own=False).read({"usd": 0.125}, [{"id": "new", "usd": 9.0}]) == 0.125
