"""Pollux: GPUs go where goodput gains most, decided again each minute; the node count follows a utility band.

Source: Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI 2021,
sections 4.2 and 4.3, and additions of its public simulator (osdi21-artifact): re-implemented from the
description. The speed tables of the importers contain goodput: throughput times statistical efficiency at the
best batch size.

    fitness = ( (1/n) sum_j (F_j r_j + eps)^-1 )^-1      F_j = s_j(k) / s_j(fair)      fair = ceil(G / n)
    r_j     = max(age - R d, 0) / (age + d)  where the width changes, else 1
    utility = sum_j s_j(k_j) / s_j(1) / G

    symbol   here         meaning
    n        jobs         jobs present
    G        gpus         GPUs of the cluster
    s(k)     speeds       goodput on k GPUs in the job's phase
    R, d     restarts     number of restarts of the job, and the time that a restart takes

Better than the original, so that the rival is as good as possible: the fitness is a sum over jobs, so its
optimum for a number of GPUs is computed exactly (a knapsack over widths), where the authors run NSGA-II for
100 generations; goodput is known from the start, where Pollux learns it and at most doubles a job's GPUs.
Left out: the choice of nodes for a job, which changes no speed here. The autoscaler uses the utility of this
round, not a mean over 15, and chooses the node count whose utility is nearest to the middle of the band.

Cost: O(jobs x widths x GPUs) per round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from policies.answer import Allocation
from policies.errors import InvalidProblem
from policies.model import InstanceType, Job, JobId, Money, Width
from policies.rivals.rounds import ROUND_SECONDS, is_due, nodes_of_last_round, widths_held
from policies.rivals.width_menu import WidthMenu, fleet_of, menu_of
from policies.site import BuiltPolicy, PolicyEntry, PolicyOptions, Site
from policies.speedup import Floats, Ints, SpeedupCurve

SPEEDUP_FLOOR = 4e-3
"""Added to every speed-up, so that the cost of a job without GPUs is large but finite."""
UTILITY = 0.5
"""The middle of the band in the authors' example."""
HALF_BAND = 0.15
"""Half the width of the utility band: the authors' example is 0.35 to 0.65."""
NODES_AT_ONCE = 32
"""The node counts that the autoscaler weighs in one step of its search."""
MANY = 2**40
"""More GPUs than any cluster has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The possible widths of jobs: a row for each phase of each class (`rows`), shape (phases, options).

    `gpus` ascend from 0; `speedups` are relative to one GPU; `best` is the running maximum of `speedups`. A
    phase with fewer options is padded with columns of `MANY` GPUs, which cannot be chosen.
    """

    rows: Mapping[tuple[str, int], int]
    gpus: Ints
    speedups: Floats
    best: Floats

    @classmethod
    def of(cls, curves: Mapping[tuple[str, int], SpeedupCurve], most_gpus: int) -> _Options:
        """Build the options of at most `most_gpus` GPUs; the narrowest width is always included."""
        options = [_widths_of(curve, most_gpus) for curve in curves.values()]
        columns = 1 + max(len(widths) for widths, _ in options)
        gpus, speedups = np.full((len(options), columns), MANY), np.zeros((len(options), columns))
        gpus[:, 0] = 0
        for row, (widths, speeds) in enumerate(options):
            gpus[row, 1 : 1 + len(widths)] = widths
            speedups[row, 1 : 1 + len(widths)] = speeds * (widths[0] / speeds[0])
        return cls(
            rows={name: row for row, name in enumerate(curves)},
            gpus=gpus,
            speedups=speedups,
            best=np.maximum.accumulate(speedups, axis=1),
        )

    def within(self, rows: Ints, gpus: int) -> Floats:
        """Return the best speed-up on at most `gpus` GPUs, or that of the narrowest width if it is wider."""
        found: Floats = self.best[rows, np.maximum((self.gpus[rows] <= gpus).sum(axis=1) - 1, 1)]
        return found


def _widths_of(curve: SpeedupCurve, most_gpus: int) -> tuple[Ints, Floats]:
    """Return the widths of a curve of at most `most_gpus` (or its narrowest), and their speeds."""
    widths = curve.whole_widths()
    widths = widths[widths <= max(most_gpus, int(widths[0]))]
    return widths, curve.speed_at(widths)


@dataclass(frozen=True, kw_only=True)
class GoodputShares:
    """Pollux on `least_nodes` to `most_nodes` nodes; a fixed fleet if the two are equal.

    `utility` is the middle of the band that the node count follows.
    """

    menu: WidthMenu
    instance_type: InstanceType
    least_nodes: int
    most_nodes: int
    utility: float = 0.5
    round_seconds: float = ROUND_SECONDS

    def __post_init__(self) -> None:
        if not 0 <= self.least_nodes <= self.most_nodes or self.most_nodes < 1:
            raise InvalidProblem(
                "a cluster needs 0 <= least_nodes <= most_nodes and most_nodes >= 1; "
                f"got {self.least_nodes} and {self.most_nodes}"
            )
        if not 0.0 < self.utility <= 1.0:
            raise InvalidProblem(f"a utility is more than 0 and at most 1; got {self.utility!r}")

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return widths and nodes; between two rounds, the current ones."""
        before = nodes_of_last_round(money)
        if before and not is_due(money, self.round_seconds):
            return Allocation(widths=widths_held(jobs), nodes=self._fleet(before))
        nodes = self.nodes_for(jobs, before, now=now)
        widths = self.shares(jobs, nodes * self.instance_type.gpus, now=now) if nodes else {}
        return Allocation(widths=widths, nodes=self._fleet(nodes), memory=(float(nodes),))

    def nodes_for(self, jobs: Sequence[Job], before: int, *, now: float) -> int:
        """Return how many nodes to hold: as before while the utility is within the band."""
        if self.least_nodes == self.most_nodes or not jobs:
            return self.least_nodes
        least, fair_gpus = max(1, self.least_nodes), max(1, before) * self.instance_type.gpus
        if before >= least:
            (utility,) = self._utilities(jobs, np.array([fair_gpus]), fair_gpus=fair_gpus, now=now)
            if abs(utility - self.utility) <= HALF_BAND:
                return before
        widest = int(self._options.gpus[self._rows(jobs)].max(axis=1).sum())
        most = min(self.most_nodes, max(least, -(-widest // self.instance_type.gpus)))
        first, found = least, [(np.inf, least)]
        # More nodes are less used, so the search ends once the utility is below the middle of the band.
        while first <= most:
            nodes = np.arange(first, min(first + NODES_AT_ONCE, most + 1))
            gpus = nodes * self.instance_type.gpus
            utilities = self._utilities(jobs, gpus, fair_gpus=fair_gpus, now=now)
            best = int(np.argmin(np.abs(utilities - self.utility)))
            found.append((float(abs(utilities[best] - self.utility)), int(nodes[best])))
            if utilities[-1] < self.utility:
                break
            first = int(nodes[-1]) + 1
        return min(found)[1]

    def shares(self, jobs: Sequence[Job], gpus: int, *, now: float) -> Mapping[JobId, Width]:
        """Return the widths with the greatest fitness on `gpus` GPUs; jobs without GPUs are left out."""
        rows = self._rows(jobs)
        chosen = self._best(jobs, rows, np.array([gpus]), fair_gpus=gpus, now=now)[:, 0]
        held = self._options.gpus[rows, chosen].tolist()
        return {job.id: Width(self.menu.gpu_type, k) for job, k in zip(jobs, held, strict=True) if k > 0}

    def _fleet(self, nodes: int) -> Mapping[str, int]:
        return MappingProxyType({self.instance_type.name: nodes})

    def _utilities(self, jobs: Sequence[Job], gpus: Ints, *, fair_gpus: int, now: float) -> Floats:
        """Return the utility of the best shares for each number of GPUs."""
        rows = self._rows(jobs)
        chosen = self._best(jobs, rows, gpus, fair_gpus=fair_gpus, now=now)
        return np.asarray(sum(self._options.speedups[rows[:, None], chosen]) / gpus)

    def _rows(self, jobs: Sequence[Job]) -> Ints:
        """Return the row of each job among the options, shape (jobs,)."""
        row = self._options.rows
        return np.array([row[job.class_name, job.phase] for job in jobs], dtype=np.int64)

    def _best(self, jobs: Sequence[Job], rows: Ints, gpus: Ints, *, fair_gpus: int, now: float) -> Ints:
        """Return the optimal option of each job for each number of GPUs, shape (jobs, len(gpus)).

        least[n, room + g] is the least sum of costs of the first n jobs on at most g GPUs. The `room` columns
        before these are infinity; they stand for negative numbers of GPUs.
        """
        room = int(gpus.max()) + 1
        costs = self._costs(jobs, rows, -(-fair_gpus // max(1, len(jobs))), now)
        starts = room - np.minimum(self._options.gpus[rows], room)
        least = np.full((len(jobs) + 1, 2 * room), np.inf)
        least[0, room:] = 0.0
        windows = sliding_window_view(least, room, axis=1)
        for number in range(len(jobs)):
            sums = windows[number, starts[number]] + costs[number, :, None]
            sums.min(axis=0, out=least[number + 1, room:])
        at = room + gpus
        chosen = np.empty((len(jobs), len(gpus)), dtype=np.int64)
        for number in range(len(jobs) - 1, -1, -1):
            used = room - starts[number]
            sums = least[number, at - used[:, None]] + costs[number, :, None]
            chosen[number] = sums.argmin(axis=0)
            at = at - used[chosen[number]]
        return chosen

    def _costs(self, jobs: Sequence[Job], rows: Ints, fair: int, now: float) -> Floats:
        """Return weight over relative speed-up (to the fair share, with restarts), shape (jobs, options)."""
        options = self._options
        relative = options.speedups[rows] / options.within(rows, fair)[:, None]
        kept = np.array([self._kept(job, now) for job in jobs])
        held = np.array([-1 if job.width is None else job.width.gpus for job in jobs])
        moves = options.gpus[rows] != held[:, None]
        relative = np.where(moves, relative * kept[:, None], relative)
        return np.asarray(np.array([job.weight for job in jobs])[:, None] / (relative + SPEEDUP_FLOOR))

    def _kept(self, job: Job, now: float) -> float:
        """Return r_j, the part of its speed that a job is expected to keep if its width changes."""
        age = max(0.0, now - job.arrived_at)
        delay = self.menu.classes[job.class_name].rescale_hours * 3600.0
        return max(age - job.restarts * delay, 0.0) / (age + delay) if delay > 0.0 else 1.0

    @cached_property
    def _options(self) -> _Options:
        """The possible widths by class and phase."""
        curves = {
            (name, number): phase.speedups[self.menu.gpu_type]
            for name, job_class in self.menu.classes.items()
            for number, phase in enumerate(job_class.phases)
        }
        return _Options.of(curves, self.most_nodes * self.instance_type.gpus)


def build(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Build Pollux on the fleet that the budget pays for."""
    menu = menu_of(site, options)
    fleet = fleet_of(site, options, menu.gpu_type)
    policy = GoodputShares(
        menu=menu, instance_type=fleet.instance_type, least_nodes=fleet.nodes, most_nodes=fleet.nodes
    )
    return BuiltPolicy(allocator=policy, round_seconds=ROUND_SECONDS)


def build_autoscaling(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Build Pollux with a node count that follows a utility band; it ignores the budget."""
    menu = menu_of(site, options)
    policy = GoodputShares(
        menu=menu,
        instance_type=site.instance_types[menu.gpu_type],
        least_nodes=0,
        most_nodes=MANY if site.max_nodes is None else site.max_nodes,
        utility=UTILITY if options.utility is None else options.utility,
    )
    return BuiltPolicy(allocator=policy, round_seconds=ROUND_SECONDS)


POLLUX_AUTOSCALE = PolicyEntry(
    name="pollux-autoscale",
    kind="autoscaler",
    summary="Pollux: shares by goodput each minute, the node count follows a utility band",
    build=build_autoscaling,
    options=frozenset({"gpu_type", "utility"}),
)
POLLUX = PolicyEntry(
    name="pollux",
    kind="fleet",
    summary="Pollux on a fixed fleet: shares by goodput, re-decided each minute",
    build=build,
    options=frozenset({"gpu_type", "nodes"}),
)
