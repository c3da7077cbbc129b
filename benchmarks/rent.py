"""Mean JCT at equal spend, and spend at equal mean JCT: one machine per GPU, several, + spot, + a commitment.

    python benchmarks/rent.py SOURCE DATA [--workload 6] [--profiles DIR] [--jobs 150] [--hours 18]
        [--seeds 2] [--times 1.5] [--rivals pollux-autoscale] [--utilities 0.4 0.55 0.7 0.85]
        [--points 6] [--policy boa-paced]
        [--widest-on-small GPUS] [--mixes USD ...] [--out FOLDER]

SOURCE is `pollux`, `gavel` or `itp`; DATA is what `boa trace import --from SOURCE` reads. Pollux's profiles
hold step times on one-GPU and on four-GPU T4 machines; both are taken as measured, on links of the large one.
`--widest-on-small 4` leaves out wider jobs on the small one. The other two sources were measured on one
machine per GPU, so other machines get only widths within a node. Prices are those of the catalogue.

Each site (a set of machines and markets) is run by the daemon's tick under `--policy`, by default the
daemon's own, with growing budgets. The load continues: the jobs arrive once, in `--seeds` orders, at random
instants of `--hours`, and a third of them also before and a third after that time. For every policy alike,
only the JCT of the jobs of those hours and the bill of those hours count
(docs/decisions/0128-continuing-load.md). A site's JCT at a sum, and its bill at a JCT, are interpolated
between its runs.

There are three sums, each `--times` the least budget of a machine: the one on which the jobs were measured
(`today`), the cheapest single one, and the cheapest on spot. Spot costs 0.4 of the price; nodes are taken
back after 12 hours, three in ten without notice; jobs save every ten minutes. The commitment is one year at
40 % off for all machines on demand, at the level of the least bill (in hindsight, within the same run).
Rivals get each machine for themselves, on demand and with spot first, at several utilities, and the best of
these counts. `--mixes 10 12 16` is another comparison: at each of these sums, every set of machines and
markets that includes spot and that the sum pays for. The JCT of the plan on all of them is printed over that
of the best set in hindsight.

Runs are kept in `--out` by the hash of their settings, so a benchmark that was stopped continues.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TypeAlias

import numpy as np
from machines import NAMES, classes_on

from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.commitments_file import CommitmentTerms
from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.lab.compare.comparison_summary import ratio_of
from boa_daemon.lab.traces.elastic import profile_directory
from boa_daemon.lab.traces.importers import import_source
from boa_daemon.planning.commitments import choices
from boa_daemon.planning.rentals import Rental, load_between
from boa_daemon.sim.spot_market import with_spot
from boa_daemon.sim.wiring import SimulationSettings, check_budget, prepare, site_of
from boa_daemon.sim.world_settings import Checkpoints, Spot, WorldSettings
from boa_daemon.tasks.tasks import AnswerCache, Tasks
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.money.ledger import Ledger
from boa_daemon.traces.reader import Trace
from boa_daemon.traces.workload import GpuSource, Options
from boa_daemon.units import SECONDS_PER_HOUR
from policies.errors import InfeasibleBudget
from policies.kinds import kind_of
from policies.links.gpu_kinds import machines_by_kind, on_machines
from policies.model import Budget, GpuType, InstanceType, JobClass, Problem
from policies.optimum.commitments import best_levels
from policies.optimum.frontier import MixedFrontier
from policies.registry import PolicyOptions

Run: TypeAlias = tuple[float, float, float]
"""Mean JCT in minutes, the bill in USD per hour, and the bill under the cheapest commitment."""
SMALLER = {"t4": "g4dn.xlarge", "v100": "p3.2xlarge"}
"""A smaller machine with the same GPU."""
TODAY, BEST_SINGLE, WITH_SPOT = "one machine, as measured", "best single machine", "several and spot"
BASES = (
    (BEST_SINGLE, 0),
    (BEST_SINGLE, 0),
    (BEST_SINGLE, 2),
    (WITH_SPOT, 3),
    (BEST_SINGLE, 4),
    (BEST_SINGLE, 4),
)
"""The row and column that each column is compared with."""
WORLD = WorldSettings(
    spot=Spot(price_fraction=0.4, price_volatility=0.1, unannounced_fraction=0.3),
    checkpoints=Checkpoints(every_seconds=600.0, cost_seconds=10.0),
)
DISCOUNT = 0.4
UTILITIES = (0.4, 0.55, 0.7, 0.85)
"""An autoscaler's target utilities; with a lower one it rents more."""
FURTHER, STEP = 6, 1.15
"""The most budgets beyond the highest, and the ratio of each to the one before."""
AROUND = (0.85, 0.95, 1.15)
"""Budgets of a set of machines and markets, over the sum at which its JCT is interpolated."""
PLANNED = np.geomspace(1.0, 1.5, 4)
"""Multiples of the sum at which the plans of two sets are compared: pacing spends more with few jobs."""
WORSE = 1.2
"""A set is not run if its plan's JCT is this many times that of all machines and markets."""
EDGE = 1.0 / 3.0
"""The part of the jobs and of the hours that comes again before and after the hours that count."""


def measured(words: argparse.Namespace) -> tuple[Trace, dict[str, InstanceType], tuple[JobClass, ...]]:
    """Return the jobs, the machines (the measured one of each GPU first), and the classes."""
    options = Options(workload=words.workload, profiles=words.profiles, limit=words.jobs)
    found = import_source(words.source, words.data, options)
    catalog = Catalog.load()
    first = {kind: _machine(kind, source, catalog) for kind, source in found.gpu_types.items()}
    if words.source == "pollux":
        both = machines_by_kind((catalog.instance_type(name) for name in NAMES), {})
        return (
            found.trace,
            both,
            classes_on(profile_directory(words.data), found.trace, both, widest=words.widest_on_small),
        )
    more = [catalog.instance_type(SMALLER[kind]) for kind in first if kind in SMALLER]
    machines = machines_by_kind((*first.values(), *more), first)
    return found.trace, machines, tuple(on_machines(one, machines, first) for one in found.classes)


def _machine(kind: str, source: GpuSource, catalog: Catalog) -> InstanceType:
    """Return the machine of a source's GPU type."""
    if source.instance_type is not None:
        return replace(catalog.instance_type(source.instance_type), gpu_type=kind)
    gpus = source.gpus_per_instance or 1
    return InstanceType(
        name=f"{kind}-x{gpus}",
        gpu_type=kind,
        gpus=gpus,
        usd_per_hour=gpus * (source.usd_per_gpu_hour or 0.0),
    )


def site(
    trace: Trace,
    machines: Mapping[str, InstanceType],
    classes: tuple[JobClass, ...],
    *,
    spot: str = "",
    only: frozenset[str] = frozenset(),
) -> SimulationSettings | None:
    """Return a site, with spot first or by the plan, on all or `only` some of its machines and markets.

    Return None if some class runs on none of its machines.
    """
    prices = (GpuType(name=kind, usd_per_gpu_hour=one.usd_per_gpu_hour) for kind, one in machines.items())
    kept = _on(classes, frozenset(machines))
    if kept is None:
        return None
    problem = Problem(classes=kept, gpu_types=tuple(prices))
    file = ProblemFile(path="", problem=problem, budget=None, instance_types=machines)
    if spot == "planned":
        file = with_spot(file, WORLD)
    if only:
        left = _on(file.problem.classes, only)
        if left is None:
            return None
        kinds = tuple(one for one in file.problem.gpu_types if one.name in only)
        rented = {kind: one for kind, one in file.instance_types.items() if kind in only}
        file = replace(file, problem=Problem(classes=left, gpu_types=kinds), instance_types=rented)
    return SimulationSettings(
        trace=trace,
        problem=file.problem,
        instance_types=file.instance_types,
        budget=Budget(amount=1.0),
        policy="boa-paced",
        world=WORLD if spot else WorldSettings(checkpoints=WORLD.checkpoints),
    )


def _on(classes: Iterable[JobClass], kinds: frozenset[str]) -> tuple[JobClass, ...] | None:
    """Return the classes on some GPU types, or None if a phase of one class runs on none of them."""
    kept = []
    for one in classes:
        if not all(kinds.intersection(phase.speedups) for phase in one.phases):
            return None
        phases = tuple(
            replace(phase, speedups={kind: c for kind, c in phase.speedups.items() if kind in kinds})
            for phase in one.phases
        )
        kept.append(replace(one, phases=phases))
    return tuple(kept)


class _Enough(Exception):
    """Raised when all jobs that count have ended."""


def ran(settings: SimulationSettings, begin: float, end: float) -> Run | None:
    """Run a site until the jobs that arrived between two instants have ended; None on too small a budget."""
    try:
        check_budget(settings)
    except InfeasibleBudget:
        return None
    run = prepare(settings)
    totals, bills = run.world.jobs.totals, list[tuple[float, float]]()
    counted = {job.id for job in settings.trace.jobs if begin <= job.arrived_at_seconds < end}

    def look(decision: Decision) -> None:
        bills.append((decision.state.now, Ledger.of(decision.state).committed_usd))
        if decision.state.now > end and counted.issubset(totals.finished):
            raise _Enough

    with suppress(_Enough):
        run.world.run(run.controller, look)
    run.world.cloud.close()
    hours = (end - begin) / SECONDS_PER_HOUR
    usd = float(np.diff(np.interp((begin, end), *zip(*bills, strict=True)))[0]) / hours
    waited = (jct for job, jct in zip(totals.finished, totals.jct_seconds, strict=True) if job in counted)
    minutes = sum(waited) / 60.0 / len(counted)
    return minutes, usd, usd - _saved(run.world.cloud.meter.on_demand, settings, begin, end)


def _saved(
    rented: list[tuple[str, int, float, float]], settings: SimulationSettings, begin: float, end: float
) -> float:
    """Return the best commitment's saving on a run's bill between two instants, in USD per hour."""
    machines = [one for one in settings.instance_types.values() if not one.kind.is_spot]
    if not rented:
        return 0.0
    load = load_between([Rental(*one) for one in rented], tuple(one.gpu_type for one in machines), begin, end)
    terms = CommitmentTerms(
        name="plan",
        kind="compute",
        discounts={one.name.partition(".")[0]: DISCOUNT for one in machines},
        term_years=1,
    )
    commitments = [one for _, one in choices([terms], machines)]
    prices = [one.usd_per_gpu_hour for one in machines]
    on_demand = float(np.dot(load.mean_gpus, prices))
    return on_demand - best_levels(load, prices, commitments).bill.total


def least_of(settings: SimulationSettings) -> float:
    """Return the spend of a site's cheapest plan, in USD per hour."""
    return float(MixedFrontier.of(site_of(settings).problem).cheapest_feasible_spend)


def minutes_for(sites: Iterable[list[Run]], money: float, *, bill: int = 1) -> float:
    """Return the mean JCT in minutes at a bill of `money`, on the best of the sites."""
    return min(_read_off([(run[bill], run[0]) for run in found], money) for found in sites)


def money_for(sites: Iterable[list[Run]], minutes: float, *, bill: int = 1) -> float:
    """Return the bill at a mean JCT of `minutes`, on the best of the sites."""
    return min(_read_off([(run[0], run[bill]) for run in found], minutes) for found in sites)


def _read_off(points: list[tuple[float, float]], most: float) -> float:
    """Return the least second figure at a first figure of at most `most`; interpolate between points."""
    below = [point for point in points if point[0] <= most]
    reached = [second for _, second in below]
    for first, second in below:
        for over, there in (point for point in points if point[0] > most):
            reached.append(second + (most - first) / (over - first) * (there - second))
    return min(reached, default=math.inf)


def going_on(trace: Trace, hours: float, seed: int) -> Trace:
    """Return the jobs in another order, at random instants of `hours`, and a part before and after."""
    rng, jobs = np.random.default_rng([seed, len(trace.jobs)]), trace.jobs
    found = []
    for name, part, begin in (("before ", EDGE, 0.0), ("", 1.0, EDGE), ("after ", EDGE, 1.0 + EDGE)):
        chosen = rng.permutation(len(jobs))[: round(part * len(jobs))].tolist()
        instants = SECONDS_PER_HOUR * hours * (begin + part * np.sort(rng.uniform(size=len(chosen))))
        found += [
            replace(jobs[number], id=f"{name}{jobs[number].id}", arrived_at_seconds=at)
            for number, at in zip(chosen, instants.tolist(), strict=True)
        ]
    return Trace(tuple(found))


class Bench:
    """Runs sites on one order of the jobs; each site is run once."""

    def __init__(self, words: argparse.Namespace, seed: int, tasks: Tasks) -> None:
        trace, self.machines, classes = measured(words)
        self.trace = going_on(trace, words.hours, seed)
        self.words, self.seed, self.tasks, self.jobs = words, seed, tasks, len(trace.jobs)
        self.window = tuple(SECONDS_PER_HOUR * words.hours * edge for edge in (EDGE, 1.0 + EDGE))
        counts = Counter(job.class_name for job in trace.jobs)
        self.classes = tuple(
            replace(one, arrivals_per_hour=counts[one.name] / words.hours)
            for one in classes
            if counts[one.name]
        )
        firsts = {kind: one for kind, one in self.machines.items() if not one.kind.machine}
        self.singles = [firsts]
        for kind, one in self.machines.items():
            if kind not in firsts:
                card = one.kind.card
                self.singles.append(
                    {key: first for key, first in firsts.items() if key != card} | {kind: one}
                )
        least = [least_of(one) for one in self._sites(self.singles, "")]
        on_spot = [least_of(one) for one in self._sites(self.singles, "planned", only_spot=True)]
        self.monies = tuple(words.times * usd for usd in (least[0], min(least), min(on_spot)))

    def _sites(
        self, choices: Iterable[Mapping[str, InstanceType]], spot: str, *, only_spot: bool = False
    ) -> list[SimulationSettings]:
        """Return the sites of some machines on which all classes run."""
        found = []
        for machines in choices:
            on_spot = frozenset(str(one.kind.on_spot) for one in machines.values())
            only = on_spot if only_spot else frozenset[str]()
            one = site(self.trace, machines, self.classes, spot=spot, only=only)
            if one is not None:
                found.append(replace(one, seed=self.seed, policy=self.words.policy))
        return found

    def runs(
        self, settings: SimulationSettings, least: float, most: float, *, until: float = 0.0
    ) -> list[Run]:
        """Return the runs of a site with growing budgets, from its least budget on.

        The budgets grow until a bill under a commitment reaches `until`, so that both bills can be
        interpolated.
        """
        needed = 1.02 * least_of(settings)
        budgets = np.geomspace(max(least, needed), max(most, 1.1 * needed), self.words.points).tolist()
        found = self._ran(replace(settings, budget=Budget(amount=round(amount, 6))) for amount in budgets)
        for step in range(1, FURTHER + 1):
            if max((run[2] for run in found), default=0.0) >= until:
                break
            amount = round(budgets[-1] * STEP**step, 6)
            found += self._ran([replace(settings, budget=Budget(amount=amount))])
        return found

    def of_machines(self) -> Iterator[tuple[str, list[list[Run]]]]:
        """Yield a name and the runs of our own sites, of which the best counts."""
        today, cheapest, spot = self.monies
        least, most = 0.75 * min(today, cheapest), 1.15 * max(today, cheapest)
        until = max(today, cheapest)
        one_each = [self.runs(one, least, most, until=until) for one in self._sites(self.singles, "")]
        yield TODAY, one_each[:1]
        yield BEST_SINGLE, one_each
        if len(one_each) > 1:
            (several,) = self._sites([self.machines], "")
            yield "several machines", [self.runs(several, least, most, until=until)]
        (both,) = self._sites([self.machines], "planned")
        around = self.runs(both, 0.7 * spot, 1.1 * spot)
        yield WITH_SPOT, [[*around, *self.runs(both, 1.3 * spot, most, until=until)]]

    def of_mixes(self, usd: float) -> Iterator[tuple[str, list[Run]]]:
        """Yield the runs of every set of machines and markets that includes spot and that a sum pays for.

        All sets have the same budgets around the sum, so they are interpolated alike. Of sets with the same
        plan at all of `PLANNED` only the largest is run, and no set whose plan waits longer than `WORSE`. The
        first set is that of all machines and markets.
        """
        kinds, plans = [*self.machines, *(str(kind_of(kind).on_spot) for kind in self.machines)], set[bytes]()
        least = math.inf
        for count in range(len(kinds), 0, -1):
            for chosen in combinations(kinds, count):
                if not any(kind_of(kind).is_spot for kind in chosen):
                    continue
                needed = {str(kind_of(kind).on_demand) for kind in chosen}
                machines = {kind: one for kind, one in self.machines.items() if kind in needed}
                one = site(self.trace, machines, self.classes, spot="planned", only=frozenset(chosen))
                if one is None:
                    continue
                frontier = MixedFrontier.of(site_of(one).problem)
                if frontier.cheapest_feasible_spend > usd:
                    continue
                plan = frontier.mean_jct_at(usd * PLANNED)
                least = min(least, plan[0])
                if plan[0] <= WORSE * least and plan.round(6).tobytes() not in plans:
                    plans.add(plan.round(6).tobytes())
                    one = replace(one, seed=self.seed, policy=self.words.policy)
                    budgets = (Budget(amount=round(part * usd, 6)) for part in AROUND)
                    yield "+".join(chosen), self._ran(replace(one, budget=budget) for budget in budgets)

    def of_rival(self, name: str, market: str) -> list[list[Run]]:
        """Return the runs of a rival on each machine alone."""
        alone = self._sites([{kind: one} for kind, one in self.machines.items()], market)
        options = [PolicyOptions(utility=utility) for utility in self.words.utilities]
        return [self._ran(replace(one, policy=name, options=chosen) for chosen in options) for one in alone]

    def _ran(self, wanted: Iterable[SimulationSettings]) -> list[Run]:
        """Return the runs whose budgets are large enough."""
        return [run for one in wanted if (run := self.tasks.run(ran, one, *self.window)) is not None]


def figures(bench: Bench) -> dict[str, tuple[float, ...]]:
    """Return by row: minutes at the sums, and USD per hour at a goal for the minutes.

    The goal is the JCT of the best single machine at the first sum.
    """
    today, cheapest, spot = bench.monies
    found: dict[str, tuple[float, ...]] = {}
    goal = math.nan

    def add(said: str, runs: list[list[Run]]) -> None:
        found[said] = (
            minutes_for(runs, today),
            minutes_for(runs, today, bill=2),
            minutes_for(runs, cheapest),
            minutes_for(runs, spot),
            money_for(runs, goal),
            money_for(runs, goal, bill=2),
        )

    for said, runs in bench.of_machines():
        if said == BEST_SINGLE:
            goal = minutes_for(runs, today)
        add(said, runs)
    for name in filter(None, bench.words.rivals.split(",")):
        add(f"{name}, on demand", bench.of_rival(name, ""))
        add(f"{name}, spot first", bench.of_rival(name, "first"))
    return found


def of_mixes(words: argparse.Namespace, tasks: Tasks) -> None:
    """Print, for each sum and order, the JCT of the plan on everything and of the best set in hindsight."""
    for usd in words.mixes:
        pairs = []
        for seed in range(words.seeds):
            found = {said: minutes_for([runs], usd) for said, runs in Bench(words, seed, tasks).of_mixes(usd)}
            everything, best = next(iter(found.values())), min(found, key=lambda said: found[said])
            pairs.append((everything, found[best]))
            print(
                f"{usd:g} USD/h, order {seed}: {everything:.2f} min on everything; of {len(found)} sets "
                f"the best, {best}, {found[best]:.2f}",
                flush=True,
            )
        over = ratio_of([everything / best for everything, best in pairs])
        within = "" if over.low is None else f", {over.low:.3f} to {over.high:.3f}"
        told = (median(column) for column in zip(*pairs, strict=True))
        print(
            "{:g} USD/h: {:.1f} min, best {:.1f}".format(usd, *told), f"x{over.mean:.3f}{within}", flush=True
        )


def main() -> None:
    """Print a row for each site and each rival: medians over the orders, and paired ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", choices=["pollux", "gavel", "itp"])
    parser.add_argument("data", type=Path)
    parser.add_argument("--workload")
    parser.add_argument("--profiles", type=Path)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--hours", type=float, default=18.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--times", type=float, default=1.5)
    parser.add_argument("--points", type=int, default=6)
    parser.add_argument("--policy", choices=["boa", "boa-paced"], default="boa-paced")
    parser.add_argument("--widest-on-small", type=int)
    parser.add_argument("--rivals", default="pollux-autoscale")
    parser.add_argument("--utilities", type=float, nargs="+", default=UTILITIES)
    parser.add_argument("--mixes", type=float, nargs="+", metavar="USD")
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    if words.source == "itp" and words.profiles is None:
        parser.error("itp needs --profiles, ElasticFlow's throughputs: without them no job has a GPU type")
    began = perf_counter()
    with Tasks(kept=AnswerCache(words.out)) as tasks:
        if words.mixes:
            of_mixes(words, tasks)
            return
        told = []
        for seed in range(words.seeds):
            bench = Bench(words, seed, tasks)
            told.append(figures(bench))
            print(f"order {seed} at {perf_counter() - began:.0f} s", flush=True)
    today, cheapest, spot = (f"{usd:.0f} $/h" for usd in bench.monies)
    titles = (today, f"{today} committed", cheapest, f"spot {spot}", "$/h same wait", "committed")
    print(
        f"{bench.jobs} jobs of {words.source} in {words.hours:g} h, {words.seeds} orders, {words.policy}: "
        "minutes at a sum and USD/h for a wait, medians; over the best single machine (on spot: over "
        "the plan with spot), paired\n"
        f"{'':30} {' '.join(f'{title:>18}' for title in titles)}"
    )
    for said in told[0]:
        cells = []
        for column in range(len(titles)):
            base, beside = BASES[column]
            pairs = [(rows[said][column], rows[base][beside]) for rows in told]
            if not all(math.isfinite(value) for value, _ in pairs):
                cells.append(f"{'-':>18}")
            elif not all(math.isfinite(one) for _, one in pairs):
                cells.append(f"{median(value for value, _ in pairs):10.1f}{'':8}")
            else:
                over = ratio_of([value / one for value, one in pairs])
                within = "" if over.low is None else f" ({over.low:.2f} to {over.high:.2f})"
                cells.append(f"{median(value for value, _ in pairs):10.1f} x{over.mean:6.3f}{within}")
        print(f"{said:30} {' '.join(cells)}")
    print(f"{tasks.done} runs, {tasks.found} found, {perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
