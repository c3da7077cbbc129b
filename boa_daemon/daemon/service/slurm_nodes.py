"""Slurm as a customer: the nodes that Slurm's power saving asks for, each as a job that runs slurmd.

`ResumeProgram` and `SuspendProgram` name nodes of Slurm. Each is a rigid job here with the width of one
machine, so caps, ledger, spot, leases and explanations hold for it as for any other job. What BOA cannot
give goes back into Slurm with its reason: the node is powered down by force, which requeues the job there.

Both lists are compared after each tick, in a thread of its own: Slurm may take seconds to answer, and a tick
never waits. So a request that nobody heard, because a daemon was killed or Slurm restarted, is served late,
and never twice: a node of Slurm has at most one job here that is not ordered to end.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from boa_daemon.daemon.planner.slurm_classes import NODE_VARIABLE, class_of_partition
from boa_daemon.daemon.service.slurm_comments import WaitComments
from boa_daemon.daemon.service.slurm_widths import PlannedWidths
from boa_daemon.daemon.service.submissions import Submissions
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import BoaError, InputError
from boa_daemon.slurm.commands import Slurm, SlurmJob, SlurmNode, SlurmRefused, SlurmSilent, expand
from boa_daemon.store.queue import NewJob
from boa_daemon.store.records import NODE_KEY, JobRecord
from boa_daemon.tick.facts.reasons import WAIT_REASON_TEXTS, WaitReason

_LOG = logging.getLogger("boa.slurm")
FRESH_SECONDS = 15.0
"""Seconds for Slurm to show a node as powering up, after it asked for it; no job is ended before."""
DEFAULT_RUN = """\
address=$(hostname -I 2>/dev/null | cut -d' ' -f1)
scontrol update nodename="$BOA_SLURM_NODE" nodeaddr="$address" nodehostname="$(hostname -s)"
exec slurmd -D -b -N "$BOA_SLURM_NODE"
"""
"""What a node runs if the settings name nothing: it says its address to slurmctld, and joins as its name."""
AT_ONCE: frozenset[WaitReason] = frozenset(
    {
        "cap-day", "cap-month", "cap-instances", "user-day-cap", "team-day-cap", "team-month-cap", "quota",
        "denied", "bad-request", "no-price", "given-up",
    }
)  # fmt: skip
"""Reasons to wait that do not pass within minutes: the request is refused at once."""
NO_TROUBLE: frozenset[WaitReason] = frozenset({"nodes-to-come", "gpus-to-fall-free"})
"""Reasons to wait for which a request is never refused: its nodes come."""


class SlurmNodes:
    """Serves the requests of one Slurm cluster for nodes."""

    def __init__(self, submissions: Submissions, slurm: Slurm | None = None) -> None:
        self._submissions, self._daemon = submissions, submissions.daemon
        self._slurm = slurm or Slurm(conf=self._said.conf)
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._owed: dict[str, str] = {}
        self._drained: set[str] = set()
        self._asked_at: dict[str, float] = {}
        self._given_at: dict[str, float] = {}
        self._unneeded_at: dict[str, float] = {}
        self._last: dict[str, str] = {}
        self._comments = WaitComments(self._slurm)
        self._widths = PlannedWidths(self._daemon, self._slurm)
        self._why: dict[str, str] = {}
        self.trouble = ""

    @property
    def _settings(self) -> Settings:
        return self._daemon.settings

    @property
    def _said(self) -> Any:
        return self._settings.slurm

    def live(self) -> dict[str, JobRecord]:
        """Return the job of each node of Slurm that has one which is not ordered to end."""
        return {node: job for node, job in self._active() if not job.is_cancelled}

    def _active(self) -> list[tuple[str, JobRecord]]:
        """Return the present jobs that are nodes of Slurm, those that are being ended too."""
        storage = self._daemon.storage
        active = [] if storage is None else list(storage.queue.active.values())
        return [(str(job.content[NODE_KEY]), job) for job in active if NODE_KEY in job.content]

    def resume(self, nodes: str) -> dict[str, Any]:
        """Ask for nodes of Slurm, each once; return their jobs, and which were refused and why.

        Raises:
            InputError: when it is no host list.
            NotReady: when the database cannot be written now.
        """
        names = _names(nodes)
        with self._lock:
            return self._resume(names)

    def _resume(self, names: Sequence[str]) -> dict[str, Any]:
        now = self._daemon.world.clock.now()
        self._asked_at |= dict.fromkeys(names, now)
        live = self.live()
        new = [name for name in names if name not in live]
        owners, refused = self._owners(new), dict[str, str]()
        # Slurm may ask for nodes late that its job has given back meanwhile.
        unneeded = {name for name, at in self._unneeded_at.items() if now - at < FRESH_SECONDS}
        new = [name for name in new if name in owners or name not in unneeded]
        # They are asked for as soon as the width of their job is decided.
        undecided = [name for name in new if name in owners and self._widths.is_open(owners[name])]
        if undecided:
            new = [name for name in new if name not in set(undecided)]
            self._daemon.wake(0.0)
        partitions = self._partitions(new)
        groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        for name in new:
            partition = partitions.get(name)
            if partition is None:
                refused[name] = "no partition of this node is in [slurm.partitions]"
            else:
                job = owners.get(name)
                owner = (self._said.user, "") if job is None else (job.user, job.account)
                groups[partition, *owner].append(name)
        rows: list[NewJob] = []
        ending = {node: job.id for node, job in self._active()}
        for (partition, user, account), members in groups.items():
            try:
                rows += self._rows(partition, user, account, members, ending)
            except BoaError as error:
                refused |= dict.fromkeys(members, str(error))
        jobs: list[str] = []
        if rows:
            queue = self._submissions.storage.queue
            jobs = [job.id for job in queue.submit(rows, at=now)]
            self._last |= {str(row[0][NODE_KEY]): job for row, job in zip(rows, jobs, strict=True)}
            self._daemon.wake(0.0)
        self._refuse(refused)
        known = len(names) - len(new) - len(undecided)
        return {"as_of": now, "jobs": jobs, "known": known, "refused": refused}

    def _rows(
        self, partition: str, user: str, account: str, names: Sequence[str], ending: Mapping[str, str]
    ) -> list[NewJob]:
        """Return the jobs for nodes of one partition and one owner; they are checked once, as they are alike.

        Raises:
            BoaError: when the user or the team may not have them, or no class has their width.
        """
        machine = self._said.partitions[partition].instance_type
        gpus = next(one.gpus for one in self._daemon.planner.machines.values() if one.name == machine)
        content = {
            "name": "slurm-node",
            "class": class_of_partition(partition),
            "run": self._said.run or DEFAULT_RUN,
            "workdir": "/",
            "min_gpus": gpus,
            "max_gpus": gpus,
            "elastic": False,
            "gate": False,
            "retries": 0,
            "stop_grace_seconds": 30.0,
        }
        team = self._said.teams.get(account)
        found = self._submissions.checked_for(content, user=user, team=team, count=len(names))
        rows: list[NewJob] = []
        for name in names:
            own = {
                **found[0],
                "name": f"slurm-{name}"[:100],
                "environment": {NODE_VARIABLE: name},
                NODE_KEY: name,
                # One slurmd at a time has the name of the node.
                "after": [f"{ending[name]}:end"] if name in ending else [],
            }
            rows.append((own, *found[1:]))
        return rows

    def suspend(self, nodes: str) -> dict[str, Any]:
        """Give nodes of Slurm back; a node that never was, or is gone, is given back already.

        Raises:
            InputError: when it is no host list.
        """
        names = _names(nodes)
        with self._lock:
            self._given_at |= dict.fromkeys(names, self._daemon.world.clock.now())
            for name in names:
                self._asked_at.pop(name, None)
                self._owed.pop(name, None)
                self._drained.discard(name)
            live = self.live()
            ended = [live[name].id for name in names if name in live]
            if ended:
                self._daemon.cancel_all(ended)
        return {"as_of": self._daemon.world.clock.now(), "jobs": ended, "unknown": len(names) - len(ended)}

    def _partitions(self, names: Sequence[str]) -> dict[str, str]:
        """Return the partition of each node, among those of the settings."""
        if not names:
            return {}
        if len(self._said.partitions) == 1:
            return dict.fromkeys(names, next(iter(self._said.partitions)))
        try:
            return {node.name: node.partition for node in self._managed()}
        except (SlurmSilent, SlurmRefused):
            return {}

    def _managed(self) -> list[SlurmNode]:
        """Return Slurm's nodes in the partitions of the settings."""
        return [node for node in self._slurm.nodes() if node.partition in self._said.partitions]

    def _owners(self, names: Sequence[str]) -> dict[str, SlurmJob]:
        """Return for nodes the job of Slurm that waits for them."""
        if not names:
            return {}
        self._slurm.forget_listings()
        found: dict[str, SlurmJob] = {}
        with suppress(SlurmSilent, SlurmRefused):
            jobs = self._slurm.jobs()
            self._widths.see(jobs)
            for job in jobs:
                if job.is_live:
                    found |= dict.fromkeys(job.hosts, job)
        return found

    def _refuse(self, refused: Mapping[str, str]) -> None:
        """Power nodes down in Slurm with the reason; what Slurm does not hear now is said again."""
        self._owed |= refused
        if refused:
            # A job of Slurm leaves the node with the power-down: only now it says for which it waits.
            self._slurm.forget_listings()
            with suppress(SlurmSilent, SlurmRefused):
                self._comments.show(refused)
        by_reason: dict[str, list[str]] = defaultdict(list)
        for name, why in self._owed.items():
            by_reason[why].append(name)
        for why, names in by_reason.items():
            try:
                self._slurm.update_nodes(names, state="power_down_force", reason=f"boa: {why}")
            except SlurmSilent:
                return
            except SlurmRefused as error:
                _LOG.warning("Slurm did not take back %s: %s", ",".join(names[:5]), error)
            for name in names:
                self._owed.pop(name, None)

    def after_tick(self) -> None:
        """Decide widths; compare both lists in a thread, unless the last comparison still waits for Slurm."""
        decision = self._daemon.standing.decision
        try:
            if decision is not None:
                self._widths.plan(decision, self.live())
        except Exception:
            # No fault here may stop the daemon's own jobs.
            _LOG.exception("the widths of Slurm's jobs could not be decided")
        if self._looking.acquire(blocking=False):
            threading.Thread(target=self._look, name="boa-slurm", daemon=True).start()

    def _look(self) -> None:
        try:
            self.reconcile()
            if self.trouble:
                _LOG.info("Slurm answers again")
            self.trouble = ""
        except (SlurmSilent, SlurmRefused) as error:
            if not self.trouble:
                _LOG.warning("nodes for Slurm stay as they are: %s", error)
            self.trouble = str(error)
        except Exception:
            _LOG.exception("Slurm's nodes could not be compared with the jobs here")
        finally:
            self._looking.release()

    def reconcile(self) -> None:
        """Serve what Slurm wants and was not asked for, end what it does not want, and say what is refused.

        Raises:
            SlurmSilent: when Slurm does not answer; nothing is ended then.
            SlurmRefused: when widths or comments could not be set; all that is about nodes is done then.
        """
        nodes = {node.name: node for node in self._managed()}
        with self._lock:
            live, now = self.live(), self._daemon.world.clock.now()
            self._refuse({})
            fault = self._set_widths()
            fresh = {name for name, at in self._asked_at.items() if now - at < FRESH_SECONDS}
            given = {name for name, at in self._given_at.items() if now - at < FRESH_SECONDS}
            missing = [
                name
                for name, node in nodes.items()
                if "#" in node.marks and name not in live and name not in self._owed and name not in given
            ]
            if missing:
                _LOG.info("Slurm waits for %s, which nobody has asked for here", ",".join(missing[:10]))
                self._resume(missing)
            self._refuse(
                {
                    name: self._why_ended(name)
                    for name, node in nodes.items()
                    if not set(node.marks) & set("~#%!")
                    and node.is_joined
                    and name not in live
                    and name not in fresh
                }
            )
            unwanted = [
                job.id
                for name, job in live.items()
                if name not in fresh and (name not in nodes or not _is_wanted(nodes[name]))
            ]
            if unwanted:
                _LOG.info("Slurm does not want these nodes any more: %s", ", ".join(unwanted[:10]))
                self._daemon.cancel_all(unwanted)
            self._say_what_waits(live, now)
            self._drain(live)
            if fault is not None:
                raise fault
            joined = {name for name, node in nodes.items() if node.is_joined}
            self._comments.show(self._why, also=self._widths.troubles, joined=joined)

    def _set_widths(self) -> SlurmRefused | None:
        """Set the widths that were decided; nodes that nobody needs any more are not powered up.

        Return what Slurm refused of it: its nodes are served all the same.
        """
        try:
            self._widths.see(self._slurm.jobs())
            unneeded = self._widths.carry_out()
            if unneeded:
                at = dict.fromkeys(unneeded, self._daemon.world.clock.now())
                self._given_at |= at
                self._unneeded_at |= at
                reason = "boa: its job was planned on fewer nodes"
                self._slurm.update_nodes(unneeded, state="power_down_force", reason=reason)
        except SlurmRefused as error:
            return error
        return None

    def _why_ended(self, name: str) -> str:
        """Return why a node that Slurm has is gone here."""
        storage, job = self._daemon.storage, self._last.get(name)
        record = None if storage is None or job is None else storage.queue.job(job)
        if record is None:
            return "the node has ended"
        lines = f": {record.last_lines[-1]}" if record.last_lines else ""
        return f"the node has ended, job {record.id} {record.cause or record.status}{lines}"

    def _say_what_waits(self, live: Mapping[str, JobRecord], now: float) -> None:
        """Refuse the nodes that BOA cannot give, with the reason that `boa explain` gives for their jobs."""
        decision = self._daemon.standing.decision
        if decision is None:
            return
        self._why = {}
        refused, patience = {}, self._said.patience_seconds
        sentences: dict[str, str] = {held.code: held.sentence for held in decision.plan.held}
        for name, job in live.items():
            code = decision.plan.jobs.waiting.get(job.id)
            if code is None or job.slots or job.id not in decision.state.all_jobs:
                continue
            self._why[name] = sentences.get(code, WAIT_REASON_TEXTS[code])
            if code not in NO_TROUBLE and (code in AT_ONCE or now - job.arrived_at > patience):
                refused[name] = self._why[name]
        if refused:
            self._daemon.cancel_all([live[name].id for name in refused])
            self._refuse(refused)

    def _drain(self, live: Mapping[str, JobRecord]) -> None:
        """Drain the nodes that the cloud takes back, so that Slurm starts no further job there."""
        decision = self._daemon.standing.decision
        nodes = {} if decision is None else decision.state.nodes
        leaving = [
            name
            for name, job in live.items()
            if name not in self._drained
            and any(slot.node in nodes and nodes[slot.node].ends_by is not None for slot in job.slots)
        ]
        if leaving:
            self._slurm.update_nodes(leaving, state="drain", reason="boa: the cloud takes the node back")
            self._drained |= set(leaving)


def _names(hostlist: str) -> list[str]:
    """Return the names of a host list, each once.

    Raises:
        InputError: when it is none.
    """
    try:
        found = list(dict.fromkeys(expand(hostlist)))
    except ValueError as error:
        raise InputError(f"{hostlist!r} is no list of nodes: {error}") from None
    if not found:
        raise InputError(f"{hostlist!r} names no node", hint="For example c[1-4]")
    return found


def _is_wanted(node: SlurmNode) -> bool:
    """Return whether Slurm has a node, or wants it: a job is on one that is to be powered up, too."""
    if set(node.marks) & set("%!") or node.state == "down":
        return False
    return "~" not in node.marks or node.state in ("allocated", "mixed")
