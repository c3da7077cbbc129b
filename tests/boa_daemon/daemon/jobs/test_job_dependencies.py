"""A job waits for the jobs in its `after` to be over, and to have ended well unless it says `:end`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from job_records import a_queue, a_row

from boa_daemon.daemon.jobs.job_dependencies import JobDependencies
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import JobRecord, JobStatus


def end(queue: JobQueue, job: JobRecord, status: JobStatus) -> None:
    """Let a job end so."""
    queue.save(replace(job, status=status, ended_at=9.0))


def after(job: JobRecord, *names: str) -> JobRecord:
    """Return another job that waits for these."""
    return replace(job, id="next-99", content={**job.content, "after": names})


def test_what_keeps_a_job_from_starting(tmp_path: Path) -> None:
    """An active job always does; one that ended badly only where success is asked for."""
    with a_queue(tmp_path) as queue:
        waits, good, bad, gone = queue.submit([a_row(name) for name in ("w", "g", "b", "c")], at=1.0)
        end(queue, good, "finished")
        end(queue, bad, "failed")
        end(queue, gone, "cancelled")
        found = JobDependencies(queue)
        for names, by in {
            (): None,
            (good.id,): None,
            (waits.id,): (waits.id, "queued"),
            (f"{waits.id}:end",): (waits.id, "queued"),
            (bad.id,): (bad.id, "failed"),
            (f"{bad.id}:end",): None,
            (f"{bad.id}:end", gone.id): (gone.id, "cancelled"),
            (good.id, f"{gone.id}:end", waits.id): (waits.id, "queued"),
            ("nobody-7",): ("nobody-7", "failed"),
        }.items():
            assert found.by(after(good, *names)) == by


def test_a_job_that_ends_lets_go_at_once(tmp_path: Path) -> None:
    """The status of an active job is never kept from one look to the next."""
    with a_queue(tmp_path) as queue:
        first, other = queue.submit([a_row("first"), a_row("other")], at=1.0)
        found, waiting = JobDependencies(queue), after(other, first.id)
        assert found.by(waiting) == (first.id, "queued")
        end(queue, first, "finished")
        assert found.by(waiting) is None


GROUPS: list[tuple[tuple[JobStatus, ...], JobStatus | None]] = [
    (("finished", "finished"), None),
    (("finished", "queued"), "queued"),
    (("failed", "queued"), "queued"),
    (("finished", "failed"), "failed"),
    (("cancelled", "finished"), "cancelled"),
]


def test_a_group_is_over_when_its_last_member_is_and_as_good_as_its_worst(tmp_path: Path) -> None:
    """A group stands for its members."""
    with a_queue(tmp_path) as queue:
        for statuses, by in GROUPS:
            places = [{"index": index, "size": 2} for index in range(2)]
            members = queue.submit([a_row("sweep", group=place) for place in places], at=1.0)
            for job, status in zip(members, statuses, strict=True):
                if status != "queued":
                    end(queue, job, status)
            group = members[0].group
            assert JobDependencies(queue).by(after(members[0], group)) == (by and (group, by))
