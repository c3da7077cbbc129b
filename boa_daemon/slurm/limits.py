"""Limits that a Slurm site already has, ``GrpTRESMins`` of its accounts, as dollars of BOA's nodes.

A limit counts minutes of a resource (TRES). A whole node uses a known number of each: its CPUs, its memory,
its GPUs, and ``billing`` by the partition's ``TRESBillingWeights``. So a limit is a number of node-hours, and
these have a price. Text comes from ``sacctmgr -P show association`` and from ``scontrol show config`` and
``scontrol show partition``, with any columns in any order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from boa_daemon.errors import InputError
from boa_daemon.units import HOURS_PER_DAY, HOURS_PER_MONTH

COLUMNS = "Cluster,Account,User,Partition,GrpTRESMins"
"""What `sacctmgr` is asked for."""
_RESETS = {
    "DAILY": HOURS_PER_DAY,
    "WEEKLY": 7.0 * HOURS_PER_DAY,
    "MONTHLY": HOURS_PER_MONTH,
    "QUARTERLY": 3.0 * HOURS_PER_MONTH,
    "YEARLY": 12.0 * HOURS_PER_MONTH,
}
_SUFFIXES = {"": 1.0, "K": 1.0 / 1024.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
"""Megabytes in a unit; a weight per gigabyte is worth 1/1024 of it per megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSize:
    """What a whole node has and costs: CPUs, memory in MiB, GPUs of a model, dollars per hour."""

    machine: str
    usd_per_hour: float
    cpus: int
    memory_mib: float
    gpus: int
    gpu_model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmLimit:
    """`GrpTRESMins` of an account, or of a user in it: minutes by resource, and the line that says so."""

    account: str
    user: str
    partition: str
    minutes: Mapping[str, float]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """What decides how usage is counted: when it is forgotten, and the weights of each partition.

    `forgets_hours` is the time over which a limit holds: that of the reset, or of a half-life divided by
    log 2, which is the mean age of what is still counted; infinite if nothing is ever forgotten. `flags` are
    Slurm's PriorityFlags: billing adds up the weighted resources of a node, takes the greatest (MAX_TRES), or
    adds its GPUs to the greatest of the others (MAX_TRES_GRES).
    """

    forgets_hours: float = math.inf
    said: str = "PriorityUsageResetPeriod is NONE and PriorityDecayHalfLife is 0"
    flags: frozenset[str] = frozenset()
    weights: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyLimit:
    """A limit of Slurm in node-hours and dollars of its own period, and in dollars per month."""

    tres: str
    node_hours: float
    usd: float
    usd_per_month: float


def read_limits(text: str, *, file: str) -> list[SlurmLimit]:
    """Return the limits in the output of ``sacctmgr -P show association``, which has a header.

    Raises:
        InputError: naming the line, when a column is missing or a limit is not NAME=MINUTES.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    hint = f"Write it with: sacctmgr -P show association format={COLUMNS}"
    if not lines:
        raise InputError("no associations", file=file, hint=hint)
    names = [name.strip().lower() for name in lines[0].split("|")]
    for name in ("account", "grptresmins"):
        if name not in names:
            raise InputError(f"column {name} is missing", file=file, line=1, hint=hint)
    found: dict[tuple[str, str, str], SlurmLimit] = {}
    for number, line in enumerate(lines[1:], start=2):
        cells = line.split("|")
        if len(cells) != len(names):
            problem = f"{len(cells)} cells where the header has {len(names)}"
            raise InputError(problem, file=file, line=number, hint=hint)
        row = {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
        if not row["grptresmins"]:
            continue
        key = (row["account"], row.get("user", ""), row.get("partition", ""))
        minutes = _minutes(row["grptresmins"], file, number)
        if (earlier := found.get(key)) is not None and earlier.minutes != minutes:
            raise InputError(
                f"a second limit of account {key[0]!r}; the first is on line {earlier.line}",
                file=file,
                line=number,
                hint="Name one cluster: sacctmgr ... where cluster=NAME",
            )
        if key not in found:
            account, user, partition = key
            found[key] = SlurmLimit(
                account=account, user=user, partition=partition, minutes=minutes, line=number
            )
    return list(found.values())


def _minutes(text: str, file: str, line: int) -> dict[str, float]:
    """Return the minutes by resource in ``billing=600000,gres/gpu=4000``; -1 stands for no limit."""
    found: dict[str, float] = {}
    for item in text.split(","):
        match = re.fullmatch(r"\s*([A-Za-z_]+(?:/[^=\s]+)?)=(-?\d+)([KMGTP]?)\s*", item)
        if match is None:
            raise InputError(f"GrpTRESMins: {item.strip()!r} is not NAME=MINUTES", file=file, line=line)
        name, value = match[1].lower(), float(match[2])
        if value >= 0.0:
            # Memory counts megabytes, and may be written in other units; other resources are plain counts.
            factor = _SUFFIXES[match[3]] if name == "mem" else 1000.0 ** "_KMGTP".index(match[3] or "_")
            found[name] = value * factor
    return found


def read_controller(text: str) -> Controller:
    """Return what ``scontrol show config`` and ``scontrol show partition`` say, one after the other."""
    said = {name: value.strip() for name, value in re.findall(r"(?m)^(\w+)[ \t]*=[ \t]?(.*)$", text)}
    reset = said.get("PriorityUsageResetPeriod", "NONE").upper()
    half_life = _days_hours(said.get("PriorityDecayHalfLife", "0"))
    if reset in _RESETS:
        forgets, why = _RESETS[reset], f"PriorityUsageResetPeriod is {reset}"
    elif half_life:
        forgets = half_life / math.log(2.0)
        why = f"PriorityDecayHalfLife is {half_life / HOURS_PER_DAY:g} days"
    else:
        forgets, why = math.inf, Controller().said
    weights: dict[str, dict[str, float]] = {}
    for block in re.split(r"(?m)^(?=PartitionName=)", text):
        if (name := re.match(r"PartitionName=(\S+)", block)) and (
            listed := re.search(r"TRESBillingWeights=(\S+)", block)
        ):
            weights[name[1]] = _weights(listed[1])
    return Controller(
        forgets_hours=forgets,
        said=why,
        flags=frozenset(flag.strip() for flag in said.get("PriorityFlags", "").split(",")),
        weights=weights,
    )


def _days_hours(text: str) -> float:
    """Return the hours of ``7-00:00:00``, ``12:00:00`` or a count of minutes; 0 if it is none."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.split("(", maxsplit=1)[0].strip())
    if match is None:
        return 0.0
    days, first, second = int(match[1] or 0), int(match[2]), int(match[3] or 0)
    hours = first + second / 60.0 if match[1] or match[3] else first / 60.0
    return days * HOURS_PER_DAY + hours


def _weights(text: str) -> dict[str, float]:
    """Return the weight of one unit of each resource; that of memory is per MiB."""
    found: dict[str, float] = {}
    for item in text.split(","):
        match = re.fullmatch(r"([A-Za-z_]+(?:/[^=]+)?)=([0-9.]+)([KMGTP]?)", item.strip())
        if match is not None:
            # A weight of 0.25G is 0.25 for each gigabyte; without a suffix memory counts megabytes.
            found[match[1].lower()] = float(match[2]) / _SUFFIXES[match[3]]
    return found


def money_of(limit: SlurmLimit, node: NodeSize, partition: str, controller: Controller) -> MoneyLimit | None:
    """Return the dollars of the limit that binds first on nodes of a partition; None if none counts them."""
    found: list[MoneyLimit] = []
    for tres, minutes in limit.minutes.items():
        units = _units(tres, node, controller.weights.get(partition), controller.flags)
        if not units:
            continue
        hours = minutes / units / 60.0
        usd = hours * node.usd_per_hour
        per_month = usd * HOURS_PER_MONTH / controller.forgets_hours
        found.append(MoneyLimit(tres=tres, node_hours=hours, usd=usd, usd_per_month=per_month))
    return min(found, key=lambda one: one.usd, default=None)


def _units(tres: str, node: NodeSize, weights: Mapping[str, float] | None, flags: AbstractSet[str]) -> float:
    """Return how many units of a resource a whole node uses in one minute."""
    plain = {
        "cpu": float(node.cpus),
        "mem": node.memory_mib,
        "node": 1.0,
        "gres/gpu": float(node.gpus),
        f"gres/gpu:{node.gpu_model}": float(node.gpus),
    }
    if tres != "billing":
        return plain.get(tres, 0.0)
    if weights is None:
        # Slurm bills CPUs where a partition has no weights.
        return float(node.cpus)
    billed = {name: weight * plain.get(name, 0.0) for name, weight in weights.items()}
    if "MAX_TRES" in flags:
        return max(billed.values(), default=0.0)
    if "MAX_TRES_GRES" in flags:
        gpus = sum(units for name, units in billed.items() if name.startswith("gres/"))
        others = [units for name, units in billed.items() if not name.startswith("gres/")]
        return gpus + max(others, default=0.0)
    return sum(billed.values())
