"""The options of `sbatch` that a job may choose: how it is queued, and not what it runs or as whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
