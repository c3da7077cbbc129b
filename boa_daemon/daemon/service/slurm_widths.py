"""Plans the widths of jobs of Slurm that name a class: `#SBATCH --comment=boa:class=vision`.

Slurm schedules such a job, and BOA chooses its number of nodes, as it chooses widths of its own jobs. After
each tick the same decision is made once more with those jobs in place of the nodes that they have, so they
compete with all others for the budget. Nothing of that decision is carried out but the widths:

- a job that waits has its number of nodes changed;
- a job whose nodes are still being powered up gives some back at once, or is requeued to get more;
- a running job that says `shrink` gives nodes back, and one that says `elastic` is requeued with another
  width, and goes on from its checkpoint. Others keep what they have.

To be requeued a job is held, changed and released. That it is held is stored before, so a daemon that dies
in between leaves no job held.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.planner.slurm_classes import CLASS_PREFIX
from boa_daemon.errors import BoaError, InputError
from boa_daemon.learning.beliefs import remaining_work_of
from boa_daemon.slurm.class_comment import FLAGS, OWN_JOBS, read_class_comment, speaks_to_boa
from boa_daemon.slurm.commands import LATER, WAITS_ALREADY, Slurm, SlurmJob, SlurmRefused
from boa_daemon.store.records import JobRecord
from boa_daemon.store.slurm_widths import read_slurm_widths, write_slurm_widths
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.facts.limits import Act
from boa_daemon.tick.facts.state import ClusterState, JobState, JobTerms
from boa_daemon.units import SECONDS_PER_HOUR, counted
from policies.model import GpuSlot, Job, JobClass, Width

_LOG = logging.getLogger("boa.slurm")
OPEN_SECONDS = 30.0
"""How long the nodes of a job are not asked for because its width is still to be decided."""
MOST_REFUSALS = 3
"""After so many refusals of Slurm a job keeps its width."""
MOST_CHANGES = 50
"""Changes that are remembered for the rules against flapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A job of Slurm with the class that it is planned by, and the GPUs of a node of its partition."""

    job: SlurmJob
    said: Mapping[str, str]
    job_class: JobClass
    gpus: int

    @property
    def name(self) -> str:
        """Its name in the plan; no job of BOA has one of this form."""
        return f"{CLASS_PREFIX}job/{self.job.id}"

    @property
    def runs(self) -> bool:
        """Whether its script has begun."""
        return self.job.is_live and self.job.state != "CONFIGURING"


class PlannedWidths:
    """Chooses and sets the numbers of nodes of the jobs of one Slurm that name a class."""

    def __init__(self, daemon: Daemon, slurm: Slurm) -> None:
        self._daemon, self._slurm = daemon, slurm
        self._planned: dict[str, _Planned] = {}
        self._known: dict[str, dict[str, Any]] = {}
        self._is_read = False
        self._wanted: dict[str, int] = {}
        self._refusals: dict[str, int] = {}
        self._open_since: dict[str, float] = {}
        self._changes: list[Act] = []
        self.troubles: dict[str, str] = {}
        """Why jobs that name a class are not planned, by their numbers."""

    def is_open(self, job: SlurmJob) -> bool:
        """Return whether a job has no width yet, so that its nodes are not to be asked for."""
        since = self._open_since.get(job.id)
        return (
            since is not None
            and self._daemon.world.clock.now() - since < OPEN_SECONDS
            and job.node_count not in (self._wanted.get(job.id), self._chosen(job.id))
            and not self._is_fixed(job.id)
        )

    def _chosen(self, number: str) -> int | None:
        """Return the width that was decided for the coming start of a job: it is decided once."""
        found = self._known.get(number, {}).get("chosen")
        return None if found is None else int(found)

    def _is_fixed(self, number: str) -> bool:
        """Return whether Slurm has refused to change a job too often."""
        return self._refusals.get(number, 0) >= MOST_REFUSALS

    def see(self, jobs: Sequence[SlurmJob]) -> None:
        """Take note of the jobs that Slurm has now."""
        partitions = self._daemon.settings.slurm.partitions
        found: list[tuple[SlurmJob, dict[str, str]]] = []
        self.troubles = {}
        for job in jobs:
            if (job.waits or job.is_live) and speaks_to_boa(job.comment):
                try:
                    found.append((job, _said_of(job, partitions)))
                except ValueError as error:
                    self.troubles[job.id] = f"not planned: {error}"
        self._read()
        uses = Counter(host for job in jobs if job.is_live for host in job.hosts) if found else {}
        shared = {host for host, count in uses.items() if count > 1}
        now, before = self._daemon.world.clock.now(), dict(self._known)
        planned, known = dict[str, _Planned](), dict[str, dict[str, Any]]()
        for job, read in found:
            row = {"nodes": job.node_count, "seen_at": now, "is_held": False, **before.get(job.id, {})}
            if not job.is_live or job.state == "CONFIGURING":
                row["began_at"] = None
            elif row.get("began_at") is None:
                row |= {"began_at": now, "chosen": None}
            if row.get("was_let_go") and _is_free(job):
                row |= {"is_held": False, "was_let_go": False}
            if job.is_live:
                row["set_to"] = None
            known[job.id] = row
            try:
                if "tasks_per_node" not in row:
                    row["tasks_per_node"] = self._tasks_per_node(job)
                planned[job.id] = self._classified(job, read, row, shared)
            except (InputError, ValueError, SlurmRefused) as error:
                self.troubles[job.id] = f"not planned: {error}"
        for number, row in before.items():
            present = next((job for job in jobs if job.id == number), None)
            if number not in known and row.get("is_held") and present is not None and present.waits:
                known[number] = {**row, "is_held": not (row.get("was_let_go") and _is_free(present))}
        self._store(known)
        self._planned = planned
        self._wanted = {number: count for number, count in self._wanted.items() if number in planned}
        self._refusals = {number: count for number, count in self._refusals.items() if number in planned}
        self._open_since = {
            number: self._open_since.get(number, now)
            for number, one in planned.items()
            if one.job.state == "CONFIGURING"
        }
        self._daemon.classes_besides = frozenset(one.job_class.name for one in planned.values())

    def _tasks_per_node(self, job: SlurmJob) -> int:
        """Return the tasks on each node that a job has asked for; 0 if it says nothing of them."""
        found = re.match(r"[0-9]+", self._slurm.figures(job.id).get("NtasksPerN:B:S:C", ""))
        return int(found.group()) if found else 0

    def _classified(
        self, job: SlurmJob, read: Mapping[str, str], row: Mapping[str, Any], shared: set[str]
    ) -> _Planned:
        """Return a job with its class; `read` are the keys of its comment.

        Raises:
            InputError: when no class has its widths.
            ValueError: when it cannot be planned.
        """
        said = {key: value for key, value in read.items() if key not in FLAGS or value == "true"}
        first_nodes = int(row["nodes"])
        if row["tasks_per_node"] and "tasks" not in said:
            raise ValueError(
                "sbatch has fixed its number of tasks: leave --ntasks-per-node and --ntasks out, or "
                "`unset SLURM_NTASKS SLURM_NPROCS` in the script and say boa:tasks"
            )
        if job.is_task:
            raise ValueError("tasks of arrays keep their width")
        if shared.intersection(job.hosts):
            raise ValueError("it shares its nodes; ask for them with --exclusive")
        partition = self._daemon.settings.slurm.partitions[job.partition]
        machines = self._daemon.planner.on_demand.values()
        gpus = next(one.gpus for one in machines if one.name == partition.instance_type)
        found, gpus = self._daemon.planner.class_on_nodes(
            said["class"],
            partition.instance_type,
            least=int(said.get("min_gpus", gpus)),
            most=int(said.get("max_gpus", gpus * max(first_nodes, 1))),
            label=f"slurm {job.partition}",
        )
        return _Planned(job=job, said=said, job_class=found, gpus=gpus)

    def plan(self, decision: Decision, nodes: Mapping[str, JobRecord]) -> None:
        """Decide the widths, from what a tick saw; `nodes` are the jobs here by node of Slurm."""
        if not self._planned:
            return
        controller = self._daemon.controller()
        known = controller.classes
        able = [one for one in self._planned.values() if known is None or one.job_class.name in known]
        if not able:
            return
        state = self._with_jobs(decision.state, able, nodes)
        plan = decide(
            state, allocator=controller.allocator, placer=controller.placer, rules=controller.rules
        ).plan
        for one in able:
            width = plan.jobs.widths.get(one.name)
            # A job that has to wait is asked for as it is, and BOA says why it waits.
            self._wanted[one.job.id] = one.job.node_count if width is None else width.gpus // one.gpus

    def _with_jobs(
        self, state: ClusterState, planned: Sequence[_Planned], nodes: Mapping[str, JobRecord]
    ) -> ClusterState:
        """Return a state in which jobs of Slurm stand in place of the nodes that they have."""
        owner: dict[str, str] = {}
        jobs: dict[str, JobState] = {}
        for one in planned:
            mine = [nodes[host] for host in one.job.hosts if host in nodes] if one.job.is_live else []
            owner |= dict.fromkeys([record.id for record in mine], one.name)
            slots = tuple(
                slot
                for record in mine
                if (seen := state.jobs.get(record.id)) is not None
                for slot in seen.slots
            )
            jobs[one.name] = self._state_of(one, slots if one.runs else ())
        others = {name: job for name, job in state.jobs.items() if name not in owner}
        held = {one.name for one in planned if jobs[one.name].slots}
        lists = {name: self._gpus(node.gpus, owner, held) for name, node in state.nodes.items()}
        return replace(
            state,
            jobs={**others, **jobs},
            nodes={name: replace(node, gpus=lists[name]) for name, node in state.nodes.items()},
            claims={name: claim for name, claim in state.claims.items() if name not in owner},
            acts=tuple(sorted((*state.acts, *self._changes), key=lambda act: act.at)),
        )

    def _gpus(
        self, gpus: Sequence[str | None], owner: Mapping[str, str], held: set[str]
    ) -> tuple[str | None, ...]:
        """Return the jobs on a node's GPUs; those of a job that has not begun are free for it."""
        named = (owner.get(job, job) if job is not None else None for job in gpus)
        planned = set(owner.values())
        return tuple(None if job in planned and job not in held else job for job in named)

    def _state_of(self, one: _Planned, slots: tuple[GpuSlot, ...]) -> JobState:
        """Return a job of Slurm as the tick sees jobs."""
        now, row = self._daemon.world.clock.now(), self._known.get(one.job.id, {})
        kind = next(iter(one.job_class.phases[0].speedups))
        width = Width(kind, len(slots)) if slots else None
        began_at, done = row.get("began_at"), 0.0
        if width is not None and began_at is not None:
            speed = self._daemon.planner.speed(one.job_class.name, 0, width)
            done = speed * (now - began_at) / SECONDS_PER_HOUR
        base = one.job_class.name.partition("[")[0]
        rest = remaining_work_of(
            one.job_class,
            scale=float(one.said.get("scale", 1.0)),
            done=done,
            spread=self._daemon.learning.beliefs.spread_of(base),
        )
        job = Job(
            id=one.name,
            class_name=one.job_class.name,
            arrived_at=float(row.get("seen_at", now)),
            phase=rest.phase,
            remaining_gpu_hours=rest.left,
            scale=rest.scale,
            weight=float(one.said.get("weight", 1.0)),
            width=width,
        )
        return JobState(
            job=job,
            slots=slots,
            terms=JobTerms(
                user=one.job.user,
                team=self._daemon.settings.slurm.teams.get(one.job.account, ""),
            ),
            is_rigid=not ("elastic" in one.said or "shrink" in one.said),
            began_at=began_at if slots else None,
        )

    def carry_out(self) -> list[str]:
        """Set the widths that were decided; return the nodes that jobs have given back.

        Raises:
            SlurmSilent: when Slurm does not answer.
        """
        given_back: list[str] = []
        for number, one in self._planned.items():
            count, job = self._wanted.get(number), one.job
            is_held = self._is_held(number)
            if count is None and not is_held:
                continue
            count = count or job.node_count
            try:
                if job.state == "CONFIGURING" and self._chosen(number) == job.node_count:
                    continue
                if job.state == "CONFIGURING" and count == job.node_count:
                    self._put(number, chosen=count)
                elif job.waits:
                    self._set_waiting(one, count, is_held=is_held)
                elif count != job.node_count and not self._is_fixed(number):
                    given_back += self._change_live(one, count)
            except SlurmRefused as error:
                # It may have changed since it was listed, as when Slurm has just started it.
                is_final = not any(passing in str(error) for passing in (LATER, WAITS_ALREADY))
                self._refusals[number] = self._refusals.get(number, 0) + is_final
                if self._is_fixed(number):
                    _LOG.warning("job %s of Slurm keeps its width: %s", number, error)
        for number, row in list(self._known.items()):
            # Its comment has changed meanwhile, or its partition.
            if row.get("is_held") and not row.get("was_let_go") and number not in self._planned:
                self._let_go(number)
        return given_back

    def _set_waiting(self, one: _Planned, count: int, *, is_held: bool) -> None:
        """Set the width of a job that waits, and let it go if we hold it."""
        # A requeued job is listed with the nodes that it had.
        before = self._known.get(one.job.id, {}).get("set_to") or one.job.node_count
        if count != before and not self._is_fixed(one.job.id):
            try:
                self._slurm.update_job(one.job.id, **self._sizes(one.job, count))
                self._put(one.job.id, set_to=count, chosen=count)
                _LOG.info("job %s of Slurm is planned on %s", one.job.id, counted(count, "node"))
            except SlurmRefused:
                # Slurm changes no job whose old processes still end: it is tried again, and at last let go.
                if is_held and self._refusals.get(one.job.id, 0) + 1 >= MOST_REFUSALS:
                    self._let_go(one.job.id)
                raise
        if is_held and self._is_to_be_let_go(one.job):
            self._let_go(one.job.id)

    def _is_to_be_let_go(self, job: SlurmJob) -> bool:
        """Return whether a job that we hold has not been let go, or Slurm has held it since; users may."""
        reason = job.reason.lower()
        is_held_anew = "held" in reason and "user" not in reason
        return is_held_anew or not self._known.get(job.id, {}).get("was_let_go")

    def _sizes(self, job: SlurmJob, count: int) -> dict[str, str]:
        """Return the sizes of a job with so many nodes: its tasks too, where it has a number on each."""
        found = {"NumNodes": f"{count}-{count}"}
        if per_node := int(self._known.get(job.id, {}).get("tasks_per_node", 0)):
            found["NumTasks"] = str(per_node * count)
        return found

    def _change_live(self, one: _Planned, count: int) -> list[str]:
        """Change the width of a job that has nodes; return those that it has given back."""
        job, now = one.job, self._daemon.world.clock.now()
        is_less = count < job.node_count
        if is_less and (not one.runs or "shrink" in one.said):
            before = set(job.hosts)
            self._slurm.update_job(job.id, NumNodes=str(count))
            self._put(job.id, chosen=count)
            found = [each for each in self._slurm.jobs() if each.id == job.id]
            _LOG.info("job %s of Slurm goes on with %s", job.id, counted(count, "node"))
            self._note(Act(kind="start", target=one.name, at=now))
            return sorted(before - set(found[0].hosts)) if found and not one.runs else []
        if one.runs and "elastic" not in one.said:
            return []
        # Stored before: whoever finds a job held lets it go.
        was_held = self._is_held(job.id)
        self._put(job.id, is_held=True, was_let_go=False)
        try:
            self._slurm.requeue_held(job.id)
        except SlurmRefused:
            # Slurm lists a requeued job with its nodes for a moment, and refuses to requeue it once more.
            self._put(job.id, is_held=was_held)
            raise
        _LOG.info("job %s of Slurm is requeued for %s", job.id, counted(count, "node"))
        self._note(*(Act(kind=kind, target=one.name, at=now) for kind in ("stop", "start")))
        return []

    def _note(self, *acts: Act) -> None:
        self._changes = [*self._changes[-MOST_CHANGES:], *acts]

    def _let_go(self, number: str) -> None:
        """Let a job start that we hold; Slurm would let a requeued one wait for two minutes."""
        with suppress(SlurmRefused):
            self._slurm.update_job(number, StartTime="now")
        try:
            self._slurm.release(number)
            self._put(number, was_let_go=True)
        except SlurmRefused as error:
            _LOG.warning("job %s of Slurm is not held any more: %s", number, error)
            self._put(number, is_held=False)

    def _is_held(self, number: str) -> bool:
        return bool(self._known.get(number, {}).get("is_held"))

    def _put(self, number: str, **values: Any) -> None:
        """Store what has become of a job."""
        self._store({**self._known, number: {**self._known.get(number, {}), **values}})

    def _read(self) -> None:
        if not self._is_read and self._daemon.storage is not None:
            found = read_slurm_widths(self._daemon.storage.store.database)
            self._known, self._is_read = {name: dict(row) for name, row in found.items()}, True

    def _store(self, known: Mapping[str, dict[str, Any]]) -> None:
        if known == self._known:
            return
        if self._daemon.storage is None:
            raise BoaError("there is no database to work with")
        write_slurm_widths(self._daemon.storage.store.database, known)
        self._known = dict(known)


def _said_of(job: SlurmJob, partitions: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys of a job's comment.

    Raises:
        ValueError: when it cannot be read, names no class, or the job's partition is none of BOA's.
    """
    read = read_class_comment(job.comment)
    if unkept := [key for key in OWN_JOBS if key in read]:
        raise ValueError(f"boa:{unkept[0]} is kept for jobs of `boa submit` alone")
    if "class" not in read:
        raise ValueError(f"boa:{next(iter(read))} has no class to go with: write boa:class=NAME,...")
    if job.partition not in partitions:
        raise ValueError(f"partition {job.partition} is none of BOA's, which are {', '.join(partitions)}")
    return read


def _is_free(job: SlurmJob) -> bool:
    """Return whether a job that we held has been let go for good.

    Slurm holds a requeued job only once its old processes have ended, perhaps after it was let go.
    """
    return job.state in ("CONFIGURING", "RUNNING")
