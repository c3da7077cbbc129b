"""The sending time of a class between nodes, learnt from speeds, for machines where it was not measured.

A class says how many bytes it sends in each iteration and for how long it computes, which gives c / t seconds
of sending per second of computing on a link (`policies.links.link_share`). The error shows in how much slower
the class is across nodes than within one, compared with its stated curve:

    log s(k) / s(j)  measured - stated  =  log (1 + c/t) - log (1 + f c/t)       j on one node, k on several

    symbol   here      meaning
    f        factor    sending time over the stated one; a priori log f ~ N(0, 0.7^2)
    s        curves    speed at a width, as estimated (`learning.speedups`)

Each machine whose speeds were measured on one node and across nodes contributes once, by the two widths that
were measured the longest. The posterior is summed over a grid. The speeds on a sibling machine are then those
of the measured machine, with f c/t in place of c/t; measurements on the sibling itself take precedence.

Cost: O(machines x widths) for each class.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from boa_daemon.learning.speedups import CurveEstimate
from policies.kinds import kind_of
from policies.links.contention import Link
from policies.links.gpu_kinds import speedup_on
from policies.links.link_share import network_share
from policies.model import AllReduce, InstanceType, JobClass, Phase
from policies.speedup import SpeedupCurve, Table

PRIOR = 0.7
"""Prior spread of the logarithm of the factor, as for other stated figures that may be wrong."""
LEAST_SPREAD = 0.03
"""The least spread of a speed ratio, because nodes differ and neighbours send too."""
_GRID = np.linspace(-5.0 * PRIOR, 5.0 * PRIOR, 701)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEstimate:
    """A class's sending time over its stated one: median, ends of the 95 % interval, and measured machines.

    `stated_share` is the stated seconds of sending per second of computing on the first machine.
    """

    stated_share: float
    factor: float
    low: float
    high: float
    machines: tuple[str, ...]

    def of(self, need: AllReduce) -> AllReduce:
        """Return what a class sends, with its computing time changed to account for the factor."""
        return replace(need, compute_seconds=need.compute_seconds / self.factor)


def link_estimate(
    job_class: JobClass, curves: Collection[CurveEstimate], machines: Mapping[str, InstanceType]
) -> LinkEstimate | None:
    """Return the estimate for a class as stated; None without measurements."""
    need, density = job_class.network, -0.5 * (_GRID / PRIOR) ** 2
    seen: dict[str, float] = {}
    if need is None:
        return None
    for curve in curves:
        machine = machines.get(curve.gpu_type)
        stated = job_class.phases[0].speedups.get(curve.gpu_type)
        if curve.class_name != job_class.name or machine is None or stated is None:
            continue
        inside, across = (_longest(curve, stated, machine.gpus, is_across=over) for over in (False, True))
        if inside is None or across is None:
            continue
        mean, spread = curve.ratio(across, inside)
        off = mean - math.log(float(stated.speed_at(across)) / float(stated.speed_at(inside)))
        share = network_share(Link.of_gigabits(machine.link_gigabits_per_second), need)
        expected = math.log1p(share) - np.log1p(share * np.exp(_GRID))
        density = density - 0.5 * ((off - expected) / max(spread, LEAST_SPREAD)) ** 2
        seen[machine.name] = share
    if not seen:
        return None
    sums = np.cumsum(np.exp(density - density.max()))
    low, middle, high = np.exp(np.interp(np.array([0.025, 0.5, 0.975]) * sums[-1], sums, _GRID)).tolist()
    first = next(iter(seen.values()))
    return LinkEstimate(stated_share=first, factor=middle, low=low, high=high, machines=tuple(seen))


def _longest(curve: CurveEstimate, stated: SpeedupCurve, gpus: int, *, is_across: bool) -> int | None:
    """Return the width on one node, or across nodes, that was measured the longest; None if none was."""
    known = set(stated.whole_widths().tolist())
    widths = [
        width
        for width in curve.widths
        if width.measurements and (width.gpus > gpus) is is_across and width.gpus in known
    ]
    return max(widths, key=lambda width: width.measured_seconds).gpus if widths else None


def derived_kinds(job_class: JobClass, machines: Mapping[str, InstanceType]) -> frozenset[str]:
    """Return the kinds on which a class's speeds are derived from those of another machine."""
    found = set()
    for kind in machines:
        card = kind_of(kind).card
        phase = job_class.phases[0]
        if kind == card or card not in machines or not {kind, card} <= phase.speedups.keys():
            continue
        follows = speedup_on(
            phase.speedups[card], measured=machines[card], machine=machines[kind], need=job_class.network
        )
        if phase.speedups[kind] == follows:
            found.add(kind)
    return frozenset(found)


def with_link(
    job_class: JobClass,
    estimate: LinkEstimate | None,
    kinds: Collection[str],
    machines: Mapping[str, InstanceType],
) -> JobClass:
    """Return a class whose speeds on `kinds` are derived from those of their siblings with the estimate."""
    need = job_class.network
    if estimate is None or need is None or not kinds:
        return job_class

    def follows(phase: Phase) -> Phase:
        speedups = dict(phase.speedups)
        for kind in kinds & speedups.keys():
            card = kind_of(kind).card
            if card not in speedups:
                continue
            curve = speedup_on(
                speedups[card], measured=machines[card], machine=machines[kind], need=estimate.of(need)
            )
            widths = set(speedups[kind].whole_widths().tolist())
            pairs = () if curve is None else zip(curve.gpus, curve.speeds, strict=True)
            kept = {gpus: speed for gpus, speed in pairs if gpus in widths}
            if kept:
                speedups[kind] = Table(gpus=tuple(kept), speeds=tuple(kept.values()))
        return replace(phase, speedups=speedups)

    return replace(job_class, phases=tuple(map(follows, job_class.phases)))
