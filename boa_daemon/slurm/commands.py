"""Runs Slurm's commands, here or over SSH, and reads what they print; formats of Slurm 20.11 and later.

Every format is named in full, because the default columns of `squeue` and `sinfo` differ between sites. The
REST interface is not used: its versions drift.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from boa_daemon.errors import BoaError
from boa_daemon.slurm.resources import read_gpus

ANSWER_SECONDS = 10.0
"""How long one command may take before its answer counts as lost."""
REST_SECONDS = 5.0
"""How long a controller that did not answer is not asked again."""
FRESH_SECONDS = 1.0
"""How long a list of nodes or jobs is used again, in place of another question."""
MOST_NAMES = 2000
"""Nodes named in one `scontrol update`."""
JOB_FORMAT = "%A|%T|%u|%a|%N|%P|%D|%i|%k|%r"
"""The columns of `squeue` for `SlurmJob`."""
LONGEST_COMMENT = 2000
"""Characters of an AdminComment that are read: a longer one is cut, and is left alone."""
MOST_HOSTS = 65_536
"""Names that one part of a host list may stand for, as in Slurm."""

LIVE_STATES = frozenset(
    {"CONFIGURING", "COMPLETING", "RUNNING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"}
)
"""States of a job that has nodes."""
WAITING_STATES = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
"""States of a job that has no nodes yet."""
_MARKS = "*~#!%$@^-+"
"""Marks behind a node's state in `sinfo`: not answering, powered down, powering up, planned and others."""
_FLAG_MARKS = {
    "powering_up": "#", "power_up": "#", "powered_down": "~", "powering_down": "%", "power_down": "!",
    "not_responding": "*", "no_respond": "*", "reboot_issued": "^", "reboot_requested": "@", "reboot": "@",
    "maintenance": "$", "maint": "$", "planned": "-",
}  # fmt: skip
"""The mark of each flag that a state may name in words: ``idle+cloud+powered_down``, ``powering_up``."""
_FOLDERS = ("/opt/slurm/bin", "/usr/local/slurm/bin", "/usr/local/bin")
"""Where sites install Slurm; a service's PATH has seldom such a folder. The first is ParallelCluster's."""
_UNITS = " KMGTP"
_NOT_THERE = ("Invalid job id", "Job/step already completing or completed", "No job steps")
_OPTIONS = ("SLURM_", "SQUEUE_", "SINFO_", "SCONTROL_", "SBATCH_", "SALLOC_", "SRUN_", "SCANCEL_")
"""Prefixes of variables that are options of Slurm's commands, or those of a job."""
LATER = "try again in a bit"
"""What Slurm says of a job that it has not entered into its accounting yet."""
WAITS_ALREADY = "Job is pending execution"
"""What Slurm says of a second order to requeue a job."""
_PLACES = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
"""Variables with which the commands find their controller."""
_SILENT = (
    "Unable to contact slurm controller", "Socket timed out", "Connection refused", "Connection timed out",
    "Zero Bytes were transmitted", "Communication connection failure", "Insane message length",
    "Unexpected missing socket", "Unexpected message received", "Header lengths are longer than data",
    "Incompatible versions of client and server", "Protocol authentication error", "in standby mode",
    "Could not establish a configuration source",
)  # fmt: skip
"""What Slurm's commands say when slurmctld or munged is dead, is no Slurm, or may not speak yet."""


class SlurmSilent(BoaError):
    """Slurm's controller does not answer: nothing is known, and what was asked may have been done."""


class SlurmRefused(BoaError):
    """Slurm refused a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """A node in a partition: its state with its marks, its size, and why an administrator set it aside."""

    name: str
    partition: str
    state: str
    marks: str = ""
    cpus: int = 1
    memory_mb: int = 0
    gpus: int = 0
    gpu_model: str = ""
    address: str = ""
    reason: str = ""

    @property
    def is_up(self) -> bool:
        """Whether jobs can run on the node now."""
        return self.state in ("idle", "allocated", "mixed", "completing", "planned") and not set(
            self.marks
        ) & set("*~#%!@^")

    @property
    def is_free(self) -> bool:
        """Whether no job runs on the node, and one can: now, or once Slurm has powered it up."""
        return self.state == "idle" and not set(self.marks) & set("*%!@^$")

    @property
    def is_lost(self) -> bool:
        """Whether Slurm has given the node up: what ran there is over."""
        return self.state in ("down", "error", "fail", "future", "unknown") or (
            self.state == "drained" and "*" in self.marks
        )

    @property
    def is_joined(self) -> bool:
        """Whether the node's slurmd has reported to Slurm, and Slurm has not given the node up."""
        return not self.is_lost and not set(self.marks) & set("~#")

    @property
    def is_leaving(self) -> bool:
        """Whether an administrator drains the node: jobs should leave it, and new ones do not start."""
        return self.state.startswith(("drain", "failing")) or self.state == "maint"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job as `squeue` lists it; `nodes` is a host list of `node_count` names, or none yet.

    `is_task` says that it is a task of an array, or the tasks that still wait together.
    """

    id: str
    state: str
    reason: str = ""
    user: str = ""
    account: str = ""
    nodes: str = ""
    comment: str = ""
    partition: str = ""
    node_count: int = 0
    is_task: bool = False

    @property
    def is_live(self) -> bool:
        """Whether the job has nodes now."""
        return self.state in LIVE_STATES

    @property
    def waits(self) -> bool:
        """Whether the job waits for nodes."""
        return self.state in WAITING_STATES

    @property
    def hosts(self) -> list[str]:
        """The names of the job's nodes; none if Slurm's list of them cannot be read."""
        try:
            return expand(self.nodes)
        except ValueError:
            return []


@dataclass
class _Listing:
    """What a command listed, and when."""

    text: str = ""
    at: float = -1e9


class Slurm:
    """The commands of one Slurm cluster; `ssh` is a host on which they run, this machine if empty.

    `conf` is the path of its slurm.conf, as Slurm finds it if empty.
    """

    def __init__(
        self, *, ssh: str = "", environment: Mapping[str, str] | None = None, conf: str = ""
    ) -> None:
        self._ssh = ssh
        self._environment = {**os.environ, "SLURM_CONF": conf} if conf else environment
        # /opt/slurm/etc/slurm.conf goes with /opt/slurm/bin.
        own = [str(Path(conf).parent.parent / "bin")] if conf else []
        self._folders = [*own, *_FOLDERS]
        # A user's comment may have lines that look like those of other jobs: no user knows this word.
        self._row = secrets.token_hex(4)
        self._listings: dict[str, _Listing] = {}
        self._silent_until = 0.0
        self._silence = ""

    def argv(self, words: Sequence[str]) -> list[str]:
        """Return the command line that runs a command of Slurm, over SSH if the settings say so."""
        if not self._ssh:
            return list(words)
        return ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", self._ssh, shlex.join(words)]

    def run(
        self,
        *words: str,
        given: str = "",
        seconds: float = ANSWER_SECONDS,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Run a command with `given` on its standard input, in an environment; return its output.

        Raises:
            SlurmSilent: when the controller does not answer, or did not a moment ago.
            SlurmRefused: when Slurm refuses, or its command is not installed.
        """
        if time.monotonic() < self._silent_until:
            raise SlurmSilent(self._silence)
        try:
            done = subprocess.run(
                self._found(words),
                input=given,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
                env=self.variables(environment),
                cwd="/",
            )
        except subprocess.TimeoutExpired:
            raise self._no_answer(f"{words[0]} gave no answer within {seconds:g} s") from None
        except OSError as error:
            hint = (
                "Install Slurm's client commands, put their folder into PATH, or name a login node in "
                "[engine] slurm_ssh"
            )
            raise SlurmRefused(f"{words[0]} cannot be run: {error.strerror}. {hint}") from None
        if done.returncode == 0:
            return done.stdout
        said = " ".join((done.stderr or done.stdout).split())[-400:]
        if any(text in said for text in _SILENT) or (self._ssh and done.returncode == 255):
            raise self._no_answer(f"Slurm's controller does not answer: {said}")
        raise SlurmRefused(
            said.replace(f"{words[0]}: error: ", "") or f"{words[0]} ended with exit code {done.returncode}"
        )

    def variables(self, environment: Mapping[str, str] | None) -> dict[str, str]:
        """Return the variables of a command: where Slurm is, and none that change what it lists or asks for.

        A user's SQUEUE_PARTITION would hide jobs, and SLURM_NTASKS of a job in which the daemon runs would be
        an option of each `sbatch`.
        """
        ours = os.environ if self._environment is None else self._environment
        given = {**ours, "LC_ALL": "C"} if environment is None else environment
        kept = {name: value for name, value in given.items() if not name.startswith(_OPTIONS)}
        return {**kept, **{name: ours[name] for name in _PLACES if name in ours}}

    def _found(self, words: Sequence[str]) -> list[str]:
        """Return the command line of a command of Slurm, with its path where PATH does not lead to it."""
        if self._ssh or shutil.which(words[0]):
            return self.argv(words)
        found = shutil.which(words[0], path=os.pathsep.join(self._folders))
        return [found or words[0], *words[1:]]

    def _no_answer(self, said: str) -> SlurmSilent:
        self._silent_until, self._silence = time.monotonic() + REST_SECONDS, said
        return SlurmSilent(said)

    def _listed(self, name: str, *words: str) -> list[str]:
        """Return the lines of a listing, which is asked for again once it is a second old."""
        found = self._listings.setdefault(name, _Listing())
        if time.monotonic() - found.at > FRESH_SECONDS:
            asked = time.monotonic()
            said = self.run(*words)
            if said and not said.endswith("\n"):
                # What is missing behind it would count as gone.
                raise self._no_answer(f"the answer of {words[0]} breaks off: {said[-40:]!r}")
            found.text, found.at = said, asked
        return found.text.splitlines()

    def forget_listings(self) -> None:
        """Ask Slurm anew at the next question, because we have just changed something."""
        for found in self._listings.values():
            found.at = -1e9

    def nodes(self) -> list[SlurmNode]:
        """Return every node of this cluster, once for each of its partitions; none of others of a federation.

        Raises:
            SlurmSilent: when no node is listed: a cluster has some.
            SlurmRefused: when Slurm refuses.
        """
        lines = self._listed("nodes", "sinfo", "-h", "-N", "-a", "--local", "-o", "%N|%R|%T|%c|%m|%G|%o|%E")
        found = [node for line in lines if (node := _node(line)) is not None]
        if not found:
            # To take it for a cluster without nodes would end all of ours.
            raise self._no_answer(f"sinfo lists no node: {_start(lines)}")
        return found

    def jobs(self) -> list[SlurmJob]:
        """Return the jobs of all users: those that wait, run, or ended a few minutes ago.

        Raises:
            SlurmSilent: when the answer has lines, and no job among them.
            SlurmRefused: when Slurm refuses.
        """
        lines = self._listed(
            "jobs", "squeue", "-h", "-a", "--local", "-t", "all", "-o", f"{self._row}|{JOB_FORMAT}"
        )
        # A comment may have several lines; what stands before the first row is a greeting of the login node.
        rows = "\n".join(["", *lines]).split(f"\n{self._row}|")[1:]
        found = [job for row in rows if (job := _job(row)) is not None]
        if len(found) < len(rows):
            broken = [row for row in rows if _job(row) is None]
            raise self._no_answer(f"squeue lists a job with too few columns: {_start(broken)}")
        if lines and not found:
            # To take it for an empty queue would count running jobs as lost.
            raise self._no_answer(f"squeue lists no job: {_start(lines)}")
        return found

    def submit(self, options: Sequence[str], script: str, *, environment: Mapping[str, str]) -> str:
        """Submit a batch script, which gets the variables of `environment`; return the number of its job.

        Raises:
            SlurmSilent: when no answer came; the job may exist, and is found by its comment.
            SlurmRefused: when Slurm refuses it.
        """
        said = self.run(
            "sbatch", "--parsable", *options,
            given=script, seconds=3 * ANSWER_SECONDS, environment=environment,
        )  # fmt: skip
        self.forget_listings()
        number = re.findall(r"(?m)^(\d+)(?:;.*)?$", said.strip())
        if not number:
            raise SlurmSilent(f"sbatch names no job: {_start(said.splitlines())}")
        return str(number[-1])

    def signal(self, job: str, name: str) -> None:
        """Send a signal to the batch script of a job; a job that is over gets none."""
        self._end("scancel", "-s", name, "-b", job)

    def cancel(self, job: str) -> None:
        """Cancel a job, or do nothing if it is over."""
        self._end("scancel", job)
        self.forget_listings()

    def _end(self, *words: str) -> None:
        try:
            self.run(*words)
        except SlurmRefused as error:
            if not any(text in str(error) for text in _NOT_THERE):
                raise

    def update_nodes(self, names: Sequence[str], **values: str) -> None:
        """Change nodes: `state`, with the `reason` that `sinfo -R` and `scontrol show node` then give."""
        words = [f"{key}={value}" for key, value in values.items()]
        for at in range(0, len(names), MOST_NAMES):
            self.run("scontrol", "update", f"nodename={','.join(names[at : at + MOST_NAMES])}", *words)
        self.forget_listings()

    def figures(self, job: str) -> dict[str, str]:
        """Return what ``scontrol show job`` says of a job in words with an equals sign; the first counts.

        Raises:
            SlurmSilent: when Slurm does not answer.
            SlurmRefused: when there is no such job.
        """
        found: dict[str, str] = {}
        for word in self.run("scontrol", "--oneliner", "show", "job", job).split():
            key, equals, value = word.partition("=")
            if equals:
                found.setdefault(key, value)
        return found

    def update_job(self, job: str, **values: str) -> None:
        """Change a job, for example its `NumNodes`.

        Raises:
            SlurmSilent: when Slurm does not answer.
            SlurmRefused: when Slurm refuses.
        """
        self.run("scontrol", "update", f"jobid={job}", *[f"{key}={value}" for key, value in values.items()])
        self.forget_listings()

    def requeue_held(self, job: str) -> None:
        """End a job and let it wait until it is released.

        Raises:
            SlurmSilent: when Slurm does not answer.
            SlurmRefused: when the job may not be requeued.
        """
        self.run("scontrol", "requeuehold", job)
        self.forget_listings()

    def release(self, job: str) -> None:
        """Let a held job start.

        Raises:
            SlurmSilent: when Slurm does not answer.
            SlurmRefused: when Slurm refuses.
        """
        self.run("scontrol", "release", job)
        self.forget_listings()

    def admin_comments(self, jobs: Sequence[str] = ()) -> dict[str, str]:
        """Return the AdminComment of these jobs, or of all that are not over, where they have one.

        Raises:
            SlurmSilent: when Slurm does not answer.
            SlurmRefused: when Slurm refuses.
        """
        chosen = ["-t", "all", f"--jobs={','.join(jobs)}"] if jobs else ["-a"]
        try:
            said = self.run("squeue", "-h", *chosen, "-O", f"jobid:24,admin_comment:{LONGEST_COMMENT}")
        except SlurmRefused as error:
            if any(known in str(error) for known in _NOT_THERE):
                return {}
            raise
        # A comment may have several lines; only that of a job begins with a number in its column.
        rows = re.split(r"(?m)^(?=\d[\d ]{23})", said)
        found = {row[:24].strip(): row[24:].strip() for row in rows if row.strip()}
        return {job: text for job, text in found.items() if text not in ("", "(null)", "N/A")}

    def comment(self, job: str, text: str) -> None:
        """Set what ``squeue -O admin_comment`` shows for a job; one that is over keeps its own."""
        try:
            self.run("scontrol", "update", f"jobid={job}", f"admincomment={text}")
        except SlurmRefused as error:
            if not any(known in str(error) for known in _NOT_THERE):
                raise


def _start(lines: Sequence[str]) -> str:
    """Return the start of an answer that cannot be read, for a message."""
    return repr(" ".join(" ".join(lines[:3]).split())[:100])


def _node(line: str) -> SlurmNode | None:
    words = line.split("|", 7)
    if len(words) < 7:
        return None
    name, partition, shown, cpus, memory, gres, address = words[:7]
    state, marks = _state(shown)
    found = read_gpus(gres)
    reason = words[7] if len(words) > 7 and words[7] != "none" else ""
    return SlurmNode(
        name=name,
        partition=partition,
        state=state,
        marks=marks,
        cpus=_whole(cpus),
        memory_mb=_whole(memory, unit="M"),
        gpus=found.count,
        gpu_model=found.model,
        address=address,
        reason=reason,
    )


def _state(shown: str) -> tuple[str, str]:
    """Return a node's state and its marks; versions differ in which flags are marks, and which are words."""
    bare = shown.rstrip(_MARKS)
    marks = shown[len(bare) :]
    state, *flags = bare.lower().split("+")
    if state in _FLAG_MARKS and state != "planned":
        # The state alone says it, and not what runs there: nothing does while it is powered up or down.
        state, flags = "idle", [state, *flags]
    marks += "".join(_FLAG_MARKS[flag] for flag in flags if flag in _FLAG_MARKS)
    if "drain" in flags:
        state = "drained" if state in ("idle", "down") else "draining"
    if "completing" in flags and state == "idle":
        state = "completing"
    return state, marks


def _job(line: str) -> SlurmJob | None:
    words = line.split("|", 8)
    if len(words) < 9:
        return None
    # A reason has no bar, and a comment may have one.
    comment, _, reason = words[8].rpartition("|")
    number, state, user, account, nodes, partition, count, shown, _ = words
    return SlurmJob(
        id=number,
        state=state,
        user=user,
        account=account,
        nodes=nodes,
        comment=comment,
        reason=reason,
        partition=partition,
        node_count=_whole(count),
        is_task="_" in shown,
    )


def _whole(text: str, *, unit: str = " ") -> int:
    """Return the number at the start of a text such as `64+` or `1-4`; 0 if there is none.

    Slurm writes 1024 nodes as `1K`, and 262144 MB as `256G`: `unit` is the letter that it leaves out.
    """
    found = re.match(r"(\d+(?:\.\d+)?)([KMGTP]?)", text)
    if found is None:
        return 0
    power = _UNITS.index(found[2]) - _UNITS.index(unit) if found[2] else 0
    return int(float(found[1]) * 1024**power)


def expand(hostlist: str) -> list[str]:
    """Return the names in a host list such as `c[1-3,07],login`, in its order.

    Raises:
        ValueError: when its brackets do not match, a range or a name is none, or it stands for too many.
    """
    found: list[str] = []
    for part in _split(hostlist):
        names = [""]
        for text, brackets in re.findall(r"([^\[\]]*)(\[[^\[\]]*\])?", part):
            choices = _range(brackets[1:-1]) if brackets else [""]
            if len(names) * len(choices) > MOST_HOSTS:
                raise ValueError(f"{part!r} stands for more than {MOST_HOSTS:,} names")
            names = [f"{name}{text}{choice}" for name in names for choice in choices]
        if re.search(r"[\[\]]", re.sub(r"\[[^\[\]]*\]", "", part)):
            raise ValueError(f"{part!r} is no host list")
        if not all(re.fullmatch(r"[\w.-]+", name) for name in names):
            raise ValueError(f"{part!r} is no name of a node")
        found += names
    return found


def _split(hostlist: str) -> list[str]:
    """Split a host list at its commas outside of brackets."""
    return [part.strip() for part in re.split(r",(?![^\[]*\])", hostlist) if part.strip()]


def _range(inside: str) -> list[str]:
    found: list[str] = []
    for each in inside.split(","):
        match = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", each)
        numbers = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if match is None or not numbers:
            raise ValueError(f"[{inside}] is no range of numbers")
        if len(found) + len(numbers) > MOST_HOSTS:
            raise ValueError(f"[{inside}] stands for more than {MOST_HOSTS:,} names")
        width = len(match[1]) if match[1].startswith("0") else 0
        found += [f"{number:0{width}d}" for number in numbers]
    return found
