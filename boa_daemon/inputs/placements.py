"""Speeds measured by placement, `nodes x GPUs per node`: one table serves every machine with the GPU.

    speedup: {t4: {placements: {1x1: 1.0, 1x2: 1.9, 1x4: 3.6, 2x1: 1.7, 4x1: 2.9, 2x4: 6.8}}}

A machine with g GPUs uses the placements `1x1` to `1xg` on one node, and beyond that whole nodes (`2xg`,
`3xg`). Its other placements are ignored, and widths that were not measured are not offered on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from boa_daemon.inputs.document_file import Document, KeyPath
from boa_daemon.inputs.schema import LEAST, MOST, a_kind, spoken
from policies.kinds import kind_of
from policies.model import InstanceType
from policies.speedup import MAX_GPUS, Table

FORM = "placements"
_PLACEMENT = re.compile(r"([1-9]\d{0,6})x([1-9]\d{0,6})")


def take_placements(
    raw: object, machines: Mapping[str, InstanceType], *, document: Document, at: KeyPath
) -> tuple[dict[str, Table], object]:
    """Return the curves by GPU type from the placements in a phase's speed-up, and the rest of the speed-up.

    Raises:
        InputError: when a placement or a speed is invalid or fits no machine, with file and line.
    """
    if not isinstance(raw, Mapping):
        return {}, raw
    cards = list(dict.fromkeys(machine.kind.card for machine in machines.values()))
    if set(raw) == {FORM} and len(cards) == 1:
        return _tables(cards[0], raw, machines, document, at), {}
    placed: dict[str, Table] = {}
    rest: dict[Any, Any] = {}
    for name, form in raw.items():
        if isinstance(form, Mapping) and FORM in form and kind_of(str(name)).card in cards:
            placed |= _tables(str(name), form, machines, document, (*at, str(name)))
        else:
            rest[name] = form
    return {name: curve for name, curve in placed.items() if name not in rest}, rest


def _tables(
    name: str, form: Mapping[Any, Any], machines: Mapping[str, InstanceType], document: Document, at: KeyPath
) -> dict[str, Table]:
    """Return the table of each machine with a GPU, or of the one named machine."""
    if set(form) != {FORM}:
        other = next(str(key) for key in form if key != FORM)
        problem = f"{spoken(at, document.content)} has {other!r} besides placements"
        raise document.error(problem, at=(*at, other), hint="Give one form of speed-up")
    speeds = _speeds(form[FORM], document, (*at, FORM))
    found = {}
    for kind, machine in machines.items():
        if name not in (kind, machine.kind.card):
            continue
        mine = {
            nodes * gpus: speed
            for (nodes, gpus), speed in sorted(speeds.items(), key=lambda one: one[0][0] * one[0][1])
            if (nodes == 1 and gpus <= machine.gpus) or (nodes > 1 and gpus == machine.gpus)
        }
        if mine:
            found[kind] = Table(gpus=tuple(mine), speeds=tuple(mine.values()))
    if not found:
        sizes = ", ".join(f"{machine.name}: {machine.gpus}" for machine in machines.values())
        problem = f"{spoken(at, document.content)}: no placement fits a machine ({sizes} GPUs)"
        raise document.error(problem, at=at, hint="A placement is NODESxGPUS, such as 1x4 or 2x4")
    return found


def _speeds(raw: object, document: Document, at: KeyPath) -> dict[tuple[int, int], float]:
    """Return the speed by (nodes, GPUs per node)."""
    if not isinstance(raw, Mapping) or not raw:
        problem = f"{spoken(at, document.content)} must map placements to speeds; got {a_kind(raw)}"
        raise document.error(problem, at=at, hint="Write {1x1: 1.0, 1x4: 3.6, 2x4: 6.8}")
    found: dict[tuple[int, int], float] = {}
    for key, speed in raw.items():
        match = _PLACEMENT.fullmatch(str(key))
        if match is None or int(match[1]) * int(match[2]) > MAX_GPUS:
            problem = f"{spoken(at, document.content)}: {str(key)!r} is no placement"
            raise document.error(problem, at=(*at, str(key)), hint="Write NODESxGPUS, such as 1x4 or 2x4")
        if isinstance(speed, bool) or not isinstance(speed, int | float) or not LEAST <= speed <= MOST:
            problem = f"{spoken(at, document.content)}: the speed at {key} must be a number, more than zero"
            raise document.error(f"{problem}; got {a_kind(speed)}", at=(*at, str(key)))
        found[int(match[1]), int(match[2])] = float(speed)
    return found
