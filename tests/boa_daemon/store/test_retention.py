"""`store/retention.py`: old rows go, and nothing that is still needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_records import a_queue, a_row, a_start
from sqlalchemy import insert, select

from boa_daemon.store.queue import JobQueue
from boa_daemon.store.retention import code_in_use, drop_intents, drop_jobs, jobs_over_before
from boa_daemon.store.tables import GENERATIONS, INTENTS


def over(queue: JobQueue, *ends: float) -> list[str]:
    """Return jobs that have run and ended at these instants."""
    names = [job.id for job in queue.submit([a_row("a")] * len(ends), at=0.0)]
    for name, end in zip(names, ends, strict=True):
        queue.claim([a_start(name, ("n", 0))], at=end - 1.0)
        queue.release(queue.active[name], at=end, end="finished", status="finished")
    return names


def test_jobs_that_are_over_for_long_are_listed_oldest_first(tmp_path: Path) -> None:
    """Not those of later, not those that wait, and no more than asked for."""
    with a_queue(tmp_path) as queue:
        late, early, new = over(queue, 20.0, 10.0, 30.0)
        queue.submit([a_row("waits")], at=0.0)
        assert jobs_over_before(queue, 30.0, limit=9) == [early, late]
        assert jobs_over_before(queue, 30.0, limit=1) == [early]
        assert new in jobs_over_before(queue, 31.0, limit=9)


@pytest.mark.parametrize("how", ["", ":end"])
def test_a_job_that_another_waits_for_stays(tmp_path: Path, how: str) -> None:
    """Otherwise nobody could say how it ended; the limit counts those that may go."""
    with a_queue(tmp_path) as queue:
        awaited, other = over(queue, 10.0, 20.0)
        queue.submit([a_row("waits", after=[f"{awaited}{how}"])], at=0.0)
        assert jobs_over_before(queue, 99.0, limit=1) == [other]


def test_a_job_goes_with_its_generations_unless_it_is_active(tmp_path: Path) -> None:
    """One that waits again is left as it is."""
    with a_queue(tmp_path) as queue:
        gone, stays = over(queue, 10.0, 20.0)
        [waits] = queue.submit([a_row("waits")], at=0.0)
        drop_jobs(queue.database, [gone, waits.id])
        queue.reload()
        assert [queue.job(name) is None for name in (gone, stays, waits.id)] == [True, False, False]
        with queue.database.read() as connection:
            assert list(connection.scalars(select(GENERATIONS.c.job))) == [stays]


def test_code_that_a_stored_job_names_is_in_use(tmp_path: Path) -> None:
    """Of jobs that are over, too, as long as they are stored."""
    digests = {"a" * 64, "b" * 64}
    with a_queue(tmp_path) as queue:
        queue.submit([a_row("a", code={"folder": ".", "digest": digest}) for digest in digests], at=0.0)
        queue.submit([a_row("plain")], at=0.0)
        assert code_in_use(queue.database) == digests


def test_an_intent_whose_outcome_is_not_known_is_never_deleted(tmp_path: Path) -> None:
    """Its instances may exist and cost money. Of the others, old ones go unless they are to be kept."""
    rows = [("open", 1.0, "open"), ("old", 1.0, "done"), ("kept", 1.0, "done"), ("new", 9.0, "done")]
    with a_queue(tmp_path) as queue:
        with queue.database.write() as connection:
            connection.execute(
                insert(INTENTS),
                [
                    {"id": name, "at": at, "kind": "launch", "target": "n", "action": "", "seen": ""}
                    | {"status": status}
                    for name, at, status in rows
                ],
            )
        assert drop_intents(queue.database, 9.0, keep={"kept"}) == 1
        with queue.database.read() as connection:
            assert set(connection.scalars(select(INTENTS.c.id))) == {"open", "kept", "new"}
