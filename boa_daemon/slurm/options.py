"""The options of `sbatch` that a job may choose: how it is queued, and not what it runs or as whom."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from boa_daemon.errors import did_you_mean

VALUES = frozenset(
    {
        "account", "constraint", "core-spec", "distribution", "exclude", "gpu-bind", "gpu-freq", "gres",
        "gres-flags", "hint", "licenses", "mail-type", "mail-user", "mem", "mem-per-cpu", "mem-per-gpu",
        "network", "nice", "partition", "power", "prefer", "priority", "profile", "qos", "reservation",
        "switches", "thread-spec", "threads-per-core", "time", "time-min", "tmp", "wckey",
    }
)  # fmt: skip
"""Options with a value, which are handed through."""
FLAGS = frozenset({"contiguous", "spread-job", "use-min-nodes"})
"""Options without a value."""
SHORT = {
    "A": "account",
    "C": "constraint",
    "L": "licenses",
    "p": "partition",
    "q": "qos",
    "t": "time",
    "x": "exclude",
}

_RENAMED = {
    "SBATCH_ARRAY_INX": "array", "SBATCH_DEBUG": "verbose", "SBATCH_MEM_PER_NODE": "mem",
    "SBATCH_REQ_SWITCH": "switches", "SBATCH_SEGMENT_SIZE": "segment", "SBATCH_TIMELIMIT": "time",
    "SLURM_CLUSTERS": "clusters", "SLURM_HINT": "hint",
}  # fmt: skip
"""Variables of `sbatch` that are not called like their option."""
_SAME_NAME = (
    "account", "acctg-freq", "batch", "clusters", "constraint", "container", "container-id", "core-spec",
    "cpus-per-gpu", "delay-boot", "distribution", "error", "exclusive", "export", "get-user-env",
    "gpu-bind", "gpu-freq", "gpus", "gpus-per-node", "gpus-per-task", "gres", "gres-flags", "hint",
    "ignore-pbs", "input", "job-name", "mem-bind", "mem-per-cpu", "mem-per-gpu", "network", "no-kill",
    "no-requeue", "open-mode", "output", "overcommit", "partition", "power", "profile", "qos", "requeue",
    "reservation", "signal", "spread-job", "thread-spec", "threads-per-core", "tres-bind",
    "tres-per-task", "use-min-nodes", "wait", "wait-all-nodes", "wckey",
)  # fmt: skip
_VARIABLES = {
    **{f"SBATCH_{name.upper().replace('-', '_')}": name for name in _SAME_NAME},
    **_RENAMED,
}
"""The variables that `sbatch` reads, with the option that each sets."""
_SIGNALS = (
    "HUP", "INT", "QUIT", "ABRT", "KILL", "ALRM", "TERM", "USR1", "USR2", "URG", "CONT", "STOP", "TSTP",
    "TTIN", "TTOU", "XCPU",
)  # fmt: skip
"""The signals that `sbatch` knows by name."""
_SIGNAL = re.compile(
    rf"(?:[RB]|RB|BR)?:?(?:SIG)?(?P<name>{'|'.join(_SIGNALS)}|(?<!SIG)[0-9]+)(?:@(?P<seconds>[0-9]*))?", re.I
)
WARNING_SECONDS = 60
"""How long before the end a signal comes of which nothing else is said."""
_MOST_SIGNAL, _MOST_SECONDS = 64, 65_535


def read_signal(value: str) -> tuple[str, int] | None:
    """Return the signal of ``[R][B][:]NAME[@SECONDS]`` and its seconds before the end; None if it is none.

    A name may begin with SIG and have small letters; a signal may be a number.
    """
    match = _SIGNAL.fullmatch(value)
    if match is None:
        return None
    name, seconds = match["name"].upper(), match["seconds"]
    given = WARNING_SECONDS if seconds is None else int(seconds or 0)
    is_known = not name.isdecimal() or 1 <= int(name) <= _MOST_SIGNAL
    return (name, given) if is_known and given <= _MOST_SECONDS else None


def options_of_environment(
    environ: Mapping[str, str], flags: frozenset[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the variables that `sbatch` reads, each with its option and its value, in order of their names.

    A flag is set by an empty value, ``yes`` or a number other than 0, and left out otherwise; another option
    that is empty is left out, too. How many switches and how long to wait for them are two variables.
    """
    for variable in sorted(_VARIABLES.keys() & environ.keys()):
        name, value = _VARIABLES[variable], environ[variable]
        if name in flags and not (value in ("", "yes") or (value.isdecimal() and int(value))):
            continue
        if not value and name not in flags:
            continue
        if name == "switches" and (wait := environ.get("SBATCH_WAIT4SWITCH")):
            value = f"{value}@{wait}"
        yield variable, name, value


def read_option(word: str, short: Mapping[str, str]) -> tuple[str, str | None] | None:
    """Return the name and the value of an option such as `--nodes=2`, `-N2` or `-N=2`; None if it is none.

    The value is None where the word has none, as in `--nodes` and `-N`: it may be the next word.
    """
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return name, value if equals else None
    if word.startswith("-") and word[1:2] in short:
        return short[word[1]], word[2:].removeprefix("=") or None
    return None


def kept_options(options: Sequence[str], *, as_operator: bool = True) -> list[str]:
    """Return options in the form `--name=value`, as `sbatch` takes them.

    Slurm lets only its operators set a priority or a negative nice value, and asks for who calls `sbatch`.
    Where root calls it for a user, `as_operator` is false.

    Raises:
        ValueError: when one is not among those that a job may choose, or lacks its value.
    """
    found, words = [], list(options)
    while words:
        word = words.pop(0)
        read = read_option(word, SHORT)
        if read is None:
            raise ValueError(
                f"slurm_options: {word!r} is no option that a job may choose; write --name=value"
            )
        name, value = read
        if name in FLAGS and value is None:
            found.append(f"--{name}")
            continue
        if name not in VALUES:
            hint = did_you_mean(name, sorted(VALUES | FLAGS))
            raise ValueError(
                f"slurm_options: --{name} is not among the options that a job may choose. {hint}"
            )
        if value is None:
            if not words or words[0].startswith("-"):
                raise ValueError(f"slurm_options: --{name} lacks its value; write --{name}=VALUE")
            value = words.pop(0)
        if "\n" in value or "\0" in value:
            raise ValueError(f"slurm_options: the value of --{name} has a line break in it")
        if not as_operator and (name == "priority" or (name == "nice" and not value.strip().isdecimal())):
            raise ValueError(f"slurm_options: --{name}={value} is for operators of Slurm; ask for --nice=100")
        found.append(f"--{name}={value}")
    return found
