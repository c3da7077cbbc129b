"""Round and glue: how the BOA authors get whole widths from their fractional optimum, with few rescales.

Source: Li et al., BOA Constrictor (arXiv 2602.01404) and the first author's public code,
``_compute_width.py``, re-implemented from its description (docs/decisions/0016).

1. Replace each phase's speed table by its concave envelope. The fractional optimum without rescales takes the
   edges of the envelopes, steepest first.
2. Round fractional widths to the nearest vertex of the envelope.
3. Compute the spend with whole widths and rescales. While it exceeds the budget, lower the budget that is
   used for planning by 1 %, down to half.
4. Glue: join phases into blocks of one width. The block length is random, from 1 to a fifth of the phases,
   and drawn once per class. Of 50 draws keep the one with the least mean JCT. The first draw glues nothing.

    symbol   here         meaning
    z        hours        hours per job in a block, 1 / s in units of its work
    C        gpu_hours    GPU-hours per job in a block
    b        gpus         GPUs held on average

Cost: O(draws x blocks x widths), and O(blocks) for each lowered budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from policies.answer import Allocation
from policies.errors import InfeasibleBudget
from policies.model import Job, JobClass, Money, Width
from policies.rivals.ladder import Widths
from policies.rivals.long_run_averages import long_run_of, planned_within
from policies.site import BuiltPolicy, PolicyEntry, PolicyOptions, Site
from policies.speedup import Floats, Ints, Table

DRAWS = 50
STEP = 0.99
LEAST_SHARE = 0.5
SHORTEST_FOR_GLUE = 5
"""With fewer phases, a fifth of them is less than one phase, so nothing is glued."""
SLACK = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class GluedWidths:
    """Rent on arrival; every job gets the rounded and glued width of its class and phase."""

    plans: Mapping[str, Widths]

    @classmethod
    def within(
        cls,
        classes: Mapping[str, JobClass],
        gpu_type: str,
        *,
        gpus: float,
        draws: int = DRAWS,
        rng: np.random.Generator,
    ) -> GluedWidths:
        """Plan for `gpus` held on average.

        Raises:
            InfeasibleBudget: when no draw gives a plan within the budget.
        """
        best: dict[str, Widths] | None = None
        least, best_hours = np.inf, np.inf
        for number in range(draws):
            blocks = [
                block
                for job_class in classes.values()
                for block in _blocks(job_class, gpu_type, _lengths(job_class, rng, glue=number > 0))
            ]
            for plans in _lowered(blocks, classes, gpu_type, gpus):
                promise = long_run_of(plans, classes)
                least = min(least, promise.gpus)
                if promise.gpus <= gpus * (1.0 + SLACK):
                    if promise.mean_jct_hours < best_hours:
                        best, best_hours = plans, promise.mean_jct_hours
                    break
        if best is None:
            raise InfeasibleBudget(
                f"{gpus:.2f} GPUs on average are too few: the rounded widths take {least:.2f} at least",
                least_spend=float(least),
            )
        return cls(plans=best)

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the width of each job; the nodes to rent follow from the widths."""
        return Allocation(widths={job.id: self.plans[job.class_name][job.phase] for job in jobs})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Consecutive phases with one width: the envelope's vertices by rising width, with hours per job."""

    class_name: str
    phases: int
    arrivals_per_hour: float
    gpus: Ints
    hours: Floats

    @property
    def gpu_hours(self) -> Floats:
        """GPU-hours of a job in this block at each vertex."""
        return np.asarray(self.gpus * self.hours)


def _lengths(job_class: JobClass, rng: np.random.Generator, *, glue: bool) -> list[int]:
    """Return the lengths of a class's blocks: ones, or draws from 1 to a fifth of the phases."""
    phases = len(job_class.phases)
    if not glue or phases < SHORTEST_FOR_GLUE:
        return [1] * phases
    length = int(rng.integers(1, phases // SHORTEST_FOR_GLUE + 1))
    whole, rest = divmod(phases, length)
    return [length] * whole + ([rest] if rest else [])


def _blocks(job_class: JobClass, gpu_type: str, lengths: Sequence[int]) -> list[_Block]:
    """Return the blocks of a class, each with the envelope of its phases' combined speeds."""
    blocks, at = [], 0
    for length in lengths:
        phases = job_class.phases[at : at + length]
        at += length
        allowed = phases[0].speedups[gpu_type].whole_widths()
        for phase in phases[1:]:
            allowed = np.intersect1d(allowed, phase.speedups[gpu_type].whole_widths())
        hours = np.sum([p.size_gpu_hours / p.speedups[gpu_type].speed_at(allowed) for p in phases], axis=0)
        table = Table(gpus=tuple(allowed.tolist()), speeds=tuple((1.0 / hours).tolist()))
        widths, speeds = table.envelope()
        blocks.append(
            _Block(
                class_name=job_class.name,
                phases=length,
                arrivals_per_hour=job_class.arrivals_per_hour,
                gpus=np.array(widths, dtype=np.int64),
                hours=1.0 / np.array(speeds),
            )
        )
    return blocks


def _lowered(
    blocks: Sequence[_Block], classes: Mapping[str, JobClass], gpu_type: str, gpus: float
) -> Iterator[dict[str, Widths]]:
    """Yield the rounded plans for the budget and for lower and lower ones, without equal neighbours."""
    rate = np.array([block.arrivals_per_hour for block in blocks])
    owner = np.concatenate([np.full(len(b.gpus) - 1, n) for n, b in enumerate(blocks)]).astype(np.int64)
    cost = np.concatenate([np.diff(b.gpu_hours) * b.arrivals_per_hour for b in blocks])
    saved = np.concatenate([-np.diff(b.hours) * b.arrivals_per_hour for b in blocks])
    order = np.argsort(-saved / np.maximum(cost, 1e-300), kind="stable")
    owner, cost = owner[order], cost[order]
    reached = np.cumsum(cost) + float(rate @ [b.gpu_hours[0] for b in blocks])
    last: dict[str, Widths] = {}
    share = 1.0
    while share >= LEAST_SHARE:
        taken = int(np.searchsorted(reached, gpus * share, side="right"))
        at = np.bincount(owner[:taken], minlength=len(blocks))
        if taken < len(owner):
            at[owner[taken]] += _is_nearer_to_next(
                blocks[owner[taken]], int(at[owner[taken]]), gpus * share - reached[taken] + cost[taken]
            )
        found = _plans(blocks, at, classes, gpu_type)
        if found != last:
            yield found
            last = found
        share *= STEP


def _is_nearer_to_next(block: _Block, vertex: int, money: float) -> bool:
    """Return whether the fractional width that `money` pays for on an edge is nearer to the upper end."""
    held = float(block.gpu_hours[vertex]) + money / block.arrivals_per_hour
    step = float(block.gpu_hours[vertex + 1] - block.gpu_hours[vertex])
    part = 0.0 if step <= 0.0 else min(max((held - float(block.gpu_hours[vertex])) / step, 0.0), 1.0)
    hours = float(block.hours[vertex]) + part * float(block.hours[vertex + 1] - block.hours[vertex])
    width = held / hours
    return width - float(block.gpus[vertex]) > float(block.gpus[vertex + 1]) - width


def _plans(
    blocks: Sequence[_Block], at: Ints, classes: Mapping[str, JobClass], gpu_type: str
) -> dict[str, Widths]:
    """Return the widths, phase by phase, of blocks at vertices."""
    plans: dict[str, list[Width]] = {name: [] for name in classes}
    for block, vertex in zip(blocks, at.tolist(), strict=True):
        plans[block.class_name] += [Width(gpu_type, int(block.gpus[vertex]))] * block.phases
    return {name: tuple(widths) for name, widths in plans.items()}


def build(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Build the BOA authors' rounded and glued widths; the same site gives the same plan."""
    glued = partial(GluedWidths.within, rng=np.random.default_rng(0))
    return planned_within(site, options, glued, floor="the rounded widths take at least {}")


BOA_AUTHORS = PolicyEntry(
    name="boa-authors",
    kind="heuristic",
    summary="rent on arrival, the fractional optimum rounded and glued as BOA's authors do",
    build=build,
    is_job_by_job=True,
    options=frozenset({"gpu_type"}),
)
