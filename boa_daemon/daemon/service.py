"""What may be asked of a daemon, as documents: the same for the socket, for tests and for programs."""

from __future__ import annotations

import io
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from boa_daemon.daemon.costs import CostBy, cost_rows, spent_today, with_fixed
from boa_daemon.daemon.data_sources import check_data
from boa_daemon.daemon.job_view import first_report_limit
from boa_daemon.daemon.loop import LATE_SECONDS, LATE_TICKS, Daemon
from boa_daemon.daemon.node_view import cost_of
from boa_daemon.daemon.orders import interrupt, others_on, resize
from boa_daemon.daemon.outlook import Outlook
from boa_daemon.daemon.secret_references import check_rights, check_secrets
from boa_daemon.daemon.teams import team_of
from boa_daemon.engines.units import RIGID
from boa_daemon.errors import BoaError, InputError, did_you_mean
from boa_daemon.inputs.groups import members, size_of
from boa_daemon.inputs.job_file import check_job
from boa_daemon.inputs.messages import REFUSED
from boa_daemon.inputs.yaml_file import Document
from boa_daemon.job.code import CodeFailed, digest_of_archive
from boa_daemon.learning.beliefs import explain_belief
from boa_daemon.learning.class_answer import class_document
from boa_daemon.learning.kappa_answer import kappa_document
from boa_daemon.learning.speedups import explain_curve
from boa_daemon.store.groups import Group, find_group, settled_micro_dollars, statuses
from boa_daemon.store.queue import Content, Ticket
from boa_daemon.store.records import ACTIVE, JobRecord, JobStatus
from boa_daemon.store.sql import kind_and_target
from boa_daemon.store.storage import Storage
from boa_daemon.tick.decision import decide
from boa_daemon.tick.ledger import bill, bill_by_kind
from boa_daemon.tick.ports import BringsCode, KeepsArtifacts
from boa_daemon.tick.reasons import JobReason
from boa_daemon.tick.runner_up import width_choice
from boa_daemon.tick.shortfall import shortfall_document, shortfall_sentence
from boa_daemon.tick.state import WaitReason
from boa_daemon.units import SECONDS_PER_HOUR, counted, dollars, format_hours
from policies.model import JobId
from policies.online.pacing import Pace

MOST_JOBS_AT_ONCE = 10_000
RECENT_JOBS = 200
"""Who mistypes the id of a job means one of the newest, be it over or not."""
HIDDEN = "(only for its user)"
LEAST_LOST_GPU_HOURS = 0.001
"""Less than that is not worth a sentence."""
_AT_ONCE = 8
"""So many jobs are checked faster than another thread takes over."""

_OVER: Mapping[JobStatus, JobReason] = {
    "finished": "finished",
    "failed": "failed",
    "cancelled": "cancelled",
}


class UnknownJob(InputError):
    """No job has that id."""


class NotAllowed(BoaError):
    """Somebody else's job, or more than a user may have."""


class NotReady(BoaError):
    """The daemon cannot do that now; its status says why."""


class Service:
    """Answers for one daemon. Every document says as of when it is."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self._limited = threading.Lock()
        self.outlook = Outlook(daemon)

    def submit(self, contents: Sequence[Any], *, user: str) -> dict[str, Any]:
        """Take jobs, all or none.

        Raises:
            InputError: when one of them is wrong; nothing is stored then.
            NotAllowed: when the user may not have so many, or has no money left today.
            NotReady: when nothing can be written now.
        """
        queue = self._books().queue
        rows = self._checked(contents, user)
        if user not in self.daemon.settings.users:
            return self.settled(queue.enter(rows, at=self.daemon.world.clock.now()))
        # One at a time: two submissions that both fit may not fit together.
        with self._limited:
            self._check_user(user, len(rows))
            return self.settled(queue.enter(rows, at=self.daemon.world.clock.now()))

    def entered(self, contents: Sequence[Any], *, user: str) -> Ticket | None:
        """Check a small submission without waiting for anything, and line it up for `settled`.

        None where that cannot be: for many jobs, or for a user whose limits have to be looked at.

        Raises:
            InputError: when one of them is wrong; nothing is stored then.
            NotReady: when nothing can be written now.
        """
        queue = self._books().queue
        if len(contents) > _AT_ONCE or user in self.daemon.settings.users:
            return None
        if any(
            isinstance(one, Mapping) and one.keys() & {"matrix", "count", "code", "data"} for one in contents
        ):
            return None
        return queue.enter(self._checked(contents, user), at=self.daemon.world.clock.now())

    def settled(self, ticket: Ticket) -> dict[str, Any]:
        """Return the answer to a submission; it is on disk then."""
        jobs = self._books().queue.settle(ticket)
        self.daemon.wake(0.1)
        groups = dict.fromkeys(job.group for job in jobs if job.content.get("group") is not None)
        return {
            "as_of": ticket.at,
            "jobs": [job.id for job in jobs],
            "groups": list(groups),
            "dates": self.outlook.dates(jobs),
        }

    def _checked(self, contents: Sequence[Any], user: str) -> list[Content]:
        """Return submitted jobs as the queue takes them.

        Raises:
            InputError: when one of them is wrong.
        """
        if not 1 <= len(contents) <= MOST_JOBS_AT_ONCE:
            raise InputError(f"a submission has 1 to {MOST_JOBS_AT_ONCE} jobs; got {len(contents)}")
        rows: list[Content] = []
        _check_text(contents)
        for number, content in enumerate(contents):
            name = "the job" if len(contents) == 1 else f"job {number}"
            checked = check_job(Document(name=name, content=content, language="json"))
            if len(rows) + size_of(checked) > MOST_JOBS_AT_ONCE:
                raise InputError(f"a submission has {MOST_JOBS_AT_ONCE} jobs at the most, groups included")
            check_rights(checked, user, self.daemon.settings)
            check_secrets(checked, self.daemon.settings.engine)
            check_data(checked, self.daemon.settings.engine, self.daemon.world.runner)
            checked = {**checked, "team": team_of(checked["team"], user, self.daemon.settings.teams)}
            for other in checked["after"]:
                self._check_known(other.partition(":")[0])
            self._check_code(checked.get("code"))
            job_class = self.daemon.planner.class_for(checked)
            size = job_class.size_gpu_hours * float(checked["scale"])
            rows += ((member, user, job_class.name, size) for member in members(checked))
        return rows

    def _check_code(self, code: Mapping[str, Any] | None) -> None:
        """Refuse code that is not here, or that this engine does not bring.

        Raises:
            InputError: when it cannot be brought to a node.
        """
        if code is not None and (code["digest"] is None or not self._code().has_code(code["digest"])):
            hint = "`boa submit` and boa_daemon.Client do that"
            raise InputError("code must be packed and sent before the job", hint=hint)

    def _code(self) -> BringsCode:
        """Return what brings code.

        Raises:
            InputError: when this engine does not.
        """
        runner = self.daemon.world.runner
        if not isinstance(runner, BringsCode):
            raise InputError("this engine brings no code", hint="Set workdir to a folder that the nodes have")
        return runner

    def has_code(self, digest: str) -> bool:
        """Return whether code is here; what is need not be sent."""
        return self._code().has_code(digest)

    def take_code(self, digest: str, archive: bytes) -> None:
        """Keep packed code for the jobs that name its digest.

        Raises:
            InputError: when it is not what its digest says.
        """
        try:
            found = digest_of_archive(io.BytesIO(archive))
        except CodeFailed as error:
            raise InputError(str(error)) from None
        if found != digest:
            raise InputError(f"the code has the digest {found[:12]}, not {digest[:12]}")
        self._code().take_code(digest, archive)

    def artifacts(self, name: JobId, *, may_read: Callable[[str], bool]) -> dict[str, Any]:
        """Return the files that a job has left.

        Raises:
            UnknownJob: when there is no such job.
            NotAllowed: when it is somebody else's, and the caller has no role that may read it.
        """
        runner = self._artifacts_of(name, may_read)
        files = [{"name": file, "bytes": size} for file, size in runner.artifacts(name).items()]
        return {"as_of": self._as_of(), "job": name, "files": files}

    def artifact(self, name: JobId, file: str, *, may_read: Callable[[str], bool]) -> Iterator[bytes]:
        """Yield one of the files that a job has left; as `artifacts` otherwise."""
        runner = self._artifacts_of(name, may_read)
        if file not in runner.artifacts(name):
            hint = did_you_mean(file, runner.artifacts(name))
            raise UnknownJob(f"job {name} has left no file {file!r}", hint=hint)
        return runner.artifact(name, file)

    def _artifacts_of(self, name: JobId, may_read: Callable[[str], bool]) -> KeepsArtifacts:
        """Return what keeps the files of a job, for who may read them."""
        record, runner = self._find(name), self.daemon.world.runner
        if not may_read(record.user):
            raise NotAllowed(f"job {name} is of user {record.user}, and so are the files that it leaves")
        if not isinstance(runner, KeepsArtifacts):
            raise InputError("this engine keeps no files of jobs")
        return runner

    def _check_known(self, name: str) -> None:
        """Refuse what is the id of no job and no group.

        Raises:
            UnknownJob: when it is not.
        """
        if find_group(self._books().queue, name) is None:
            self._find(name)

    def _check_user(self, user: str, more: int) -> None:
        """Refuse what a user may not have."""
        limits = self.daemon.settings.users.get(user)
        if limits is None:
            return
        queue = self._books().queue
        mine = [job for job in list(queue.active.values()) if job.user == user]
        if limits.max_jobs is not None and len(mine) + more > limits.max_jobs:
            raise NotAllowed(
                f"user {user} has {counted(len(mine), 'job')} and may have {limits.max_jobs}; "
                f"{more} more would be too many"
            )
        if limits.usd_per_day_cap is not None:
            spent = self.spent_today(user)
            if spent >= limits.usd_per_day_cap:
                cap = limits.usd_per_day_cap
                raise NotAllowed(f"user {user} has spent {spent:.2f} USD today; the cap is {cap:.2f} USD")

    def spent_today(self, user: str) -> float:
        """Return what the GPUs of a user's jobs cost today."""
        now = self.daemon.world.clock.now()
        return spent_today(self._books().queue, now=now).get(user, 0.0)

    def check_may_submit(self, user: str, *, is_admin: bool) -> None:
        """Refuse a user whose jobs would run as somebody else: as the daemon, with all that it may do.

        Raises:
            NotAllowed: when they would.
        """
        runner, settings = self.daemon.world.runner, self.daemon.settings.engine
        if is_admin or settings.shared_account or not getattr(runner, "runs_jobs_as_daemon", False):
            return
        raise NotAllowed(
            f"jobs run as the daemon's own user here, so only administrators may submit; you are {user}. "
            "Whoever looks after the daemon can trust you with it: [api] admins, or [engine] shared_account"
        )

    def jobs(
        self,
        *,
        user: str | None = None,
        ended: bool = True,
        limit: int = 1000,
        team: str | None = None,
        group: str | None = None,
        before: int | None = None,
        may_read: Callable[[str], bool] = lambda _owner: True,
    ) -> dict[str, Any]:
        """Return jobs, the newest first; what those printed that the caller may not read is left out.

        `next` is where the next page begins, given as `before`; None where there is none.
        """
        found = None if group is None else self._find_group(group)
        within = None if found is None else (found.first, found.last)
        records = self._books().queue.jobs(
            limit=limit + 1, user=user, ended=ended, team=team, within=within, before=before
        )
        rows = [_readable_row(self._job(job), may_read(job.user)) for job in records[:limit]]
        following = records[limit - 1].seq if len(records) > limit else None
        return {"as_of": self._as_of(), "jobs": rows, "next": following}

    def job(self, name: JobId, *, may_read: Callable[[str], bool] = lambda _owner: True) -> dict[str, Any]:
        """Return one job with its file; the values of its environment only to who may read them."""
        record = self._find(name)
        file, is_readable = dict(record.content), may_read(record.user)
        if not is_readable:
            file["environment"] = dict.fromkeys(file.get("environment", {}), HIDDEN)
            file["run"] = HIDDEN
        return {"as_of": self._as_of(), **_readable_row(self._job(record), is_readable), "file": file}

    def _find(self, name: JobId) -> JobRecord:
        """Return a job.

        Raises:
            InputError: when there is none.
        """
        queue = self._books().queue
        found = queue.job(name)
        if found is None:
            recent = [job.id for job in queue.jobs(limit=RECENT_JOBS)]
            raise UnknownJob(f"no job {name!r}", hint=did_you_mean(name, recent) or "See `boa jobs --all`")
        return found

    def _job(self, job: JobRecord) -> dict[str, Any]:
        decision = self.daemon.standing.decision
        waits: WaitReason | None = None if decision is None else decision.plan.waiting.get(job.id)
        now = self.daemon.world.clock.now()
        running = cost_of(job, self._books().queue.instances, until=now)
        return {
            "id": job.id,
            "name": job.name,
            "group": job.group or None,
            "index": job.content["group"]["index"] if job.group else None,
            "matrix": dict(job.content["group"]["matrix"]) if job.group else {},
            "user": job.user,
            "team": job.team or None,
            "class": job.class_name,
            "status": "cancelling" if job.is_cancelled and job.is_active else job.status,
            "gpus": 0 if job.width is None else job.width.gpus,
            "gpu_type": None if job.width is None else job.width.gpu_type,
            "nodes": sorted({slot.node for slot in job.slots}),
            "generation": job.generation,
            "step": job.step,
            "lost_steps": job.lost_steps,
            "failures": job.failures,
            "exit_code": job.exit_code,
            "last_lines": list(job.last_lines),
            "stalled_since": job.stalled_since,
            "not_before": job.not_before or None,
            "arrived_at": job.arrived_at,
            "started_at": job.started_at,
            "first_started_at": job.first_started_at,
            "ran_seconds": job.ran_seconds + _running_seconds(job, now),
            "ended_at": job.ended_at,
            "is_rigid": job.is_rigid,
            "lost_gpu_hours": job.lost_gpu_hours,
            "usd": dollars(job.micro_dollars + running),
            "waits_for": waits,
            "cause": job.cause,
        }

    def status(self) -> dict[str, Any]:
        """Return how the daemon is, from memory: this answers at once, whatever a tick is doing."""
        standing = self.daemon.standing
        picture = standing.picture
        document: dict[str, Any] = {
            "as_of": self._as_of(),
            "now": self.daemon.world.clock.now(),
            "fault": standing.fault,
            "is_observing": self.daemon.books is None or self.daemon.settings.daemon.observe,
            "is_down": standing.is_down,
            "leader": self._leader(),
            "notes": [*self._notes(), *self._late()],
            "best_effort": self._best_effort(),
            "tick_seconds": standing.tick_seconds,
            "budget_usd_per_hour": self.daemon.settings.budget.mean_usd_per_hour,
            "reattached": {"jobs": standing.reattached[0], "instances": standing.reattached[1]},
            "fact_ages_seconds": dict(self.daemon.world.cloud.ages()),
            "refused_messages": REFUSED.counts(),
            "boots": self.daemon.boots.document(),
            "gate": None if self.daemon.gate is None else dict(self.daemon.gate.status()),
            "why_no_gate": self.daemon.why_no_gate,
        }
        if picture is not None:
            document |= {
                "tick": picture.decision.state.tick,
                "usd_per_hour": picture.usd_per_hour,
                "nodes": picture.nodes,
                "stopped_nodes": picture.stopped,
                "max_instances": self.daemon.settings.budget.max_instances,
                "gpus": picture.gpus,
                "gpus_used": picture.gpus_used,
                "running": picture.running,
                "waiting": picture.waiting,
                "books": picture.figures,
                "pacing": _pacing(standing.pace, picture.decision.plan.memory),
                "held": list(picture.held),
                **self.outlook.document,
            }
        if self.daemon.books is not None:
            document["queued_since_then"] = len(self.daemon.books.queue.active) - (
                0 if picture is None else len(picture.decision.state.jobs)
            )
        return document

    def _leader(self) -> dict[str, Any] | None:
        """Return who acts for the database, where this daemon does."""
        books = self.daemon.books
        found = None if books is None or books.leadership is None else books.leadership.leader
        return None if found is None else asdict(found)

    def _notes(self) -> list[str]:
        """Return what whoever looks after the daemon should know."""
        standing, short = self.daemon.standing, self.daemon.watched.shortfall
        notes = [
            *standing.notes,
            standing.plan_fault,
            standing.clock_note,
            self._own_user_note(),
            "" if short is None else shortfall_sentence(short),
        ]
        return [note for note in (*notes, *self._troubles()) if note]

    def _troubles(self) -> Iterator[str]:
        """Yield why nodes cannot be used, and why none can be rented."""
        if self.daemon.books is not None:
            yield from self.daemon.fleet.unusable().values()
            now = self.daemon.world.clock.now()
            for offer, (at, why) in self.daemon.books.store.refused_launches(now).items():
                yield f"the last launch of {offer.rstrip('/')} was refused {now - at:.0f} s ago: {why}"

    def _own_user_note(self) -> str:
        """Return that others' jobs can do what the daemon can, where that was chosen."""
        is_open = self.daemon.settings.engine.shared_account
        if not is_open or not getattr(self.daemon.world.runner, "runs_jobs_as_daemon", False):
            return ""
        return (
            "jobs run as the daemon's own user ([engine] shared_account): whoever submits can do what it can"
        )

    def _best_effort(self) -> dict[str, object] | None:
        """Return how far the budget goes; None where it pays for the load."""
        return shortfall_document(self.daemon.watched.shortfall, self.daemon.watched.account)

    def _late(self) -> list[str]:
        """Return that no tick has come to its end for long, where that is so."""
        every = self.daemon.settings.daemon.tick_seconds
        silent = self.daemon.world.clock.now() - self._as_of()
        if self.daemon.books is None or silent < LATE_TICKS * every + LATE_SECONDS:
            return []
        since = format_hours(silent / SECONDS_PER_HOUR)
        return [f"no tick was done for {since}, and one is due every {every:.0f} s: see the daemon's log"]

    def explain(self, name: JobId) -> dict[str, Any]:
        """Return why a job has its width and its nodes, or why it waits."""
        record = self._find(name)
        decision = self.daemon.standing.decision
        over = _OVER.get(record.status)
        if over is not None:
            said = f"Job {name} is {record.status}" + (f": {record.cause}" if record.cause else "")
            return self._said(name, f"{said}.", over)
        if decision is None or name not in decision.state.jobs:
            taken = f"Job {name} has been taken and no tick has looked at it yet."
            return self._said(name, " ".join([taken, *_rigidity(record)]), "new")
        curves = self.daemon.planner.curves.values()
        base = record.class_name.partition("[")[0]
        measured = [explain_curve(curve) for curve in curves if curve.class_name == base]
        now_is: JobReason = "running" if record.slots else "starting"
        if not record.slots and name not in decision.plan.widths:
            now_is = "not-planned"
        reason: WaitReason | JobReason = decision.plan.waiting.get(name, now_is)
        choice = width_choice(decision.state, decision.plan, name)
        weighed = [] if choice is None else [f"For the rest of its phase: {choice.sentence}."]
        if not record.slots:
            weighed += [f"{sentence[:1].upper()}{sentence[1:]}." for sentence in self._troubles()]
        if record.is_cancelled:
            weighed.append("It is cancelled, and may write its checkpoint before it ends.")
        weighed += _rigidity(record)
        weighed += self.daemon.planner.left_out(record.class_name, record.content)
        weighed += filter(None, [self.daemon.planner.unenforced(record.content)])
        short = self.daemon.watched.shortfall
        if short is not None:
            weighed.append(f"The daemon makes a {shortfall_sentence(short)}.")
        if self.daemon.settings.daemon.observe:
            weighed.append("The daemon only observes: nothing of this is done.")
        planned = decision.plan.widths.get(name)
        if planned is not None and self.daemon.planner.is_on_both:
            machine = self.daemon.planner.machines[planned.gpu_type]
            measured.append(self.daemon.spot.sentence(machine.name))
        belief = self.daemon.learning.beliefs.known.get(base)
        if belief is not None and (belief.arrivals or belief.ended):
            measured.append(explain_belief(belief))
        return {
            "as_of": decision.state.now,
            "job": name,
            "text": " ".join([decision.explain(name), *self.outlook.sentences(name), *weighed, *measured]),
            "finish": None if (finish := self.outlook.finishes().get(name)) is None else finish.document,
            "choice": None if choice is None else choice.document,
            "measured": measured,
            "reason": reason,
            "held": [
                {"what": held.what, "code": held.code, "numbers": dict(held.numbers)}
                for held in decision.plan.held
                if held.what in (f"job {name}", f"user {record.user}")
            ],
        }

    def _said(self, name: JobId, text: str, reason: JobReason) -> dict[str, Any]:
        """Return an explanation that no plan has a part in."""
        return {"as_of": self._as_of(), "job": name, "text": text, "reason": reason}

    def decisions(self, *, limit: int = 20, acting: bool = False) -> dict[str, Any]:
        """Return the newest decisions."""
        found = self._books().store.decisions(limit=limit, with_actions=acting)
        return {"as_of": self._as_of(), "decisions": found}

    def decision(self, tick: int) -> dict[str, Any]:
        """Return the record of one decision, for `boa replay`."""
        return self._books().store.decision_record(tick)

    def logs(
        self,
        name: JobId,
        *,
        since: int = 0,
        generation: int | None = None,
        node: int | None = None,
        may_read: Callable[[str], bool] = lambda _owner: True,
    ) -> dict[str, Any]:
        """Return what a job printed from a byte on, by default on the node of the process that reports.

        Raises:
            InputError: when there is no such job or generation.
            NotAllowed: when it is somebody else's, and the caller has no role that may read it.
        """
        record = self._find(name)
        if not may_read(record.user):
            raise NotAllowed(
                f"job {name} is of user {record.user}, and only they, administrators and readers "
                "([api] readers) may read what it prints"
            )
        if generation is not None and generation > record.generation:
            had = (
                f"it was started {record.generation} times" if record.generation else "it was not started yet"
            )
            raise UnknownJob(f"job {name} has no generation {generation}", hint=f"So far {had}")
        if generation is None and not record.is_active:
            # An engine may have forgotten one that is over.
            generation = record.generation or None
        chunk = self.daemon.world.runner.logs(name, since=since, generation=generation, node=node)
        if node is not None and node >= chunk.nodes:
            had = "1 node, number 0" if chunk.nodes == 1 else f"{chunk.nodes} nodes, numbers from 0 on"
            raise UnknownJob(f"job {name} has no node {node}", hint=f"That generation has {had}")
        return {
            "job": name,
            "text": chunk.text,
            "next_offset": chunk.next_offset,
            "dropped_bytes": chunk.dropped_bytes,
            "node": chunk.node,
            "nodes": chunk.nodes,
            "status": record.status,
        }

    def cancel(self, name: JobId, *, user: str, is_admin: bool) -> dict[str, Any]:
        """Cancel a job: one that runs may write its checkpoint first.

        Raises:
            InputError: when there is no such job.
            NotAllowed: when it is somebody else's.
        """
        record = self.owned(name, user, is_admin)
        if not record.is_active:
            return {"as_of": self._as_of(), "job": name, "status": record.status, "changed": False}
        job = self.daemon.cancel(name)
        status = "cancelling" if job is not None and job.is_active else "cancelled"
        return {"as_of": self._as_of(), "job": name, "status": status, "changed": True}

    def group(self, name: str) -> dict[str, Any]:
        """Return how many jobs of a group are how, and what they have cost together.

        Raises:
            UnknownJob: when there is no such group.
        """
        return self._group(self._find_group(name))

    def _find_group(self, name: str) -> Group:
        """Return a group.

        Raises:
            UnknownJob: when there is none.
        """
        found = find_group(self._books().queue, name)
        if found is None:
            recent = dict.fromkeys(job.group for job in self._books().queue.jobs(limit=RECENT_JOBS))
            hint = did_you_mean(name, [group for group in recent if group])
            raise UnknownJob(f"no group {name!r}", hint=hint or "`boa submit` says the id of a group")
        return found

    def _group(self, group: Group) -> dict[str, Any]:
        queue, now = self._books().queue, self.daemon.world.clock.now()
        running = (job for job in list(queue.active.values()) if job.slots and job.group == group.id)
        spent = settled_micro_dollars(queue, group)
        spent += sum(cost_of(job, queue.instances, until=now) for job in running)
        return {
            "as_of": self._as_of(),
            "group": group.id,
            "name": group.name,
            "user": group.user,
            "jobs": group.size,
            "counts": dict(Counter(statuses(queue, group).values())),
            "max_usd": group.max_usd,
            "usd": dollars(spent),
        }

    def cancel_group(self, name: str, *, user: str, is_admin: bool) -> dict[str, Any]:
        """Cancel every job of a group that is not over, in one transaction.

        Raises:
            UnknownJob: when there is no such group.
            NotAllowed: when it is somebody else's.
        """
        group = self._find_group(name)
        if group.user != user and not is_admin:
            raise NotAllowed(f"group {name} is of user {group.user}; you are {user}")
        left = [job for job, status in statuses(self._books().queue, group).items() if status in ACTIVE]
        found = self.daemon.cancel_all(left)
        stopping = sum(job.is_active for job in found)
        status = "cancelling" if stopping else "cancelled"
        return {
            "as_of": self._as_of(),
            "job": name,
            "status": status,
            "changed": bool(found),
            "jobs": len(found),
        }

    def resize(self, name: JobId, *, gpus: int | None, user: str, is_admin: bool) -> dict[str, Any]:
        """Have a job run on so many GPUs, None for what its file allows.

        Raises:
            InputError: when there is no such job, its class has no such width, or it would begin anew.
            NotAllowed: when it is somebody else's.
        """
        record = self.owned(name, user, is_admin)
        job = resize(self.daemon, record, gpus) if record.is_active and not record.is_cancelled else None
        return {
            "as_of": self._as_of(),
            "job": name,
            "status": record.status,
            "gpus": gpus,
            "changed": job is not None and dict(job.content) != dict(record.content),
        }

    def interrupt(self, name: JobId, *, user: str, is_admin: bool) -> dict[str, Any]:
        """Rehearse that the cloud takes back a node of a job.

        Raises:
            InputError: when there is no such job.
            CannotRehearse: when it is on no node.
            NotAllowed: when it is somebody else's, or shares the node with jobs of others.
        """
        record = self.owned(name, user, is_admin)
        if not is_admin and (others := others_on(self.daemon, record)):
            whose = ", ".join(f"{job.id} of {job.user}" for job in others)
            raise NotAllowed(
                f"its node carries jobs of others too ({whose}): only administrators may do that"
            )
        node, at = interrupt(self.daemon, record)
        return {"as_of": self._as_of(), "job": name, "node": node, "ends_by": at}

    def owned(self, name: JobId, user: str, is_admin: bool) -> JobRecord:
        """Return a job that a caller may change.

        Raises:
            InputError: when there is none.
            NotAllowed: when it is somebody else's.
        """
        record = self._find(name)
        if record.user != user and not is_admin:
            raise NotAllowed(f"job {name} is of user {record.user}; you are {user}")
        return record

    def instances(self, *, ended: bool = False) -> dict[str, Any]:
        """Return the nodes, and on request those that ended within a day."""
        now = self.daemon.world.clock.now()
        queue = self._books().queue
        records = list(queue.instances.values())
        if ended:
            records = queue.past_instances(now - 86_400.0)
        held, notes = queue.holders(), self.daemon.fleet.unusable()
        rows = [
            {
                "id": record.node.id,
                "instance_type": record.node.instance_type.name,
                "phase": record.node.phase,
                "zone": record.node.zone,
                "market": record.node.market,
                "gpus": record.node.instance_type.gpus,
                "jobs": sorted(set(held.get(record.node.id, {}).values())),
                "launched_at": record.node.launched_at,
                "ended_at": record.node.ended_at,
                "usd_per_hour": record.node.usd_per_hour,
                "usd": dollars(bill(record.node, until=record.node.ended_at or now)),
                "kinds": {
                    kind: dollars(amount)
                    for kind, amount in bill_by_kind(record.node, until=record.node.ended_at or now).items()
                },
                "launched_by": record.node.launched_by,
                "idle_since": record.idle_since,
                "tiers": list(record.node.tiers),
                "note": notes.get(record.node.id, ""),
            }
            for record in records
        ]
        return {"as_of": self._as_of(), "instances": sorted(rows, key=lambda row: str(row["id"]))}

    def cost(self, *, by: CostBy = "job", since: float | None = None) -> dict[str, Any]:
        """Return what was spent since an instant, by job, class, user, team or day; by default this month."""
        books, now = self._books(), self.daemon.world.clock.now()
        month = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        begin = month.timestamp() if since is None else since
        rows = cost_rows(books.queue, by=by, since=begin, now=now)
        rows = with_fixed(rows, self.daemon.planner.paid.fixed, by=by, since=begin, now=now)
        picture = self.daemon.standing.picture
        return {
            "as_of": now,
            "since": begin,
            "by": by,
            "rows": rows,
            "usd": sum(row["usd"] for row in rows),
            "books": None if picture is None else picture.figures,
        }

    def classes(self) -> dict[str, Any]:
        """Return what is believed of each class, beside what is stated."""
        self._books()
        planner, now = self.daemon.planner, self.daemon.world.clock.now()
        known, curves = dict(self.daemon.learning.beliefs.known), list(planner.curves.values())
        return {
            "as_of": self._as_of(),
            "machines": [
                {
                    "gpu_type": kind,
                    "instance_type": machine.name,
                    "gpus": machine.gpus,
                    "usd_per_hour": machine.usd_per_hour,
                }
                for kind, machine in planner.machines.items()
            ],
            "classes": [
                class_document(
                    stated,
                    known.get(name),
                    planner.figures.get(name),
                    curves,
                    is_rate_stated=name not in planner.unstated,
                    now=now,
                    link=planner.link_of(stated),
                    needs=planner.needs_of(name),
                )
                for name, stated in list(planner.stated.items())
            ],
            "kappa": kappa_document(
                list(planner.stated.values()),
                planner.machines,
                kappa=self.daemon.settings.workload.kappa,
            ),
        }

    def past(self, *, days: float) -> dict[str, Any]:
        """Return the jobs of the last days that are over, and what they were planned by, to be replayed."""
        from boa_daemon.daemon.past import past_document  # noqa: PLC0415 - brings the simulator with it

        return past_document(self.daemon, self._books().queue, days=days)

    def plan(self) -> dict[str, Any]:
        """Return what a tick would do now; nothing is started and nothing is written."""
        if self.daemon.books is None:
            raise NotReady(f"there is no plan: {self.daemon.standing.fault}")
        last = self.daemon.standing.decision
        if last is None:
            raise NotReady("the daemon has not looked yet; try again in a moment")
        controller = self.daemon.controller()
        state = last.state
        present = controller.ports.jobs.jobs()
        new = {name: job for name, job in present.items() if name not in state.jobs and not job.slots}
        decision = decide(
            replace(state, now=self.daemon.world.clock.now(), jobs={**state.jobs, **new}),
            allocator=controller.allocator,
            placer=controller.placer,
            rules=controller.rules,
        )
        return {
            "as_of": state.now,
            "actions": [
                {"kind": kind, "target": target, "reason": action.reason}
                for action in decision.actions
                for kind, target in (kind_and_target(action),)
            ],
            "waiting": dict(decision.plan.waiting),
            "held": [held.sentence for held in decision.plan.held],
            "usd_per_hour": state.usd_per_hour,
        }

    def down(self, *, is_down: bool) -> dict[str, Any]:
        """Let everything go, or take work up again."""
        self._books()
        self.daemon.set_down(is_down)
        return {"as_of": self._as_of(), "is_down": is_down}

    def alerts(self, limit: int = 50) -> dict[str, Any]:
        """Return the newest messages."""
        return {"as_of": self._as_of(), "alerts": self.daemon.alerts.latest(limit)}

    def _as_of(self) -> float:
        """Return the instant of what memory knows."""
        decision = self.daemon.standing.decision
        return self.daemon.standing.started_at if decision is None else decision.state.now

    def _books(self) -> Storage:
        """Return the books.

        Raises:
            NotReady: when the database cannot be read.
        """
        if self.daemon.books is None:
            raise NotReady(self.daemon.standing.fault)
        return self.daemon.books


def _readable_row(row: dict[str, Any], is_readable: bool) -> dict[str, Any]:
    """Return a job's row, without what it printed where that is not for the caller."""
    return row if is_readable else {**row, "last_lines": []}


def _running_seconds(job: JobRecord, now: float) -> float:
    """Return for how long the generation that runs has held its GPUs."""
    return max(now - job.started_at, 0.0) if job.is_active and job.started_at is not None else 0.0


def _rigidity(job: JobRecord) -> list[str]:
    """Return what a job that is not known to be elastic should hear, and what it has lost."""
    said = [f"{RIGID[0].upper()}{RIGID[1:]}"] if job.is_rigid else []
    limit = first_report_limit(job)
    if job.slots and not job.has_reported and limit is not None:
        most, how = format_hours(limit[0]), limit[1]
        said.append(f"It has not reported yet: it fails if it has reported no step{how} within {most}.")
    if job.lost_gpu_hours >= LEAST_LOST_GPU_HOURS:
        said.append(f"It lost {job.lost_gpu_hours:.3g} GPU-hours to ends without a checkpoint.")
    return said


def _check_text(contents: Sequence[Any]) -> None:
    """Refuse text that no file can hold.

    Raises:
        InputError: when a text is not Unicode.
    """
    try:
        json.dumps(contents, ensure_ascii=False).encode()
    except (UnicodeEncodeError, ValueError, RecursionError):
        raise InputError("a job file holds text that is not Unicode") from None


def _pacing(pace: Pace | None, memory: tuple[float, ...] | None) -> dict[str, Any] | None:
    """Return what a paced policy keeps to: window, the load it believes in, and what pacing costs."""
    if pace is None or not memory:
        return None
    return {
        "window_hours": pace.window_hours,
        "is_calendar_month": pace.is_calendar,
        "load_correction": memory[-1],
        "pacing_loss_fraction": pace.loss_fraction,
        "load_by_weekday": None if pace.rhythm is None else [round(day, 3) for day in pace.rhythm.by_day],
    }
