"""The command of a unit as a process: plain, within limits, or in a container.  Standard library only.

A container sees the node's network, its shared memory and its EFA cards, the GPUs of the job and no others,
and the job's folders under their own names. `boa_daemon.job` lies in it below `LIBRARY`.
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
from boa_daemon.job.unit import Unit

TOOLS = ("podman", "docker", "apptainer")
"""What can run an image, in the order in which they are tried."""
RUN_AS_USER = ("podman", "docker")
"""These take the job's user as an option; what asks them is started as the keeper's user."""
LIBRARY = "/opt/boa"
ASK_SECONDS = 30.0
BOOTED = Path("/run/systemd/system")
LIMITED = "BOA_LIMITED"
"""Set where whoever started the keeper has put its unit within its limits."""
_SHELL = 'exec "$(command -v bash || echo /bin/sh)" -c "$0"'
OUT_OF_MEMORY = "out-of-memory"
"""A container's first process leaves this in the unit's folder where the kernel ended another for memory."""
_FIRST = (
    "trap 'if [ $$ -eq 1 ]; then kill -TERM -1; else kill -TERM $child; fi' TERM; "
    '"$(command -v bash || echo /bin/sh)" -c "$0" & child=$!; '
    "while :; do wait $child; code=$?; kill -0 $child 2>/dev/null || break; done; "
    "for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do "
    "[ ! -r $file ] || while read -r what count; do "
    '[ "$what" != oom_kill ] || [ "$count" = 0 ] || : > "$1"; done < $file; '
    "done; exit $code"
)
"""The first process of a container hands a stop on to all others in it, as a signal to a group would be.

At the end it looks into the container's own control group, which nobody else can afterwards.
"""
_SCOPE = ("systemd-run", "--scope", "--quiet", "--collect", "-p", "Delegate=yes")
"""One that systemd does not stop, keeper and all, when the kernel has ended a process of it for memory."""
_NO_LIMITS = "cpus and memory_gb are not enforced"
_ULIMITS = ("--ulimit", "memlock=-1:-1", "--ulimit", "stack=67108864:67108864")
"""Pinned memory and stacks for NCCL and EFA, from the daemon of docker, which is root."""
_RAISED = 'ulimit -S -l "$(ulimit -H -l)" 2>/dev/null; ulimit -S -s 65536 2>/dev/null; '
"""The same of podman, as far as the node's limits for its user go: one that asks for more is not started."""
_DEVICES = Path("/dev")


class NoContainers(RuntimeError):
    """Nothing on this node may run an image."""


def command_of(unit: Unit, environment: Mapping[str, str]) -> tuple[list[str], str]:
    """Return what to execute for a unit, and what its log should say of limits that do not hold here.

    Raises:
        NoContainers: when it has an image, and nothing here can run one.
    """
    has_limits = bool(unit.cpus or unit.memory_gb) and not environment.get(LIMITED)
    if not unit.image:
        return ["/bin/bash", "-c", unit.run], why_unlimited() if has_limits else ""
    tool = usable_tool()
    return in_container(unit, tool, environment), why_unlimited(tool) if has_limits else ""


def why_unlimited(tool: str = "") -> str:
    """Return why limits hold nothing here, without a container or in one that `tool` runs; else nothing.

    Podman and docker hold them; what apptainer runs are processes like any others.
    """
    if tool in RUN_AS_USER:
        return ""
    if not BOOTED.is_dir() or shutil.which("systemd-run") is None:
        return f"{_NO_LIMITS} on this machine: systemd does not run here"
    done = _asked([*_SCOPE, *_whose(), "--", "true"])
    return "" if done == 0 else f"{_NO_LIMITS} on this machine: systemd gives its user no scope"


def within_limits(unit: Unit, argv: list[str]) -> list[str]:
    """Return the command line of a keeper, in a scope of systemd that keeps its unit's limits where it can.

    The keeper is within them itself: it then learns from its own control group what the kernel ended.
    """
    properties = [word for one in limit_properties(unit.cpus, unit.memory_gb) for word in ("-p", one)]
    if not properties or why_unlimited():
        return argv
    return [*_SCOPE, *_whose(), *properties, "--", "env", f"{LIMITED}=1", *argv]


def _whose() -> list[str]:
    """Return whose systemd is asked."""
    return [] if os.getuid() == 0 else ["--user"]


def limit_properties(cpus: float, memory_gb: float) -> list[str]:
    """Return limits as systemd's properties; 0 is none. A gigabyte is 10^9 bytes."""
    found = [f"CPUQuota={cpus * 100:.0f}%"] if cpus else []
    if memory_gb:
        found += [f"MemoryMax={round(memory_gb * 1e9)}", "MemorySwapMax=0"]
    return found


def usable_tool(answers: Callable[[str], bool] | None = None) -> str:
    """Return the first tool that is there and works.

    Raises:
        NoContainers: when none does.
    """
    for tool in TOOLS:
        if shutil.which(tool) is not None and (answers or _answers)(tool):
            return tool
    raise NoContainers(f"`image` needs one of {', '.join(TOOLS)}, and none may run here")


def _answers(tool: str) -> bool:
    """Whether a tool works for this user: a command line without its daemon does not."""
    return _asked([tool, "version" if tool == "apptainer" else "info"]) == 0


def _asked(words: Sequence[str]) -> int | None:
    """Return how a question ended; None where it cannot be asked, or has no answer in time."""
    nothing = subprocess.DEVNULL
    try:
        done = subprocess.run(
            words, stdin=nothing, stdout=nothing, stderr=nothing, check=False, timeout=ASK_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.returncode


def in_container(unit: Unit, tool: str, environment: Mapping[str, str]) -> list[str]:
    """Return the command line that runs a unit in its image."""
    package = Path(__file__).resolve().parents[1]
    folders = list(dict.fromkeys([unit.mounts or unit.workdir, unit.checkpoint_dir, str(unit.folder.parent)]))
    # Links lead there; a container sees all that was brought, and writes none of it.
    seen_data = dict.fromkeys(os.path.dirname(os.readlink(link)) for link in _links(unit))
    data = [f"{one}:{one}:ro" for one in seen_data]
    gpus = [index for index in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if index]
    has_gpus = bool(gpus) and any(_DEVICES.glob("nvidia[0-9]*"))
    has_efa = (_DEVICES / "infiniband").is_dir()
    own = unit.environment.get("PYTHONPATH", "")
    path = f"{own}:{LIBRARY}" if own else LIBRARY
    first = _RAISED + _FIRST if tool == "podman" else _FIRST
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
    # By name alone: the values of secrets stand in no command line.
    names = sorted({*unit.environment, *unit.secrets, *_PASSED} - {"PYTHONPATH", "CUDA_VISIBLE_DEVICES"})
    seen = gpus
    devices: list[str] = []
    if has_gpus:
        # Inside there are these alone, numbered from 0.
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
        *(tool, "run", "--rm", "--name", unit.name, "--network=host", "--ipc=host"),
        *(_ULIMITS if tool == "docker" else ()),
        *_owner(unit, tool),
        *devices,
        *(["--device", "/dev/infiniband"] if has_efa else []),
        *limits,
        *(word for one in folders for word in ("--volume", f"{one}:{one}")),
        *(word for one in (*data, f"{package}:{LIBRARY}/boa_daemon:ro") for word in ("--volume", one)),
        *(word for name in names for word in ("--env", name)),
        *("--env", f"PYTHONPATH={path}", "--env", f"CUDA_VISIBLE_DEVICES={','.join(seen)}"),
        *("--workdir", unit.workdir, "--entrypoint", inner[0], unit.image, *inner[1:]),
    ]


def _links(unit: Unit) -> list[Path]:
    """Return the links of a unit to its data."""
    top = unit.folder / "data"
    links = [top] if "" in unit.data else [top / name for name in unit.data]
    return [link for link in links if link.is_symlink()]


_PASSED = ("LANG", "TZ")
"""Of the keeper's own environment, beside what the unit says: a container has its own of everything else."""


def _owner(unit: Unit, tool: str) -> list[str]:
    """Return who the command is inside, so that files belong to who runs the job."""
    if drops(unit):
        groups = [word for one in (unit.door_gid, *unit.groups) for word in ("--group-add", str(one))]
        return ["--user", f"{unit.uid}:{unit.gid}", *groups]
    if os.getuid() == 0:
        return []
    return ["--userns=keep-id"] if tool == "podman" else ["--user", f"{os.getuid()}:{os.getgid()}"]


def pull(image: str) -> int:
    """Have an image here, unless it is; return the exit code. What apptainer runs, the start pulls."""
    tool = usable_tool()

    def told(*words: str) -> int:
        nothing = subprocess.DEVNULL
        return subprocess.run([tool, *words, image], stdin=nothing, stdout=nothing, check=False).returncode

    return 0 if tool == "apptainer" or told("image", "inspect") == 0 else told("pull")


def pull_script(image: str) -> str:
    """Return the script that has an image on a node; that it cannot be had is for the start to say."""
    return f'{{ "$BOA_PYTHON" -m boa_daemon.job.container {quote(image)} || true; }}'


def ran_out_of_memory(unit: Unit) -> bool:
    """Return whether a unit's container said that the kernel ended a process in it for memory."""
    with unit.as_user():
        return os.path.exists(unit.own / OUT_OF_MEMORY)


def end_script(name: str) -> str:
    """Return the script that ends a container whose command line was killed: docker's outlive it.

    Podman removes one at the second call only, where what watched it was killed as well.
    """
    ends = (f"{tool} rm -f {name} >/dev/null 2>&1" for tool in RUN_AS_USER)
    return "; ".join(f"{end} || {end}" for end in ends) + "; true"


if __name__ == "__main__":
    sys.exit(pull(sys.argv[1]))
