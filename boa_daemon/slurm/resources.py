"""The GPUs in a list of Slurm's resources (TRES, GRES), in every form in which Slurm prints or takes one.

text                                     GPUs
cpu=8,billing=8,gres/gpu=2               2                   sacct
gres/gpu=2,gres/gpu:a100=2               2 a100: the sum and its parts count once
gpu:a100:4(S:0-1),gpu:v100:0(IDX:N/A)    4 a100              sinfo, slurm.conf
gpu  gpu:a100  gpu:2  gpu:3090:2         1, 1 a100, 2, 2 3090
gres:gpu:2  gres/gpu:2  PER_NODE:gpu:2   2 on each node      squeue, scontrol; sacct before 19.05
7696487:2                                2                   sacct where no gres.conf names the plug-in
gres/shard=4  mps:100                    parts of GPUs, which Slurm counts in units of their own
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

SLICE = re.compile(r"(?:^|[^a-z])mig(?:$|[^a-z])|(?<![0-9])[1-7]g\.[0-9]+gb", re.IGNORECASE)
"""A GPU type that is a slice of a GPU (MIG): ``1g.10gb``, ``a100-mig-3g.20gb``."""
_PLACES = re.compile(r"\([^)]*\)")
_NOTHING = ("", "(null)", "n/a", "none", "no_val", "unknown")
_COUNT = re.compile(r"(\d{1,12})([KMGT]?)", re.IGNORECASE | re.ASCII)
_WORD = re.compile(r"[^\s:=/]+")
_OTHER = re.compile(r"(?:gres[:/])?[a-z][\w.@-]*(?:[:/][\w.@-]+)*(?:=\S+)?", re.IGNORECASE | re.ASCII)
"""A resource other than GPUs, with or without its amount."""
_NO_GPUS = ("gpumem", "gpuutil")
"""What Slurm accounts of GPUs beside their number."""
_GPU = ("gpu", "7696487")
"""The name, and the number of the plug-in, which is its letters."""
_PARTS = ("shard", "mps")
_UNITS = "KMGT"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmGpus:
    """The GPUs in a list of resources: how many by type in small letters, of which "" is an unnamed one.

    `is_per_node` is true for the forms in which Slurm states a request per node. `part_units` are units of
    parts of GPUs (shards, or percents of MPS). `others` are the other resources, and `unread` what is none.
    """

    by_type: Mapping[str, int]
    is_per_node: bool = False
    part_units: int = 0
    others: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of GPUs of all types."""
        return sum(self.by_type.values())

    @property
    def model(self) -> str:
        """The type, if there is one alone that has a name."""
        named = [name for name in self.by_type if name]
        return named[0] if len(named) == 1 else ""


def read_gpus(text: str) -> SlurmGpus:
    """Return the GPUs in a list of resources; what cannot be read is in `unread`, and never raises."""
    named: Counter[str] = Counter()
    total, part_units, is_per_node = 0, 0, False
    others: list[str] = []
    unread: list[str] = []
    # Brackets have commas: the places of GPUs on a node.
    for item in map(str.strip, ("" if text.strip() == "(null)" else _PLACES.sub("", text)).split(",")):
        if item.lower() in _NOTHING:
            continue
        prefix, kind, words, is_stated = _parts(item)
        if kind in _PARTS:
            part_units += _number(words[-1]) or 0 if words else 1
            others.append(item)
            continue
        if kind not in _GPU:
            is_other = _OTHER.fullmatch(item) and ("gpu" not in kind or kind in _NO_GPUS)
            (others if is_other and not item.endswith("+") else unread).append(item)
            continue
        number = _number(words[-1]) if words else None
        types = words if number is None else words[:-1]
        if len(types) > 1 or (is_stated and number is None) or not all(map(_WORD.fullmatch, types)):
            unread.append(item)
            continue
        is_per_node = is_per_node or prefix == "per_node" or (bool(prefix) and not is_stated)
        counted = 1 if number is None else number
        if types:
            named[types[0].lower()] += counted
        elif is_stated:
            total += counted
        else:
            named[""] += counted
    # The sum of all types stands beside its parts.
    named[""] += max(0, total - sum(named.values()))
    return SlurmGpus(
        by_type={name: number for name, number in named.items() if number},
        is_per_node=is_per_node,
        part_units=part_units,
        others=tuple(others),
        unread=tuple(unread),
    )


def _parts(item: str) -> tuple[str, str, list[str], bool]:
    """Return (prefix, kind, words behind it, whether a number stands behind an equals sign)."""
    left, equals, amount = item.partition("=")
    prefix, body = "", left
    if found := re.match(r"(gres|per_node)[:/]", left, re.IGNORECASE):
        prefix, body = found[1].lower(), left[found.end() :]
        # Both are there in some versions: PER_NODE:gres:gpu:2.
        body = re.sub(r"^gres[:/]", "", body, flags=re.IGNORECASE)
    kind, *words = (word for word in body.split(":") if word.lower() != "no_consume")
    return prefix, kind.lower(), [*words, amount] if equals else words, bool(equals)


def _number(text: str) -> int | None:
    """Return a count, which may have Slurm's suffix for 1,024 and its powers; None for another word."""
    found = _COUNT.fullmatch(text)
    if found is None:
        return None
    power = _UNITS.index(found[2].upper()) + 1 if found[2] else 0
    return int(found[1]) * int(1024**power)
