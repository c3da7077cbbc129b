"""The `ssm` engine: runs jobs on rented nodes as transient systemd units, started through SSM Run Command.

The daemon sends scripts to nodes through SSM, and nodes report through one SQS queue: heartbeats with the
step, ends with exit code and manifest; EventBridge adds spot warnings. Logs and checkpoints go to S3 and
outlive their nodes. The engine's state is saved at each change, so a restarted daemon has it again.

Silence is not death. A unit that has not reported for a while is *unknown*, and is asked through SSM. It is
lost only if its node is also gone from the cloud's list, or if several questions brought no sign of life.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from boa_daemon.engines.accounts import own_account
from boa_daemon.engines.generation_units import readable, units_of
from boa_daemon.engines.inbox import Inbox, SqsClient
from boa_daemon.engines.job_access import SsmJobAccess, no_such_node
from boa_daemon.engines.layout import Layout
from boa_daemon.engines.run_reports import Generation, UnitStatus, is_broken, report_of
from boa_daemon.engines.s3_files import bucket_and_key, drop_files, list_files, list_folders, read_file
from boa_daemon.engines.s3_logs import S3Client, count_nodes, read_s3_log
from boa_daemon.engines.ssm_commands import (
    Preparer,
    SsmClient,
    SsmCommands,
    is_about_the_node,
)
from boa_daemon.engines.ssm_prefetch import SsmPrefetch, prefetch_script
from boa_daemon.engines.ssm_runs import (
    SsmJob,
    SsmRun,
    document_of,
    lost,
    read_ssm_jobs,
    ssm_job_from,
    starting,
    write_ssm_jobs,
)
from boa_daemon.engines.ssm_scripts import (
    STATUS,
    bundle,
    kill_script,
    library,
    start_script,
    status_script,
    stop_script,
    unit_scripts_for,
)
from boa_daemon.engines.ssm_starts import StartOrders
from boa_daemon.inputs.message_validation import (
    DROPPED_MESSAGES,
    is_authentic,
    json_object,
    parse_unit_status,
)
from boa_daemon.job.seal import TOLD
from boa_daemon.tick.facts.actions import StartJob, StopJob
from boa_daemon.tick.facts.job_spec import JobSpec
from boa_daemon.tick.facts.node_lives import instance_of
from boa_daemon.tick.facts.ports import (
    Accepted,
    GatePass,
    JobGate,
    JobPapers,
    LogChunk,
    Refused,
    RunReport,
    Unknown,
)
from boa_daemon.tick.facts.state import NodeState
from policies.model import GpuSlot, JobId, NodeId

_LOG = logging.getLogger("boa.engine")
AGAIN_SECONDS = 15.0
"""A stop is repeated after this time until the generation has ended."""
MOST_ANSWERS = 2
"""A node's reports count as lost once its units have answered this often without one of them."""
MOST_PROBES = 3
"""A silent unit is lost after this many probes in a row without a sign of life, whatever was answered."""
ASIDE_SECONDS = 5.0
"""Shortest time between two copies of the engine's state beside its database."""
PROBE = "the answer to a probe"
_Memory: TypeAlias = tuple[Callable[[], Mapping[str, str]], Callable[[Mapping[str, str]], None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SsmSettings:
    """Settings of the engine. `root` is a folder on the nodes, in which `{node}` stands for the node's id.

    `uri` is an S3 prefix, `s3://bucket/prefix`. `state_file` stores the engine's state.
    """

    queue_url: str
    uri: str
    state_file: Path
    root: str = "/var/lib/boa"
    heartbeat_seconds: float = 15.0
    silent_seconds: float = 60.0
    probe_seconds: float = 20.0
    rendezvous_port: int = 29400
    own_user: bool = False
    """Whether each job runs as its own user on its nodes, instead of root."""
    region: str = ""
    """AWS region of the queue, the bucket and the secrets; empty: that of each machine."""


class SsmEngine:
    """Implements `Runner` over SSM, SQS and S3.

    `address_of` returns a node's private address. `efa_of` returns how many EFA cards a node must have, and
    why they are not checked (empty if they are). `region_of` returns a node's region for sessions of people,
    empty for the region set in their shell. With `starts_at_once` threads, ticks do not wait for starts or
    for new nodes; with 0, each start is completed within its call.
    """

    name = "ssm"

    def __init__(
        self,
        ssm: SsmClient,
        sqs: SqsClient,
        s3: S3Client,
        settings: SsmSettings,
        *,
        address_of: Callable[[NodeId], str],
        now: Callable[[], float] = time.time,
        gate: JobGate | None = None,
        starts_at_once: int = 0,
        efa_of: Callable[[NodeId], tuple[int, str]] = lambda node: (0, ""),
        region_of: Callable[[NodeId], str] = lambda node: "",
    ) -> None:
        self._commands, self._s3, self._settings = SsmCommands(ssm, region=settings.region), s3, settings
        self._inbox = Inbox(sqs, settings.queue_url, self._read_status)
        self._now, self._gate, self._efa_of = now, gate, efa_of
        self.starts = StartOrders(self._commands, address_of, at_once=starts_at_once)
        self._is_cut_off = False
        self._answered: Counter[NodeId] = Counter()
        self._jobs: dict[JobId, SsmJob] = {}
        self._is_recalled = False
        self._saved_aside_at = float("-inf")
        self._preparer = Preparer(self._commands, self._bring_bundle, lambda: self._now())  # noqa: PLW0108 - a later clock too
        self._bringing = SsmPrefetch(self._commands)
        self._present: frozenset[NodeId] | None = None
        self._has_news = False
        self._memory: _Memory | None = None
        self._codes: set[str] = set()
        self.inside = SsmJobAccess(self._commands, self._running_at, region_of=region_of)

    def _running_at(self, job: JobId, node: int) -> tuple[str, str, str] | Refused:
        """Return the node, the folder and the root of a job's running unit."""
        known = self._jobs.get(job)
        if known is None or known.run is None or self._look(known).is_over:
            return Refused(reason=f"job {job} does not run now")
        if not 0 <= node < len(known.run.nodes):
            return no_such_node(job, node)
        name, root = known.run.nodes[node], self._root(known.run.nodes[node])
        folder = Layout(root=Path(root) / "jobs").unit(job, known.run.generation.number, node)
        return name, str(folder), root

    def prepare(self, nodes: Sequence[NodeState]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Bring the bundle to nodes; accept a node once its script has reported that it is ready."""
        self._present = frozenset(node.id for node in nodes)
        found: dict[NodeId, Accepted | Refused | Unknown] = {}
        new: dict[NodeId, Callable[[], Accepted | Refused | Unknown]] = {}
        for node in nodes:
            if self._preparer.is_ready(node.id):
                found[node.id] = Accepted()
            else:
                efa, unchecked = self._efa_of(node.id)
                new[node.id] = partial(
                    self._preparer.prepare,
                    node.id,
                    self._root(node.id),
                    gpus=node.instance_type.whole_gpus,
                    efa=efa,
                    unchecked=unchecked,
                )
        return found | self.starts.ask(new)

    def admit(self, spec: JobSpec) -> Accepted | Refused:
        """Store the job's specification. Its working folder is on the nodes, by default the job's own."""
        # Read the saved state first, so that it is not overwritten.
        self._recall()
        known = self._jobs.get(spec.job)
        if known is None:
            self._jobs[spec.job] = SsmJob(spec=spec)
        else:
            known.spec = spec
        self._save()
        return Accepted()

    def start(self, action: StartJob) -> Accepted | Refused:
        """Send each node its unit. If a node does not take it, end the others and refuse the start.

        With threads, the start is accepted at once, and a refusal is reported later as a stopped generation.
        """
        known = self._jobs.get(action.job)
        if known is None:
            return Refused(reason=f"job {action.job} was not admitted", kind="bad-request")
        run = known.run
        if run is not None and run.generation.number == action.generation:
            return Accepted()
        if run is not None and (run.generation.number > action.generation or not self._look(known).is_over):
            if run.generation.number < action.generation:
                self._give_up_gone(run)
            return Refused(reason=f"generation {run.generation.number} of {action.job} is not over")
        nodes, key = tuple(dict.fromkeys(slot.node for slot in action.slots)), secrets.token_hex(32)
        script = partial(self._start_script, known.spec, known.stands, action, key)
        generation = Generation(job=action.job, number=action.generation, gpus=len(action.slots))
        order = self.starts.begin(nodes, script, kill_script(_pattern(action.job, action.generation)))
        now = self._now()
        slots = () if action.places_per_gpu > 1 else tuple((slot.node, slot.index) for slot in action.slots)
        known.run = SsmRun(
            generation=generation, nodes=nodes, started_at=now, key=key, order=order, slots=slots
        )
        if order.done():
            if refused := order.result():
                known.run = run
                return refused
            known.run.harvest(now)
            self._save()
        return Accepted()

    def ahead(self, action: StartJob) -> bool:
        """Prefetch code and image to the nodes to which a job moves; return whether nothing is under way."""
        known = self._jobs.get(action.job)
        if known is None or known.run is None or known.run.generation.number >= action.generation:
            return True
        nodes = {slot.node for slot in action.slots}.difference(known.run.nodes)
        scripts = {}
        for node in sorted(nodes):
            root = self._root(node)
            code_at = self._code_uri(known.spec.code)
            script = prefetch_script(known.spec, Layout(root=Path(root) / "jobs"), root, code_at=code_at)
            if script:
                scripts[node] = script
        return self._bringing.is_done(action.job, action.generation, scripts)

    def _give_up_gone(self, run: SsmRun) -> None:
        """Mark units as lost whose nodes are not in the cloud's list, when the next generation is ordered.

        Without this, a job whose node has ended could not start until its unit has been silent for long. The
        start is refused once, so that the end of the old generation is reported first.
        """
        for rank, node in enumerate(run.nodes):
            has_ended = (run.heard.get(rank) or {}).get("exit") is not None
            if self._present is not None and node not in self._present and not has_ended:
                run.heard[rank] = lost(run, rank)

    def _start_script(  # noqa: PLR0917 - all but the last two are the same for the whole start
        self,
        spec: JobSpec,
        stands: Mapping[str, Any] | None,
        action: StartJob,
        key: str,
        addresses: Mapping[NodeId, str],
        rank: int,
    ) -> str:
        settings, root = self._settings, self._root(list(addresses)[rank])
        layout = Layout(root=Path(root) / "jobs")
        given, spec = self._pass(spec, action, list(addresses), root)
        account = own_account(spec.job, layout.home(spec.job)) if settings.own_user else None
        begin = layout.job(spec.job) if account is None else account.home
        errands = unit_scripts_for(
            queue_url=settings.queue_url,
            uri=self._uri(spec.job),
            generation=action.generation,
            stands=stands,
            unit_folder=str(layout.unit(spec.job, action.generation, rank)),
            checkpoints=str(layout.checkpoints(spec.job)),
            artifacts=str(layout.artifacts(spec.job)) if spec.artifacts else "",
        )
        is_elsewhere = spec.workdir != "." or spec.code
        unit = units_of(
            spec if is_elsewhere else replace(spec, workdir=str(begin)),
            action,
            layout,
            addresses=addresses,
            port=settings.rendezvous_port + sum(map(ord, f"{action.job}{action.generation}")) % 3000,
            errands=replace(errands, beat_seconds=settings.heartbeat_seconds),
            code_at=self._code_uri(spec.code),
            account=account,
        )[rank]
        unit = replace(unit, region=settings.region)
        return start_script(root, {**asdict(unit), "folder": str(unit.folder)}, gate=given, key=key)

    def _pass(
        self, spec: JobSpec, action: StartJob, nodes: Sequence[NodeId], root: str
    ) -> tuple[GatePass | None, JobSpec]:
        """Return a generation's pass for the gate, and the job with the gate's hook if the job wants it."""
        if self._gate is None:
            return None, spec
        folder = Layout(root=Path(root) / "jobs").generation(action.job, action.generation)
        try:
            given = self._gate.admit(
                action.job, action.generation, nodes, token_file=str(folder / "gate.token")
            )
        except (OSError, ValueError) as fault:
            _LOG.warning("job %s sends without asking the gate: %s", action.job, fault)
            return None, spec
        if not spec.gate:
            return given, spec
        where = library(root)
        own = spec.environment.get("PYTHONPATH", "")
        # Add the keeper's path, on which jobs find `boa_daemon.job`: the job's PYTHONPATH replaces it.
        path = {**spec.environment, "PYTHONPATH": f"{own}:{where}" if own else where}
        return given, replace(spec, environment=self._gate.hooked(path, library=where))

    def stop(self, action: StopJob) -> Accepted | Refused:
        """Ask the units of a generation for a checkpoint and a stop."""
        return self._order(action.job, action.generation, is_kill=False)

    def kill(self, job: JobId, generation: int) -> Accepted | Refused:
        """End a generation at once."""
        return self._order(job, generation, is_kill=True)

    def _order(self, job: JobId, generation: int, *, is_kill: bool) -> Accepted | Refused:
        """Send an order to all nodes of a generation, in one command."""
        known = self._jobs.get(job)
        run = known.run if known is not None else None
        if known is None or run is None or run.generation.number != generation or self._look(known).is_over:
            return Accepted()
        if not run.can_hear(self._now()):
            run.then = "kill" if is_kill or run.then == "kill" else "stop"
        else:
            answer = self._send_order(run, is_kill=is_kill)
            if isinstance(answer, Refused):
                return answer
        run.generation = replace(
            run.generation,
            is_stop_ordered=run.generation.is_stop_ordered or not is_kill,
            is_kill_ordered=run.generation.is_kill_ordered or is_kill,
        )
        self._save()
        return Accepted()

    def _send_order(self, run: SsmRun, *, is_kill: bool) -> str | Refused:
        """Send a stop or kill order to the nodes of a generation."""
        pattern = _pattern(run.generation.job, run.generation.number)
        script = kill_script(pattern) if is_kill else stop_script(pattern)
        run.told_at = self._now()
        return self._commands.send_each(run.nodes, script, "end a unit" if is_kill else "stop a unit")

    def _follow(self, known: SsmJob, run: SsmRun) -> bool:
        """Record the outcome of a pending start; send delayed orders; return whether the outcome is new.

        A stop is repeated in case it was lost or came too early; a unit that is already stopping ignores it.
        """
        now = self._now()
        is_new = run.harvest(now)
        if not run.can_hear(now):
            return is_new
        if run.then is not None:
            if not isinstance(self._send_order(run, is_kill=run.then == "kill"), Refused):
                run.then = None
        elif (
            run.generation.is_stop_ordered
            and not run.generation.is_kill_ordered
            and now - run.told_at >= AGAIN_SECONDS
            and not self._look(known).is_over
        ):
            self._send_order(run, is_kill=False)
        return is_new

    def unfit(self) -> Mapping[NodeId, str]:
        """Return the nodes on which units have found hardware faults, with the faults."""
        found: dict[NodeId, str] = {}
        for known in self._jobs.values():
            if known.run is None:
                continue
            for rank, said in known.run.heard.items():
                if said.get("node_faults") and rank < len(known.run.nodes):
                    found[known.run.nodes[rank]] = ", ".join(said["node_faults"])
        return found

    def nets(self) -> Mapping[str, Callable[[], str]]:
        """Return the queue of reports and the way to the nodes, with what says why each is lost."""
        return {
            "reports": lambda: self._inbox.fault or self._unreported(),
            "commands": lambda: self._commands.fault,
        }

    def _unreported(self) -> str:
        """Return which nodes answer when they are asked, and do not report; empty if there is none."""
        present = {node for job in list(self._jobs.values()) if job.run is not None for node in job.run.nodes}
        found = sorted(
            node for node, times in list(self._answered.items()) if times >= MOST_ANSWERS and node in present
        )
        if not found:
            return ""
        return (
            f"jobs run on {', '.join(found)}, and no report of theirs comes through the queue: they are "
            "asked one by one instead, and what happens is noticed late. `boa doctor` looks at the policies "
            "of the queue and of the nodes' role, and at the network"
        )

    def _node_of(self, status: Mapping[str, Any]) -> NodeId:
        """Return the node of the unit that a status is about; empty if it is of no present one."""
        known = self._jobs.get(status["job"])
        run = None if known is None else known.run
        rank = status["rank"]
        return "" if run is None or rank >= len(run.nodes) else run.nodes[rank]

    def interruptions(self) -> Mapping[NodeId, float]:
        """Return the nodes that the cloud takes back according to its warnings, and when."""
        return dict(self._inbox.interruptions)

    def poll(self) -> Mapping[JobId, RunReport]:
        """Read the queue, ask silent units, and return the report of the newest generation of every job."""
        # Save before messages are deleted, or an end would be lost if this process died.
        for status in self._inbox.receive(keep=self._save_news):
            self._has_news |= self._heard(status)
            self._answered.pop(self._node_of(status), None)
        self._is_cut_off = False
        for known in self._jobs.values():
            if known.run is not None:
                self._has_news |= self._follow(known, known.run)
                self._has_news |= known.run.is_started and self._ask_silent(known.run)
        self._save_news()
        return {
            job: self._looked_at(job, known)
            for job, known in list(self._jobs.items())
            if known.run is not None
        }

    def _looked_at(self, job: JobId, known: SsmJob) -> RunReport:
        """Return the report of a job; "unknown" if its statuses are malformed, which affects no other job."""
        try:
            return self._look(known)
        except Exception as error:
            DROPPED_MESSAGES.note("what the units of a job said", f"{type(error).__name__}: {error}")
            run = known.run
            assert run is not None
            number, gpus = run.generation.number, run.generation.gpus
            said = f"the statuses of its units are malformed: {type(error).__name__}"
            return RunReport(job=job, generation=number, phase="unknown", evidence=said, gpus=gpus)

    def _save_news(self) -> None:
        if self._has_news:
            self._save()

    def _heard(self, status: dict[str, Any]) -> bool:
        """Record a unit's status; drop one that causes an error; return whether it was news."""
        try:
            return self._hear(status)
        except Exception as error:
            DROPPED_MESSAGES.note("a unit", f"{type(error).__name__}: {error}")
            return False

    def _read_status(self, document: Mapping[str, Any], source: str) -> dict[str, Any] | None:
        """Return a unit's status if it is well-formed, authentic, new, and of its job's newest generation."""
        said = parse_unit_status(document, source)
        if said is None:
            return None
        known = self._jobs.get(said["job"])
        run = known.run if known is not None else None
        if run is None or said["generation"] != run.generation.number or said["rank"] >= len(run.nodes):
            DROPPED_MESSAGES.note(source, "of another generation, or of a rank that it does not have")
            return None
        after = (run.heard.get(said["rank"]) or {}).get(TOLD)
        return said if is_authentic(document, source, key=run.key, after=after) else None

    def _hear(self, status: dict[str, Any]) -> bool:
        """Record a valid status of a unit, unless the unit has ended; return whether it was recorded."""
        known = self._jobs[status["job"]]
        run, rank = known.run, int(status["rank"])
        assert run is not None
        before = run.heard.get(rank)
        if before is not None and before["exit"] is not None:
            return False
        # The status's own `is_kept` may be outdated; a unit that sends and has not ended has a keeper.
        run.heard[rank] = {**status, "is_kept": status["exit"] is None, "was_kept": True}
        run.heard_at[rank] = self._now()
        run.failed_probes.pop(rank, None)
        run.probes.pop(rank, None)
        for found in status.get("kept", ()):
            known.keep(found)
        return True

    def _ask_silent(self, run: SsmRun) -> bool:
        """Ask long-silent units through SSM, and read the answers; return whether there is news."""
        changed = False
        for rank, node in enumerate(run.nodes):
            if (run.heard.get(rank) or {}).get("exit") is not None:
                continue
            now = self._now()
            if now - run.heard_at.get(rank, run.started_at) < self._settings.silent_seconds:
                continue
            if self._present is not None and node not in self._present:
                run.heard[rank] = lost(run, rank)
                changed = True
            elif self._is_cut_off:
                # SSM did not answer a moment ago; waiting for it once per unit could take hours.
                continue
            elif rank not in run.probes:
                answer = self._commands.send([node], self._status_script(run, rank), "ask a unit")
                if not isinstance(answer, Refused):
                    run.probes[rank] = (answer, now)
                elif is_about_the_node(answer.reason):
                    run.probes[rank] = ("", now)
                else:
                    # The question was not sent, which says nothing about the unit.
                    self._is_cut_off = True
            elif now - run.probes[rank][1] >= self._settings.probe_seconds:
                changed |= self._read_probe(run, rank)
        return changed

    def _read_probe(self, run: SsmRun, rank: int) -> bool:
        """Read the answer to a probe; after several in a row without a sign of life, the unit is lost."""
        command, _ = run.probes.pop(rank)
        status, output = self._commands.result(command, run.nodes[rank]) if command else ("Undeliverable", "")
        if status == "Unasked":
            self._is_cut_off = True
            run.probes[rank] = (command, self._now())
            return False
        if status == "Success" and STATUS in output:
            document = json_object(output.partition(STATUS)[2], PROBE)
            said = None if document is None else self._read_status(document, PROBE)
            if said is not None and (said["is_kept"] or said["exit"] is not None):
                self._answered[run.nodes[rank]] += 1
                return self._heard(said)
            # Otherwise the answer is no sign of life: there is no unit, its keeper is dead, or the answer is
            # older than the last status because the node has rebooted. It may also not be the keeper's.
        run.failed_probes[rank] = run.failed_probes.get(rank, 0) + 1
        if run.failed_probes[rank] >= MOST_PROBES:
            self._give_up(run, rank)
        return True

    def _give_up(self, run: SsmRun, rank: int) -> None:
        """Count a unit as lost, after an order that ends it if its node can still be told.

        If the order cannot be sent now, the unit is asked again instead, so that it is never doubled.
        """
        pattern = _pattern(run.generation.job, run.generation.number)
        answer = self._commands.send([run.nodes[rank]], kill_script(pattern), "end a unit")
        if isinstance(answer, Refused) and not is_about_the_node(answer.reason):
            self._is_cut_off = True
            return
        run.heard[rank] = lost(run, rank)

    def _status_script(self, run: SsmRun, rank: int) -> str:
        root, generation = self._root(run.nodes[rank]), run.generation
        folder = Layout(root=Path(root) / "jobs").unit(generation.job, generation.number, rank)
        return status_script(root, str(folder), key=run.key)

    def _look(self, known: SsmJob) -> RunReport:
        """Return the report of a job's newest generation; end the generation if it is broken."""
        run = known.run
        assert run is not None
        if run.refused:
            return run.never_started(known.stands)
        now = self._now()
        units: list[UnitStatus | None] = []
        for rank in range(len(run.nodes)):
            heard = run.heard.get(rank)
            is_silent = now - run.heard_at.get(rank, run.started_at) > self._settings.silent_seconds
            if heard is not None and (heard["exit"] is not None or not is_silent):
                units.append(heard)
            else:
                units.append(None if is_silent else starting(rank))
        # Only checkpoints in S3 count: a node's own copy is lost with the node.
        units = [unit and {**unit, "manifest": known.stands, "wrong_manifest": ""} for unit in units]
        report = report_of(run.generation, units)
        if is_broken(units) and not run.is_ending:
            run.is_ending = True
            if run.order is not None:
                run.then = "kill"
            else:
                self._send_order(run, is_kill=True)
        return report

    def logs(
        self, job: JobId, *, since: int = 0, generation: int | None = None, node: int | None = None
    ) -> LogChunk:
        """Return the log of a unit as far as it is in S3; by default of the unit that reports progress."""
        known = self._jobs.get(job)
        if generation is None:
            generation = known.run.generation.number if known is not None and known.run else 0
        run = known.run if known is not None else None
        if run is None or run.generation.number != generation:
            # The number of nodes of an older generation is only known from the logs that they have sent.
            nodes = max(count_nodes(self._s3, f"{self._uri(job)}/g{generation}/"), 1)
            node = node or 0
        else:
            nodes = len(run.nodes)
            if node is None:
                node = next((rank for rank, said in run.heard.items() if said["progress"]), 0)
        chunk = read_s3_log(self._s3, f"{self._uri(job)}/g{generation}/n{node}/", since)
        return replace(chunk, node=node, nodes=nodes)

    def reattach(self) -> Mapping[JobId, RunReport]:
        """Read the saved state, and return the reports; silent units are asked."""
        self._recall()
        return self.poll()

    def _recall(self) -> None:
        """Read the state of an earlier process, once."""
        if self._is_recalled:
            return
        # The database is first; the file of this machine has what a lost or restored database lacks.
        self._jobs.update(read_ssm_jobs(self._settings.state_file))
        if self._memory is not None:
            for job, text in self._memory[0]().items():
                known, aside = ssm_job_from(json.loads(text)), self._jobs.get(job)
                if aside is None or _number(aside) <= _number(known):
                    self._jobs[job] = known
        for known in self._jobs.values():
            if known.run is not None:
                # If the old clock was ahead, limit its times to now, or units would not count as silent.
                known.run.started_at = min(known.run.started_at, self._now())
                heard = known.run.heard_at.items()
                known.run.heard_at = {rank: min(at, self._now()) for rank, at in heard}
        self._is_recalled = True

    def tell_time(self, now: Callable[[], float]) -> None:
        """Use this clock from now on, because the machine's clock may jump."""
        self._now = now

    def remember_in(
        self, read: Callable[[], Mapping[str, str]], write: Callable[[Mapping[str, str]], None]
    ) -> None:
        """Store the state, job by job, with these functions instead of in a file of this machine."""
        self._memory = (read, write)

    def lacks_data(self, source: str) -> str:
        """Return why a data source cannot be listed with the daemon's own rights; empty if it can."""
        bucket, prefix = bucket_and_key(source)
        below = f"{prefix.rstrip('/')}/" if prefix else ""
        try:
            found = self._s3.list_objects_v2(Bucket=bucket, Prefix=below, MaxKeys=1)
        except Exception as error:
            return f"{source} cannot be listed: {error}"
        return "" if found.get("Contents") else f"{source} holds no object"

    def has_code(self, digest: str) -> bool:
        """Return whether a code archive is in S3; one seen there once is not checked again."""
        if digest not in self._codes:
            bucket, key = bucket_and_key(self._code_uri(digest))
            listed = self._s3.list_objects_v2(Bucket=bucket, Prefix=key)
            if not any(row["Key"] == key for row in listed.get("Contents", ())):
                return False
            self._codes.add(digest)
        return True

    def take_code(self, digest: str, archive: bytes) -> None:
        """Store a code archive in S3, where nodes can read it."""
        bucket, key = bucket_and_key(self._code_uri(digest))
        self._s3.put_object(Bucket=bucket, Key=key, Body=archive)
        self._codes.add(digest)

    def drop_code(self, keep: Collection[str], *, before: float) -> int:
        """Remove archives from S3 that are older than `before` and not in `keep`; return how many.

        Nodes remove unpacked code themselves.
        """
        top = f"{self._settings.uri.rstrip('/')}/=code/"
        kept = {f"{digest}.tar.gz" for digest in (*keep, bundle()[0])}
        gone = drop_files(self._s3, top, before, keep=kept)
        self._codes.difference_update(name.removesuffix(".tar.gz") for name in gone)
        return len(gone)

    def _bring_bundle(self) -> str:
        """Store the part of this package that nodes need beside the code of jobs; return its address."""
        digest, packed = bundle()
        self.take_code(digest, packed)
        return self._code_uri(digest)

    def _code_uri(self, digest: str) -> str:
        """Return the S3 address of an archive; no job's folder can have this name."""
        return f"{self._settings.uri.rstrip('/')}/=code/{digest}.tar.gz"

    def job_folders(self) -> Collection[str]:
        """Return the names of the job folders in S3."""
        return list_folders(self._s3, f"{self._settings.uri.rstrip('/')}/")

    def artifacts(self, job: JobId) -> Mapping[str, int]:
        """Return the names of a job's artifacts, with their sizes in bytes."""
        return list_files(self._s3, f"{self._uri(job)}/artifacts/")

    def artifact(self, job: JobId, name: str) -> Iterator[bytes]:
        """Yield the content of one of a job's artifacts."""
        return read_file(self._s3, f"{self._uri(job)}/artifacts/{name}")

    def forget(self, job: JobId) -> None:
        """Forget a job, unless it runs."""
        known = self._jobs.get(job)
        if known is not None and (known.run is None or self._look(known).is_over):
            # The whole state is saved at each report of a node, so finished jobs must not stay in it.
            del self._jobs[job]
            self._bringing.forget(job)
            self._save()

    def _save(self) -> None:
        if self._memory is None:
            write_ssm_jobs(self._settings.state_file, self._jobs)
        else:
            self._memory[1]({job: json.dumps(document_of(known)) for job, known in self._jobs.items()})
            self._save_aside()
        self._has_news = False

    def _save_aside(self) -> None:
        """Write the jobs to the file of this machine as well, now and then, for a lost database."""
        now = time.monotonic()
        if now - self._saved_aside_at >= ASIDE_SECONDS:
            self._saved_aside_at = now
            with suppress(OSError):
                write_ssm_jobs(self._settings.state_file, self._jobs)

    def papers(self, job: JobId) -> JobPapers | None:
        """Return where a job runs, as it was started; None for parts of shared GPUs."""
        known = self._jobs.get(job)
        run = None if known is None else known.run
        if known is None or run is None or not run.slots or len(run.slots) != run.generation.gpus:
            return None
        return JobPapers(
            spec=known.spec,
            generation=run.generation.number,
            slots=tuple(GpuSlot(node, index) for node, index in run.slots),
            started_at=run.started_at,
        )

    def _root(self, node: NodeId) -> str:
        return self._settings.root.replace("{node}", instance_of(node))

    def _uri(self, job: JobId) -> str:
        return f"{self._settings.uri.rstrip('/')}/{Layout(root=Path('/')).job(job).name}"


def _number(known: SsmJob) -> int:
    """Return the number of a job's newest generation; 0 without one."""
    return 0 if known.run is None else known.run.generation.number


def _pattern(job: JobId, generation: int) -> str:
    """Return the pattern that the names of a generation's units match, on any node."""
    return f"boa-{readable(job)}-*-g{generation}-n*.service"
