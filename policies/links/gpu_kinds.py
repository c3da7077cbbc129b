"""GPU types for several machines with the same GPU: each machine is a type with its own price and speeds.

A *kind* is a GPU type of the problem (`policies.kinds`). The first machine of a GPU has the GPU's own name
(`t4`), every other machine a name like `t4@g4dn.xlarge`. So a choice among GPU types is a choice among
machines. A class need not state its speed on every machine. If it was measured on a machine with g GPUs, its
speed on one with h GPUs is

    s_h(k) = s_g(k)                                      k <= h: one node, at least as fast as several
    s_h(k) = s_g(k) (1 + c_g / t) / (1 + c_h / t)        k > h, k > g: the job spans nodes on both machines
    s_h(k) = s_g(k) / (1 + c_h / t)                      k > h, k <= g: it spans nodes on the second only

    symbol   here                    meaning
    c / t    share                   seconds of sending per second of computing (`link_share`)
    k        widths                  GPUs of the job

If the class does not state its network traffic, the cost of the link is not known, and only widths within one
node are offered on the other machine.

A machine whose GPUs have m places is a further kind, `t4@g4dn.12xlarge/2`, whose places cost 1/m of its GPUs.
Only a class that `may_share` has a speed-up there. If it states none, the speed-up is that of the whole GPU
over T_m / T_1, for m equal jobs that share GPUs and link (`gpu_share`): m on one node, less across nodes.

Cost: O(classes x widths x machines).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from policies.kinds import Kind, kind_of
from policies.links.contention import Link
from policies.links.gpu_share import shared_iteration_seconds
from policies.links.link_share import network_share
from policies.model import AllReduce, InstanceType, JobClass, Phase
from policies.speedup import SpeedupCurve, Table


def siblings(kinds: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return, for each kind whose GPU has several kinds, all kinds of that GPU; other kinds are left out."""
    by_card: dict[str, list[str]] = {}
    for kind in kinds:
        by_card.setdefault(kind_of(kind).card, []).append(kind)
    return {kind: tuple(group) for group in by_card.values() if len(group) > 1 for kind in group}


def machines_by_kind(
    machines: Iterable[InstanceType], own: Mapping[str, InstanceType]
) -> dict[str, InstanceType]:
    """Return the machines by kind, in order; machines in `own` keep their kind from there."""
    machines = tuple(machines)
    kinds = {machine.name: kind for kind, machine in own.items()}
    taken = {kinds[machine.name] for machine in machines if machine.name in kinds}
    found: dict[str, InstanceType] = {}
    for machine in machines:
        card = machine.kind.card
        kind = kinds.get(machine.name)
        if machine.places_per_gpu > 1:
            kind = str(Kind(card, machine.name, places=machine.places_per_gpu))
        elif kind is None:
            kind = str(Kind(card, machine.name)) if card in taken or card in found else card
        found[kind] = machine if kind == machine.gpu_type else replace(machine, gpu_type=kind)
    return found


def on_machines(
    job_class: JobClass, machines: Mapping[str, InstanceType], measured: Mapping[str, InstanceType]
) -> JobClass:
    """Return the class with a speed-up on every machine whose GPU it knows; stated speed-ups are kept.

    `measured` is the machine on which each kind of the class was measured.
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
    speedups = dict(phase.speedups)
    for kind, machine in machines.items():
        card = machine.kind.card
        if kind in speedups or card not in speedups or card not in measured:
            continue
        curve = speedup_on(speedups[card], measured=measured[card], machine=machine, need=need)
        if curve is not None:
            speedups[kind] = curve
    return replace(phase, speedups=speedups)


def speedup_on(
    curve: SpeedupCurve, *, measured: InstanceType, machine: InstanceType, need: AllReduce | None
) -> Table | None:
    """Return the curve on `machine` from that on the `measured` one; None if no width is known there."""
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
