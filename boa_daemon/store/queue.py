"""The job queue: jobs, their GPUs, and nodes, in SQL; everything active is in memory as well.

A start claims its GPUs in the transaction that records its intent, so a job never runs on GPUs that are not
recorded. The primary key of the placements table keeps two jobs off one GPU.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Connection, delete, func, insert, select, update

from boa_daemon.inputs.job_file import instant_of
from boa_daemon.job.whole_files import write_whole
from boa_daemon.store.database import Database, DatabaseBusy
from boa_daemon.store.job_rows import instance_of, job_of, row_of, slots_of
from boa_daemon.store.purses import add_to_purse, hourly_costs
from boa_daemon.store.records import ACTIVE, GenerationRecord, InstanceRecord, JobRecord, JobStatus, job_id
from boa_daemon.store.sql import HOUR, put
from boa_daemon.store.tables import CHARGES, GENERATIONS, INSTANCES, INTENTS, JOBS, META, PLACEMENTS
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.codec import dumps, loads
from boa_daemon.tick.facts.state import Claim, NodeState
from policies.model import GpuSlot, JobId, NodeId, Width

NewJob: TypeAlias = tuple[Mapping[str, Any], str, str, float]
"""A job to store: (content of its file, user, planning class, size in GPU-hours)."""


_KEEPS_CLAIM = frozenset({"stopped", "node-fault", "node-ended"})
"""Ends of generations that are no fault of the job, which therefore stands before later arrivals."""
MOST_DIGITS = 15
"""Largest number of digits at the end of a job's folder name."""


@dataclass(slots=True, kw_only=True, eq=False)
class PendingSubmission:
    """A submission that waits to be stored, with its result."""

    contents: Sequence[NewJob]
    at: float
    jobs: list[JobRecord] | None = None
    error: Exception | None = None

    @property
    def is_settled(self) -> bool:
        """Whether storing the submission succeeded or failed."""
        return self.jobs is not None or self.error is not None


def numbered_jobs(file: Path) -> int:
    """Return how many jobs were numbered, by the file with the number of the next one; 0 if it says none."""
    try:
        return max(int(file.read_text()) - 1, 0)
    except (OSError, ValueError):
        return 0


class JobQueue:
    """Every job that was ever submitted; active jobs and their GPUs are in memory.

    Submissions that arrive while a transaction is being written are committed together by the first of them.
    A disk that takes 5 ms to confirm a write could otherwise store at most 200 submissions a second.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._mark: Path | None = None
        self._waiting: list[PendingSubmission] = []
        self._door = threading.Lock()
        self.reload()
        database.when_lost = self.reload

    def reload(self) -> None:
        """Reload active jobs and nodes from the database."""
        with self.database.read() as connection:
            held: dict[JobId, list[GpuSlot]] = {}
            for row in connection.execute(select(PLACEMENTS).order_by(PLACEMENTS.c.node, PLACEMENTS.c.gpu)):
                held.setdefault(row.job, []).append(GpuSlot(row.node, row.gpu))
            found = connection.execute(
                select(JOBS).where(JOBS.c.status.in_(sorted(ACTIVE))).order_by(JOBS.c.seq)
            )
            active = [job_of(row) for row in found]
            starts = self._starts(connection, held)
            self.active: dict[JobId, JobRecord] = {
                job.id: _holding(job, held.get(job.id, []), starts.get(job.id)) for job in active
            }
            self.claims = self._claims(connection)
            self._next = max(int(json.loads(_meta(connection, "next_job") or "1")), self._marked())
            nodes = connection.execute(select(INSTANCES).where(INSTANCES.c.ended_at.is_(None)))
            self.instances: dict[NodeId, InstanceRecord] = {row.id: instance_of(row) for row in nodes}

    def _claims(self, connection: Connection) -> dict[JobId, Claim]:
        """Return what jobs claim that were told to move, or lost their nodes, and have not started again."""
        known = {job.id: job for job in self.active.values() if job.generation}
        found: dict[JobId, Claim] = {}
        if not known:
            return found
        ended = select(GENERATIONS).where(
            GENERATIONS.c.job.in_([name for name, job in known.items() if not job.slots])
        )
        stopped_at: dict[JobId, float] = {}
        for row in connection.execute(ended):
            if row.generation == known[row.job].generation and row.end in _KEEPS_CLAIM:
                found[row.job] = Claim(width=Width(row.gpu_type, row.gpus))
                if row.end == "stopped":
                    stopped_at[row.job] = row.ended_at or 0.0
        last = connection.scalar(select(func.max(INTENTS.c.at))) or 0.0
        ordered = select(INTENTS).where(
            INTENTS.c.kind == "start", INTENTS.c.target.in_(list(known)), INTENTS.c.at >= last - HOUR
        )
        for row in connection.execute(ordered.order_by(INTENTS.c.at)):
            start, job = loads(row.action), known[row.target]
            # Ordered while the job had its GPUs; a start that came later found its own ones taken.
            was_held = bool(job.slots) or row.at < stopped_at.get(row.target, 0.0)
            if start.generation == job.generation + 1 and was_held:
                found[row.target] = Claim(width=start.width, slots=start.slots)
        return found

    def mark_in(self, file: Path) -> None:
        """Store the next job number in `file` too, and continue from the higher of the two numbers.

        Engines keep jobs by their ids. A new or restored database would assign ids a second time, and the
        engine would take a new job for an old one, which is over.
        """
        self._mark = file
        self._next = max(self._next, self._marked())
        self._put_mark(self._next)

    def begin_after(self, folders: Iterable[str]) -> None:
        """Number new jobs above the numbers at the ends of `folders`, which belong to earlier jobs."""
        ends = (folder.rpartition("-")[2] for folder in folders)
        numbers = [int(end) for end in ends if end.isascii() and end.isdigit() and len(end) < MOST_DIGITS]
        with self.database.alone():
            self._next = max(self._next, *(number + 1 for number in numbers), 1)
            if self._next > 1:
                # Also in the database, which would count as emptied beside the file.
                with self.database.write() as connection:
                    put(connection, META, key="next_job", value=json.dumps(self._next))
            self._put_mark(self._next)

    @property
    def has_had_jobs(self) -> bool:
        """Whether a job was ever in this database, or in an engine that it has taken over."""
        with self.database.read() as connection:
            return int(json.loads(_meta(connection, "next_job") or "1")) > 1

    def is_emptied(self, file: Path) -> bool:
        """Whether this database never had a job although `file` records that there were some."""
        return numbered_jobs(file) > 0 and not self.has_had_jobs

    def _marked(self) -> int:
        """Return the number in the file beside the database; 0 without one."""
        try:
            return 0 if self._mark is None else int(self._mark.read_text())
        except (OSError, ValueError):
            return 0

    def _put_mark(self, number: int) -> None:
        """Write the next number to the file beside the database; a full disk keeps the previous one."""
        if self._mark is not None:
            with suppress(OSError):
                write_whole(self._mark, str(number), durable=False)

    def _starts(
        self, connection: Connection, held: Iterable[JobId]
    ) -> dict[JobId, tuple[Width, tuple[GpuSlot, ...]]]:
        """Return the width and the GPUs of each job that holds GPUs, as it was started on them."""
        names = set(held)
        if not names:
            return {}
        rows = connection.execute(
            select(GENERATIONS.c.job, GENERATIONS.c.gpu_type, GENERATIONS.c.gpus, GENERATIONS.c.slots).where(
                GENERATIONS.c.ended_at.is_(None)
            )
        )
        return {
            row.job: (Width(row.gpu_type, row.gpus), slots_of(row.slots)) for row in rows if row.job in names
        }

    def submit(self, contents: Sequence[NewJob], *, at: float) -> list[JobRecord]:
        """Store jobs, all or none.

        Raises:
            SQLAlchemyError: when that cannot be done; nothing is stored then.
        """
        return self.settle(self.enter(contents, at=at))

    def enter(self, contents: Sequence[NewJob], *, at: float) -> PendingSubmission:
        """Queue jobs to be stored, all or none; `settle` stores them."""
        ticket = PendingSubmission(contents=contents, at=at)
        with self._door:
            self._waiting.append(ticket)
        return ticket

    def settle(self, ticket: PendingSubmission) -> list[JobRecord]:
        """Store a submission unless another thread has, and return its jobs once they are on disk.

        Raises:
            SQLAlchemyError: when that cannot be done; nothing is stored then.
            DatabaseBusy: when the caller's time is over first; nothing is stored then.
        """
        try:
            with self.database.alone():
                if not ticket.is_settled:
                    self._write_waiting()
        except DatabaseBusy:
            # Whoever holds the lock may be storing it: it counts as refused only if it can be withdrawn.
            if not self._withdraw(ticket):
                return self._stored(ticket)
            raise
        return self._stored(ticket)

    def _withdraw(self, ticket: PendingSubmission) -> bool:
        """Take back a submission that nobody has begun to store; return whether that succeeded."""
        with self._door:
            if ticket not in self._waiting:
                return False
            self._waiting.remove(ticket)
        return True

    def _stored(self, ticket: PendingSubmission) -> list[JobRecord]:
        """Return the jobs of a submission whose storing has begun, once it has ended."""
        while not ticket.is_settled:
            time.sleep(0.01)
        if ticket.error is not None:
            raise ticket.error
        assert ticket.jobs is not None
        return ticket.jobs

    def _write_waiting(self) -> None:
        """Commit every waiting submission in one transaction, and record each result."""
        with self._door:
            tickets, self._waiting = self._waiting, []
        found: list[list[JobRecord]] = []
        following = self._next
        try:
            for ticket in tickets:
                found.append(_records(ticket, following))
                following += len(ticket.contents)
            rows = [row_of(job) for jobs in found for job in jobs]
            with self.database.write() as connection:
                if rows:
                    connection.execute(insert(JOBS), rows)
                put(connection, META, key="next_job", value=json.dumps(following))
            # Now, because a database without jobs beside a file that numbers some counts as emptied. None is
            # started in between: a start waits for the lock that is held here.
            self._put_mark(following)
        except Exception as error:
            for ticket in tickets:
                ticket.error = error
            return
        self._next = following
        for ticket, jobs in zip(tickets, found, strict=True):
            self.active.update((job.id, job) for job in jobs)
            ticket.jobs = jobs

    def claim(self, starts: Sequence[StartJob], *, at: float) -> None:
        """Claim the GPUs of starts, as part of their intents, before the engine is asked.

        A start whose job or GPUs are still held gets no GPUs: stopping takes as long as a checkpoint. Such a
        start is planned again once the GPUs are free; until then `claims` keeps what a job is to move to.
        """
        held = {(node, gpu) for node, gpus in self.holders().items() for gpu in gpus}
        with self.database.write() as connection:
            for start in starts:
                job = self.active.get(start.job)
                wanted = {(slot.node, slot.index) for slot in start.slots}
                if job is None or job.slots or wanted & held:
                    if job is not None and job.slots and start.generation == job.generation + 1:
                        self.claims[job.id] = Claim(width=start.width, slots=start.slots)
                    continue
                self.claims.pop(job.id, None)
                held |= wanted
                connection.execute(
                    insert(PLACEMENTS),
                    [
                        {
                            "node": slot.node,
                            "gpu": slot.index,
                            "job": job.id,
                            "generation": start.generation,
                        }
                        for slot in start.slots
                    ],
                )
                connection.execute(
                    insert(GENERATIONS).values(
                        job=job.id,
                        generation=start.generation,
                        gpu_type=start.width.gpu_type,
                        gpus=start.width.gpus,
                        slots=dumps(start.slots),
                        started_at=at,
                        end="",
                    )
                )
                recent = tuple(began for began in job.starts if began > at - HOUR)
                self.save(
                    replace(
                        job,
                        status="running",
                        generation=start.generation,
                        width=start.width,
                        slots=start.slots,
                        started_at=at,
                        first_started_at=at if job.first_started_at is None else job.first_started_at,
                        starts=(*recent, at),
                    )
                )
                for node in {slot.node for slot in start.slots}:
                    known = self.instances.get(node)
                    if known is not None:
                        self.save_instance(replace(known, idle_since=None, was_used=True))

    def take_back(
        self, job: JobRecord, slots: tuple[GpuSlot, ...], width: Width, *, generation: int, started_at: float
    ) -> None:
        """Record that a job runs on these GPUs in this generation, which an older database does not know."""
        running = replace(
            job,
            status="running",
            generation=generation,
            width=width,
            slots=slots,
            started_at=started_at,
            first_started_at=started_at if job.first_started_at is None else job.first_started_at,
        )
        with self.database.write() as connection:
            connection.execute(delete(PLACEMENTS).where(PLACEMENTS.c.job == job.id))
            ended = update(GENERATIONS).where(GENERATIONS.c.job == job.id, GENERATIONS.c.ended_at.is_(None))
            connection.execute(ended.values(ended_at=started_at, end="superseded"))
            if job.id not in self.active:
                connection.execute(insert(JOBS), [row_of(running)])
            rows = [
                {"node": slot.node, "gpu": slot.index, "job": job.id, "generation": generation}
                for slot in slots
            ]
            connection.execute(insert(PLACEMENTS), rows)
            connection.execute(
                insert(GENERATIONS).values(
                    job=job.id,
                    generation=generation,
                    gpu_type=width.gpu_type,
                    gpus=width.gpus,
                    slots=dumps(slots),
                    started_at=started_at,
                    end="",
                )
            )
            self.save(running)
            following = max(self._next, job.seq + 1)
            if following > self._next:
                put(connection, META, key="next_job", value=json.dumps(following))
        self._next = following
        self._put_mark(self._next)

    def release(
        self, job: JobRecord, *, at: float, end: str, status: JobStatus, micro_dollars: int = 0
    ) -> JobRecord:
        """Free the GPUs of a job whose generation has ended; `job` carries its other changes."""
        is_over = status not in ACTIVE
        freed = replace(
            job,
            status=status,
            slots=(),
            width=None,
            width_before=job.width_before if job.width is None else (job.width.gpu_type, job.width.gpus),
            started_at=job.started_at if is_over else None,
            ran_seconds=job.ran_seconds + (0.0 if job.started_at is None else max(at - job.started_at, 0.0)),
            ended_at=at if is_over else None,
            micro_dollars=job.micro_dollars + micro_dollars,
        )
        with self.database.write() as connection:
            connection.execute(delete(PLACEMENTS).where(PLACEMENTS.c.job == job.id))
            connection.execute(
                update(GENERATIONS)
                .where(GENERATIONS.c.job == job.id, GENERATIONS.c.ended_at.is_(None))
                .values(ended_at=at, end=end, micro_dollars=micro_dollars)
            )
            self.save(freed)
            if job.team:
                add_to_purse(connection, job.team, hourly_costs(job, self.nodes_of(job), until=at))
            for node in {slot.node for slot in job.slots}:
                known = self.instances.get(node)
                if known is not None and not self.jobs_on(node):
                    self.save_instance(replace(known, idle_since=at))
        if end not in _KEEPS_CLAIM or is_over:
            self.claims.pop(job.id, None)
        elif job.width is not None and (end != "stopped" or job.id not in self.claims):
            self.claims[job.id] = Claim(width=job.width)
        return freed

    def save(self, job: JobRecord) -> None:
        """Store the present state of a job."""
        row = row_of(job)
        with self.database.write() as connection:
            connection.execute(update(JOBS).where(JOBS.c.id == job.id).values(row))
        if job.is_active:
            self.active[job.id] = job
        else:
            self.active.pop(job.id, None)

    def note(self, job: JobRecord) -> None:
        """Update a job in memory only, for progress that the engine can report again."""
        self.active[job.id] = job

    def save_instance(self, record: InstanceRecord) -> None:
        """Store the present state of a node."""
        node = record.node
        with self.database.write() as connection:
            put(
                connection,
                INSTANCES,
                id=node.id,
                instance_type=node.instance_type.name,
                launched_at=node.launched_at,
                launched_by=node.launched_by,
                node=dumps(replace(node, gpus=())),
                ready_at=record.ready_at,
                idle_since=record.idle_since,
                was_used=record.was_used,
                last_seen_at=record.last_seen_at,
                ended_at=node.ended_at,
            )
        if node.ended_at is None:
            self.instances[node.id] = record
        else:
            self.instances.pop(node.id, None)

    def holders(self, nodes: Collection[NodeId] | None = None) -> dict[NodeId, dict[int, JobId]]:
        """Return by node, of these nodes or all, which job holds which GPU."""
        held: dict[NodeId, dict[int, JobId]] = {}
        for job in list(self.active.values()):
            for slot in job.slots:
                if nodes is None or slot.node in nodes:
                    held.setdefault(slot.node, {})[slot.index] = job.id
        return held

    def nodes_of(self, job: JobRecord) -> dict[NodeId, NodeState]:
        """Return the nodes of a job's GPUs, including nodes that ended before the job's release."""
        names = {slot.node for slot in job.slots}
        found = {name: self.instances[name].node for name in names if name in self.instances}
        if len(found) < len(names):
            past = self.past_instances(job.started_at or 0.0)
            found |= {each.node.id: each.node for each in past if each.node.id in names - found.keys()}
        return found

    def jobs_on(self, node: NodeId) -> list[JobId]:
        """Return the jobs that hold GPUs of a node."""
        return [job.id for job in list(self.active.values()) if any(slot.node == node for slot in job.slots)]

    def job(self, name: JobId) -> JobRecord | None:
        """Return a job, active or not."""
        found = self.active.get(name)
        if found is not None:
            return found
        with self.database.read() as connection:
            row = connection.execute(select(JOBS).where(JOBS.c.id == name)).first()
        return None if row is None else job_of(row)

    def jobs(
        self,
        *,
        limit: int,
        user: str | None = None,
        ended: bool = True,
        team: str | None = None,
        within: tuple[int, int] | None = None,
        before: int | None = None,
    ) -> list[JobRecord]:
        """Return the newest jobs, active ones from memory; for later pages, those `before` a number.

        `within` are the first and the last number of a group.
        """
        query = select(JOBS).order_by(JOBS.c.seq.desc()).limit(limit)
        if within is not None:
            query = query.where(JOBS.c.seq.between(*within))
        if before is not None:
            query = query.where(JOBS.c.seq < before)
        if team is not None:
            query = query.where(JOBS.c.team_name == team)
        if user is not None:
            query = query.where(JOBS.c.user_name == user)
        if not ended:
            query = query.where(JOBS.c.status.in_(sorted(ACTIVE)))
        with self.database.read() as connection:
            # One row with all ids: at each row SQLite lets other threads go first, such as a tick.
            ids = query.with_only_columns(JOBS.c.id).subquery()
            text = connection.scalar(select(func.aggregate_strings(ids.c.id, ",")))
            names = str(text).split(",") if text else []
            found = {name: job for name in names if (job := self.active.get(name)) is not None}
            if ended and len(found) < len(names):
                over = query.where(JOBS.c.status.not_in(sorted(ACTIVE)))
                known = {row.id: job_of(row) for row in connection.execute(over)}
                found |= {name: known[name] for name in names if name in known and name not in found}
            if len(found) < len(names):
                # Some ended meanwhile.
                found = {row.id: self.active.get(row.id) or job_of(row) for row in connection.execute(query)}
        return sorted(found.values(), key=lambda job: job.seq, reverse=True)

    def arrivals_after(self, number: int, *, limit: int = 20_000) -> list[tuple[int, str, float]]:
        """Return (number, planning class, instant) of jobs above `number`; no query if there are none."""
        if self._next <= number + 1:
            return []
        query = select(JOBS.c.seq, JOBS.c.class_name, JOBS.c.arrived_at).where(JOBS.c.seq > number)
        with self.database.read() as connection:
            return [tuple(row) for row in connection.execute(query.order_by(JOBS.c.seq).limit(limit))]

    def usages(self, since: float) -> list[GenerationRecord]:
        """Return the generations that held GPUs after an instant."""
        query = select(GENERATIONS).where(
            (GENERATIONS.c.ended_at.is_(None)) | (GENERATIONS.c.ended_at > since)
        )
        with self.database.read() as connection:
            return [
                GenerationRecord(
                    job=row.job,
                    generation=row.generation,
                    width=Width(row.gpu_type, row.gpus),
                    slots=slots_of(row.slots),
                    started_at=row.started_at,
                    ended_at=row.ended_at,
                    end=row.end,
                )
                for row in connection.execute(query)
            ]

    def last_run(self, job: JobRecord) -> tuple[float, float] | None:
        """Return when a waiting job's newest generation began and ended; None if unknown."""
        query = select(GENERATIONS.c.started_at, GENERATIONS.c.ended_at).where(
            GENERATIONS.c.job == job.id, GENERATIONS.c.generation == job.generation
        )
        with self.database.read() as connection:
            row = connection.execute(query).first()
        return None if row is None or row.ended_at is None else (row.started_at, row.ended_at)

    def launch_of(self, name: NodeId) -> str:
        """Return the id of the action that launched a node, which may have ended; empty if it is unknown."""
        query = select(INSTANCES.c.launched_by).where(INSTANCES.c.id == name)
        with self.database.read() as connection:
            return str(connection.scalar(query) or "")

    def ended_without_bill(self) -> list[InstanceRecord]:
        """Return the nodes whose end is recorded and that have no final bill."""
        ended = select(INSTANCES).where(
            INSTANCES.c.ended_at.is_not(None), INSTANCES.c.id.not_in(select(CHARGES.c.node))
        )
        with self.database.read() as connection:
            return [instance_of(row) for row in connection.execute(ended)]

    def past_instances(self, since: float) -> list[InstanceRecord]:
        """Return the nodes that existed after an instant."""
        query = select(INSTANCES).where((INSTANCES.c.ended_at.is_(None)) | (INSTANCES.c.ended_at > since))
        with self.database.read() as connection:
            return [instance_of(row) for row in connection.execute(query)]


def _records(ticket: PendingSubmission, first: int) -> list[JobRecord]:
    """Return the jobs of a submission, numbered from `first` on."""
    return [
        JobRecord(
            id=job_id(str(content["name"]), first + number),
            seq=first + number,
            user=user,
            class_name=class_name,
            content=content,
            arrived_at=ticket.at,
            not_before=instant_of(content.get("not_before")),
            remaining_gpu_hours=size,
            size_gpu_hours=size,
        )
        for number, (content, user, class_name, size) in enumerate(ticket.contents)
    ]


def _holding(
    job: JobRecord, held: list[GpuSlot], start: tuple[Width, tuple[GpuSlot, ...]] | None
) -> JobRecord:
    """Return a job with the GPUs that it holds, in the order of its start: those that are lent come last."""
    width, started_on = start or (None, ())
    slots = dict.fromkeys((*filter(set(held).__contains__, started_on), *held))
    return replace(job, slots=tuple(slots), width=width)


def _meta(connection: Connection, key: str) -> str | None:
    """Return one value of the meta table."""
    return connection.scalar(select(META.c.value).where(META.c.key == key))
