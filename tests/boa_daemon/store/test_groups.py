"""`store/groups.py`: the jobs of a group are those of its numbers, and no neighbour's."""

from __future__ import annotations

from pathlib import Path

from job_records import a_queue, a_row, a_start

from boa_daemon.inputs.groups import members
from boa_daemon.store.groups import find_group, member_statuses, settled_micro_dollars
from boa_daemon.store.queue import JobQueue


def with_a_group(queue: JobQueue) -> list[str]:
    """Submit a job, a group of two with a limit of 3 USD, and another job; return their ids."""
    content = {**a_row("sweep")[0], "matrix": None, "count": 2, "max_usd": 3.0}
    group = [(member, "ann", "default", 1.0) for member in members(content)]
    return [job.id for job in queue.submit([a_row("before"), *group, a_row("after")], at=0.0)]


def test_a_group_is_found_by_its_id_alone(tmp_path: Path) -> None:
    """Its first and last number are those of its jobs; ids that look alike are no group's."""
    with a_queue(tmp_path) as queue:
        with_a_group(queue)
        group = find_group(queue, "sweep-g2")
        assert group is not None
        assert (group.first, group.last, group.size, group.user, group.max_usd) == (2, 3, 2, "ann", 3.0)
        for name in ("sweep-g1", "sweep-g3", "other-g2", "sweep-2", "sweep-g99", ""):
            assert find_group(queue, name) is None


def test_statuses_and_costs_are_of_the_groups_jobs(tmp_path: Path) -> None:
    """The jobs before and after it do not count; a generation that runs costs nothing yet."""
    with a_queue(tmp_path) as queue:
        names = with_a_group(queue)
        group = find_group(queue, "sweep-g2")
        assert group is not None
        for number, name in enumerate(names):
            queue.claim([a_start(name, ("n", number))], at=10.0)
        assert settled_micro_dollars(queue, group) == 0
        for amount, name in zip((1, 20, 300, 4000), names, strict=True):
            queue.release(
                queue.active[name], at=20.0, end="finished", status="finished", micro_dollars=amount
            )
        assert settled_micro_dollars(queue, group) == 20 + 300
        assert list(member_statuses(queue, group).items()) == [(names[1], "finished"), (names[2], "finished")]
