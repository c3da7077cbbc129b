"""A real Slurm on this machine: a controller, and a slurmd for each node in a host name of its own.

It needs root, `unshare`, and the packages slurmctld, slurmd, slurm-client and munge. Nodes `n1` to `n4` are
in partition `owned`; nodes `c1` to `c4`, in partition `rented`, are started by Slurm's power saving.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from glob import iglob
from pathlib import Path
from tempfile import mkdtemp

from boa_daemon.job.processes import descendants, send

PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel", "munged", "unshare")
CONF = """ClusterName=boatest
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock
CredType=cred/munge
SlurmctldPort={port}
SlurmdPort={slurmd}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=100000
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=30
KillWait=5
MinJobAge=300
PropagateResourceLimits=NONE
PropagatePrioProcess=0
TreeWidth=65533
PrivateData=cloud
SlurmctldParameters=power_save_interval=1,power_save_min_interval=0
{power}
NodeName=n[1-4] NodeAddr=127.0.0.1 NodeHostname=n[1-4] Port=[{n}-{n4}] CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=owned Nodes=n[1-4] MaxTime=INFINITE State=UP Default=YES
"""
POWER = """SuspendProgram={suspend}
ResumeProgram={resume}
PrologSlurmctld={prolog}
SuspendTime={seconds}
SuspendTimeout=10
ResumeTimeout=120
ResumeRate=0
SuspendExcParts=owned
NodeName=c[1-4] NodeAddr=127.0.0.1 NodeHostname=c[1-4] Port=[{c}-{c4}] CPUs=4 RealMemory=1000 State=CLOUD
NodeName=big[1-1000] State=CLOUD CPUs=4 RealMemory=1000
PartitionName=rented Nodes=c[1-4] MaxTime=INFINITE State=UP
PartitionName=many Nodes=big[1-1000] MaxTime=INFINITE State=UP
"""
"""Only with power saving: without it slurmctld looks up the addresses of all cloud nodes when it restarts."""

END_SECONDS = 3.0
"""How long the processes of a Slurm may take to end before they are killed."""


@cache
def why_no_slurm() -> str:
    """Return why no Slurm can be run here; empty if one can.

    It must be asked for: these tests take half an hour, those marked `slurm` some minutes.
    """
    if not os.environ.get("BOA_TEST_SLURM"):
        return "left out: a real Slurm is run with BOA_TEST_SLURM=1"
    missing = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    if missing:
        return f"Slurm is not installed: no {', '.join(missing)}"
    if os.geteuid() != 0:
        return "several slurmd on one machine need root, for a host name each"
    if subprocess.run(["unshare", "-u", "true"], capture_output=True, check=False).returncode:
        return "this container forbids `unshare -u`, so all slurmd would have one host name"
    return ""


def _free_range(count: int) -> int:
    """Return the first of `count` ports in a row that are free now, below the kernel's own range."""
    for begin in range(20_000 + os.getpid() * 61 % 9_000, 32_000, count):
        with suppress(OSError):
            for port in range(begin, begin + count):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
            return begin
    raise AssertionError("no free ports")


@dataclass
class Cluster:
    """A running Slurm: its folder, its environment, and its processes by name."""

    root: Path
    environment: Mapping[str, str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        """The file slurm.conf."""
        return self.root / "slurm.conf"

    def run(self, *command: str, seconds: float = 60.0) -> str:
        """Run one of Slurm's commands and return what it printed."""
        done = subprocess.run(
            command, env=dict(self.environment), capture_output=True, text=True, timeout=seconds, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"
        return done.stdout

    def start_controller(self, *, clean: bool = False) -> None:
        """Start slurmctld; it reads its state back unless it starts `clean`."""
        self._start("slurmctld", ["slurmctld", "-D", *(["-c"] if clean else []), "-f", str(self.conf)])
        self._until(lambda: "UP" in self.run("scontrol", "ping"), "slurmctld does not answer")

    def start_node(self, name: str) -> None:
        """Start the slurmd of a node."""
        script = f"hostname {name}; exec slurmd -D -f {self.conf} -N {name}"
        self._start(name, ["unshare", "-u", "sh", "-c", script])

    def kill(self, name: str) -> None:
        """Kill one of the processes of Slurm with SIGKILL; what slurmd started goes on."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def restart_controller(self) -> None:
        """End slurmctld as `systemctl restart` does, so that it writes its state, and start it again."""
        process = self.processes.pop("slurmctld")
        process.terminate()
        process.wait()
        self.start_controller()

    def state(self, node: str) -> str:
        """Return the state of a node, as `sinfo` says it."""
        return self.run("sinfo", "-h", "-N", "-n", node, "-o", "%T").split()[0]

    def wait_idle(self, *nodes: str) -> None:
        """Wait until nodes have joined."""
        for node in nodes:
            self._until(lambda node=node: self.state(node) == "idle", f"{node} is not idle")  # type: ignore[misc]

    def _until(self, is_so: object, said: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while True:
            with suppress(AssertionError):
                if is_so():  # type: ignore[operator]
                    return
            ended = [name for name, process in self.processes.items() if process.poll() is not None]
            assert not ended, f"{said}: {', '.join(ended)} ended\n{self._logs()}"
            assert time.monotonic() < deadline, f"{said}\n{self._logs()}"
            time.sleep(0.2)

    def _logs(self) -> str:
        return "\n".join(f"{file.name}: {file.read_text()[-1500:]}" for file in (self.root / "log").glob("*"))

    def _start(self, name: str, command: list[str]) -> None:
        with (self.root / "log" / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                command, env=dict(self.environment), stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd="/"
            )

    def close(self) -> None:
        """End all of its processes, with those of its jobs."""
        with suppress(AssertionError, subprocess.TimeoutExpired):
            # An interrupt may have ended the controller, too: then nobody answers.
            self.run("scancel", "--state=RUNNING", seconds=END_SECONDS)
        for process in self.processes.values():
            process.terminate()
        until = time.monotonic() + END_SECONDS
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.0, until - time.monotonic()))
            process.kill()
            process.wait()
        # A slurmstepd tells its controller of its end until one answers, and this one is gone.
        steps = self._with_our_logs()
        send([each for step in steps for each in (step, *descendants(step))], signal.SIGKILL)

    def _with_our_logs(self) -> list[int]:
        """Return the processes that have a log of this Slurm open: each slurmstepd has that of its slurmd."""
        found = set()
        # Not `Path.glob`, which fails where a process ends meanwhile.
        for link in iglob("/proc/[0-9]*/fd/*"):
            with suppress(OSError):
                if os.readlink(link).startswith(f"{self.root}/log/"):
                    found.add(int(link.split("/")[2]))
        return sorted(found)


@contextmanager
def slurm_cluster(
    nodes: tuple[str, ...] = ("n1", "n2", "n3", "n4"),
    *,
    resume: str = "",
    suspend: str = "",
    prolog: str = "",
    seconds: int = 20,
) -> Iterator[Cluster]:
    """Run a Slurm with these nodes; `resume`, `suspend` and `prolog` are its programs for power saving."""
    # A short path: a socket's name has at most 107 characters.
    root = Path(mkdtemp(prefix="slurm-", dir="/tmp"))
    root.chmod(0o755)
    for name in ("state", "log", "spool"):
        (root / name).mkdir()
    for name in ("n1", "n2", "n3", "n4", "c1", "c2", "c3", "c4"):
        (root / "spool" / name).mkdir()
    ports = _free_range(10)
    power = ""
    if resume:
        power = POWER.format(
            suspend=suspend, resume=resume, prolog=prolog, seconds=seconds, c=ports + 6, c4=ports + 9
        )
    (root / "slurm.conf").write_text(
        CONF.format(
            host=socket.gethostname(), root=root, power=power, port=ports, slurmd=ports + 1,
            n=ports + 2, n4=ports + 5,
        )
    )  # fmt: skip
    (root / "munge.key").write_bytes(os.urandom(128))
    (root / "munge.key").chmod(0o600)
    environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(root / "slurm.conf")}
    cluster = Cluster(root=root, environment=environment)
    try:
        files = [f"--{name}-file={root}/munge.{name}" for name in ("pid", "log", "seed")]
        cluster._start(
            "munged",
            ["munged", "--foreground", "--force", f"--key-file={root}/munge.key",
             f"--socket={root}/munge.sock", *files],
        )  # fmt: skip
        cluster._until((root / "munge.sock").exists, "munged does not listen")
        cluster.start_controller(clean=True)
        for node in nodes:
            cluster.start_node(node)
        cluster.wait_idle(*nodes)
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(root, ignore_errors=True)


def main() -> None:
    """End with a sentence if no Slurm runs a job here: `.ci/try-slurm` asks before the tests."""
    if why := why_no_slurm():
        sys.exit(why)
    try:
        with slurm_cluster(("n1",)) as cluster:
            cluster.run("srun", "-N1", "hostname")
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"no Slurm runs here: {error}")
    except KeyboardInterrupt:
        sys.exit("no Slurm started in time")


if __name__ == "__main__":
    main()
