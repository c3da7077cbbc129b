"""Pollux: GPUs go where goodput gains most, re-decided each minute; the node count follows a utility band.

Source: Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI 2021,
sections 4.2 and 4.3, and what its public simulator adds (osdi21-artifact): re-implemented from the
description. Goodput, throughput times statistical efficiency at the best batch size, is what the speed tables
of the importers hold.

    fitness = ( (1/n) sum_j (F_j r_j + eps)^-1 )^-1      F_j = s_j(k) / s_j(fair)      fair = ceil(G / n)
    r_j     = max(age - R d, 0) / (age + d)  where the width changes, else 1
    utility = sum_j s_j(k_j) / s_j(1) / G

    symbol   here         meaning
    n        jobs         jobs present
    G        gpus         GPUs of the cluster
    s(k)     speeds       goodput on k GPUs in the job's phase
    R, d     restarts     how often the job was restarted, and what a restart takes

What is better than the original, so that the rival is as good as it can be: the fitness is a sum over jobs,
so its optimum for the number of GPUs is found exactly (a knapsack over widths), where the authors run NSGA-II
for 100 generations; goodput is known from the start, where Pollux learns it and at most doubles a job's GPUs.
What is left out: which nodes a job is spread over, which in this world changes no speed. The autoscaler acts
on the utility of this round, not on a mean over 15, and chooses the node count that comes nearest to
the middle of the band.

Cost: O(jobs x widths x GPUs) per round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np

from policies.answer import Allocation
from policies.errors import InvalidProblem
from policies.model import InstanceType, Job, JobId, Money, Width
from policies.rivals.menu import WidthMenu, fleet_of, menu_of
from policies.rivals.rounds import ROUND_SECONDS, is_due, nodes_of_last_round, widths_held
from policies.site import BuiltPolicy, PolicyEntry, PolicyOptions, Site
from policies.speedup import Floats, Ints, SpeedupCurve

NOTHING = 4e-3
"""Added to every speed-up, so that a job without GPUs costs much and not infinitely much."""
UTILITY = 0.5
"""The middle of the band that Pollux's authors give as an example."""
HALF_BAND = 0.15
"""Half the width of the utility band: the authors' example is 0.35 to 0.65."""
MOST_NODES = 32
"""Where the autoscaler stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What a job may hold in its phase: GPUs ascending from 0, the speed-up over one GPU at each."""

    gpus: Ints
    speedups: Floats

    def within(self, gpus: int) -> float:
        """Return the best speed-up of at most so many GPUs; that of the narrowest width where none is."""
        return float(self.speedups[1 : max(2, int(np.searchsorted(self.gpus, gpus, side="right")))].max())


@dataclass(frozen=True, kw_only=True)
class GoodputShares:
    """Pollux on `least_nodes` to `most_nodes` nodes; on a fixed number where the two are the same.

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
                f"a cluster of {self.least_nodes} to {self.most_nodes} nodes cannot be: at least one at most"
            )
        if not 0.0 < self.utility <= 1.0:
            raise InvalidProblem(f"a utility is more than 0 and at most 1; got {self.utility!r}")

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return widths and nodes; between two rounds, what is held."""
        before = nodes_of_last_round(money)
        if before and not is_due(money, self.round_seconds):
            return Allocation(widths=widths_held(jobs), nodes=self._fleet(before))
        nodes = self.nodes_for(jobs, before, now=now)
        widths = self.shares(jobs, nodes * self.instance_type.gpus, now=now) if nodes else {}
        return Allocation(widths=widths, nodes=self._fleet(nodes), memory=(float(nodes),))

    def nodes_for(self, jobs: Sequence[Job], before: int, *, now: float) -> int:
        """Return how many nodes to hold: as before while the utility is in the band."""
        if self.least_nodes == self.most_nodes or not jobs:
            return self.least_nodes
        nodes = np.arange(max(1, self.least_nodes), self.most_nodes + 1)
        gpus = nodes * self.instance_type.gpus
        utilities = self._utilities(jobs, gpus, fair_gpus=max(1, before) * self.instance_type.gpus, now=now)
        if before >= nodes[0] and abs(utilities[before - nodes[0]] - self.utility) <= HALF_BAND:
            return before
        return int(nodes[np.argmin(np.abs(utilities - self.utility))])

    def shares(self, jobs: Sequence[Job], gpus: int, *, now: float) -> Mapping[JobId, Width]:
        """Return the widths of greatest fitness on so many GPUs; a job that gets none is left out."""
        chosen = self._best(jobs, np.array([gpus]), fair_gpus=gpus, now=now)[:, 0]
        return {
            job.id: Width(self.menu.gpu_type, int(self._options[job.class_name][job.phase].gpus[option]))
            for job, option in zip(jobs, chosen.tolist(), strict=True)
            if option > 0
        }

    def _fleet(self, nodes: int) -> Mapping[str, int]:
        """Return the nodes as an allocation names them."""
        return MappingProxyType({self.instance_type.name: nodes})

    def _utilities(self, jobs: Sequence[Job], gpus: Ints, *, fair_gpus: int, now: float) -> Floats:
        """Return the utility of the best shares for each number of GPUs."""
        chosen = self._best(jobs, gpus, fair_gpus=fair_gpus, now=now)
        rows = zip(jobs, chosen, strict=True)
        return np.asarray(
            sum(self._options[job.class_name][job.phase].speedups[row] for job, row in rows) / gpus
        )

    def _best(self, jobs: Sequence[Job], gpus: Ints, *, fair_gpus: int, now: float) -> Ints:
        """Return the option of each job for each number of GPUs, shape (jobs, len(gpus)), exactly.

        least[g] is the least sum of inverse speed-ups of the jobs so far on at most g GPUs.
        """
        room = np.arange(int(gpus.max()) + 1)
        fair = -(-fair_gpus // max(1, len(jobs)))
        least = np.zeros(len(room))
        taken = np.empty((len(jobs), len(room)), dtype=np.int64)
        for number, job in enumerate(jobs):
            options = self._options[job.class_name][job.phase]
            left = room - options.gpus[:, None]
            sums = (
                np.where(left >= 0, least[np.maximum(left, 0)], np.inf) + self._costs(job, fair, now)[:, None]
            )
            taken[number] = sums.argmin(axis=0)
            least = sums[taken[number], room]
        at = gpus.copy()
        chosen = np.empty((len(jobs), len(gpus)), dtype=np.int64)
        for number in range(len(jobs) - 1, -1, -1):
            chosen[number] = taken[number, at]
            at = at - self._options[jobs[number].class_name][jobs[number].phase].gpus[chosen[number]]
        return chosen

    def _costs(self, job: Job, fair: int, now: float) -> Floats:
        """Return the inverse speed-up over the fair share at each option, restarts counted."""
        options = self._options[job.class_name][job.phase]
        relative = options.speedups / options.within(fair)
        age = max(0.0, now - job.arrived_at)
        delay = self.menu.classes[job.class_name].rescale_hours * 3600.0
        if delay > 0.0:
            factor = max(age - job.restarts * delay, 0.0) / (age + delay)
            held = -1 if job.width is None else job.width.gpus
            relative = np.where(options.gpus == held, relative, relative * factor)
        return np.asarray(job.weight / (relative + NOTHING))

    @cached_property
    def _options(self) -> Mapping[str, tuple[_Options, ...]]:
        """By class and phase, what a job may hold."""
        return {
            name: tuple(self._options_of(phase.speedups[self.menu.gpu_type]) for phase in job_class.phases)
            for name, job_class in self.menu.classes.items()
        }

    def _options_of(self, curve: SpeedupCurve) -> _Options:
        """Return what a job on a curve may hold."""
        widths = curve.whole_widths()
        widths = widths[widths <= max(self.most_nodes * self.instance_type.gpus, int(widths[0]))]
        speeds = curve.speed_at(widths)
        return _Options(
            gpus=np.concatenate([[0], widths]).astype(np.int64),
            speedups=np.concatenate([[0.0], speeds * (widths[0] / speeds[0])]),
        )


def build(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return Pollux on the fleet that the budget pays for."""
    menu = menu_of(site, options)
    fleet = fleet_of(site, options, menu.gpu_type)
    policy = GoodputShares(
        menu=menu, instance_type=fleet.instance_type, least_nodes=fleet.nodes, most_nodes=fleet.nodes
    )
    return BuiltPolicy(allocator=policy, round_seconds=ROUND_SECONDS)


def build_autoscaling(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Return Pollux whose cluster follows a utility band; it aims at no budget."""
    menu = menu_of(site, options)
    policy = GoodputShares(
        menu=menu,
        instance_type=site.instance_types[menu.gpu_type],
        least_nodes=0,
        most_nodes=MOST_NODES if site.max_nodes is None else min(MOST_NODES, site.max_nodes),
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
