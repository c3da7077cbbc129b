"""A batch script of Slurm as a job file: each `#SBATCH` line is meant, ignored with a reason, or refused.

Slurm runs the script on the first node, and `srun` starts the tasks on all of them. BOA runs it on every
node, so `srun` becomes a function that starts this node's tasks, with the variables that Slurm would set. A
job array becomes a group. What BOA plans by comes from the comment:
`#SBATCH --comment=boa:class=vision,min_gpus=1,max_gpus=8,elastic`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.document_file import Document, name_of, read_text
from boa_daemon.slurm import options as of_slurm
from boa_daemon.slurm.class_comment import read_class_comment
from boa_daemon.slurm.resources import SLICE, SlurmGpus, read_gpus
from boa_daemon.units import SECONDS_PER_HOUR

SUFFIXES = (".sbatch", ".slurm")
MARK = "#SBATCH"
MOST_ARRAY = 10_000
Fate: TypeAlias = Literal["meant", "ignored"]
SHORT = {
    **of_slurm.SHORT, "a": "array", "c": "cpus-per-task", "D": "chdir", "d": "dependency", "e": "error",
    "G": "gpus", "H": "hold", "J": "job-name", "N": "nodes", "n": "ntasks", "o": "output",
    "s": "oversubscribe", "w": "nodelist", "F": "nodefile", "i": "input", "k": "no-kill", "b": "begin",
    "m": "distribution", "M": "clusters", "S": "core-spec", "Q": "quiet", "O": "overcommit", "v": "verbose",
    "W": "wait", "B": "extra-node-info", "I": "immediate",
}  # fmt: skip
IGNORED: Mapping[str, str] = {
    "output": "`boa logs` has the output of every rank",
    "error": "`boa logs` has the output of every rank",
    "open-mode": "`boa logs` has the output of every rank",
    "requeue": "a lost job starts again from its checkpoint; `retries` limits it",
    "no-requeue": "a lost job starts again from its checkpoint; `retries` limits it",
    "exclusive": "the plan places jobs on nodes",
    "oversubscribe": "the plan places jobs on nodes",
    "overcommit": "the plan places jobs on nodes",
    "nodelist": "the plan places jobs on nodes",
    "parsable": "`boa submit -o json` is for programs",
    "verbose": "`boa explain` says more",
    "quiet": "`boa submit -o json` is for programs",
    "get-user-env": "variables come from --export=NAME=VALUE",
    "kill-on-invalid-dep": "a job whose `after` failed is given up",
    "no-kill": "a job that lost a node starts again from its checkpoint",
    "propagate": "limits are those of the node",
    "ntasks-per-socket": "the plan places jobs on nodes",
    "ntasks-per-core": "the plan places jobs on nodes",
    "extra-node-info": "the plan places jobs on nodes",
    "mem-bind": "the plan places jobs on nodes",
    "immediate": "sbatch ignores it, too",
    "wait": "`boa wait` waits for jobs",
    "cores-per-socket": "the plan places jobs on nodes",
    "mincpus": "say --cpus-per-task",
    "wait-all-nodes": "a job starts when all of its nodes are ready",
    "input": "a job has no input",
    "delay-boot": "the plan rents nodes",
    "reboot": "the plan rents nodes",
    "batch": "the script runs on every node",
    "acctg-freq": "progress is measured by BOA",
    "export-file": "variables come from --export=NAME=VALUE",
    "ignore-pbs": "lines of PBS are not read",
    "test-only": "`boa submit --check` checks",
    "stepmgr": "there are no steps",
    "oom-kill-step": "a job that runs out of memory fails as a whole",
    "resv-ports": "the ports of a node are the job's",
    "external": "jobs are not handed to others",
    "segment": "the plan places jobs on nodes",
    "consolidate-segments": "the plan places jobs on nodes",
    "spread-segments": "the plan places jobs on nodes",
    "tres-bind": "the plan places jobs on nodes",
}
REFUSED: Mapping[str, str] = {
    "wrap": "write the command into the script",
    "hold": "submit it later, or say --begin",
    "uid": "a job runs as who submits it",
    "gid": "a job runs as who submits it",
    "container": "say `image` in a job file",
    "container-id": "say `image` in a job file",
    "container-image": "say `image` in a job file",
    "container-mounts": "say `image` in a job file",
    "container-name": "say `image` in a job file",
    "container-workdir": "say `image` in a job file",
    "clusters": "name one daemon with --socket",
    "cluster-constraint": "name one daemon with --socket",
    "bb": "there is no burst buffer",
    "bbf": "there is no burst buffer",
    "nodefile": "the plan places jobs on nodes",
    "het-group": "heterogeneous jobs cannot be planned; submit a job for each part",
    "gpu-freq": "clocks of GPUs are not changed",
    "cpu-freq": "clocks of processors are not changed",
    "mcs-label": "there are no security labels",
    "umask": "write umask into the script",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SbatchNote:
    """What became of an option: its line, its name, and a sentence on what it means here or why not.

    An option that a variable of `sbatch` sets has the line 0, and the name of the variable.
    """

    line: int
    option: str
    fate: Fate
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SbatchFile:
    """A batch script as the content of a job file, with a note on each option."""

    content: Mapping[str, Any]
    notes: tuple[SbatchNote, ...]


@dataclass(kw_only=True)
class _Said:
    """The options of a script so far."""

    path: str
    line: int = 0
    variable: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)
    most_nodes: int | None = None
    comment: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    slurm: list[str] = field(default_factory=list)
    array: list[int] = field(default_factory=list)
    shell: list[str] = field(default_factory=list)
    is_login: bool = False
    notes: list[SbatchNote] = field(default_factory=list)

    def refuse(self, said: str, hint: str = "") -> NoReturn:
        """Refuse the line.

        Raises:
            InputError: always.
        """
        if self.variable:
            hint = f"{hint}. Or unset {self.variable}" if hint else f"Unset {self.variable}"
            raise InputError(f"{said} (sbatch takes it from the variable {self.variable})", hint=hint)
        raise InputError(said, file=self.path, line=self.line, hint=hint)

    def note(self, option: str, said: str, fate: Fate = "meant") -> None:
        """Note what became of an option."""
        named = f"--{option}"
        if self.variable:
            named, said = self.variable, f"{named}, as sbatch reads it: {said}"
        self.notes.append(SbatchNote(line=self.line, option=named, fate=fate, said=said))

    def whole(self, option: str, value: str) -> int:
        """Return a whole number from 1."""
        if not re.fullmatch(r"[1-9]\d{0,6}", value):
            self.refuse(f"--{option} must be a whole number from 1; got {value!r}")
        return int(value)


def is_sbatch(path: Path, text: str) -> bool:
    """Return whether a file is a batch script: by its name, or as a script with lines for sbatch."""
    return path.suffix in SUFFIXES or (
        text.startswith("#!") and re.search(r"(?m)^#SBATCH[\s-]", text[:65_536]) is not None
    )


def read_sbatch(path: Path, environ: Mapping[str, str] = os.environ) -> SbatchFile:
    """Return a batch script as a job file.

    The variables that `sbatch` reads, such as SBATCH_PARTITION, override its lines, as they do there.

    Raises:
        InputError: when it cannot be read, or for the first option that cannot be meant, with its line.
    """
    return parse_sbatch(read_text(path), path, environ)


def parse_sbatch(text: str, path: Path, environ: Mapping[str, str] = os.environ) -> SbatchFile:
    """Return the text of a batch script as a job file.

    Raises:
        InputError: for the first option that cannot be meant, with its line.
    """
    text = text.replace("\r\n", "\n")
    if "\n" not in text:
        text = text.replace("\r", "\n")
    lines = text.split("\n")
    said = _Said(path=name_of(path), line=1)
    _read_first_line(said, lines[0])
    has_begun = False
    for number, line in enumerate(lines, start=1):
        said.line = number
        if re.match(rf"{MARK}[\s-]", line):
            if has_begun:
                said.note("", "stands after the first command, where sbatch does not read it", "ignored")
                continue
            _read_line(said, line[len(MARK) :])
        elif line.strip() and not line.lstrip().startswith("#"):
            has_begun = True
    said.line = 0
    for said.variable, name, value in of_slurm.options_of_environment(environ, _FLAGS):
        _take(said, name, value)
    said.line, said.variable = 1, ""
    return SbatchFile(content=_content(said, text, path), notes=tuple(said.notes))


def _read_first_line(said: _Said, first: str) -> None:
    """Take over the shell's options; the script runs under bash."""
    match = re.match(
        r"#!\s*/(?:\S+/)*(?:env\s+(?:-S\s*)?(?:/(?:\S+/)*)?)?((?:ba|da|z|k)?sh)\b(\S*)(.*)", first
    )
    if match is None:
        said.refuse(
            f"the script begins with {first[:60]!r}, not with a shell",
            "Begin it with #!/bin/bash, as sbatch does",
        )
    ignored = [] if match[1] in ("bash", "sh") else [match[1]]
    # Options of zsh have the same letters and mean other things.
    words = [] if match[1] == "zsh" else match[3].split()
    while words:
        word = words.pop(0)
        if word == "--login":
            said.is_login = True
        elif re.fullmatch(r"-[aefluvxC]+", word):
            said.is_login = said.is_login or "l" in word
            letters = word[1:].replace("l", "")
            said.shell += [f"-{letters}"] if letters else []
        elif word == "-o" and words and re.fullmatch(r"[a-z]+", words[0]):
            said.shell += [word, words.pop(0)]
        else:
            ignored.append(word)
    for word in ignored:
        said.notes.append(
            SbatchNote(line=1, option="#!", fate="ignored", said=f"{word}: the script runs under /bin/bash")
        )


def _read_line(said: _Said, rest: str) -> None:
    """Take over the options of one line."""
    try:
        # sbatch leaves out a backslash at the end, too: each line has a mark of its own.
        words = shlex.split(re.sub(r"\\\s*$", "", rest), comments=True)
    except ValueError as error:
        said.refuse(f"the line cannot be read: {error}")
    if words[:1] == ["hetjob"] or words[:1] == ["packjob"] or ":" in words:
        said.refuse("heterogeneous jobs cannot be planned", "Submit a job for each part, with --dependency")
    while words:
        word = words.pop(0)
        read = of_slurm.read_option(word, SHORT)
        if read is None:
            said.refuse(f"{word!r} is no option of sbatch", "Write --name=value")
        name, value = _in_full(said, read[0]), read[1]
        if value is None and name not in _FLAGS:
            if not words:
                said.refuse(f"--{name} lacks its value" if name in _KNOWN else _unknown(name))
            value = words.pop(0)
        _take(said, name, value or "")


def _in_full(said: _Said, name: str) -> str:
    """Return the option that begins with a name, as sbatch takes it, if it is one alone."""
    found = [] if name in _KNOWN else sorted(option for option in _KNOWN if option.startswith(name))
    if len(found) > 1:
        said.refuse(f"--{name} is ambiguous: {', '.join(f'--{one}' for one in found)}", "Write it in full")
    return found[0] if found else name


def _unknown(name: str) -> str:
    return f"--{name} is not known. {did_you_mean(name, sorted(_KNOWN))}".strip()


def _take(said: _Said, name: str, value: str) -> None:
    """Take over one option."""
    if name in REFUSED:
        said.refuse(f"--{name} cannot be meant", REFUSED[name][:1].upper() + REFUSED[name][1:])
    if name in IGNORED:
        said.note(name, IGNORED[name], "ignored")
    elif name in _TAKEN:
        _TAKEN[name](said, value)
    elif name in of_slurm.VALUES or name in of_slurm.FLAGS:
        given = value or _IF_BARE.get(name, "")
        said.slurm = [one for one in said.slurm if one.partition("=")[0] != f"--{name}"]
        said.slurm.append(f"--{name}={given}" if name in of_slurm.VALUES else f"--{name}")
        said.note(name, "handed to sbatch by the slurm engine; other engines have no such thing")
    else:
        said.refuse(_unknown(name))


def _name(said: _Said, value: str) -> None:
    said.values["name"] = re.sub(r"[^A-Za-z0-9_.-]", "-", value)[:100]
    said.note("job-name", "name")


def _size(key: str) -> Callable[[_Said, str], None]:
    def take(said: _Said, value: str) -> None:
        said.sizes[key] = said.whole(key, value)
        if key.startswith("cpus"):
            said.note(key, "cpus")
        elif key.startswith("ntasks"):
            said.note(key, "tasks of a node, and GPUs where each task has some")
        else:
            said.note(key, "GPUs where each socket has some")

    return take


def _nodes(said: _Said, value: str) -> None:
    least, dash, most = value.partition("-")
    said.sizes["nodes"] = said.whole("nodes", least)
    said.most_nodes = said.whole("nodes", most) if dash else None
    if said.most_nodes is not None and said.most_nodes < said.sizes["nodes"]:
        said.refuse(f"--nodes={value} has a maximum below its minimum")
    said.note("nodes", "counts for the number of GPUs; the plan chooses the nodes")


def _gpus(key: str) -> Callable[[_Said, str], None]:
    def take(said: _Said, value: str) -> None:
        parts = [each.rpartition(":") for each in value.split(",")]
        said.sizes[key] = sum(_count(said, key, count) for _, _, count in parts)
        kinds = ", ".join(kind for kind, _, _ in parts if kind)
        left = f"; the kind {kinds} is left to the class of the job" if kinds else ""
        said.note(key, f"counts for the number of GPUs{left}")

    return take


def _count(said: _Said, key: str, value: str) -> int:
    """Return a number of GPUs, which may have Slurm's suffix for 1,024."""
    if value.endswith(("k", "K")):
        return 1024 * said.whole(key, value[:-1])
    return said.whole(key, value)


def _gres(said: _Said, value: str) -> None:
    found = _resources(said, "gres", value)
    for item in found.others:
        said.note("gres", f"{item} is no whole GPU" if found.part_units else f"{item} is no GPU", "ignored")
    if found.part_units and not found.by_type:
        said.sizes["gpus-per-node"] = 1
        said.note("gres", "parts of a GPU (shard, mps) count as a GPU")
    for name in found.by_type:
        is_slice = SLICE.search(name) is not None
        said.note(
            "gres", "a slice of a GPU (MIG) counts as a GPU" if is_slice else "counts for the number of GPUs"
        )
    if found.by_type:
        said.sizes["gpus-per-node"] = found.count


def _tres_per_task(said: _Said, value: str) -> None:
    found = _resources(said, "tres-per-task", value)
    for item in found.others:
        name, _, amount = item.replace(":", "=").partition("=")
        if name.lower() == "cpu":
            said.sizes["cpus-per-task"] = said.whole("tres-per-task=cpu", amount)
            said.note("tres-per-task", "cpus")
        else:
            said.note("tres-per-task", f"{item} is neither GPUs nor processors", "ignored")
    if found.by_type:
        said.sizes["gpus-per-task"] = found.count
        said.note("tres-per-task", "counts for the number of GPUs")


def _resources(said: _Said, option: str, value: str) -> SlurmGpus:
    """Return the GPUs and the other resources of an option."""
    found = read_gpus(value)
    none = next((item for item in value.split(",") if "gpu" in item and re.search(r"\b0+(\(|$)", item)), "")
    if found.unread or none:
        item = none or found.unread[0]
        said.refuse(f"--{option}={item} cannot be read", "Write gpu:2 or gpu:a100:2, with 1 GPU or more")
    return found


def _time(said: _Said, value: str) -> None:
    hours = _hours(value)
    if hours is None:
        said.refuse(f"--time must be minutes, HH:MM:SS or D-HH:MM:SS; got {value!r}")
    if hours > 0:
        said.values["max_hours"] = hours
    said.note("time", "max_hours, on GPUs and over all starts" if hours > 0 else "no limit")


def _hours(value: str) -> float | None:
    """Return the hours of one of Slurm's forms of a duration: 0 for none, None if it is none of them."""
    if value.upper() in ("INFINITE", "UNLIMITED", "0"):
        return 0.0
    days, dash, rest = value.rpartition("-")
    parts = rest.split(":")
    if (
        (dash and not re.fullmatch(r"[0-9]{1,6}", days))
        or len(parts) > 3
        or not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts)
    ):
        return None
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    else:
        hours, minutes, seconds = [(0, *numbers, 0), (0, *numbers), tuple(numbers)][len(numbers) - 1][:3]
    return int(days or 0) * 24.0 + hours + minutes / 60.0 + seconds / SECONDS_PER_HOUR


def _array(said: _Said, value: str) -> None:
    spec, _, at_once = value.partition("%")
    found: list[int] = []
    for each in spec.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?", each)
        if match is None or int(match[3] or 1) < 1:
            said.refuse(f"--array must be numbers and ranges such as 0-9,20; got {value!r}")
        found += range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))
        if len(found) > MOST_ARRAY:
            said.refuse(f"--array has more than {MOST_ARRAY:,} members", "Split it")
    said.array = list(dict.fromkeys(found))
    if not said.array:
        said.refuse(f"--array={value} has no member")
    said.note("array", f"a group of {len(said.array)} jobs")
    if at_once:
        said.whole("array %", at_once)
        said.note("array", f"%{at_once} at once: the plan decides how many run", "ignored")


def _dependency(said: _Said, value: str) -> None:
    after = said.values.setdefault("after", [])
    for each in value.split(","):
        kind, *ids = each.split(":")
        if kind not in ("afterok", "afterany") or not ids or "?" in each:
            said.refuse(
                f"--dependency={value} cannot be meant", "afterok:JOB and afterany:JOB, ids of BOA's jobs"
            )
        after += ids if kind == "afterok" else [f"{name}:end" for name in ids]
    said.note("dependency", "after")


def _memory(key: str) -> Callable[[_Said, str], None]:
    def take(said: _Said, value: str) -> None:
        match = re.fullmatch(r"(\d+)([KMGT]?)B?", value.upper())
        if match is None:
            said.refuse(f"--{key} must be a size such as 64G; got {value!r}")
        scale = {"K": 2**10, "M": 2**20, "": 2**20, "G": 2**30, "T": 2**40}[match[2]]
        if int(match[1]):
            said.sizes[key] = int(match[1]) * scale / 1e9
        said.note(key, "memory_gb" if int(match[1]) else "the whole node")

    return take


def _chdir(said: _Said, value: str) -> None:
    # Relative to the folder that sbatch is called in, not to that of the script.
    said.values["workdir"] = str(Path.cwd() / value)
    said.note("chdir", "workdir")


def _export(said: _Said, value: str) -> None:
    for each in [part for part in value.split(",") if part]:
        name, equals, text = each.partition("=")
        if equals:
            said.environment[name] = text
            said.note("export", f"variable {name}")
        else:
            said.note(
                "export", f"{name}: no variables of the submitter are sent; write NAME=VALUE", "ignored"
            )


def _mail(said: _Said, value: str) -> None:
    events = {
        "BEGIN": ["start"], "END": ["end"], "FAIL": ["failure"], "REQUEUE": ["move"], "NONE": [],
        "ALL": ["start", "end", "failure", "move"],
    }  # fmt: skip
    found: list[str] = []
    for each in value.upper().split(","):
        if each in events:
            found += events[each]
        elif each in _OTHER_MAIL:
            said.note("mail-type", f"{each}: there is no such notice", "ignored")
        else:
            said.refuse(f"--mail-type: {each!r} is not known", did_you_mean(each, [*events, *_OTHER_MAIL]))
    said.values["notify"] = list(dict.fromkeys(found))
    said.note("mail-type", "notify, by the channels of [users] in the daemon's settings")


def _mail_user(said: _Said, value: str) -> None:
    del value
    said.note("mail-user", "[users] in the daemon's settings says where a user is notified", "ignored")


def _begin(said: _Said, value: str) -> None:
    said.values["not_before"] = _instant(said, "begin", value)
    said.note("begin", "not_before")


def _deadline(said: _Said, value: str) -> None:
    said.values["deadline"] = _instant(said, "deadline", value)
    said.note("deadline", "deadline")


def _instant(said: _Said, name: str, value: str) -> str:
    """Return an instant in ISO 8601 with its zone; Slurm's times are those of this machine."""
    match = re.fullmatch(r"now(?:\+(\d{1,7})(seconds?|minutes?|hours?|days?|weeks?)?)?", value)
    if match is not None:
        unit = (match[2] or "seconds").rstrip("s") + "s"
        return (datetime.now(UTC) + timedelta(**{unit: int(match[1] or 0)})).isoformat(timespec="seconds")
    clock = _CLOCK.get(value, value)
    if re.fullmatch(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?", clock):
        # The next time that a clock here shows it.
        now = datetime.now()
        with suppress(ValueError):
            at = datetime.combine(
                now.date(), time.fromisoformat(clock.zfill(8 if clock.count(":") == 2 else 5))
            )
            at += timedelta(days=0 if at > now else 1)
            return at.astimezone().isoformat(timespec="seconds")
    try:
        return datetime.fromisoformat(value).astimezone().isoformat(timespec="seconds")
    except ValueError:
        said.refuse(f"--{name} must be YYYY-MM-DDTHH:MM:SS, HH:MM or now+2hours; got {value!r}")


def _signal(said: _Said, value: str) -> None:
    read = of_slurm.read_signal(value)
    if read is None:
        said.refuse(
            f"--signal={value} names no signal of sbatch",
            "Write USR1, SIGUSR1 or 10, as in --signal=B:USR1@60",
        )
    name, seconds = read
    if seconds:
        said.values["stop_grace_seconds"] = float(seconds)
    is_same = name in ("TERM", "15")
    said.note("signal", f"stop_grace_seconds; the signal is SIGTERM{'' if is_same else f', not {name}'}")


def _comment(said: _Said, value: str) -> None:
    try:
        found = read_class_comment(value)
    except ValueError as error:
        said.refuse(str(error))
    said.comment.update(found)
    said.note(
        "comment", "class and widths" if found else "a note for people", "meant" if found else "ignored"
    )


_CLOCK = {"midnight": "00:00", "noon": "12:00", "fika": "15:00", "teatime": "16:00"}
_OTHER_MAIL = (
    "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50",
    "ARRAY_TASKS",
)  # fmt: skip
_IF_BARE = {"nice": "100"}
"""What an option means that has no value, and could have one."""
_TAKEN: Mapping[str, Callable[[_Said, str], None]] = {
    "job-name": _name, "nodes": _nodes, "gres": _gres, "tres-per-task": _tres_per_task,
    "time": _time, "array": _array, "chdir": _chdir,
    "dependency": _dependency, "export": _export, "mail-type": _mail, "mail-user": _mail_user,
    "begin": _begin, "deadline": _deadline, "signal": _signal, "comment": _comment,
    **{key: _size(key) for key in ("ntasks", "ntasks-per-node", "ntasks-per-gpu")},
    **{key: _size(key) for key in ("cpus-per-task", "cpus-per-gpu", "sockets-per-node")},
    **{key: _gpus(key) for key in ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")},
    **{key: _memory(key) for key in ("mem", "mem-per-cpu", "mem-per-gpu")},
}  # fmt: skip
_FLAGS = frozenset(
    {
        "requeue", "no-requeue", "exclusive", "oversubscribe", "overcommit", "parsable", "verbose", "quiet",
        "hold", "no-kill", "ignore-pbs", "test-only", "reboot", "get-user-env", "nice", "propagate", "wait",
        "immediate", "stepmgr", "external", "consolidate-segments", "spread-segments", "resv-ports",
        *of_slurm.FLAGS,
    }
)  # fmt: skip
"""Options whose value, if they can have one, stands behind an equals sign."""
_KNOWN = frozenset({*_TAKEN, *IGNORED, *REFUSED, *of_slurm.VALUES, *of_slurm.FLAGS})


def _content(said: _Said, text: str, path: Path) -> dict[str, Any]:
    """Return the content of the job file."""
    sizes = said.sizes
    nodes = int(sizes.get("nodes", 1))
    per_node = int(
        sizes.get("gpus-per-node", 0) or sizes.get("gpus-per-socket", 0) * sizes.get("sockets-per-node", 1)
    )
    if "nodes" not in sizes and per_node:
        # Slurm takes as many nodes as the number of all GPUs needs.
        nodes = max(1, -(-int(sizes.get("gpus", 0)) // per_node))
    tasks = int(sizes.get("ntasks", sizes.get("ntasks-per-node", 1) * nodes))
    gpus = int(sizes.get("gpus", 0) or per_node * nodes or sizes.get("gpus-per-task", 0) * tasks)
    widest = gpus
    if said.most_nodes is not None and per_node:
        widest = per_node * said.most_nodes
    if not gpus:
        gpus = widest = nodes
        said.note("gpus", f"the script asks for no GPU; it is planned with {gpus}, one on each node")
    on_node = max(per_node or gpus // nodes, 1)
    has_tasks = bool(sizes.keys() & {"ntasks", "ntasks-per-node"})
    if "gpus-per-task" in sizes and not has_tasks:
        tasks = max(gpus // int(sizes["gpus-per-task"]), 1)
    if "ntasks-per-gpu" in sizes and not has_tasks:
        tasks = int(sizes["ntasks-per-gpu"]) * on_node * nodes
    tasks_per_node = int(sizes.get("ntasks-per-node", -(-tasks // nodes)))
    cpus = sizes.get("cpus-per-task", 0) * tasks_per_node or sizes.get("cpus-per-gpu", 0) * on_node
    memory = sizes.get("mem") or sizes.get("mem-per-cpu", 0) * cpus or sizes.get("mem-per-gpu", 0) * on_node
    content: dict[str, Any] = {
        "name": said.values.pop("name", _name_of(path)),
        "class": said.comment.get("class", "default"),
        "workdir": said.values.pop("workdir", str(Path.cwd())),
        "min_gpus": gpus,
        "max_gpus": widest,
        **said.values,
        "environment": {**said.environment},
    }
    if cpus:
        content["cpus"] = float(cpus)
    if memory:
        content["memory_gb"] = float(memory)
    for key in ("min_gpus", "max_gpus"):
        if key in said.comment:
            content[key] = int(said.comment[key])
    for key in ("max_usd", "weight", "scale"):
        if key in said.comment:
            content[key] = float(said.comment[key])
    if "elastic" in said.comment:
        content["elastic"] = said.comment["elastic"] != "false"
    if "team" in said.comment:
        content["team"] = said.comment["team"]
    if said.slurm:
        content["slurm_options"] = said.slurm
    if said.array:
        content["matrix"] = {"SLURM_ARRAY_TASK_ID": said.array}
        content["environment"] |= {
            "SLURM_ARRAY_TASK_COUNT": str(len(said.array)),
            "SLURM_ARRAY_TASK_MIN": str(min(said.array)),
            "SLURM_ARRAY_TASK_MAX": str(max(said.array)),
        }
    # One task for each GPU stays so at another width.
    per = '"$BOA_GPUS_PER_NODE"' if tasks_per_node == on_node and tasks_per_node > 1 else str(tasks_per_node)
    content["run"] = (_LOGIN if said.is_login else "") + _PRELUDE.format(
        tasks=per,
        name=shlex.quote(str(content["name"])),
        folder=shlex.quote(str(Path.cwd())),
        cpus=int(sizes.get("cpus-per-task", 1)),
        array=_ARRAY if said.array else "",
        values="|".join(f"--{name}" for name in sorted((_KNOWN - _FLAGS) | _OF_SRUN)),
    )
    content["run"] += f"set {' '.join(said.shell)}\n" if said.shell else ""
    content["run"] += text.partition("\n")[2].removesuffix("\n") + "\n"
    return content


def _name_of(path: Path) -> str:
    """Return the name of a job whose script says none; that of standard input is sbatch's own."""
    return "sbatch" if str(path) == "-" else re.sub(r"[^A-Za-z0-9_.-]", "-", path.stem) or "job"


def document_of(found: SbatchFile, path: Path) -> Document:
    """Return the job file of a script as a document."""
    return Document(name=name_of(path), content=dict(found.content), language="json")


_OF_SRUN = frozenset(
    {
        "accel-bind", "cpu-bind", "epilog", "jobid", "mpi", "msg-timeout",
        "prolog", "relative", "slurmd-debug", "task-epilog", "task-prolog", "threads", "wait",
    }
)  # fmt: skip
"""Options with a value that srun has and sbatch has not."""
_ARRAY = 'export SLURM_ARRAY_JOB_ID="$BOA_GROUP"\n'
_LOGIN = """\
[ -r /etc/profile ] && . /etc/profile
for boa_one in ~/.bash_profile ~/.bash_login ~/.profile; do
  [ -r "$boa_one" ] && { . "$boa_one"; break; }
done
"""
_PRELUDE = """\
boa_tasks={tasks}
export SLURM_JOB_ID="$BOA_JOB_ID" SLURM_JOBID="$BOA_JOB_ID" SLURM_JOB_NAME={name} SLURM_SUBMIT_DIR={folder}
export SLURM_NNODES="$BOA_NODES" SLURM_JOB_NUM_NODES="$BOA_NODES" SLURM_NODEID="$BOA_NODE_RANK"
export SLURM_GPUS_ON_NODE="$BOA_GPUS_PER_NODE" SLURM_CPUS_PER_TASK={cpus} SLURM_NTASKS_PER_NODE="$boa_tasks"
export SLURM_NTASKS=$((BOA_NODES * boa_tasks)) SLURM_NPROCS=$((BOA_NODES * boa_tasks))
export SLURM_PROCID=$((BOA_NODE_RANK * boa_tasks)) SLURM_LOCALID=0 SLURM_JOB_NODELIST="$MASTER_ADDR"
export SLURM_NODELIST="$MASTER_ADDR" SLURM_RESTART_COUNT=$((BOA_GENERATION - 1))
{array}scontrol() {{
  case "$1 $2" in "show hostname"|"show hostnames") echo "$MASTER_ADDR" ;; *) command scontrol "$@" ;; esac
}}
srun() {{
  while [ $# -gt 0 ]; do
    case "$1" in
      --) shift; break ;;
      -[ABcCdDeFgGiJLmMnNopPqrStTUwWx]|{values}) shift 2 ;;
      -*) shift ;;
      *) break ;;
    esac
  done
  if [ "$boa_tasks" -le 1 ]; then "$@"; return; fi
  local boa_one boa_all=() boa_code=0
  for ((boa_one = 0; boa_one < boa_tasks; boa_one++)); do
    SLURM_LOCALID=$boa_one SLURM_PROCID=$((BOA_NODE_RANK * boa_tasks + boa_one)) "$@" &
    boa_all+=($!)
  done
  for boa_one in "${{boa_all[@]}}"; do wait "$boa_one" || boa_code=$?; done
  return $boa_code
}}
"""
