"""API service for jobs and groups: rows, explanations, logs, files, cancels, and changes of width."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from boa_daemon.daemon.jobs.job_visibility import file_for, public_cause, row_for
from boa_daemon.daemon.jobs.liveness import first_report_limit
from boa_daemon.daemon.money.job_cost import cost_of
from boa_daemon.daemon.service.orders import HELD_BY, hold, interrupt, others_on, release, resize, weigh
from boa_daemon.daemon.service.service_base import NotAllowed, ServiceBase, UnknownJob
from boa_daemon.daemon.settings.teams import unknown_team
from boa_daemon.engines.generation_units import RIGID
from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.learning.beliefs import explain_belief
from boa_daemon.learning.speedups import explain_curve
from boa_daemon.store.groups import JobGroup, member_statuses, settled_micro_dollars
from boa_daemon.store.records import ACTIVE, JobRecord, JobStatus
from boa_daemon.tick.explain.runner_up import Choice, width_choice
from boa_daemon.tick.facts.ports import ArtifactStore
from boa_daemon.tick.facts.reasons import JobReason, WaitReason
from boa_daemon.tick.room.shortfall import shortfall_sentence
from boa_daemon.units import counted, dollars, format_hours
from policies.model import JobId

LEAST_LOST_GPU_HOURS = 0.001
"""Least loss that an explanation mentions."""

_OVER: Mapping[JobStatus, JobReason] = {
    "finished": "finished",
    "failed": "failed",
    "cancelled": "cancelled",
}


class JobService(ServiceBase):
    """Answers requests about the jobs of one daemon."""

    def artifacts(self, name: JobId, *, may_read: Callable[[str], bool]) -> dict[str, Any]:
        """Return the names and sizes of a job's output files.

        Raises:
            UnknownJob: when there is no such job.
            NotAllowed: when it belongs to another user, and the caller has no role that may read it.
        """
        runner = self._artifacts_of(name, may_read)
        files = [{"name": file, "bytes": size} for file, size in runner.artifacts(name).items()]
        return {"as_of": self._as_of(), "job": name, "files": files}

    def artifact(self, name: JobId, file: str, *, may_read: Callable[[str], bool]) -> Iterator[bytes]:
        """Yield the content of one of a job's output files; raises as `artifacts` does."""
        runner = self._artifacts_of(name, may_read)
        if file not in runner.artifacts(name):
            hint = did_you_mean(file, runner.artifacts(name))
            raise UnknownJob(f"job {name} has left no file {file!r}", hint=hint)
        return runner.artifact(name, file)

    def _artifacts_of(self, name: JobId, may_read: Callable[[str], bool]) -> ArtifactStore:
        """Return the store of a job's output files, after checking that the caller may read them."""
        record, runner = self._find(name), self.daemon.world.runner
        if not may_read(record.user):
            raise NotAllowed(f"job {name} is of user {record.user}, and so are the files that it leaves")
        if not isinstance(runner, ArtifactStore):
            raise InputError("this engine keeps no files of jobs")
        return runner

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
        """Return jobs, newest first, without the printed lines that the caller may not read.

        `next` is the `before` of the next page; None on the last page.
        """
        self._check_team(team)
        found = None if group is None else self._find_group(group)
        within = None if found is None else (found.first, found.last)
        records = self._storage().queue.jobs(
            limit=limit + 1, user=user, ended=ended, team=team, within=within, before=before
        )
        places = self.outlook.places()
        rows = [
            row_for(self._job(job, places), job, is_readable=may_read(job.user)) for job in records[:limit]
        ]
        following = records[limit - 1].seq if len(records) > limit else None
        return {"as_of": self._as_of(), "jobs": rows, "next": following}

    def _check_team(self, team: str | None) -> None:
        """Refuse a team that neither the settings nor a job knows: its list would be empty.

        Raises:
            InputError: when it is one.
        """
        if (
            team is None
            or team in self.daemon.settings.teams
            or self._storage().queue.jobs(limit=1, team=team)
        ):
            return
        raise unknown_team(team, self.daemon.settings.teams)

    def job(self, name: JobId, *, may_read: Callable[[str], bool] = lambda _owner: True) -> dict[str, Any]:
        """Return one job with its file; its texts only to callers who may read them."""
        record = self._find(name)
        is_readable = may_read(record.user)
        return {
            "as_of": self._as_of(),
            **row_for(self._job(record, self.outlook.places()), record, is_readable=is_readable),
            "file": file_for(record.content, is_readable=is_readable),
        }

    def _starts_at(self, name: JobId) -> float | None:
        """Return when a waiting job should start, or may at the earliest, as far as that can be foretold."""
        finish = self.outlook.finishes().get(name)
        return self.outlook.opens_at(name) if finish is None else finish.starts_at

    def _job(self, job: JobRecord, places: Mapping[JobId, int]) -> dict[str, Any]:
        decision = self.daemon.standing.decision
        waits: WaitReason | None = None
        if decision is not None and job.is_active:
            waits = decision.plan.jobs.waiting.get(job.id)
        now = self.daemon.world.clock.now()
        running = cost_of(job, self._storage().queue.instances, until=now)
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
            "not_before": self.daemon.work.facts.rests_until(job),
            "arrived_at": job.arrived_at,
            "started_at": job.started_at,
            "first_started_at": job.first_started_at,
            "ran_seconds": job.ran_seconds + _running_seconds(job, now),
            "ended_at": job.ended_at,
            "is_rigid": job.is_rigid,
            "lost_gpu_hours": job.lost_gpu_hours,
            "usd": dollars(job.micro_dollars + running),
            "waits_for": waits,
            "place_in_queue": None if job.slots or not job.is_active else places.get(job.id),
            "starts_at": None if job.slots or not job.is_active else self._starts_at(job.id),
            "cause": job.cause,
        }

    def explain(
        self, name: JobId, *, may_read: Callable[[str], bool] = lambda _owner: True
    ) -> dict[str, Any]:
        """Return why a job has its width and its nodes, or why it waits."""
        record = self._find(name)
        is_readable = may_read(record.user)
        decision = self.daemon.standing.decision
        over = _OVER.get(record.status)
        if over is not None:
            cause = record.cause if is_readable or not record.cause else public_cause(record)
            said = f"Job {name} is {record.status}" + (f": {cause}" if cause else "")
            return self._said(name, f"{said}.", over)
        fault = [f"No tick can be done now: {fault}."] if (fault := self.daemon.standing.fault) else []
        if decision is None or name not in decision.state.all_jobs:
            said = f"Job {name} has been taken and no tick has looked at it yet."
            if record.slots:
                held = f"{record.width} on {', '.join(dict.fromkeys(slot.node for slot in record.slots))}"
                said = f"Job {name} holds {held}, and no tick of this daemon has looked at it yet."
            known = " ".join([said, *fault, *_rigidity(record)])
            return self._said(name, known, "running" if record.slots else "new")
        curves = self.daemon.planner.curves.values()
        base = record.class_name.partition("[")[0]
        measured = [explain_curve(curve) for curve in curves if curve.class_name == base]
        reason = decision.reason(name, holds_gpus=bool(record.slots))
        choice = width_choice(decision.state, decision.plan, name)
        planned = decision.plan.jobs[name]
        is_own = planned.changed_reason is None
        weighed = [] if choice is None else [_weighed(choice, is_own=is_own)]
        if not record.slots:
            weighed += [f"{sentence[:1].upper()}{sentence[1:]}." for sentence in self._troubles()]
        has_changed = bool(record.slots) != decision.state.all_jobs[name].is_running
        if has_changed and planned.slots is None:
            weighed.append(f"Since then it has {'started' if record.slots else 'let go of its GPUs'}.")
        weighed += fault
        if is_readable and record.failures and record.cause:
            weighed.append(f"Its last end in full: {record.cause}.")
        if name in decision.state.unplanned and (why := self.daemon.standing.plan_fault):
            weighed.append(f"{why[0].upper()}{why[1:]}.")
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
        if planned.width is not None and self.daemon.planner.is_on_both:
            machine = self.daemon.planner.machines[planned.width.gpu_type]
            measured.append(self.daemon.spot.sentence(machine.name))
        belief = self.daemon.learning.beliefs.known.get(base)
        if belief is not None and (belief.arrivals or belief.ended):
            measured.append(explain_belief(belief))
        return {
            "as_of": decision.state.now,
            "job": name,
            "text": " ".join(
                [
                    decision.explain(name),
                    *self.outlook.sentences(name),
                    *weighed,
                    *measured,
                ]
            ),
            "finish": None if (finish := self.outlook.finishes().get(name)) is None else finish.document,
            "choice": None if choice is None else choice.document,
            "measured": measured,
            "reason": reason,
            "held": [
                {
                    "what": held.what,
                    "code": held.code,
                    "numbers": dict(held.numbers),
                    "money": None if held.money is None else asdict(held.money),
                }
                for held in decision.plan.held
                if held.what in (f"job {name}", f"user {record.user}")
            ],
        }

    def _said(self, name: JobId, text: str, reason: JobReason) -> dict[str, Any]:
        """Return an explanation that does not depend on a plan."""
        return {"as_of": self._as_of(), "job": name, "text": text, "reason": reason}

    def logs(
        self,
        name: JobId,
        *,
        since: int = 0,
        generation: int | None = None,
        node: int | None = None,
        may_read: Callable[[str], bool] = lambda _owner: True,
    ) -> dict[str, Any]:
        """Return a job's output from byte `since` on, by default of the node whose process reports.

        Raises:
            InputError: when there is no such job or generation.
            NotAllowed: when it belongs to another user, and the caller has no role that may read it.
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
            # Name the generation: an engine may have forgotten a job that is over.
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
        """Cancel a job; a running job may write its checkpoint first.

        Raises:
            InputError: when there is no such job.
            NotAllowed: when it belongs to another user.
        """
        record = self.owned(name, user, is_admin)
        if not record.is_active:
            return {"as_of": self._as_of(), "job": name, "status": record.status, "changed": False}

        def note(_found: Sequence[JobRecord]) -> None:
            self.note_order(user, "cancel", name, f"job {name} of {record.user} was cancelled")

        job = self.daemon.cancel(name, note)
        status = "cancelling" if job is not None and job.is_active else "cancelled"
        return {"as_of": self._as_of(), "job": name, "status": status, "changed": True}

    def group(self, name: str) -> dict[str, Any]:
        """Return the number of a group's jobs by status, and their total cost.

        Raises:
            UnknownJob: when there is no such group.
        """
        return self._group(self._find_group(name))

    def _group(self, group: JobGroup) -> dict[str, Any]:
        queue, now = self._storage().queue, self.daemon.world.clock.now()
        running = (job for job in list(queue.active.values()) if job.slots and job.group == group.id)
        spent = settled_micro_dollars(queue, group)
        spent += sum(cost_of(job, queue.instances, until=now) for job in running)
        return {
            "as_of": self._as_of(),
            "group": group.id,
            "name": group.name,
            "user": group.user,
            "jobs": group.size,
            "counts": dict(Counter(member_statuses(queue, group).values())),
            "max_usd": group.max_usd,
            "usd": dollars(spent),
        }

    def cancel_group(self, name: str, *, user: str, is_admin: bool) -> dict[str, Any]:
        """Cancel every active job of a group in one transaction.

        Raises:
            UnknownJob: when there is no such group.
            NotAllowed: when it belongs to another user.
        """
        group = self._find_group(name)
        if group.user != user and not is_admin:
            raise NotAllowed(f"group {name} is of user {group.user}; you are {user}")
        left = [
            job for job, status in member_statuses(self._storage().queue, group).items() if status in ACTIVE
        ]

        def note(found: Sequence[JobRecord]) -> None:
            said = f"{counted(len(found), 'job')} of group {name} of {group.user} were cancelled"
            self.note_order(user, "cancel", name, said)

        found = self.daemon.cancel_all(left, note)
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
        """Make a job run on `gpus` GPUs; None returns the choice to the plan, within the job's file.

        Raises:
            InputError: when there is no such job, its class has no such width, or it would lose its work.
            NotAllowed: when it belongs to another user.
        """
        record = self.owned(name, user, is_admin)

        def note(job: JobRecord) -> None:
            if dict(job.content) != dict(record.content):
                width = "the widths of its file" if gpus is None else counted(gpus, "GPU")
                self.note_order(user, "resize", name, f"job {name} of {record.user} was given {width}")

        job = None
        if record.is_active and not record.is_cancelled:
            job = resize(self.daemon, record, gpus, note=note)
        return {
            "as_of": self._as_of(),
            "job": name,
            "status": record.status,
            "gpus": gpus,
            "changed": job is not None and dict(job.content) != dict(record.content),
        }

    def hold(self, name: JobId, *, is_held: bool, user: str, is_admin: bool) -> dict[str, Any]:
        """Make a job wait until it is released, or release it.

        Raises:
            InputError: when there is no such job, or it runs and would lose its work.
            NotAllowed: when it belongs to another user, or an administrator holds it.
        """
        record = self.owned(name, user, is_admin)
        held_by = record.content.get(HELD_BY, "")
        if held_by and held_by not in (user, record.user) and not is_admin:
            raise NotAllowed(f"job {name} is held by {held_by}: only administrators may release it")

        def note(_job: JobRecord) -> None:
            what, words = ("hold", "ordered to wait") if is_held else ("release", "released")
            self.note_order(user, what, name, f"job {name} of {record.user} was {words}")

        job = None
        if record.is_active and not record.is_cancelled and bool(held_by) != is_held:
            if is_held:
                job = hold(self.daemon, record, user=user, note=note)
            else:
                job = release(self.daemon, record, note=note)
        return self._ordered(record, job is not None, is_held=is_held)

    def weigh(self, name: JobId, *, weight: float, user: str, is_admin: bool) -> dict[str, Any]:
        """Set the worth of an hour of a job's time, which orders it among jobs of the same purse.

        Raises:
            InputError: when there is no such job.
            NotAllowed: when it belongs to another user, or would outweigh what its user's jobs weigh now.
        """
        record = self.owned(name, user, is_admin)
        if not is_admin:
            self._check_weight(record, weight)
        before, job = float(record.content["weight"]), None

        def note(_job: JobRecord) -> None:
            said = f"the weight of job {name} of {record.user} was set from {before:g} to {weight:g}"
            self.note_order(user, "weigh", name, said)

        if record.is_active and not record.is_cancelled and weight != before:
            job = weigh(self.daemon, record, weight, note=note)
        return self._ordered(record, job is not None, weight=weight)

    def _check_weight(self, record: JobRecord, weight: float) -> None:
        """Refuse a weight above the greatest that the purse's jobs were submitted with.

        Raises:
            NotAllowed: when it is.
        """
        active = list(self._storage().queue.active.values())
        own = [job for job in active if (job.team, job.user if not job.team else "") == _purse_of(record)]
        most = max(float(job.content["weight"]) for job in own)
        if weight > most:
            purse = f"team {record.team}" if record.team else f"user {record.user}"
            raise NotAllowed(f"the jobs of {purse} weigh at most {most:g}: only administrators may give more")

    def _ordered(self, record: JobRecord, changed: bool, **more: Any) -> dict[str, Any]:
        return {
            "as_of": self._as_of(), "job": record.id, "status": record.status, "changed": changed, **more,
        }  # fmt: skip

    def interrupt(self, name: JobId, *, user: str, is_admin: bool) -> dict[str, Any]:
        """Rehearse a spot interruption of one of a job's nodes.

        Raises:
            InputError: when there is no such job.
            CannotRehearse: when it is on no node.
            NotAllowed: when it belongs to another user, or shares the node with jobs of others.
        """
        record = self.owned(name, user, is_admin)
        if not is_admin and (others := others_on(self.daemon, record)):
            whose = ", ".join(f"{job.id} of {job.user}" for job in others)
            raise NotAllowed(
                f"its node carries jobs of others too ({whose}): only administrators may do that"
            )
        node, at = interrupt(self.daemon, record)
        return {"as_of": self._as_of(), "job": name, "node": node, "ends_by": at}


def _purse_of(record: JobRecord) -> tuple[str, str]:
    """Return whose money a job spends: its team's, or else its user's."""
    return (record.team, "" if record.team else record.user)


def _running_seconds(job: JobRecord, now: float) -> float:
    """Return the seconds that the running generation has held its GPUs."""
    return max(now - job.started_at, 0.0) if job.is_active and job.started_at is not None else 0.0


def _weighed(choice: Choice, *, is_own: bool) -> str:
    """Return the sentence on a job's widths; it calls the chosen one the best only if it costs least.

    `is_own`: the width is the policy's own; otherwise its reason says what changed it.
    """
    if choice.is_best:
        return f"For the rest of its phase it is the best of the possible widths: {choice.sentence}."
    decides = "later phases, restarts and whole nodes decide for the chosen one"
    if not is_own:
        decides = "the chosen one is for the reason that is given above"
    return f"For the rest of its phase: {choice.sentence}; {decides}."


def _rigidity(job: JobRecord) -> list[str]:
    """Return sentences on a rigid job, a job that has not reported, and lost work."""
    said = [f"{RIGID[0].upper()}{RIGID[1:]}"] if job.is_rigid else []
    limit = first_report_limit(job)
    if job.slots and not job.has_reported and limit is not None:
        most, how = format_hours(limit[0]), limit[1]
        said.append(f"It has not reported yet: it fails if it has reported no step{how} within {most}.")
    if job.lost_gpu_hours >= LEAST_LOST_GPU_HOURS:
        said.append(f"It lost {job.lost_gpu_hours:.3g} GPU-hours to ends without a checkpoint.")
    return said
