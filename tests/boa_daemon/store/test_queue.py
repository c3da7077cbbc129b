"""The job queue: concurrent submissions share commits, and each is answered after its commit."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_records import a_start, with_nodes
from sqlalchemy import event, insert, select
from sqlalchemy.exc import OperationalError

from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.store.database import Database
from boa_daemon.store.database_setup import migrate, open_engine
from boa_daemon.store.job_rows import job_of
from boa_daemon.store.queue import JobQueue, NewJob
from boa_daemon.store.records import ACTIVE, JobRecord
from boa_daemon.store.tables import INTENTS, JOBS
from boa_daemon.testing.daemon_in_a_folder import job_content
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.codec import dumps


@pytest.fixture
def queue(tmp_path: Path) -> Any:
    engine = open_engine(sqlite_url(tmp_path / "boa.sqlite"))
    migrate(engine)
    database = Database(engine)
    yield JobQueue(database)
    database.close()


def rows(name: str, count: int = 1) -> list[NewJob]:
    """Return `count` new jobs of one name."""
    return [({**job_content(name), "stop_grace_seconds": 60.0}, "ann", "default", 1.0)] * count


def test_concurrent_submissions_get_different_numbers(queue: JobQueue) -> None:
    """400 submissions by 16 threads get the numbers 1 to 400 and are all stored."""
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda n: queue.submit(rows(f"j{n}"), at=float(n))[0], range(400)))
    assert sorted(job.seq for job in found) == list(range(1, 401))
    with queue.database.read() as connection:
        stored = set(connection.scalars(select(JOBS.c.id)))
    assert stored == {job.id for job in found} == set(queue.active)


def test_waiting_submissions_share_one_commit(queue: JobQueue) -> None:
    """While another transaction holds the database, 20 submissions wait; one commit stores all of them."""
    commits: list[int] = []
    event.listen(queue.database.engine, "commit", lambda _connection: commits.append(1))
    with ThreadPoolExecutor(20) as pool:
        with queue.database.write():
            answers = [pool.submit(queue.submit, rows(f"j{n}"), at=0.0) for n in range(20)]
            until = threading.Event()
            while len(queue._waiting) < 20:
                until.wait(0.005)
            assert not any(answer.done() for answer in answers)
        found = [answer.result()[0].id for answer in answers]
    assert len(set(found)) == 20
    assert len(commits) == 2


def test_a_failed_commit_refuses_all_its_submissions(queue: JobQueue) -> None:
    """Nothing is stored, and the next submission gets number 1."""

    def full(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT INTO jobs"):
            raise OperationalError(statement, None, Exception("database or disk is full"))

    event.listen(queue.database.engine, "before_cursor_execute", full)
    tickets = [queue.enter(rows("a"), at=0.0), queue.enter(rows("b", 3), at=0.0)]
    for ticket in tickets:
        with pytest.raises(OperationalError, match="full"):
            queue.settle(ticket)
    event.remove(queue.database.engine, "before_cursor_execute", full)
    assert queue.active == {}
    assert [job.seq for job in queue.submit(rows("c", 2), at=0.0)] == [1, 2]


def test_job_numbers_continue_although_the_database_is_lost(tmp_path: Path) -> None:
    """Otherwise the engine would take a new job for an old one that has ended, and never run it."""
    numbers = []
    for name in ("first", "anew"):
        engine = open_engine(sqlite_url(tmp_path / f"{name}.sqlite"))
        migrate(engine)
        database = Database(engine)
        queue = JobQueue(database)
        queue.mark_in(tmp_path / "next_job")
        numbers += [job.seq for job in queue.submit(rows("a", 3), at=0.0)]
        queue.reload()
        numbers += [job.seq for job in queue.submit(rows("a"), at=0.0)]
        database.close()
    assert numbers == [1, 2, 3, 4, 5, 6, 7, 8]


def test_job_numbers_continue_after_existing_folders(tmp_path: Path) -> None:
    """The engine's folders outlive the database; folders with other names are ignored."""
    engine = open_engine(sqlite_url(tmp_path / "new.sqlite"))
    migrate(engine)
    queue = JobQueue(Database(engine))
    queue.begin_after(["train-7", "a-b-41", "=code", "v=2E1-x", "late-20261122101500123456", "-", "tail-"])

    assert [job.seq for job in queue.submit(rows("a", 2), at=0.0)] == [42, 43]
    queue.database.close()


def test_two_starts_of_one_batch_do_not_get_the_same_gpu(queue: JobQueue) -> None:
    """The second gets none of its GPUs and stays in the queue; the node's other GPUs are free for a third."""
    one, two, three = (job.id for job in queue.submit([*rows("a", 3)], at=0.0))
    queue.claim([a_start(one, ("n", 0), ("n", 1)), a_start(two, ("n", 1)), a_start(three, ("n", 2))], at=10.0)
    assert queue.holders() == {"n": {0: one, 1: one, 2: three}}
    assert (queue.active[two].status, queue.active[two].generation) == ("queued", 0)


def test_a_node_is_idle_once_its_last_job_has_left(queue: JobQueue) -> None:
    """While another job is on it, it has no instant since which it is idle."""
    with_nodes(queue, "n")
    one, two = (job.id for job in queue.submit(rows("a", 2), at=0.0))
    queue.claim([a_start(one, ("n", 0)), a_start(two, ("n", 1))], at=10.0)
    assert queue.instances["n"].idle_since is None

    for name, at, idle_since in ((one, 20.0, None), (two, 30.0, 30.0)):
        queue.release(queue.active[name], at=at, end="finished", status="finished")
        assert queue.instances["n"].idle_since == idle_since
    assert queue.instances["n"].was_used


def test_a_job_that_stops_is_started_on_its_next_gpus_once_it_has_released_the_old_ones(
    queue: JobQueue,
) -> None:
    """Until then the queue keeps what it is to move to; a generation that is not the next moves nothing."""
    [name] = (job.id for job in queue.submit(rows("a"), at=0.0))
    queue.claim([a_start(name, ("n", 0))], at=10.0)
    for generation, claimed in ((3, None), (2, (("m", 0), ("m", 1)))):
        queue.claim([a_start(name, ("m", 0), ("m", 1), generation=generation)], at=20.0)
        claim = queue.claims.get(name)
        slots = None if claim is None else tuple((slot.node, slot.index) for slot in claim.slots)
        assert slots == claimed
    assert queue.holders() == {"n": {0: name}}

    queue.release(queue.active[name], at=30.0, end="stopped", status="queued")
    assert name in queue.claims
    queue.claim([a_start(name, ("m", 0), ("m", 1), generation=2)], at=40.0)
    assert queue.holders() == {"m": {0: name, 1: name}}
    assert (queue.active[name].first_started_at, queue.active[name].started_at) == (10.0, 40.0)
    assert queue.claims == {}


def with_intent(queue: JobQueue, start: StartJob, *, at: float) -> None:
    """Store the intent of a start."""
    columns = {"id": f"{start.id}-{at:g}", "at": at, "kind": "start", "target": start.job}
    with queue.database.write() as connection:
        connection.execute(insert(INTENTS).values(**columns, action=dumps(start), status="open", seen="[]"))


@pytest.mark.parametrize("was_told_to_move", [True, False])
def test_a_start_that_finds_its_gpus_taken_is_no_claim_after_a_restart(
    queue: JobQueue, was_told_to_move: bool
) -> None:
    """A job that has stopped claims what it was told to move to, or its width, and goes on with that."""
    name, other = (job.id for job in queue.submit(rows("a", 2), at=0.0))
    queue.claim([a_start(name, ("n", 0), ("n", 1)), a_start(other, ("m", 0))], at=10.0)
    if was_told_to_move:
        move = a_start(name, ("k", 0), ("k", 1), ("k", 2), generation=2)
        with_intent(queue, move, at=20.0)
        queue.claim([move], at=20.0)
    queue.release(queue.active[name], at=30.0, end="stopped", status="queued")
    taken = a_start(name, ("m", 0), generation=2)
    with_intent(queue, taken, at=30.0)
    queue.claim([taken], at=30.0)
    before = dict(queue.claims)
    assert before[name].width.gpus == (3 if was_told_to_move else 2)

    queue.reload()

    assert queue.claims == before


@pytest.mark.parametrize(("end", "keeps"), [("stopped", True), ("node-ended", False), ("error", None)])
def test_a_job_claims_the_same_after_a_restart(queue: JobQueue, end: str, keeps: bool | None) -> None:
    """It was told to move; if its node ends before it has stopped, it claims its width and no GPUs."""
    [name] = (job.id for job in queue.submit(rows("a"), at=0.0))
    queue.claim([a_start(name, ("n", 0))], at=10.0)
    move = a_start(name, ("m", 0), ("m", 1), generation=2)
    with_intent(queue, move, at=20.0)
    queue.claim([move], at=20.0)
    queue.release(queue.active[name], at=30.0, end=end, status="queued")
    before = dict(queue.claims)

    queue.reload()

    assert queue.claims == before
    assert [bool(claim.slots) for claim in before.values()] == ([] if keeps is None else [keeps])


@pytest.mark.parametrize(
    "slots",
    [
        [("n", 2), ("n", 0)],
        [("n2", 0), ("n1", 0)],
        [("n9", 1), ("n9", 3), ("n10", 0), ("n1", 2), ("n9", 0)],
    ],
)
def test_a_job_holds_its_gpus_in_the_order_of_its_start_also_after_a_restart(
    queue: JobQueue, slots: list[tuple[str, int]]
) -> None:
    """The planned ones come first and those that are lent last, and the first node is the one of rank 0."""
    [name] = (job.id for job in queue.submit(rows("a"), at=0.0))
    queue.claim([a_start(name, *slots)], at=10.0)
    assert [(slot.node, slot.index) for slot in queue.active[name].slots] == slots

    queue.reload()

    assert [(slot.node, slot.index) for slot in queue.active[name].slots] == slots


def test_starts_of_the_last_hour_are_counted(queue: JobQueue) -> None:
    """A start leaves the count when it is an hour old."""
    [name] = (job.id for job in queue.submit(rows("a"), at=0.0))
    for generation, at in enumerate((0.0, 1800.0, 3600.0), start=1):
        queue.claim([a_start(name, ("n", 0), generation=generation)], at=at)
        queue.release(queue.active[name], at=at + 1.0, end="failed", status="queued")
    assert queue.active[name].starts == (1800.0, 3600.0)
    assert queue.active[name].ran_seconds == 1.0 + 1.0 + 1.0


def listed(queue: JobQueue, **asked: Any) -> list[JobRecord]:
    """Return the newest jobs as the database has them, row by row."""
    query = select(JOBS).order_by(JOBS.c.seq.desc())
    with queue.database.read() as connection:
        found = [job_of(row) for row in connection.execute(query)]
    first, last = asked["within"] or (0, 10**9)
    return [
        job
        for job in found
        if first <= job.seq <= last
        and (asked["before"] is None or job.seq < asked["before"])
        and asked["user"] in (None, job.user)
        and asked["team"] in (None, job.team)
        and (asked["ended"] or job.status in ACTIVE)
    ][: asked["limit"]]


PLACES = st.integers(0, 14)
ASKED = st.fixed_dictionaries(
    {
        "limit": st.integers(1, 14),
        "user": st.sampled_from([None, "ann", "bob", "nobody"]),
        "team": st.sampled_from([None, "vision", "no such team"]),
        "ended": st.booleans(),
        "within": st.none() | st.tuples(PLACES, PLACES),
        "before": st.none() | PLACES,
    }
)


@given(
    jobs=st.lists(st.tuples(st.sampled_from(["ann", "bob"]), st.booleans(), st.booleans()), max_size=12),
    asked=st.lists(ASKED, min_size=1, max_size=6),
)
def test_a_list_from_memory_is_that_of_the_database(
    tmp_path_factory: pytest.TempPathFactory,
    jobs: list[tuple[str, bool, bool]],
    asked: list[dict[str, Any]],
) -> None:
    """Jobs of two users, with and without a team, of which some are over: each list is the same."""
    database = Database(open_engine(sqlite_url(tmp_path_factory.mktemp("list") / "boa.sqlite")))
    migrate(database.engine)
    queue = JobQueue(database)
    for number, (user, has_team, is_over) in enumerate(jobs):
        content = {**job_content(f"j{number}"), "stop_grace_seconds": 60.0}
        content = {**content, "team": "vision"} if has_team else content
        (job,) = queue.submit([(content, user, "default", 1.0)], at=0.0)
        if is_over:
            queue.release(job, at=1.0, end="finished", status="finished")
    for each in asked:
        assert queue.jobs(**each) == listed(queue, **each)
    database.close()


def test_a_list_of_waiting_jobs_takes_one_row(queue: JobQueue) -> None:
    """SQLite gives other threads their turn at each row, and a tick keeps its own for half a millisecond."""
    queue.submit(rows("j", 40), at=0.0)
    asked: list[str] = []
    event.listen(queue.database.engine, "before_cursor_execute", lambda _c, _u, said, *_: asked.append(said))
    assert len(queue.jobs(limit=30)) == 30
    (said,) = (one for one in asked if "jobs" in one)
    assert said.startswith("SELECT group_concat(")
