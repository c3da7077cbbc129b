"""Wiring: turn settings into a controller with its ports, and into a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from types import MappingProxyType

from boa_daemon.inputs.problem_file import ProblemFile, with_budget
from boa_daemon.inputs.speedup_file import limited
from boa_daemon.learning.policy_record import PolicyRecord
from boa_daemon.sim.bounds.boot_bound import THOROUGH, NodeSupply, SearchEffort, lower_bound_with_boots_hours
from boa_daemon.sim.covered_cloud import CoveredCloud
from boa_daemon.sim.learning_policy import LearningPolicy
from boa_daemon.sim.simulated_workload import a_workload, in_bursts
from boa_daemon.sim.simulation_result import Simulation, summarize_run
from boa_daemon.sim.spot_market import interrupted
from boa_daemon.sim.stopped_nodes import START_SECONDS
from boa_daemon.sim.world import SimulatedWorld
from boa_daemon.sim.world_settings import WorldSettings, of_type
from boa_daemon.sim.wrong_beliefs import believed_problem
from boa_daemon.store.memory import MemoryStore
from boa_daemon.tick.decide.controller import Controller, Ports
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.limits import Caps, fixed_usd
from boa_daemon.tick.facts.ports import Cloud
from boa_daemon.tick.facts.state import IDLE_HOLD_SECONDS, Rules, WarmPool
from boa_daemon.tick.money.commitments import SiteCommitments
from boa_daemon.traces.rates import at_mean_scale, with_rates
from boa_daemon.traces.reader import Trace
from boa_daemon.units import SECONDS_PER_HOUR, dollars
from policies.model import Budget, InstanceType, Phase, Problem
from policies.online.best_effort import Account, Shortfall
from policies.registry import (
    DEFAULT_KAPPA,
    BuiltPolicy,
    PolicyOptions,
    Site,
    build_policy,
    find_policy,
    shortfall_of_site,
)
from policies.site import with_boots


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings:
    """A run: a trace, the classes and machines, a policy under a budget, and the world's constants.

    Classes in `sized_by_trace` are planned at the mean size of their jobs, the others at their stated size.
    The policy plans for `planning_budget`, which is the budget unless it is set lower to leave room for what
    no plan counts: idle or partly used nodes. A policy that `learns` begins with the believed classes and
    corrects them as the daemon does; if it believes in more load than the budget pays for, it makes a best
    effort as the daemon does. During `outages`, pairs of instants, nothing can be launched. `world` is
    everything else that is random or scarce; without boots in it, each boot takes `boot_seconds`. With
    `best_effort` a budget below the least feasible spend is not refused, but spent on as much as it pays for.
    At most `warm_pool_nodes` are kept stopped; a start takes `start_seconds`. `commitments` are paid in any
    case, and the policy plans, paces and counts money with them as the daemon does; the world's own bills
    stay those on demand (`PreparedRun.spent_usd` has both).
    """

    trace: Trace
    problem: Problem
    instance_types: Mapping[str, InstanceType]
    budget: Budget
    policy: str = "boa"
    options: PolicyOptions = field(default_factory=PolicyOptions)
    placer: str = "lwf"
    kappa: float = DEFAULT_KAPPA
    seed: int = 0
    boot_seconds: float = 180.0
    idle_hold_seconds: float = IDLE_HOLD_SECONDS
    max_nodes: int | None = None
    links_in_order: bool = True
    learns: bool = False
    planning_budget: Budget | None = None
    sized_by_trace: frozenset[str] = frozenset()
    outages: tuple[tuple[float, float], ...] = ()
    world: WorldSettings = field(default_factory=WorldSettings)
    best_effort: bool = False
    warm_pool_nodes: int = 0
    start_seconds: float = START_SECONDS
    commitments: SiteCommitments = field(default_factory=SiteCommitments)

    @property
    def rules(self) -> Rules:
        """The site's rules that follow from the settings."""
        return Rules(
            instance_types=self.instance_types,
            idle_hold_seconds=self.idle_hold_seconds,
            max_nodes=self.max_nodes_with_quotas,
            orders_links=self.has_networks and self.links_in_order,
            warm_pool=self.warm_pool,
            caps=Caps(fixed=self.commitments.fixed) if self.commitments.levels else None,
        )

    @property
    def warm_pool(self) -> WarmPool | None:
        """The pool of stopped nodes; None without one."""
        if not self.warm_pool_nodes:
            return None
        return WarmPool(nodes=self.warm_pool_nodes, start_seconds=self.start_seconds)

    @property
    def planned_boot_seconds(self) -> float:
        """The boot time that the policy assumes: the mean over rentable types, unless beliefs set another."""
        if self.world.beliefs.boot_seconds is not None:
            return self.world.beliefs.boot_seconds
        kinds = self.instance_types.values()
        means = [of_type(self.world.boots, kind.name, kind.gpu_type) for kind in kinds]
        return fmean(self.boot_seconds if boot is None else boot.mean_seconds for boot in means)

    @property
    def least_boot_seconds(self) -> float:
        """The least time of any boot or start; zero if boots are drawn from a distribution."""
        kinds = self.instance_types.values()
        boots = [of_type(self.world.boots, kind.name, kind.gpu_type) for kind in kinds]
        least = min(
            self.boot_seconds if boot is None else 0.0 if boot.sigma else boot.median_seconds
            for boot in boots
        )
        return min(least, self.start_seconds) if self.warm_pool_nodes else least

    @property
    def max_nodes_with_quotas(self) -> int | None:
        """The cap on nodes, or the sum of the quotas if every type has one and the sum is less."""
        kinds = self.instance_types.values()
        quotas = [of_type(self.world.quotas, kind.name, kind.gpu_type) for kind in kinds]
        in_all = None if None in quotas else sum(quota for quota in quotas if quota is not None)
        return min((limit for limit in (self.max_nodes, in_all) if limit is not None), default=None)

    @property
    def most_nodes(self) -> dict[str, int | None]:
        """The most nodes that one job could ever hold, by GPU type: by cap, quotas and a zone's stock."""
        by_type: dict[str, int | None] = {}
        for name, kind in self.instance_types.items():
            limits = (self.max_nodes, self.world.most_nodes(kind.name, kind.gpu_type))
            by_type[name] = min((limit for limit in limits if limit is not None), default=None)
        return by_type

    @property
    def has_networks(self) -> bool:
        """Whether any class says what it sends between nodes, so that links matter."""
        return any(job_class.network is not None for job_class in self.problem.classes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A world at its first instant, and the controller that will drive it."""

    settings: SimulationSettings
    policy: BuiltPolicy
    world: SimulatedWorld
    controller: Controller
    shortfall: Shortfall | None = None

    def finish(self, on_tick: Callable[[Decision], None] | None = None) -> Simulation:
        """Run to the end and return the figures; `on_tick` sees every decision."""
        began = time.perf_counter()
        self.world.run(self.controller, self._watched(on_tick))
        return summarize_run(
            self.world,
            policy=self.settings.policy,
            budget=self.settings.budget,
            problem=self._at_least_prices(),
            built=self.policy,
            shortfall=self.shortfall,
            wall_seconds=time.perf_counter() - began,
        )

    @property
    def spent_usd(self) -> float:
        """Dollars of a finished run: what is paid in any case, and what nodes cost beside it."""
        begin, end = self.world.started_at, self.world.clock.now()
        nodes = self.controller.ports.store.settled_micro_dollars()
        return dollars(nodes) + fixed_usd(self.settings.commitments.fixed, begin, end)

    def _watched(self, on_tick: Callable[[Decision], None] | None) -> Callable[[Decision], None] | None:
        """Return the observer of every decision: the policy if it learns, and then `on_tick`."""
        taught = self.controller.allocator
        if not (self.settings.learns and isinstance(taught, LearningPolicy)):
            return on_tick

        def watch(decision: Decision) -> None:
            taught.watch(decision)
            if on_tick is not None:
                on_tick(decision)

        return watch

    def with_boot_bound(self, result: Simulation, *, effort: SearchEffort = THOROUGH) -> Simulation:
        """Return the figures of the run with the lower bound that includes boots, whole nodes and the cap."""
        settings = self.settings
        renting = NodeSupply(
            instance_types=settings.instance_types,
            boot_hours=settings.least_boot_seconds / SECONDS_PER_HOUR,
            max_nodes=settings.max_nodes_with_quotas,
        )
        spent, problem = self.world.cloud.meter.most_usd, self._at_least_prices()
        hours = lower_bound_with_boots_hours(settings.trace, problem, spent, renting, effort=effort)
        return replace(result, lower_bound_with_boots_mean_jct_hours=hours)

    def _at_least_prices(self) -> Problem:
        """Return the problem at the least prices of the run, so that the bound holds for any prices paid."""
        kinds = self.settings.instance_types
        least = self.world.shelves.least_prices(self.world.clock.now())
        return _at_prices(
            self.settings.problem,
            {name: least[kind.name] / kind.usd_per_hour for name, kind in kinds.items()},
        )


def settings_for(file: ProblemFile, trace: Trace, budget: Budget) -> SimulationSettings:
    """Return the settings of a run of the BOA policy; classes without a rate get that of the trace.

    If GPUs are counted, a node costs its GPUs: money is then GPU-hours at price 1.
    """
    file = with_budget(file, budget)
    machines = {
        name: replace(kind, usd_per_hour=float(kind.gpus)) if budget.unit == "gpus" else kind
        for name, kind in file.instance_types.items()
    }
    classes = with_rates(file.problem.classes, trace, missing=file.classes_without_rates)
    return SimulationSettings(
        trace=trace,
        problem=replace(file.problem, classes=classes),
        instance_types=MappingProxyType(machines),
        budget=budget,
        sized_by_trace=file.classes_without_rates,
    )


def site_of(settings: SimulationSettings) -> Site:
    """Return the site to plan for: boots in every start-up, and no widths that the cap cannot hold."""
    classes = at_mean_scale(settings.problem.classes, settings.trace, only=settings.sized_by_trace)
    planned = believed_problem(replace(settings.problem, classes=classes), settings.world.beliefs)
    planned = interrupted(
        planned, settings.instance_types, settings.world, boot_seconds=settings.boot_seconds
    )
    # A plan with both markets already contains the prices of both.
    on_spot = any(machine.kind.is_spot for machine in settings.instance_types.values())
    fraction = 1.0 if on_spot else settings.world.mean_price_fraction
    return Site(
        problem=_at_prices(
            with_boots(_within_nodes(planned, settings), settings.planned_boot_seconds / SECONDS_PER_HOUR),
            dict.fromkeys(settings.instance_types, fraction),
        ),
        budget=settings.planning_budget or settings.budget,
        instance_types={
            name: kind if fraction == 1.0 else replace(kind, usd_per_hour=kind.usd_per_hour * fraction)
            for name, kind in settings.instance_types.items()
        },
        boot_hours=settings.planned_boot_seconds / SECONDS_PER_HOUR,
        max_nodes=settings.max_nodes_with_quotas,
    )


def prepare(settings: SimulationSettings) -> PreparedRun:
    """Return a run that is ready to start.

    Raises:
        InputError: when a job of the trace cannot run on anything that may be rented.
        PolicyError: when the policy does not exist or the budget is too small for it.
    """
    if settings.world.bursts:
        moved = in_bursts(settings.trace, settings.world.bursts, seed=settings.seed)
        settings = replace(settings, trace=moved)
    workload = a_workload(
        settings.trace, settings.problem.classes, settings.instance_types, most_nodes=settings.most_nodes
    )
    entry = find_policy(settings.policy)
    record, short = _record_of(settings)
    policy = record.built
    world = SimulatedWorld(
        workload,
        tuple(settings.instance_types.values()),
        settings.world,
        seed=settings.seed,
        boot_seconds=settings.boot_seconds,
        fresh_progress=entry.reads_progress or settings.has_networks,
        links_in_order=settings.links_in_order,
        outages=settings.outages,
        start_seconds=settings.start_seconds,
    )
    cloud: Cloud = world.api
    if settings.commitments.levels:
        cloud = CoveredCloud(world.api, world.clock, settings.commitments)
    ports = Ports(
        clock=world.clock,
        cloud=cloud,
        jobs=world.jobs,
        engine=world.jobs,
        # Only rules against flapping read earlier acts, and no run has such rules.
        store=MemoryStore(acts=0),
        links=world.jobs if settings.has_networks else None,
    )
    controller = record.controller(ports)
    controller = replace(
        controller,
        is_job_by_job=entry.is_job_by_job and short is None and not settings.commitments.levels,
        is_round_by_round=not settings.learns,
    )
    if settings.learns:
        learning = LearningPolicy(
            settings.policy, record.site, settings.options, jobs=world.jobs, seed=settings.seed
        )
        controller = replace(controller, allocator=learning)
    return PreparedRun(settings=settings, policy=policy, world=world, controller=controller, shortfall=short)


def check_budget(settings: SimulationSettings) -> None:
    """Refuse a budget that no plan of an optimum meets, unless a best effort is requested.

    A paced policy would run the cheapest widths and spend more.

    Raises:
        InfeasibleBudget: naming the least sufficient budget.
    """
    if find_policy(settings.policy).kind == "optimum" and not (settings.best_effort or settings.learns):
        build_policy("boa", site_of(settings), PolicyOptions())


def _record_of(settings: SimulationSettings) -> tuple[PolicyRecord, Shortfall | None]:
    """Return the policy, and by how much the budget falls short if a best effort is made."""
    last = settings.trace.jobs[-1].arrived_at_seconds
    site = settings.commitments.under(site_of(settings), last)
    short = shortfall_of_site(site) if settings.best_effort else None
    if short is not None and not short.is_short:
        short = None
    budget = settings.planning_budget or settings.budget
    record = PolicyRecord(
        name=settings.policy,
        options=settings.options,
        placer=settings.placer,
        site=site,
        rules=settings.rules,
        # An account without an opening instant is as old as the ledger.
        best_effort=None if short is None else Account(budget=budget.amount),
        kappa=settings.kappa,
    )
    return record, short


def simulate(settings: SimulationSettings, on_tick: Callable[[Decision], None] | None = None) -> Simulation:
    """Return the figures of one run."""
    return prepare(settings).finish(on_tick)


def _at_prices(problem: Problem, fractions: Mapping[str, float]) -> Problem:
    """Return the problem with the price of each GPU type times a factor.

    If GPUs are counted, money is GPU-hours at price 1, to which a discount applies all the same.
    """
    if all(fraction == 1.0 for fraction in fractions.values()):
        return problem
    gpu_types = tuple(
        replace(gpu, usd_per_gpu_hour=problem.price_of(gpu.name) * fractions.get(gpu.name, 1.0))
        for gpu in problem.gpu_types
    )
    return replace(problem, gpu_types=gpu_types, budget_unit="usd_per_hour")


def _within_nodes(problem: Problem, settings: SimulationSettings) -> Problem:
    """Return the problem without the widths that no rentable cluster can ever hold."""
    most_nodes = settings.most_nodes
    if all(nodes is None for nodes in most_nodes.values()):
        return problem
    classes = tuple(
        replace(
            job_class, phases=tuple(_phase_within(phase, settings, most_nodes) for phase in job_class.phases)
        )
        for job_class in problem.classes
    )
    return replace(problem, classes=classes)


def _phase_within(phase: Phase, settings: SimulationSettings, most_nodes: Mapping[str, int | None]) -> Phase:
    """Return a phase without the widths that exceed its type's nodes."""
    speedups = {}
    for name, whole in phase.speedups.items():
        nodes = most_nodes.get(name)
        most_gpus = None if nodes is None else nodes * settings.instance_types[name].whole_gpus
        # A type that cannot be rented at all is removed from the planner's table, not only narrowed.
        kept = {} if most_gpus == 0 else limited({name: whole}, min_gpus=None, max_gpus=most_gpus)
        speedups.update(kept)
    return replace(phase, speedups=speedups)
