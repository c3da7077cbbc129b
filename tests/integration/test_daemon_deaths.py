"""The daemon is killed at each of its effects in one small life, and its successor plays the life to its end.

No instance is leaked or rented twice, no job is lost, run twice or started again without need, each dollar is
charged once, and what people ordered and what ticks decided can be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from dying_daemon import TORN, Life, faults_of
from postgres_server import PostgresServer, empty_database

POINTS = {
    "its first files": ("resize", f"{TORN}opening|open:state/.next_job"),
    "a submission is numbered and not stored": ("resize", "submit|commit|write<_write_waiting"),
    "the intent of a launch": ("resize", "submit|commit|write<record_intents"),
    "a launch that is not recorded": ("resize", "submit|launch: after"),
    "a start whose papers are half written": ("resize", f"{TORN}submit|open:state/jobs/a-#/g#/n#/.unit.json"),
    "one of two keepers is started": ("resize", "submit|open:state/jobs/b-#/g#/n#/keeper.err"),
    "a cancel that is not given on": ("resize", "cancel|open:state/jobs/b-#/g#/stop"),
    "a stop for another width": ("resize", "resize|os.kill:|send<order<send_to_keeper<_signal<_order"),
    "another width that is not free yet": ("resize", "resize|commit|write<_let_go"),
    "the next generation's turn": ("resize", "resize|open:state/jobs/a-#/g#/n#/go"),
    "a warning of the cloud": ("warning", "warning|rehearse_end: after"),
    "nodes that end for an order to go down": ("warning", "down|terminate: after"),
    "idle nodes whose end is not recorded": ("warning", "idle|commit|write<record_charge"),
    "a copy of the database": ("warning", "backup|os.rename:state/backups"),
}
"""Stories and points, spread over the life."""
STEP = 9
"""Of how many points one is tried in an exhaustive run."""
FIRST_POINTS = 40
"""How many points of a successor are chosen from."""


@pytest.fixture
def a_life(tmp_path: Path) -> Iterator[Callable[..., Life]]:
    """Return a function that makes a life, whose jobs end with the test."""
    made: list[Life] = []

    def make(story: str, url: str = "") -> Life:
        if url:
            empty_database(url)
        made.append(Life(tmp_path / str(len(made)), story, url))
        return made[-1]

    yield make
    for life in made:
        life.clear()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Return a server."""
    with PostgresServer() as server:
        yield server


@pytest.mark.first_set(4)
@pytest.mark.parametrize(("story", "at"), POINTS.values(), ids=list(POINTS))
def test_a_killed_daemon_costs_nothing(a_life: Callable[..., Life], story: str, at: str) -> None:
    """The successor finds nothing but the files, and all comes as if nothing had happened."""
    # What depends on the pace of the job's own processes may not be met at once.
    lives = (a_life(story) for _ in range(3))
    life = next((life for life in lives if life.see_through(at)), None)
    assert life is not None, "it did not come to this point"
    assert not faults_of(life)


@pytest.mark.exhaustive
@pytest.mark.parametrize("deaths", [1, 2])
@pytest.mark.parametrize("story", ["resize", "warning"])
def test_a_death_at_any_point_costs_nothing(a_life: Callable[..., Life], story: str, deaths: int) -> None:
    """The points are those of an undisturbed life: every ninth, or all with BOA_TEST_ALL_DEATHS=1.

    With two deaths the successor is killed at one of its first points, while it takes over.
    """
    calm = a_life(story)
    assert not calm.see_through()
    assert not faults_of(calm)
    step = 1 if os.environ.get("BOA_TEST_ALL_DEATHS") else STEP
    fail_at_none(a_life, story, calm.points[deaths - 1 :: step], deaths)


@pytest.mark.exhaustive
@pytest.mark.parametrize("story", ["resize", "warning"])
def test_a_death_at_a_commit_to_a_server_costs_nothing(
    a_life: Callable[..., Life], server: PostgresServer, story: str
) -> None:
    """On PostgreSQL each transaction is there or not, as on SQLite; the successor waits out the lease."""
    if not server.url:
        return
    calm = a_life(story, server.url)
    assert not calm.see_through()
    assert not faults_of(calm)
    points = [point for point in calm.points if "|commit|" in point]
    assert len(points) > 20
    step = 1 if os.environ.get("BOA_TEST_ALL_DEATHS") else STEP
    fail_at_none(partial(a_life, url=server.url), story, points[::step], 1)


def fail_at_none(a_life: Callable[..., Life], story: str, points: Sequence[str], deaths: int) -> None:
    """See a life with a death at each of the points through."""
    failed = []
    for number, point in enumerate(points):
        life = a_life(story)
        try:
            # What depends on the pace of the job's own processes may not be met again.
            life.see_through(point, then=0 if deaths == 1 else 1 + number % FIRST_POINTS)
            # Who takes over from two dead in a row may end a node for idle, and rent another for the job.
            failed += [f"{point}: {fault}" for fault in faults_of(life, spare_nodes=deaths - 1)]
        except AssertionError as error:
            failed.append(f"{point}: {error}")
        life.clear()
    assert not failed, "\n".join(failed)
