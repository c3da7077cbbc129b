"""The `slurm` engine: runs jobs on the nodes of a Slurm cluster, each generation as one job of Slurm.

The job of a generation asks for the nodes by name, alone on them if the generation has all of their GPUs. Its
batch script starts a keeper on each node (`boa_daemon.job.slurm`) and passes orders on: a stop is
`scancel -s TERM -b`, after which the keepers let the command save within its grace; the order is beside the
units as well, so it arrives without Slurm's controller too. The job's comment names
the generation, so a daemon that died between its `sbatch` and the answer finds the job and starts no second.

The root folder is on a file system that all nodes share; the status of a unit is read from there, and
whether its keeper lives is what Slurm says of the job. While the controller does not answer, running units
count as running. If the daemon is root, a job of Slurm is its submitter's, in Slurm's accounting too.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote
from sys import executable
from typing import Any

from boa_daemon.engines.accounts import UnixAccount
from boa_daemon.engines.generation_units import readable
from boa_daemon.engines.job_access import LocalJobAccess, parse_command_result
from boa_daemon.engines.local import LocalEngine, job_environment
from boa_daemon.engines.local_units import FILES
from boa_daemon.engines.run_reports import Generation, UnitStatus
from boa_daemon.inputs.message_validation import DROPPED_MESSAGES, parse_unit_status
from boa_daemon.job import code as job_code
from boa_daemon.job.account import give_units
from boa_daemon.job.seal import KEY_FILE
from boa_daemon.job.slurm import NODE_NAME, units_below
from boa_daemon.job.unit import Unit, lost_end, read_json, sealed_document, status_of, write_json
from boa_daemon.slurm.commands import Slurm, SlurmJob, SlurmNode, SlurmRefused, SlurmSilent
from boa_daemon.slurm.options import kept_options
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.job_spec import JobSpec
from boa_daemon.tick.facts.node_lives import instance_of
from boa_daemon.tick.facts.ports import Accepted, JobGate, Refused, RunReport, SaidInside, Unknown
from boa_daemon.tick.facts.state import NodeState
from policies.model import NodeId

ENDED_SECONDS = 3.0
"""Time for the last files of a job that is over to be seen here, before its units count as lost."""
KILLED_SECONDS = 15.0
"""Time after an order to end a generation at once, before Slurm cancels its job."""
WARNING_SECONDS = 30
"""Seconds beyond the grace, before the time limit of Slurm's job, in which its units are told to stop."""
GONE_STATE = "GONE"
BY_SIGTERM = (-15, 143)
"""Exit codes of a command that a SIGTERM has ended."""


class SlurmEngine(LocalEngine):
    """Implements `Runner` with jobs of Slurm; `root` is a folder that all its nodes share."""

    name = "slurm"

    def __init__(
        self,
        root: Path,
        *,
        slurm: Slurm | None = None,
        options: Sequence[str] = (),
        gpus_of: Mapping[str, int] | None = None,
        gate: JobGate | None = None,
        own_user: bool = False,
        secrets_file: str = "",
        python: str = executable,
    ) -> None:
        super().__init__(root, gate=gate, own_user=own_user, secrets_file=secrets_file)
        self._slurm = slurm or Slurm()
        # The nodes have the same Python at the same path, which all users of the jobs may run.
        self._python = python
        self._options = tuple(kept_options(options))
        # GPUs of a node by partition, where Slurm knows of none; unknown: a generation has its nodes alone.
        self._gpus_of = dict(gpus_of or {})
        self._ended_at: dict[Path, float] = {}
        self._killed_at: dict[Path, float] = {}
        self.inside = SlurmJobAccess(self)

    def ahead(self, action: StartJob) -> bool:
        """Prepare nothing: Slurm's nodes are still the present generation's."""
        del action
        return True

    def admit(self, spec: JobSpec) -> Accepted | Refused:
        """Store the job's specification, if its options are ones that a job may choose."""
        try:
            kept_options(spec.slurm_options, as_operator=not self._own_user)
        except ValueError as error:
            return Refused(reason=str(error), kind="bad-request")
        return super().admit(replace(spec, slurm_options=tuple(spec.slurm_options)))

    def prepare(self, nodes: Sequence[NodeState]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Accept the nodes that are up in Slurm."""
        try:
            found = {node.name: node for node in self._slurm.nodes()}
        except (SlurmSilent, SlurmRefused) as error:
            return {node.id: Unknown(reason=str(error)) for node in nodes}
        return {node.id: _readiness(node.id, found.get(instance_of(node.id))) for node in nodes}

    def _addresses(self, nodes: Iterable[NodeId]) -> dict[NodeId, str]:
        known = self._known(nodes)
        return {node: known[node].address or known[node].name for node in nodes}

    def _known(self, nodes: Iterable[NodeId]) -> dict[NodeId, SlurmNode]:
        """Return what Slurm says of nodes; raise `OSError` if it does not know one, or does not answer."""
        try:
            listed = {node.name: node for node in self._slurm.nodes()}
        except (SlurmSilent, SlurmRefused) as error:
            raise OSError(str(error)) from error
        missing = [node for node in nodes if instance_of(node) not in listed]
        if missing:
            raise OSError(f"Slurm has no node {', '.join(missing)}")
        return {node: listed[instance_of(node)] for node in nodes}

    def _units(self, spec: JobSpec, action: StartJob) -> tuple[Unit, ...]:
        """Return the units of a generation; where Slurm hands out GPUs, it says which they are."""
        units = []
        for unit in super()._units(spec, action):
            node = unit.environment["BOA_NODE_ID"]
            environment = {**unit.environment, NODE_NAME: instance_of(node)}
            found = self._known([node])[node]
            if found.gpus and int(environment["BOA_GPUS_PER_NODE"]) < found.gpus:
                del environment["CUDA_VISIBLE_DEVICES"]
            units.append(replace(unit, environment=environment, cpus=0.0, memory_gb=0.0))
        account = self._account(spec)
        if account is not None:
            home = self.layout.home(spec.job)
            units = [replace(unit, bring="", data_cache=str(home / ".boa-data")) for unit in units]
        return tuple(units)

    def _launch(self, units: Sequence[Unit], nodes: Sequence[NodeId]) -> None:
        """Submit the job of a generation to Slurm."""
        spec, generation = self._specs[units[0].job], units[0].folder.parent
        account = self._account(spec)
        if account is not None:
            if spec.code:
                self._bring(spec)
            give_units(units, key_file=generation / KEY_FILE)
        write_json(generation / "nodes.json", {"nodes": list(nodes)})
        self._submit(generation)

    def _bring(self, spec: JobSpec) -> None:
        """Unpack a job's code with the daemon's rights: its folder is handed to the user afterwards."""
        try:
            job_code.bring(
                str(self._archive(spec.code)), spec.code, self.layout.code, self.layout.work(spec.job)
            )
        except job_code.CodeFailed as error:
            raise OSError(str(error)) from error

    def _start_keeper(self, folder: Path) -> None:
        """Submit the generation of a unit, unless Slurm has it already."""
        if read_json(folder.parent / "slurm.json") is None:
            self._submit(folder.parent)

    def _submit(self, generation: Path) -> None:
        """Submit a generation unless its job is in Slurm already; raise `OSError` if that is not known."""
        try:
            found = [job for job in self._slurm.jobs() if job.comment == self._comment(generation)]
            number = found[0].id if found else self._submitted(generation)
        except (SlurmSilent, SlurmRefused) as error:
            raise OSError(str(error)) from error
        write_json(generation / "slurm.json", {"job": number})

    def _submitted(self, generation: Path) -> str:
        """Submit a generation; return the number of its job."""
        options, script = self._order_of(generation)
        return self._slurm.submit(options, script, environment=job_environment(os.environ))

    def _comment(self, generation: Path) -> str:
        """Return the comment that finds the job of a generation in Slurm again."""
        digest = hashlib.sha256(str(self.layout.root).encode()).hexdigest()[:8]
        return f"boa:{generation.parent.name}:{generation.name}:{digest}"

    def _order_of(self, generation: Path) -> tuple[list[str], str]:
        """Return the options and the batch script of a generation's job."""
        units = [Unit.read(folder) for folder in units_below(generation)]
        spec = self._specs[units[0].job]
        known = self._known([unit.environment["BOA_NODE_ID"] for unit in units])
        nodes = list(known.values())
        gpus = int(units[0].environment["BOA_GPUS_PER_NODE"])
        grace = int(spec.stop_grace_seconds) + WARNING_SECONDS
        options = [
            f"--job-name=boa-{readable(spec.name)}",
            f"--comment={self._comment(generation)}",
            f"--partition={nodes[0].partition}",
            f"--nodes={len(nodes)}",
            "--ntasks-per-node=1",
            f"--nodelist={','.join(node.name for node in nodes)}",
            f"--output={units[0].folder / 'slurm.out'}",
            "--open-mode=append",
            "--chdir=/",
            "--export=ALL",
            "--no-requeue",
            f"--signal=B:TERM@{grace}",
            *self._share_of(nodes, gpus, spec),
            *self._options,
            *kept_options(spec.slurm_options),
        ]
        account = self._account(spec)
        if account is not None:
            options += [f"--uid={account.uid}", f"--gid={account.gid}"]
        environment = job_environment(os.environ)
        exported = "".join(
            f"export {name}={quote(value)}\n"
            for name, value in environment.items()
            if account is None or name not in _OWN
        )
        words = f"{quote(self._python)} -m boa_daemon.job.slurm generation {quote(str(generation))}"
        # Signals are ignored until the program handles them, and the daemon repeats its orders.
        return options, f"#!/bin/bash\n{exported}trap '' TERM USR1\nexec {words}\n"

    def _share_of(self, nodes: Sequence[SlurmNode], gpus: int, spec: JobSpec) -> list[str]:
        """Return the options for whole nodes, or for the part that so many GPUs are of a node."""
        least = min(node.gpus for node in nodes)
        devices = [f"--gres=gpu:{min(gpus, least)}"] if least else []
        whole = least or self._gpus_of.get(nodes[0].partition, 0)
        if gpus >= (whole or 1) and not spec.cpus:
            return ["--exclusive", "--mem=0", *devices]
        share = gpus / whole if whole else 1.0
        cpus = max(1, int(spec.cpus or min(node.cpus for node in nodes) * share))
        memory = int(spec.memory_gb * 1000) or int(min(node.memory_mb for node in nodes) * share)
        return [f"--cpus-per-task={cpus}", f"--mem={memory}M", *devices]

    def _signal(self, generation: Path, number: signal.Signals) -> None:
        """Pass an order to the batch script of a generation; cancel a job that still waits for nodes."""
        try:
            job = self._job_of(generation)
            if job is None or job.state == GONE_STATE:
                return
            if job.waits and not any((unit / "keeper.json").exists() for unit in units_below(generation)):
                self._slurm.cancel(job.id)
                return
            if number == signal.SIGUSR1:
                began = self._killed_at.setdefault(generation, time.monotonic())
                if time.monotonic() - began > KILLED_SECONDS:
                    self._slurm.cancel(job.id)
                    return
            self._slurm.signal(job.id, number.name.removeprefix("SIG"))
        except (SlurmSilent, SlurmRefused):
            # The order is on disk, and the next look repeats it.
            return

    def _job_of(self, generation: Path) -> SlurmJob | None:
        """Return the job of a generation; None if it was not submitted.

        Raises:
            SlurmSilent: when the controller does not answer.
        """
        number = (read_json(generation / "slurm.json") or {}).get("job")
        jobs = self._slurm.jobs()
        found = [job for job in jobs if job.comment == self._comment(generation) or job.id == number]
        if found:
            return found[0]
        return None if number is None else SlurmJob(id=str(number), state=GONE_STATE)

    def _runs_unknown(self, run: Generation) -> bool:
        try:
            return any(job.is_live or job.waits for job in self._jobs_of(run))
        except (SlurmSilent, SlurmRefused):
            return True

    def _has_ended_without_files(self, run: Generation) -> bool:
        """Cancel the job in Slurm, which its comment finds; return whether Slurm says that it is over."""
        try:
            going = [job for job in self._jobs_of(run) if job.is_live or job.waits]
            for job in going:
                self._slurm.cancel(job.id)
        except (SlurmSilent, SlurmRefused):
            return False
        return not going

    def _jobs_of(self, run: Generation) -> list[SlurmJob]:
        comment = self._comment(self.layout.generation(run.job, run.number))
        return [job for job in self._slurm.jobs() if job.comment == comment]

    def _statuses(self, folders: Sequence[Path]) -> list[UnitStatus | None]:
        """Return the statuses of units from their files, and whether they run from Slurm."""
        if not folders:
            return []
        generation = folders[0].parent
        units = [_read(folder) for folder in folders]
        ends = [None if unit is None else unit["exit"] for unit in units]
        has_ended = all(end is not None for end in ends)
        # A command may die of Slurm's SIGTERM before its keeper has heard of it.
        by_slurm = not _is_ordered(generation) and any(
            end is not None and (end["stop_asked"] or end["code"] in BY_SIGTERM) for end in ends
        )
        if has_ended and not (by_slurm and "end" not in (read_json(generation / "slurm.json") or {})):
            return units
        try:
            job = self._job_of(generation)
        except (SlurmSilent, SlurmRefused):
            return units
        if has_ended:
            return self._told_by_slurm(generation, job, units)
        if job is None or job.is_live or job.waits:
            self._ended_at.pop(generation, None)
            return units
        began = self._ended_at.setdefault(generation, time.monotonic())
        if time.monotonic() - began < ENDED_SECONDS:
            return units
        self._record_end(generation, job)
        for folder, unit in zip(folders, units, strict=True):
            if unit is None or unit["exit"] is None:
                _end(folder, generation, was_started=unit is None or bool(unit["was_kept"]))
        return [_read(folder) for folder in folders]

    def _told_by_slurm(
        self, generation: Path, job: SlurmJob | None, units: Sequence[UnitStatus | None]
    ) -> list[UnitStatus | None]:
        """Return the statuses of units that were stopped, not by us, once Slurm says what has ended them."""
        began = self._ended_at.setdefault(generation, time.monotonic())
        # A listing of a moment ago may have the job as it was before; then it waits, or runs.
        is_going = job is not None and (job.is_live or job.waits)
        if job is not None and not is_going and job.state != GONE_STATE:
            self._record_end(generation, job)
        elif is_going and time.monotonic() - began < KILLED_SECONDS:
            return [None if unit is None else {**unit, "exit": None} for unit in units]
        return list(units)

    def _record_end(self, generation: Path, job: SlurmJob) -> None:
        """Write down what Slurm says of a job's end, which it forgets after some minutes."""
        with suppress(OSError):
            reason = "" if job.reason in ("None", "") else f" ({job.reason})"
            write_json(generation / "slurm.json", {"job": job.id, "end": f"{job.state}{reason}"})

    def _look(self, run: Generation) -> RunReport:
        """Return the report of a generation, with Slurm's words for why it waits or how it was lost."""
        report = super()._look(run)
        generation = self.layout.generation(run.job, run.number)
        if report.phase == "starting":
            with suppress(SlurmSilent, SlurmRefused):
                job = self._job_of(generation)
                if job is not None and job.waits:
                    why = f" ({job.reason})" if job.reason not in ("None", "") else ""
                    return replace(report, evidence=f"waits in Slurm as job {job.id}{why}")
        is_stopped = (report.phase == "stopped" or report.cause == "signal") and not _is_ordered(generation)
        if report.is_over and (is_stopped or report.cause == "agent-lost") and "Slurm" not in report.evidence:
            found = read_json(generation / "slurm.json") or {}
            ended_itself = str(found.get("end", "")).startswith(("COMPLETED", "FAILED"))
            if "end" in found and (report.cause == "agent-lost" or not ended_itself):
                said = f"Slurm ended its job {found['job']} as {found['end']}"
                report = replace(report, evidence=f"{said}; {report.evidence}")
                self._over[run.job, run.number] = report
        return report

    def variables(self) -> dict[str, str]:
        """Return the variables of Slurm's commands beside jobs: those of a job, and where Slurm is."""
        return self._slurm.variables(job_environment(os.environ))

    def on_node(self, folder: Path) -> tuple[list[str], UnixAccount | None] | Refused:
        """Return the command line that runs a command on the node of a unit, and as whom."""
        try:
            job = self._job_of(folder.parent)
            unit = Unit.read(folder)
        except (SlurmSilent, SlurmRefused, OSError, ValueError) as error:
            return Refused(reason=str(error))
        if job is None or not job.is_live:
            return Refused(reason=f"job {unit.job} has no nodes in Slurm now")
        words = [
            "srun", f"--jobid={job.id}", "--overlap", "--nodes=1", "--ntasks=1", "--quiet", "--chdir=/",
            "--cpu-bind=none", f"--nodelist={unit.environment[NODE_NAME]}",
        ]  # fmt: skip
        return self._slurm.argv(words), self._account(self._specs[unit.job])


class SlurmJobAccess(LocalJobAccess):
    """Runs commands and shells beside jobs as steps of their jobs in Slurm."""

    def __init__(self, engine: SlurmEngine) -> None:
        super().__init__(engine._running_at, engine.variables)
        self._engine = engine

    def _on_node(self, folder: Path, words: Sequence[str]) -> tuple[list[str], dict[str, Any]] | Refused:
        found = self._engine.on_node(folder)
        if isinstance(found, Refused):
            return found
        prefix, account = found
        rights: dict[str, Any] = {}
        if account is not None:
            rights = {"user": account.uid, "group": account.gid, "extra_groups": list(account.groups)}
        pty = ["--pty"] if "--terminal" in words else []
        return [*prefix, *pty, *words], rights

    def _result(self, said: str) -> SaidInside:
        """Return the result of a command, which `srun` may have surrounded with lines of its own."""
        found = next((line for line in said.splitlines() if line.startswith("{")), "")
        if not found and any(word in said for word in ("CANCELLED", "Terminated", "Killed")):
            return SaidInside(code=None, why="the job has ended on this node")
        if not found and any(word in said for word in ("nvalid job id", "expired")):
            return SaidInside(code=None, why="the job does not run on this node")
        return parse_command_result(found or said)


_OWN = ("HOME", "USER", "LOGNAME", "SHELL", "XDG_RUNTIME_DIR")
"""Variables of the daemon's user, which a job of another user sets itself."""


def _readiness(name: NodeId, node: SlurmNode | None) -> Accepted | Unknown:
    if node is not None and node.is_up:
        return Accepted()
    said = "Slurm has no such node" if node is None else f"{node.state}{node.marks} in Slurm"
    why = f": {node.reason}" if node is not None and node.reason else ""
    return Unknown(reason=f"{name} is {said}{why}")


def _is_ordered(generation: Path) -> bool:
    """Return whether we have ordered the end of a generation, and not Slurm."""
    return (generation / "stop").exists() or (generation / "kill").exists()


def _read(folder: Path) -> UnitStatus | None:
    """Return the status of a unit from its files, which only its keeper and the daemon write."""
    try:
        return parse_unit_status(status_of(folder, verify=False), FILES)
    except Exception as error:
        # A job can write anything into its own folder; one bad unit must not hide the others.
        DROPPED_MESSAGES.note(FILES, f"{type(error).__name__}: {error}")
        return None


def _end(folder: Path, generation: Path, *, was_started: bool) -> None:
    """Record the end of a unit that Slurm ended, or never started."""
    is_stopped, is_killed = (generation / "stop").exists(), (generation / "kill").exists()
    facts: dict[str, Any] = {"ended_at": time.time()}
    if not was_started and (is_stopped or is_killed):
        facts |= {"agent_lost": False, "killed": is_killed}
    with suppress(OSError, ValueError):
        unit = Unit.read(folder)
        with unit.as_user():
            end = lost_end(stop_asked=is_stopped, **facts)
            write_json(folder / "exit.json", sealed_document(folder, end))
