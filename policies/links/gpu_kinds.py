"""Several machines that carry the same GPU: each is a GPU type of its own, with its own price and speeds.

A *kind* is a GPU type of the problem. The first machine of a GPU has the GPU's own name (`t4`), every other
one `t4@g4dn.xlarge`. So whatever chooses among GPU types chooses among machines, exactly. A class need not
say how fast it is on each machine. Where it was measured on one only, with g GPUs, then on one with h

    s_h(k) = s_g(k)                                      k <= h: one node, at least as fast as several
    s_h(k) = s_g(k) (1 + c_g / t) / (1 + c_h / t)        k > h, where both widths span nodes
    s_h(k) = s_g(k) / (1 + c_h / t)                      k > h, k <= g: the second node costs the link

    symbol   here                    meaning
    c / t    share                   seconds of sending per second of computing (`link_share`)
    k        widths                  GPUs of the job

Nothing is known of a link where the class does not say what it sends: only widths within one node are then
offered on the other machine.

A machine whose GPUs have m places is one more, `t4@g4dn.12xlarge/2`, whose places cost 1/m of its GPUs. Only
a class that `may_share` has a speed-up there; where it states none it is that of the whole GPU over
T_m / T_1, for m jobs like it with GPUs and link in common (`gpu_share`): m on one node, less across nodes.

Cost: O(classes x widths x machines).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from policies.links.contention import Link
from policies.links.gpu_share import shared_iteration_seconds
from policies.links.link_share import network_share
from policies.model import AllReduce, InstanceType, JobClass, Phase
from policies.speedup import SpeedupCurve, Table

_AT = "@"
SPOT = "spot"


def card_of(kind: str) -> str:
    """Return the GPU of a kind: ``t4`` for ``t4@g4dn.xlarge`` and for ``t4``."""
    return kind.partition(_AT)[0]


def kind_on(card: str, machine: str) -> str:
    """Return the name of a further machine of a GPU as a GPU type."""
    return f"{card}{_AT}{machine}"


def is_spot(kind: str) -> bool:
    """Return whether a GPU type, or a machine, is one on the spot market."""
    return kind.endswith(f"{_AT}{SPOT}")


def spot_kind(kind: str) -> str:
    """Return the name of a GPU type, or of a machine, on the spot market: ``t4@spot``."""
    return kind_on(kind, SPOT)


def without_market(kind: str) -> str:
    """Return the name of a GPU type, or of a machine, whatever its market."""
    return kind.removesuffix(f"{_AT}{SPOT}")


def shared_kind(card: str, machine: str, places: int) -> str:
    """Return the name of a machine whose GPUs several jobs share, as a GPU type: ``t4@g4dn.12xlarge/2``."""
    return f"{kind_on(card, machine)}/{places}"


def rented_name(machine: str) -> str:
    """Return the name by which a cloud rents a machine, whatever its market and its places."""
    return machine.partition(_AT)[0]


def siblings(kinds: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return by kind all kinds of its GPU, where there are several; nothing where each has one machine."""
    by_card: dict[str, list[str]] = {}
    for kind in kinds:
        by_card.setdefault(card_of(kind), []).append(kind)
    return {kind: tuple(group) for group in by_card.values() if len(group) > 1 for kind in group}


def machines_by_kind(
    machines: Iterable[InstanceType], own: Mapping[str, InstanceType]
) -> dict[str, InstanceType]:
    """Return machines by kind, in their order; those of `own` keep the name that they have there."""
    machines = tuple(machines)
    kinds = {machine.name: kind for kind, machine in own.items()}
    taken = {kinds[machine.name] for machine in machines if machine.name in kinds}
    found: dict[str, InstanceType] = {}
    for machine in machines:
        card = card_of(machine.gpu_type)
        kind = kinds.get(machine.name) or (
            kind_on(card, machine.name) if card in taken or card in found else card
        )
        if machine.places_per_gpu > 1:
            kind = shared_kind(card, machine.name, machine.places_per_gpu)
        found[kind] = machine if kind == machine.gpu_type else replace(machine, gpu_type=kind)
    return found


def on_machines(
    job_class: JobClass, machines: Mapping[str, InstanceType], measured: Mapping[str, InstanceType]
) -> JobClass:
    """Return the class with a speed-up on every machine whose GPU it knows; what is stated stays.

    `measured` says on which machine each kind of the class was measured.
    """
    if not siblings({**machines, **measured}):
        return job_class
    if not job_class.may_share:
        machines = {kind: machine for kind, machine in machines.items() if machine.places_per_gpu == 1}
    phases = tuple(_phase_on(phase, machines, measured, job_class.network) for phase in job_class.phases)
    return replace(job_class, phases=phases)


def _phase_on(
    phase: Phase,
    machines: Mapping[str, InstanceType],
    measured: Mapping[str, InstanceType],
    need: AllReduce | None,
) -> Phase:
    """Return the phase with a speed-up on every machine whose GPU it knows."""
    speedups = dict(phase.speedups)
    for kind, machine in machines.items():
        card = card_of(kind)
        if kind in speedups or card not in speedups or card not in measured:
            continue
        curve = speedup_on(speedups[card], measured=measured[card], machine=machine, need=need)
        if curve is not None:
            speedups[kind] = curve
    return replace(phase, speedups=speedups)


def speedup_on(
    curve: SpeedupCurve, *, measured: InstanceType, machine: InstanceType, need: AllReduce | None
) -> Table | None:
    """Return the curve of one machine on another with the same GPU; None where no width is known there."""
    widths = curve.whole_widths()
    if need is None:
        widths = widths[widths <= machine.whole_gpus]
    if not len(widths):
        return None
    speeds = curve.speed_at(widths)
    spans, share, places = widths > machine.whole_gpus, 0.0, machine.places_per_gpu
    if need is not None:
        before, share = (
            network_share(Link.of_gigabits(one.link_gigabits_per_second), need) for one in (measured, machine)
        )
        speeds = np.where(spans & (widths > measured.whole_gpus), speeds * (1.0 + before), speeds)
        speeds = np.where(spans, speeds / (1.0 + share), speeds)
    if places > 1:
        apart = shared_iteration_seconds(places, (1.0, share)) / (1.0 + share)
        speeds = speeds / np.where(spans, apart, float(places))
    return Table(gpus=tuple(widths.tolist()), speeds=tuple(speeds.tolist()))
