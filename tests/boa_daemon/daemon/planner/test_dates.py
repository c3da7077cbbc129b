"""Deadlines of jobs: the answer at submission, and whether the deadline is met."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.planner.dates import hours_at, hours_on
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.job_file import check_job
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from policies.model import JobClass, Phase, Width
from policies.speedup import Amdahl, Table

START, TICK = 1_800_000_000.0, 30.0
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 1.3},
    "cloud": {"boot_seconds": 30.0},
    "daemon": {"tick_seconds": TICK},
}


@pytest.fixture
def play(tmp_path: Path) -> Iterator[DaemonInAFolder]:
    """Yield a daemon that has ticked once."""
    found = DaemonInAFolder(tmp_path, ManualClock(START), SETTINGS)
    found.daemon.tick()
    yield found
    found.close()


def submitted(play: DaemonInAFolder, **changes: Any) -> dict[str, Any]:
    """Submit a job of four GPU-hours and return the answer."""
    return play.service.submit([job_content(hours=4.0, max_gpus=16, **changes)], user="u")


def ended_after(play: DaemonInAFolder, job: str, *, taken_at: tuple[int, ...] = ()) -> float:
    """Tick until the job finishes, interrupt all nodes at some ticks, and return the hours it took."""
    clock, began = play.clock, play.clock.now()
    assert isinstance(clock, ManualClock)
    for number in range(400):
        decision = play.daemon.tick()
        if number in taken_at and decision is not None:
            for node in decision.state.nodes:
                play.cloud.interrupt(node)
        clock.instant += TICK
        if play.service.job(job)["status"] == "finished":
            return (clock.now() - began) / 3600.0
    raise AssertionError(play.service.job(job))


def test_a_job_with_a_deadline_is_made_wider_to_meet_it(play: DaemonInAFolder) -> None:
    """Without a deadline the job takes over 48 minutes; with a deadline of 36 minutes it finishes in time."""
    free = submitted(play)
    assert free["dates"] == {}
    assert ended_after(play, free["jobs"][0]) > 0.8
    answer = submitted(play, deadline_hours=0.6)
    (job,) = answer["jobs"]
    date = answer["dates"][job]
    assert date["verdict"] == "likely"
    assert 0.5 < date["probability"] < 0.999
    play.daemon.tick()

    said = play.service.explain(job)
    assert "Its date is 2027-01-15" in said["text"]
    assert "in nine of ten cases" in said["text"]
    assert play.service.status()["dates"][job]["probability"] == pytest.approx(date["probability"], abs=0.1)
    assert ended_after(play, job) <= 0.6


def test_a_deadline_is_met_though_nodes_are_interrupted(play: DaemonInAFolder) -> None:
    """All nodes are interrupted twice, after 10 and after 20 minutes."""
    answer = submitted(play, deadline_hours=1.0)

    assert ended_after(play, answer["jobs"][0], taken_at=(20, 40)) <= 1.0


def test_an_infeasible_deadline_is_answered_with_feasible_ones(play: DaemonInAFolder) -> None:
    """Three minutes for four GPU-hours are infeasible; an hour after the earliest named date is feasible."""
    (no,) = submitted(play, deadline_hours=0.05)["dates"].values()
    assert no["verdict"] == "infeasible"
    assert START < no["earliest"]["at"] <= no["cheapest"]["at"]
    assert no["earliest"]["usd"] >= no["cheapest"]["usd"]
    at = datetime.fromtimestamp(no["earliest"]["at"] + 3600.0, UTC).isoformat()
    (yes,) = submitted(play, deadline=at)["dates"].values()

    assert yes["verdict"] in ("sure", "likely")
    assert yes["probability"] > 0.97


def test_a_job_with_an_infeasible_deadline_runs_as_without_one(play: DaemonInAFolder) -> None:
    """The job takes about as long, and costs at most 10 % more, than the same job without a deadline."""
    (free,) = submitted(play)["jobs"]
    as_planned, cost = ended_after(play, free), play.service.job(free)["usd"]
    answer = submitted(play, deadline_hours=0.05)
    (job,) = answer["jobs"]
    date = answer["dates"][job]
    play.daemon.tick()

    assert (date["verdict"], date["is_tried"]) == ("infeasible", False)
    assert "runs as cheaply as if it had no date" in date["text"]
    assert "runs as cheaply as if it had no date" in play.service.explain(job)["text"]
    assert play.service.status()["dates"][job]["is_tried"] is False
    assert ended_after(play, job) > 0.9 * as_planned
    assert play.service.job(job)["usd"] < 1.1 * cost


def test_gpus_promised_to_one_deadline_are_not_promised_to_another(tmp_path: Path) -> None:
    """With eight instances, the second of two jobs that need six each gets a lower probability."""
    settings = {**SETTINGS, "budget": {"usd_per_hour": 1.3, "max_instances": 8}}
    play = DaemonInAFolder(tmp_path, ManualClock(START), settings)
    try:
        play.daemon.tick()
        (first,) = submitted(play, deadline_hours=3.0)["dates"].values()
        (second,) = submitted(play, deadline_hours=3.0)["dates"].values()
    finally:
        play.close()

    assert first["verdict"] == "likely"
    assert second["probability"] < first["probability"]


def test_hours_at_a_width_are_summed_over_the_remaining_phases() -> None:
    """A width that one of the phases lacks is left out of `hours_at` and takes infinite hours."""
    job_class = JobClass(
        name="c",
        phases=(
            Phase(size_gpu_hours=2.0, speedups={"gpu": Amdahl(parallel_fraction=1.0, max_gpus=4)}),
            Phase(size_gpu_hours=6.0, speedups={"gpu": Table(gpus=(1, 2, 8), speeds=(1.0, 1.5, 3.0))}),
        ),
    )

    found = hours_at(job_class, 7.0, 8.0)

    assert found == {Width("gpu", 1): pytest.approx(7.0), Width("gpu", 2): pytest.approx(4.5)}
    assert hours_on(job_class, 7.0, 8.0, Width("gpu", 8)) == float("inf")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"deadline": "tomorrow"}, "deadline must be an instant with its zone"),
        ({"deadline": "2030-01-31"}, "deadline must be an instant with its zone"),
        ({"deadline": "2030-01-31T08:00:00Z", "deadline_hours": 3}, "both given"),
    ],
)
def test_an_invalid_deadline_is_refused(changes: dict[str, Any], said: str) -> None:
    """A deadline without a time zone, or together with `deadline_hours`, is an error."""
    content = {"name": "a", "class": "default", "run": "true", **changes}
    with pytest.raises(InputError, match=said):
        check_job(Document(name="a", content=content, language="json"))
