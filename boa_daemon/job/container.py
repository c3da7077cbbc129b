"""The command line that runs a unit: plain, within CPU and memory limits, or in a container.

A container shares the node's network and EFA cards, and has shared memory of its own. It sees only the GPUs
of the job, and the job's folders under the same paths. `boa_daemon.job` is mounted below `LIBRARY`. Its
processes have no capabilities and get no new privileges, such as those of a set-uid file in the image.

Podman and docker run with more rights than the job. They are called by absolute path, found in the keeper's
own PATH, and with the keeper's own variables. Those of the job are handed over under names with the prefix
`HANDED`, which mean nothing to any program, and get their names back inside. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote

from boa_daemon.job.account import drops
from boa_daemon.job.control_group import ControlGroup
from boa_daemon.job.own_memory import SHARED_MEMORY, why_shared
from boa_daemon.job.run_options import RunOptions
from boa_daemon.job.unit import Unit

TOOLS = ("podman", "docker", "apptainer")
"""Container tools, in the order in which they are tried."""
RUN_AS_USER = ("podman", "docker")
"""Tools that take the job's user as an option; their command line itself runs as the keeper's user."""
LIBRARY = "/opt/boa"
HANDED = "BOA_IN_"
"""Prefix of the job's variables in the environment of the container tool."""
_SHELLS_OWN = frozenset({"UID", "EUID", "PPID", "GROUPS", "OPTIND", "LINENO", "BASHOPTS", "SHELLOPTS"})
"""Variables that a shell does not let itself be given; a container gets none of them from its job."""
_HARDENED = ("--security-opt=no-new-privileges", "--cap-drop=ALL")
_OF_ROOT = tuple(f"--cap-add={one}" for one in ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"))
"""What root in a container needs to install packages; only where jobs run as root by the settings."""
ASK_SECONDS = 30.0
BOOTED = Path("/run/systemd/system")
LIMITED = "BOA_LIMITED"
"""Variable that is set if the keeper was already started within the unit's limits."""
_SHELL = 'exec "$(command -v bash || echo /bin/sh)" -c "$0"'
OUT_OF_MEMORY = "out-of-memory"
"""File that a container's first process writes into the unit's folder after an out-of-memory kill in it."""
_FIRST = (
    "trap 'if [ $$ -eq 1 ]; then kill -TERM -1; else kill -TERM $child; fi 2>/dev/null' TERM; "
    '{ RENAMED exec "$(command -v bash || echo /bin/sh)" -c "$0"; } & child=$!; '
    "while :; do wait $child; code=$?; kill -0 $child 2>/dev/null || break; done; "
    "for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do "
    "[ ! -r $file ] || while read -r what count; do "
    '[ "$what" != oom_kill ] || [ "$count" = 0 ] || : > "$1"; done < $file; '
    "done; exit $code"
)
"""The first process of a container passes SIGTERM on to all processes in it, like a signal to a group.

At the end it looks for out-of-memory kills in the container's control group, which is gone afterwards.
"""
_SCOPE = ("systemd-run", "--scope", "--quiet", "--collect", "-p", "Delegate=yes")
"""A systemd scope; `Delegate` keeps systemd from stopping all of it after an out-of-memory kill in it."""
_NO_LIMITS = "cpus and memory_gb are not enforced"
_ULIMITS = ("--ulimit", "memlock=-1:-1", "--ulimit", "stack=67108864:67108864")
"""Pinned memory and stack sizes for NCCL and EFA; docker's daemon is root and may grant them."""
_RAISED = 'ulimit -S -l "$(ulimit -H -l)" 2>/dev/null; ulimit -S -s 65536 2>/dev/null; '
"""The same for podman, up to the hard limits of its user: with more, podman does not start a container."""
_DEVICES = Path("/dev")


class NoContainers(RuntimeError):
    """No container tool works on this node."""


def command_of(unit: Unit, environment: Mapping[str, str], *, workdir: str = "") -> tuple[list[str], str]:
    """Return the command line for a unit, and a note for its log if its limits cannot be enforced here.

    `workdir` is the folder that a container mounts for the working folder; empty for that folder itself.

    Raises:
        NoContainers: when the unit has an image, and no container tool works here.
    """
    has_limits = unit.has_limits and not environment.get(LIMITED)
    if not unit.image:
        return ["/bin/bash", "-c", unit.run], why_unlimited() if has_limits else ""
    tool = usable_tool()
    argv = in_container(unit, tool, environment, workdir=workdir)
    return [program(tool), *argv[1:]], why_unlimited(tool) if has_limits else ""


def runs_as_keeper(unit: Unit, argv: Sequence[str]) -> bool:
    """Return whether a command line of `command_of` runs with the keeper's rights, not with the job's."""
    return bool(unit.image) and os.path.basename(argv[0]) in RUN_AS_USER


def program(tool: str) -> str:
    """Return the absolute path of a program in our own PATH; its name if it is not there.

    Relative folders in PATH do not count: what they mean depends on the present folder.
    """
    absolute = [one for one in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(one)]
    return shutil.which(tool, path=os.pathsep.join(absolute)) or tool


def variables_of_tool(own: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of podman or docker: our own, and the job's variables under other names."""
    ours = {name: value for name, value in own.items() if not name.startswith(HANDED)}
    return ours | {f"{HANDED}{name}": value for name, value in given.items()}


def _names_of(unit: Unit) -> list[str]:
    """Return the names of a unit's variables that its container gets."""
    own = {"PYTHONPATH", "CUDA_VISIBLE_DEVICES"}
    return sorted({*unit.environment, *unit.secrets} - own - _SHELLS_OWN)


def renamed_inside(unit: Unit) -> str:
    """Return the shell commands that give a unit's variables their names, inside its container."""
    return "".join(f'export {name}="${HANDED}{name}"; unset {HANDED}{name}; ' for name in _names_of(unit))


def why_unlimited(tool: str = "") -> str:
    """Return why limits cannot be enforced here, without a container or with `tool`; empty if they can.

    Podman and docker enforce limits. Plain processes, and those of apptainer, need a scope of systemd, or a
    control group that the keeper may make itself.
    """
    if tool in RUN_AS_USER:
        return ""
    why = _why_no_scope()
    if not why:
        return ""
    try:
        ControlGroup.make(f"boa-try-{os.getpid()}", cpus=1.0, memory_bytes=2**40).remove()
    except OSError as error:
        said = error.strerror or str(error)
        return f"{_NO_LIMITS} on this machine: {why}, and no control group can be made ({said})"
    return ""


def _why_no_scope() -> str:
    """Return why systemd gives a keeper no scope here; empty if it does."""
    if not BOOTED.is_dir() or not os.path.isabs(program("systemd-run")):
        return "systemd does not run here"
    done = _asked([*_SCOPE, *_whose(), "--", "true"])
    return "" if done == 0 else "systemd gives its user no scope"


def within_limits(unit: Unit, argv: list[str]) -> list[str]:
    """Return the command line of a keeper, in a systemd scope with its unit's limits where that is possible.

    The keeper itself is in the scope too, so its own control group tells it about out-of-memory kills. Where
    there is no scope, the keeper makes a control group itself.
    """
    properties = [word for one in limit_properties(unit) for word in ("-p", one)]
    if not properties or _why_no_scope():
        return argv
    return [*_SCOPE, *_whose(), *properties, "--", "env", f"{LIMITED}=1", *argv]


def _whose() -> list[str]:
    """Return the option that selects the systemd instance: the system's for root, else the user's."""
    return [] if os.getuid() == 0 else ["--user"]


def limit_properties(limits: RunOptions) -> list[str]:
    """Return limits as properties of systemd. A gigabyte is 10^9 bytes."""
    found = [f"CPUQuota={limits.cpus * 100:.0f}%"] if limits.cpus else []
    if limits.memory_gb:
        found += [f"MemoryMax={round(limits.memory_gb * 1e9)}", "MemorySwapMax=0"]
    return found


def usable_tool(answers: Callable[[str], bool] | None = None) -> str:
    """Return the first container tool that is installed and works.

    Raises:
        NoContainers: when none works.
    """
    for tool in TOOLS:
        if os.path.isabs(program(tool)) and (answers or _answers)(tool):
            return tool
    raise NoContainers(f"`image` needs one of {', '.join(TOOLS)}, and none of them works here")


def _answers(tool: str) -> bool:
    """Return whether a tool works for this user; docker, for instance, needs its daemon."""
    return _asked([program(tool), "version" if tool == "apptainer" else "info"]) == 0


def _asked(words: Sequence[str]) -> int | None:
    """Run a command silently and return its exit code; None if it cannot run or takes too long."""
    nothing = subprocess.DEVNULL
    try:
        done = subprocess.run(
            words, stdin=nothing, stdout=nothing, stderr=nothing, check=False, timeout=ASK_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.returncode


def in_container(unit: Unit, tool: str, environment: Mapping[str, str], *, workdir: str = "") -> list[str]:
    """Return the command line that runs a unit in its image."""
    package = Path(__file__).resolve().parents[1]
    work = unit.mounts or workdir or unit.workdir
    generation = str(unit.folder.parent)
    folders = [
        f"{work}:{work}",
        f"{unit.checkpoint_dir}:{unit.checkpoint_dir}",
        *([f"{generation}:{generation}:ro"] if str(unit.own.parent) != generation else []),
        f"{unit.own.parent}:{unit.own.parent}",
    ]
    folders = list(dict.fromkeys(folders))
    # The links in the data folder point to entries of the cache: mount those, read-only.
    seen_data = dict.fromkeys(os.readlink(link) for link in _links(unit))
    data = [f"{one}:{one}:ro" for one in seen_data]
    gpus = [index for index in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if index]
    has_gpus = bool(gpus) and any(_DEVICES.glob("nvidia[0-9]*"))
    has_efa = (_DEVICES / "infiniband").is_dir()
    own = unit.environment.get("PYTHONPATH", "")
    path = f"{own}:{LIBRARY}" if own else LIBRARY
    first = (_RAISED if tool == "podman" else "") + _FIRST.replace("RENAMED ", renamed_inside(unit))
    inner = ["/bin/sh", "-c", _SHELL if tool == "apptainer" else first, unit.run]
    inner += [] if tool == "apptainer" else [str(unit.own / OUT_OF_MEMORY)]
    if tool == "apptainer":
        image = unit.image if "://" in unit.image or unit.image.endswith(".sif") else f"docker://{unit.image}"
        binds = [*folders, *data, f"{package}:{LIBRARY}/boa_daemon:ro"]
        return [
            *("apptainer", "exec", *(["--nv"] if has_gpus else [])),
            *(word for one in binds for word in ("--bind", one)),
            *("--env", f"PYTHONPATH={path}", "--pwd", unit.workdir, image, *inner),
        ]
    # Pass names only, so that values of secrets appear in no command line.
    names = [f"{HANDED}{name}" for name in _names_of(unit)]
    names += [name for name in _PASSED if name not in unit.environment]
    seen = gpus
    devices: list[str] = []
    if has_gpus:
        # The container sees only these GPUs, numbered from 0.
        seen = [str(number) for number in range(len(gpus))]
        devices = (
            ["--gpus", f'"device={",".join(gpus)}"']
            if tool == "docker"
            else [word for index in gpus for word in ("--device", f"nvidia.com/gpu={index}")]
        )
    limits = [f"--cpus={unit.cpus:g}"] if unit.cpus else []
    memory = f"{round(unit.memory_gb * 1e9)}b"
    limits += [f"--memory={memory}", f"--memory-swap={memory}"] if unit.memory_gb else []
    return [
        *(tool, "run", "--rm", "--name", unit.name, "--network=host"),
        *_own_memory(unit, environment),
        *_HARDENED,
        *(_ULIMITS if tool == "docker" else ()),
        *_owner(unit, tool),
        *devices,
        *(["--device", "/dev/infiniband"] if has_efa else []),
        *limits,
        *(word for one in folders for word in ("--volume", one)),
        *(word for one in (*data, f"{package}:{LIBRARY}/boa_daemon:ro") for word in ("--volume", one)),
        *(word for name in names for word in ("--env", name)),
        *("--env", f"PYTHONPATH={path}", "--env", f"CUDA_VISIBLE_DEVICES={','.join(seen)}"),
        *("--workdir", unit.workdir, "--entrypoint", inner[0], unit.image, *inner[1:]),
    ]


def _own_memory(unit: Unit, environment: Mapping[str, str]) -> list[str]:
    """Return the options for shared memory of the container's own, as large as that of the machine.

    Without a size it would have 64 MB, in which few loaders can work.
    """
    if why_shared(unit, environment):
        return ["--ipc=host"]
    total = os.statvfs(SHARED_MEMORY)
    return ["--ipc=private", f"--shm-size={total.f_blocks * total.f_frsize}b"]


def _links(unit: Unit) -> list[Path]:
    top = unit.folder / "data"
    links = [top] if "" in unit.data else [top / name for name in unit.data]
    return [link for link in links if link.is_symlink()]


_PASSED = ("LANG", "TZ")
"""Variables of the keeper that a container gets besides the unit's; all others are the container's own."""


def _owner(unit: Unit, tool: str) -> list[str]:
    """Return the options that set the user inside the container, so that files belong to the job's user."""
    if drops(unit):
        groups = [word for one in (unit.door_gid, *unit.groups) for word in ("--group-add", str(one))]
        return ["--user", f"{unit.uid}:{unit.gid}", *groups]
    if os.getuid() == 0:
        return [*_OF_ROOT]
    return ["--userns=keep-id"] if tool == "podman" else ["--user", f"{os.getuid()}:{os.getgid()}"]


def pull(image: str) -> int:
    """Pull an image unless it is here; return the exit code. Apptainer pulls at the start of a job."""
    tool = usable_tool()

    def told(*words: str) -> int:
        nothing = subprocess.DEVNULL
        argv = [program(tool), *words, image]
        return subprocess.run(argv, stdin=nothing, stdout=nothing, check=False).returncode

    return 0 if tool == "apptainer" or told("image", "inspect") == 0 else told("pull")


def pull_script(image: str) -> str:
    """Return the script that pulls an image on a node; it ignores failures, which the start will report."""
    return f'{{ "$BOA_PYTHON" -m boa_daemon.job.container {quote(image)} || true; }}'


def ran_out_of_memory(unit: Unit) -> bool:
    """Return whether a unit's container reported an out-of-memory kill."""
    with unit.as_user():
        return os.path.exists(unit.own / OUT_OF_MEMORY)


def end_script(name: str) -> str:
    """Return the script that removes a container, because docker's containers outlive a killed command line.

    If podman's monitor was killed too, podman removes the container only at the second call.
    """
    ends = (f"{tool} rm -f {name} >/dev/null 2>&1" for tool in RUN_AS_USER)
    return "; ".join(f"{end} || {end}" for end in ends) + "; true"


if __name__ == "__main__":
    sys.exit(pull(sys.argv[1]))
