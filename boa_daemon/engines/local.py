"""The `local` engine: runs jobs as processes of this machine, each unit under its own keeper.

All state is in files below one root folder, so a restarted daemon finds it again. Nodes are only names:
several may be on this machine, and a job on two of them has two units, as on real nodes.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from boa_daemon.engines.accounts import UnixAccount, account_here, fs_rights
from boa_daemon.engines.early_start import FORGET_SECONDS, WaitingGeneration, as_waiting_units, drop_units
from boa_daemon.engines.generation_units import unit_name, units_of
from boa_daemon.engines.job_access import LocalJobAccess, no_such_node
from boa_daemon.engines.layout import OWN, Layout
from boa_daemon.engines.local_units import authentic_status, read_unit_status, send_to_keeper
from boa_daemon.engines.run_reports import Generation, UnitStatus, folder_deleted, is_broken, report_of
from boa_daemon.job.checkpoint import set_fence
from boa_daemon.job.code import forget_code, own_folder
from boa_daemon.job.data import DataFailed, objects_of
from boa_daemon.job.gate.token import write_token
from boa_daemon.job.gpu_memory import VARIABLE
from boa_daemon.job.keeper import GO, start_apart
from boa_daemon.job.leavings import remove_trees
from boa_daemon.job.logs import read_log
from boa_daemon.job.processes import carrying, kill_all_carrying
from boa_daemon.job.regular_files import device_and_inode, files_below
from boa_daemon.job.seal import KEY_FILE
from boa_daemon.job.unit import Unit, acting_as, read_json, write_json
from boa_daemon.job.whole_files import remove_torn, write_whole
from boa_daemon.tick.facts.actions import StartJob, StopJob
from boa_daemon.tick.facts.job_spec import JobSpec
from boa_daemon.tick.facts.ports import (
    Accepted,
    JobAccessPort,
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
HERE = "127.0.0.1"
KERNELS_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""File with the range of ports that the kernel assigns to outgoing connections."""
PORTS = 12_000
"""Number of ports below the kernel's range that are used for the rendezvous of jobs."""
BLOCK_BYTES = 1 << 20
GONE = "=gone"
"""Folder for job folders that are being removed; no job's folder can have this name."""


class LocalEngine:
    """Implements `Runner` with processes of this machine; its state is in files below `root`."""

    name = "local"

    def __init__(
        self,
        root: Path,
        *,
        gate: JobGate | None = None,
        own_user: bool = False,
        secrets_file: str = "",
    ) -> None:
        self.layout = Layout(root=root.resolve())
        self._gate, self._own_user, self._secrets_file = gate, own_user, secrets_file
        self._specs: dict[JobId, JobSpec] = {}
        self._runs: dict[JobId, Generation] = {}
        self._over: dict[tuple[JobId, int], RunReport] = {}
        self._ahead: dict[JobId, WaitingGeneration] = {}
        self._unbegun: set[JobId] = set()
        self._claimed: set[JobId] = set()
        """Jobs that an earlier daemon had given GPUs, and of whose start nothing is known yet."""
        self._unwaited: list[subprocess.Popen[bytes]] = []
        self._disk = device_and_inode(self.layout.root)
        self.inside: JobAccessPort = LocalJobAccess(self._running_at, lambda: job_environment(os.environ))

    def _running_at(self, job: JobId, node: int) -> Path | Refused:
        """Return the folder of a job's running unit."""
        run = self._runs.get(job)
        folder = None if run is None else self.layout.unit(job, run.number, node)
        if run is None or folder is None or self._look(run).is_over:
            return Refused(reason=f"job {job} does not run now")
        return folder if folder.is_dir() else no_such_node(job, node)

    @property
    def runs_jobs_as_daemon(self) -> bool:
        """Whether jobs run as the daemon's user, with all its rights."""
        return not self._own_user or os.geteuid() != 0

    def _account(self, spec: JobSpec) -> UnixAccount | None:
        if not self._own_user:
            return None
        return account_here(spec.user, spec.job, self.layout.home(spec.job))

    def prepare(self, nodes: Sequence[NodeState]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Accept every node, because all of them are this machine."""
        return {node.id: Accepted() for node in nodes}

    def admit(self, spec: JobSpec) -> Accepted | Refused:
        """Store the job's specification."""
        if not spec.code:
            # Looked up with the rights of the job's user, who otherwise learnt what folders there are.
            with acting_as(*fs_rights(self._account(spec))):
                is_there = os.path.isdir(spec.workdir)
                workdir = os.path.realpath(spec.workdir) if is_there else ""
            if not is_there:
                return Refused(
                    reason=f"{spec.workdir} is not a folder; set workdir to one", kind="bad-request"
                )
            spec = replace(spec, workdir=workdir)
        try:
            folder = self.layout.job(spec.job)
            self.layout.root.mkdir(parents=True, exist_ok=True)
            self._disk = self._disk or device_and_inode(self.layout.root)
            # Closed from the start: the keeper opens it to the job's group when it hands it over.
            folder.mkdir(mode=0o700, exist_ok=True)
            write_json(folder / "spec.json", spec.to_document())
            (folder / "forgotten").unlink(missing_ok=True)
        except OSError as error:
            return Refused(reason=f"cannot write below {self.layout.root}: {error.strerror}")
        self._specs[spec.job] = spec
        return Accepted()

    def start(self, action: StartJob) -> Accepted | Refused:
        """Start a generation: set the fence against older ones, write its units, start their keepers."""
        spec = self._specs.get(action.job)
        if spec is None:
            return Refused(reason=f"job {action.job} was not admitted", kind="bad-request")
        now = self._runs.get(action.job)
        if now is not None and now.number == action.generation:
            return Accepted()
        if now is not None and (now.number > action.generation or not self._look(now).is_over):
            return Refused(reason=f"generation {now.number} of {action.job} is not over")
        if action.job in self._claimed:
            self._claimed.discard(action.job)
            lost = Generation(job=action.job, number=action.generation, gpus=len(action.slots))
            if self._runs_unknown(lost):
                # Its files were deleted while no daemon ran: it is not started a second time beside itself.
                self._runs[action.job] = lost
                return Accepted()
        try:
            self._start(spec, action)
        except OSError as error:
            run = self._runs.get(action.job)
            if run is None or run.number != action.generation:
                return Refused(reason=f"cannot start {action.job}: {error}")
            # All is written but the keepers: some may have started, so this generation is the one that runs.
            _LOG.warning("the keepers of %s are started later: %s", action.job, error)
            self._unbegun.add(action.job)
        return Accepted()

    def ahead(self, action: StartJob) -> bool:
        """Prepare a coming generation, which waits for its turn; return whether more waiting is useless."""
        spec, run = self._specs.get(action.job), self._runs.get(action.job)
        if spec is None or run is None or run.number >= action.generation or self._look(run).is_over:
            return True
        now = self._ahead.get(action.job)
        if now is not None and now.is_for(action):
            now.asked_at = time.monotonic()
            return now.is_ready
        self._drop_ahead(action.job)
        running = self.layout.generation(action.job, run.number)
        units = as_waiting_units(
            spec,
            self._units(self._hooked(spec), action),
            [Unit.read(folder) for folder in _unit_folders(running)],
        )
        self._write(units)
        self._ahead[action.job] = WaitingGeneration(action=action, units=units)
        self._launch(units, _nodes_of(action))
        return False

    def _drop_ahead(self, job: JobId) -> None:
        """End the generation that waits for its turn, if there is one."""
        ahead = self._ahead.pop(job, None)
        if ahead is not None:
            ahead.drop()

    def _start(self, spec: JobSpec, action: StartJob) -> None:
        """Write all files, then start the keepers; a crash in between leaves a generation without keepers.

        If the generation already waits for its turn, its turn is started instead.
        """
        run = Generation(job=action.job, number=action.generation, gpus=len(action.slots))
        ahead = self._ahead.get(action.job)
        if ahead is not None and not (ahead.is_for(action) and ahead.can_go):
            self._drop_ahead(action.job)
            ahead = None
        if self._account(spec) is None:
            set_fence(self.layout.checkpoints(action.job), action.generation)
        spec = self._gated(spec, action, _nodes_of(action))
        folder = self.layout.generation(action.job, action.generation)
        if ahead is None:
            units = self._units(spec, action)
            self._write(units)
        write_json(folder / "generation.json", asdict(run))
        self._runs[action.job] = run
        if ahead is None:
            self._launch(units, _nodes_of(action))
        else:
            del self._ahead[action.job]
            ahead.go()

    def _units(self, spec: JobSpec, action: StartJob) -> tuple[Unit, ...]:
        return units_of(
            spec,
            action,
            self.layout,
            addresses=self._addresses(_nodes_of(action)),
            port=free_port(),
            code_at=str(self._archive(spec.code)),
            account=self._account(spec),
            secrets_file=self._secrets_file,
        )

    def _write(self, units: Sequence[Unit]) -> None:
        """Write the files of a generation's units, and the key with which their keepers seal statuses."""
        folder = units[0].folder.parent
        (folder / KEY_FILE).unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        write_token(folder / KEY_FILE, secrets.token_hex(32))
        for unit in units:
            unit.write()

    def _gated(self, spec: JobSpec, action: StartJob, nodes: Iterable[NodeId]) -> JobSpec:
        """Write the gate's address and token for a generation; return the job, hooked if it wants that."""
        if self._gate is None:
            return spec
        folder = self.layout.generation(action.job, action.generation)
        folder.mkdir(parents=True, exist_ok=True)
        token = folder / "gate.token"
        try:
            given = self._gate.admit(
                action.job, action.generation, tuple(nodes), token_file=str(token.resolve())
            )
            token.unlink(missing_ok=True)
            write_token(token, given.token)
            write_json(folder / "gate.json", {"address": given.address})
        except (OSError, ValueError) as fault:
            _LOG.warning("job %s sends without asking the gate: %s", action.job, fault)
            return spec
        return self._hooked(spec)

    def _hooked(self, spec: JobSpec) -> JobSpec:
        """Return a job with the gate's hook in its environment, if the job wants it."""
        if self._gate is None or not spec.gate:
            return spec
        path = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        return replace(spec, environment=self._gate.hooked({**path, **spec.environment}))

    def _addresses(self, nodes: Iterable[NodeId]) -> dict[NodeId, str]:
        """Return the addresses of nodes for each other."""
        return dict.fromkeys(nodes, HERE)

    def _launch(self, units: Sequence[Unit], nodes: Sequence[NodeId]) -> None:
        """Start the keepers of written units, each on its node, without waiting for them."""
        del nodes
        for unit in units:
            self._start_keeper(unit.folder)

    def _start_keeper(self, folder: Path) -> None:
        """Start the keeper of a written unit; a second keeper for the same unit exits at once."""
        process = start_apart(folder, job_environment(os.environ))
        try:
            threading.Thread(target=process.wait, daemon=True).start()
        except RuntimeError:
            # No thread can be started now, as at a limit of processes.
            self._unwaited.append(process)

    def stop(self, action: StopJob) -> Accepted | Refused:
        """Ask a generation for a checkpoint and a stop; its keepers kill it after the grace period."""
        return self._order(action.job, action.generation, "stop", signal.SIGTERM)

    def kill(self, job: JobId, generation: int) -> Accepted | Refused:
        """End a generation at once."""
        return self._order(job, generation, "kill", signal.SIGUSR1)

    def _order(self, job: JobId, generation: int, what: str, number: signal.Signals) -> Accepted | Refused:
        run = self._runs.get(job)
        if run is None or run.number != generation:
            return Accepted()
        folder = self.layout.generation(job, generation)
        try:
            (folder / what).touch()
        except OSError as error:
            return Refused(reason=f"cannot write the order down: {error.strerror}")
        is_stop = what == "stop"
        self._runs[job] = replace(
            run,
            is_stop_ordered=run.is_stop_ordered or is_stop,
            is_kill_ordered=run.is_kill_ordered or not is_stop,
        )
        self._signal(folder, number)
        return Accepted()

    def _signal(self, generation: Path, number: signal.Signals) -> None:
        for folder in _unit_folders(generation):
            send_to_keeper(folder, number)

    def lacks_data(self, source: str) -> str:
        """Return why an s3:// source cannot be read from this machine; empty if it can."""
        try:
            objects_of(source, most=1)
        except DataFailed as error:
            return str(error)
        return ""

    def has_code(self, digest: str) -> bool:
        """Return whether a code archive is stored."""
        return self._archive(digest).is_file()

    def take_code(self, digest: str, archive: bytes) -> None:
        """Store a code archive beside the jobs."""
        file = self._archive(digest)
        own_folder(file.parent)
        write_whole(file, archive)

    def drop_code(self, keep: Collection[str], *, before: float) -> int:
        """Remove archives from before `before` (an instant) that are not in `keep`; return how many."""
        gone = 0
        for file in self.layout.code.glob("*.tar.gz"):
            digest = file.name.removesuffix(".tar.gz")
            if digest not in keep and file.stat().st_mtime < before:
                file.unlink(missing_ok=True)
                forget_code(self.layout.code, digest)
                gone += 1
        return gone

    def _archive(self, digest: str) -> Path:
        return self.layout.code / f"{digest}.tar.gz"

    def job_folders(self) -> Collection[str]:
        """Return the names of the job folders."""
        root = self.layout.root
        return [folder.name for folder in root.iterdir() if folder.is_dir()] if root.is_dir() else []

    def artifacts(self, job: JobId) -> Mapping[str, int]:
        """Return the names of a job's artifacts, with their sizes in bytes."""
        top = self.layout.artifacts(job)
        files = (file for file in sorted(files_below(top)) if file.is_file() and not file.is_symlink())
        return {file.relative_to(top).as_posix(): file.stat().st_size for file in files}

    def artifact(self, job: JobId, name: str) -> Iterator[bytes]:
        """Yield the content of one of a job's artifacts."""
        with (self.layout.artifacts(job) / name).open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                yield block

    def poll(self) -> Mapping[JobId, RunReport]:
        """Return the report of the newest generation of every job."""
        self._unwaited = [process for process in self._unwaited if process.poll() is None]
        for job in list(self._unbegun):
            self._unbegun.discard(job)
            if job in self._runs and not self._begin_again(self._runs[job]):
                self._unbegun.add(job)
        for job, ahead in list(self._ahead.items()):
            run = self._runs.get(job)
            if run is not None and run.is_stop_ordered and not self._look(run).is_over:
                ahead.asked_at = time.monotonic()
            elif time.monotonic() - ahead.asked_at > FORGET_SECONDS:
                self._drop_ahead(job)
        return {job: self._look(run) for job, run in list(self._runs.items())}

    def _look(self, run: Generation) -> RunReport:
        """Return the report of a generation; pass orders on, and end broken generations, on the way."""
        known = self._over.get((run.job, run.number))
        if known is not None:
            return known
        generation = self.layout.generation(run.job, run.number)
        folders = _unit_folders(generation)
        units = self._statuses(folders)
        if not any(units) and _are_deleted(folders):
            # On a disk that is not mounted nothing is known; here somebody has deleted them.
            is_there = self._disk is not None and device_and_inode(self.layout.root) == self._disk
            if is_there and self._has_ended_without_files(run):
                return self._over.setdefault((run.job, run.number), folder_deleted(run))
            return report_of(run, ())
        if is_broken(units):
            self._signal(generation, signal.SIGUSR1)
        elif run.is_kill_ordered or run.is_stop_ordered:
            # Repeat the order for keepers that started after it was given.
            self._signal(generation, signal.SIGUSR1 if run.is_kill_ordered else signal.SIGTERM)
        report = report_of(run, units)
        if report.is_over:
            self._over[run.job, run.number] = report
        return report

    def _runs_unknown(self, run: Generation) -> bool:
        """Return whether a generation of which there are no files runs, or may run."""
        return any(carrying(mark) for mark in self._marks(run))

    def _has_ended_without_files(self, run: Generation) -> bool:
        """End a generation whose files somebody deleted; return whether nothing of it runs any more.

        Nobody could stop it otherwise, and it would hold its nodes for ever. Its keepers end too.
        """
        for mark in self._marks(run):
            kill_all_carrying(mark)
        return True

    def _marks(self, run: Generation) -> list[str]:
        """Return the variables that the processes of a generation carry, one for each unit it may have."""
        return [f"BOA_UNIT={unit_name(self.layout, run.job, run.number, rank)}" for rank in range(run.gpus)]

    def _statuses(self, folders: Sequence[Path]) -> list[UnitStatus | None]:
        """Return the statuses of units, None for an unreadable one; end units that have lost their keeper."""
        asked = time.monotonic_ns()
        return [
            authentic_status(folder, read_unit_status(folder, asked, self._start_keeper), asked)
            for folder in folders
        ]

    def logs(
        self, job: JobId, *, since: int = 0, generation: int | None = None, node: int | None = None
    ) -> LogChunk:
        """Return the log of a unit from byte `since` on; by default of the unit that reports progress."""
        run = self._runs.get(job)
        if generation is None:
            generation = run.number if run is not None else max(self._generations(job), default=0)
        folder = self.layout.generation(job, generation)
        if node is None:
            node = _node_that_reports(folder)
        found, after, dropped = read_log(folder / f"n{node}", since)
        return LogChunk(
            text=found.decode(errors="replace"),
            next_offset=after,
            dropped_bytes=dropped,
            node=node,
            nodes=max(len(_unit_folders(folder)), 1),
        )

    def reattach(self) -> Mapping[JobId, RunReport]:
        """Read all jobs and generations back from the files, and return their reports."""
        remove_torn(self.layout.code)
        self._claimed = set(self._specs)
        for file in sorted(self.layout.root.glob("*/spec.json")):
            is_forgotten = (file.parent / "forgotten").exists()
            document = None if is_forgotten else read_json(file, must_be_read=True)
            if document is None:
                continue
            job = str(document["job"])
            self._specs[job] = JobSpec(**document)
            remove_torn(file.parent)
            number = max(self._generations(job), default=None)
            if number is not None:
                self._runs[job] = self._read_generation(job, number)
            for folder in file.parent.glob("g*"):
                remove_torn(folder)
                _take_over(folder)
            if number is not None:
                self._begin_again(self._runs[job])
        return self.poll()

    def _begin_again(self, run: Generation) -> bool:
        """Start the keepers of units that have none, because an earlier attempt failed or its daemon died.

        Return whether all have been started.
        """
        if run.is_stop_ordered or run.is_kill_ordered:
            return True
        have_begun = True
        for folder in _unit_folders(self.layout.generation(run.job, run.number)):
            is_begun = any((folder / name).exists() for name in ("keeper.json", "exit.json"))
            try:
                if not is_begun:
                    self._start_keeper(folder)
                    # The keeper's time to start counts from now.
                    os.utime(folder / "unit.json")
            except (OSError, ValueError):
                have_begun = False
        return have_begun

    def _generations(self, job: JobId) -> list[int]:
        """Return the generations of a job that have files."""
        folders = self.layout.job(job).glob("g*/generation.json")
        return [int(file.parent.name[1:]) for file in folders]

    def _read_generation(self, job: JobId, number: int) -> Generation:
        """Return a generation from its files, with the orders given since its start."""
        folder = self.layout.generation(job, number)
        document = json.loads((folder / "generation.json").read_text())
        return replace(
            Generation(**document),
            is_stop_ordered=(folder / "stop").exists(),
            is_kill_ordered=(folder / "kill").exists(),
        )

    def papers(self, job: JobId) -> JobPapers | None:
        """Return where a job runs, from the files of its units; None for parts of shared GPUs."""
        run, spec = self._runs.get(job), self._specs.get(job)
        if run is None or spec is None:
            return None
        folder, slots = self.layout.generation(job, run.number), []
        try:
            for each in _unit_folders(folder):
                environment = Unit.read(each).environment
                if VARIABLE in environment:
                    return None
                gpus = environment["CUDA_VISIBLE_DEVICES"].split(",")
                slots += [GpuSlot(environment["BOA_NODE_ID"], int(gpu)) for gpu in gpus]
            began = (folder / "generation.json").stat().st_mtime
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if len(slots) != run.gpus:
            return None
        return JobPapers(spec=spec, generation=run.number, slots=tuple(slots), started_at=began)

    def forget(self, job: JobId) -> None:
        """Forget a job, unless it runs."""
        run = self._runs.get(job)
        if run is not None and not self._look(run).is_over:
            return
        self._drop_ahead(job)
        with suppress(OSError):
            (self.layout.job(job) / "forgotten").touch()
        self._runs.pop(job, None)
        self._specs.pop(job, None)
        for known in [each for each in self._over if each[0] == job]:
            del self._over[known]

    def discard(self, job: JobId) -> None:
        """Remove the folder of a forgotten job, with its logs and checkpoints.

        The folder is renamed first, so that nobody sees a half-removed job.
        """
        if job in self._runs:
            return
        gone = self.layout.root / GONE
        with suppress(OSError):
            gone.mkdir(exist_ok=True)
            folder = self.layout.job(job)
            folder.rename(gone / f"{folder.name}.{time.time_ns()}")
        remove_trees(gone)


PASSED_ON = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM",
        "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONUNBUFFERED", "VIRTUAL_ENV", "XDG_RUNTIME_DIR",
        "SSL_CERT_FILE", "SSL_CERT_DIR", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "CONTAINERS_CONF",
        "CONTAINERS_STORAGE_CONF", "REGISTRY_AUTH_FILE", "APPTAINER_CACHEDIR", "APPTAINER_TMPDIR",
    }
)  # fmt: skip
PASSED_PREFIXES = ("LC_", "CUDA_", "CONDA_", "NCCL_", "OMP_", "MKL_", "UCX_")


def job_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the daemon that a job inherits: those about the machine, and no secrets."""
    return {
        name: value for name, value in own.items() if name in PASSED_ON or name.startswith(PASSED_PREFIXES)
    }


def _are_deleted(folders: Sequence[Path]) -> bool:
    """Return whether none of the folders has its unit's file; what cannot be looked at now is there."""
    for folder in folders:
        try:
            os.stat(folder / "unit.json")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            pass
        return False
    return True


def _take_over(generation: Path) -> None:
    """After a restart: drop a generation whose turn has not come; let units of a started one go on."""
    if not (generation / "generation.json").exists():
        drop_units(generation)
    for folder in generation.glob("n*"):
        if (read_json(folder / "unit.json") or {}).get("waits") and not (folder / "exit.json").exists():
            (folder / GO).touch()


def _node_that_reports(generation: Path) -> int:
    """Return the number of the node whose process reports progress, read as the job's user."""
    try:
        with Unit.read(generation / "n0").as_user():
            said = (read_json(generation / OWN / "progress.json") or {}).get("node", 0)
    except (OSError, ValueError, TypeError):
        return 0
    return said if isinstance(said, int) and 0 <= said < len(_unit_folders(generation)) else 0


def _nodes_of(action: StartJob) -> tuple[NodeId, ...]:
    return tuple(dict.fromkeys(slot.node for slot in action.slots))


def _unit_folders(generation: Path) -> list[Path]:
    """Return the folders of a generation's units, in the order of their ranks.

    Raises:
        OSError: when the folder is there and cannot be read now; `glob` would find nothing in it.
    """
    try:
        names = os.listdir(generation)
    except (FileNotFoundError, NotADirectoryError):
        return []
    ranks = sorted(int(name[1:]) for name in names if name[:1] == "n" and name[1:].isdigit())
    return [generation / f"n{rank}" for rank in ranks]


def free_port() -> int:
    """Return a free port for a process that will listen on it a moment later.

    The port is below the kernel's range for outgoing connections, so the kernel does not assign it meanwhile,
    as it could with a port that it chose itself.
    """
    try:
        end = int(KERNELS_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        end = 32768
    begin = max(end - PORTS, 1024)
    for _ in range(100 if begin < end else 0):
        port = begin + secrets.randbelow(end - begin)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HERE, port))
            return port
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        return int(probe.getsockname()[1])
