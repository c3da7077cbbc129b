"""The daemon's planning problem: machines, classes, and the policy under the budget.

A job with limits on its width is planned as a class of its own, `vision[2-8]`, with its class's curves at
those widths only. So a policy never sees a width that the job would refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from boa_daemon.daemon.money.site_commitments import site_commitments
from boa_daemon.daemon.money.standing_costs import standing_of
from boa_daemon.daemon.planner.class_widths import narrowest, phases_within
from boa_daemon.daemon.planner.machines_and_classes import (
    check_prior_class,
    configured_classes,
    disk_gb_of_nodes,
    machines_of,
    site_catalog,
)
from boa_daemon.daemon.planner.planned_markets import on_planned_markets, with_learnt_spot, with_spot_machines
from boa_daemon.daemon.planner.tick_rules import rules_of
from boa_daemon.daemon.planner.warm_pool import warm_pool_of
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.engines.engine_kinds import engine_kind
from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.resource_needs import excluded_for, lack_on_node, without_gpu_types
from boa_daemon.job.container import RUN_AS_USER, NoContainers, usable_tool, why_unlimited
from boa_daemon.job.run_options import run_options
from boa_daemon.learning.beliefs import PlannedFigures
from boa_daemon.learning.boot_times import BootTimes
from boa_daemon.learning.learning_step import LearntClasses
from boa_daemon.learning.link_estimates import LinkEstimate, derived_kinds, link_estimate, with_link
from boa_daemon.learning.policy_record import PolicyRecord
from boa_daemon.learning.spot_history import SpotHistory
from boa_daemon.tick.facts.offers import Extras
from boa_daemon.tick.facts.ports import Provider
from boa_daemon.tick.facts.state import Rules, Transfer
from boa_daemon.units import SECONDS_PER_HOUR
from policies.model import Budget, JobClass, Width
from policies.optimum.interruptions import CheckpointSchedule
from policies.registry import PolicyOptions, Site, find_policy
from policies.site import with_boots
from policies.speedup import Table

MOST_CLASSES = 1000
"""Largest number of classes; above it no unconfigured class is accepted, as when each job has its own."""


class Planner(LearntClasses):
    """The site's classes and machines, and the policy over the classes in use.

    `cloud` tells the boot time of its nodes, their disks, whether it has a spot market, and whether it is
    this machine.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        cloud: Provider | type[Provider] = Provider,
        catalog: Catalog | None = None,
    ) -> None:
        self.settings, self._cloud = settings, cloud
        self._boot_seconds = settings.cloud.boot_seconds if cloud.boot_seconds is None else cloud.boot_seconds
        self.boots: BootTimes | None = None
        self.lower_caps: Callable[[], Mapping[str, float]] = dict
        self.late_tick_seconds: Callable[[], float] = lambda: 0.0
        """How far apart ticks have come lately, in seconds."""
        self.standing_of_cloud: Callable[[], Extras] = tuple
        self.transfers_of_cloud: Callable[[], Mapping[str, Transfer]] = dict
        """What the cloud bills without a node, by kind, in addition to the settings."""
        self.spot = SpotHistory()
        self._catalog = catalog or site_catalog(settings, cloud)
        self.on_demand = machines_of(settings, self._catalog)
        self.paid = site_commitments(settings, tuple(self.on_demand.values()), self._catalog)
        self.is_on_both = settings.cloud.market == "planned" and cloud.rents_spot
        self.machines = with_spot_machines(self.on_demand) if self.is_on_both else self.on_demand
        self._not_on_spot: set[str] = set()
        self._disk_gb = disk_gb_of_nodes(settings, cloud, self.on_demand, self._catalog)
        stated, unstated, self._needs = configured_classes(
            settings, self.on_demand, self._catalog, disk_gb=self._disk_gb
        )
        learning = settings.learning
        super().__init__(stated, unstated=unstated, rates=learning.rates, sizes=learning.sizes)
        self._plan_by({name: self.measured(one) for name, one in stated.items()})
        check_prior_class(settings, stated)

    def take_active(self, class_name: str, content: Mapping[str, Any]) -> None:
        """Plan for a job that was accepted under other settings, under the class name that it got then.

        A job that no longer fits within the cap on instances is planned too, and waits.

        Raises:
            InputError: when there is no such class.
        """
        try:
            found = self.class_for(content)
        except InputError:
            found = self.class_for(content, within_instances=False)
        if class_name not in self.planned:
            self._all_stated[class_name] = replace(self._all_stated[found.name], name=class_name)
            if found.name in self._not_on_spot:
                self._not_on_spot.add(class_name)
            self.planned[class_name] = replace(found, name=class_name)

    def class_for(self, content: Mapping[str, Any], *, within_instances: bool = True) -> JobClass:
        """Return the class that a job is planned by, including its limits on width.

        Raises:
            InputError: when there is no such class, or no width is left.
        """
        name, least, most = content["class"], content["min_gpus"], content["max_gpus"]
        batch = content.get("batch")
        base = self._adopted(name)
        if base is None:
            hint = did_you_mean(name, self.classes)
            raise InputError(f"unknown class {name!r}", hint=hint)
        if within_instances:
            most = self._within_instances(base, most)
        # A job not known to be elastic runs at the narrowest width: a wider one may run independent copies.
        if not content.get("elastic"):
            narrow = narrowest(base, least, batch)
            if narrow is not None and (most is None or narrow <= most):
                least = most = narrow
        stated, short = base, self.short_for(content)
        base = without_gpu_types(base, short) or base
        if base is stated and short:
            said = "; ".join(f"{self.on_demand[kind].name}: {why}" for kind, why in short.items())
            hint = "Name a larger type in [cloud] instance_types, or ask for less"
            raise InputError(f"no machine has enough for it: {said}", hint=hint)
        variant = replace(base, phases=phases_within(base, least, most, batch))
        # A job that is not elastic might lose its work on a spot interruption.
        stays = self.is_on_both and not content.get("elastic")
        if variant == stated and not stays:
            return self.classes[name]
        left_out = "".join(f"|not {self.on_demand[kind].name}" for kind in short)
        split = f"/{batch}" if batch else ""
        label = f"{least or 1}-{most or ''}{split}{'|on-demand' if stays else ''}{left_out}"
        variant = replace(variant, name=f"{name}[{label}]")
        if stays:
            self._not_on_spot.add(variant.name)
        if variant.name not in self.planned:
            self._all_stated[variant.name] = variant
            self.planned[variant.name] = self.measured(variant)
        return self.planned[variant.name]

    @property
    def catalog(self) -> Catalog:
        """The catalogue that plans use."""
        return self._catalog

    def class_on_nodes(
        self, name: str, machine: str, *, least: int, most: int, label: str
    ) -> tuple[JobClass, int]:
        """Return the class of a job of Slurm, which has whole nodes of one machine, and the GPUs of a node.

        `least` and `most` limit its GPUs; `label` tells such classes apart.

        Raises:
            InputError: when there is no such class, or it cannot have whole nodes of the machine.
        """
        base = self._adopted(name)
        if base is None:
            raise InputError(f"unknown class {name!r}", hint=did_you_mean(name, self.classes))
        kind, gpus = next((kind, one.gpus) for kind, one in self.on_demand.items() if one.name == machine)
        most = self._within_instances(base, most) or most
        found = replace(base, name=f"{name}[{label} {least}-{most}]")
        if found.name in self.planned:
            return self.planned[found.name], gpus
        phases = []
        for phase in base.phases:
            curve = phase.speedups.get(kind)
            given = () if curve is None else tuple(int(width) for width in curve.whole_widths())
            widths = tuple(width for width in given if width % gpus == 0 and least <= width <= most)
            if curve is None or not widths:
                raise InputError(
                    f"class {name!r} has no width from {least} to {most} GPUs in whole nodes of {machine}"
                )
            speeds = tuple(float(curve.speed_at(width)) for width in widths)
            phases.append(replace(phase, speedups={kind: Table(gpus=widths, speeds=speeds)}))
        found = replace(found, phases=tuple(phases))
        self._not_on_spot.add(found.name)
        self._all_stated[found.name] = found
        self.planned[found.name] = self.measured(found)
        return self.planned[found.name], gpus

    def is_priced_otherwise(self, prices: Mapping[str, float]) -> bool:
        """Return whether the cloud's list prices are more than 0.01 % off those of the plan."""
        entries = self._catalog.entries
        return any(
            name in entries and abs((entries[name].usd_per_hour or 0.0) - usd) > 1e-4 * usd
            for name, usd in prices.items()
        )

    def short_for(self, content: Mapping[str, Any]) -> dict[str, str]:
        """Return by GPU type what machines lack for the cores and memory that a job may use on a node."""
        limits = run_options(content)
        if not limits.has_limits or self._cloud.is_this_machine:
            return {}
        lacks = {
            kind: lack_on_node(limits, machine, self._catalog) for kind, machine in self.on_demand.items()
        }
        return {kind: why for kind, why in lacks.items() if why}

    def unenforced(self, content: Mapping[str, Any]) -> str:
        """Return a note if this machine cannot enforce a job's limits."""
        is_here = engine_kind(self.settings.engine.name).on_this_machine
        if not (run_options(content).has_limits and is_here):
            return ""
        why = self._why_unlimited_in_image if content.get("image") else self._why_unlimited
        return f"Its {why}; in an `image` that {' or '.join(RUN_AS_USER)} runs they are." if why else ""

    @cached_property
    def _why_unlimited(self) -> str:
        """Why this machine cannot enforce limits; cached, because asking systemd starts a process."""
        return why_unlimited()

    @cached_property
    def _why_unlimited_in_image(self) -> str:
        """Why this machine cannot enforce limits in containers; cached."""
        try:
            return why_unlimited(usable_tool())
        except NoContainers:  # Such a job fails with its own message.
            return ""

    def lacks(self, content: Mapping[str, Any]) -> list[str]:
        """Return sentences on the machines that a submission is not planned on, from the settings alone.

        Empty for a class that the settings do not know.

        Raises:
            InputError: when no machine has enough, or no width is left.
        """
        if content["class"] not in self.stated:
            return []
        return self.left_out(self.class_for(content).name, content)

    def left_out(self, class_name: str, content: Mapping[str, Any]) -> list[str]:
        """Return sentences on the machines that are too small for a job, with the reasons."""
        base = class_name.partition("[")[0]
        of_class = excluded_for(
            base, self._needs.get(base), self.on_demand, self._catalog, disk_gb=self._disk_gb
        )
        short = self.short_for(content).items()
        return [
            *(f"It is not planned on {self.on_demand[kind].name}: {why}." for kind, why in short),
            *(f"{one.sentence[0].upper()}{one.sentence[1:]}." for one in of_class.values()),
        ]

    def needs_of(self, class_name: str) -> dict[str, float]:
        """Return the needs per GPU of a class, by the keys of its class file."""
        needs = self._needs.get(class_name)
        return {} if needs is None else needs.model_dump(exclude_none=True)

    def _adopted(self, name: str) -> JobClass | None:
        """Return a configured class; an unknown one becomes a copy of the prior class, if one is set."""
        prior = self.settings.learning.prior_class
        found = self.stated.get(name)
        if (
            found is None
            and prior is not None
            and len(self.stated) < MOST_CLASSES
            and not {"[", "|"} & set(name)
        ):
            found = replace(self.stated[prior], name=name)
            self.stated[name] = self._all_stated[name] = found
            self.unstated |= {name}
            self.planned[name] = self.classes[name] = self.measured(found)
        return found

    def adopt(self, names: Iterable[str]) -> None:
        """Plan for classes that earlier jobs named, as copies of the prior class."""
        for name in names:
            self._adopted(name)

    @property
    def kept_figures(self) -> dict[str, tuple[float, float, float, float]]:
        """Figures to store by class: planned jobs per hour and size factor, configured rate and size."""
        return {
            name: (one.per_hour, one.size_factor, stated.arrivals_per_hour, stated.size_gpu_hours)
            for name, one in self.figures.items()
            if (stated := self.stated.get(name)) is not None
        }

    def take_up(self, kept: Mapping[str, Sequence[float]]) -> None:
        """Plan by an earlier process's figures, for classes whose configured rate and size are unchanged."""
        self.adopt(list(kept))
        found = {}
        for name, (per_hour, factor, rate, size) in kept.items():
            stated = self.stated.get(name)
            if stated is not None and (stated.arrivals_per_hour, stated.size_gpu_hours) == (rate, size):
                found[name] = PlannedFigures(per_hour=per_hour, size_factor=factor)
        learning = self.settings.learning
        if learning.rates and learning.sizes:
            self.take_back(found)

    def measured(self, stated: JobClass) -> JobClass:
        """Return a class or variant with the measured curves of its class, on the site's machines."""
        base = self.stated[stated.name.partition("[")[0]]
        found = super().measured(stated)
        if link := self.link_of(base):
            seen = {curve.gpu_type for curve in self.curves.values() if curve.class_name == base.name}
            found = with_link(found, link, derived_kinds(base, self.on_demand) - seen, self.on_demand)
        return found if stated.name in self._not_on_spot else on_planned_markets(found, self.machines)

    def link_of(self, stated: JobClass) -> LinkEstimate | None:
        """Return the measured network estimate of a class."""
        return link_estimate(stated, self.curves.values(), self.on_demand)

    def _plan_by(self, found: dict[str, JobClass]) -> None:
        super()._plan_by(found)
        self._speeds: dict[tuple[str, int, Width], float] = {}

    def _within_instances(self, base: JobClass, most: int | None) -> int | None:
        """Return the largest width that fits within the cap on instances."""
        instances = self.settings.budget.max_instances
        if instances is None:
            return most
        gpus = max(machine.whole_gpus for machine in self.machines.values()) * instances
        widest = max(curve.max_gpus for phase in base.phases for curve in phase.speedups.values())
        if widest <= gpus:
            return most
        return gpus if most is None else min(most, gpus)

    @property
    def load_over_stated(self) -> float:
        """Planned work per hour over configured work per hour, for classes with a configured rate."""
        names = [name for name in list(self.stated) if name not in self.unstated]
        if not names:
            return 1.0
        planned, stated = (
            sum(found[name].arrivals_per_hour * found[name].size_gpu_hours for name in names)
            for found in (self.classes, self.stated)
        )
        return planned / stated

    @property
    def explores(self) -> bool:
        """Whether jobs may try other widths: only under policies that choose widths, not numbers of nodes."""
        return self.settings.workload.explore_fraction > 0 and (
            find_policy(self.settings.workload.policy).kind == "optimum"
        )

    def class_of(self, name: str) -> JobClass | None:
        """Return a class or a variant by its name."""
        return self.planned.get(name)

    def record(self, in_use: Iterable[str], *, is_for_replay: bool = False) -> PolicyRecord:
        """Return the policy over the base classes and the variants in use, which share an arrival rate.

        Spot nodes have their measured price and value in the plan; the rules use the highest possible price.
        For a replay, spot is as fast and as expensive as on demand, because the replay simulates its own spot
        market.
        """
        variants = {name for name in in_use if name in self.planned} | set(self.classes)
        kin: dict[str, int] = {}
        for name in variants:
            kin[name.partition("[")[0]] = kin.get(name.partition("[")[0], 0) + 1
        classes = tuple(
            replace(found, arrivals_per_hour=found.arrivals_per_hour / kin[name.partition("[")[0]])
            for name in sorted(variants)
            if (found := self.planned[name])
        )
        workload, money = self.settings.workload, self.settings.budget
        boot_seconds = self._boot_seconds
        if self.boots is not None:
            types = [machine.name for machine in self.on_demand.values()]
            boot_seconds = self.boots.planned_seconds(types, otherwise=boot_seconds)
        boot_hours = boot_seconds / SECONDS_PER_HOUR
        spot = None if is_for_replay else self.spot
        problem, machines = with_learnt_spot(
            classes, self.machines, spot, boot_hours=boot_hours, saves=self._saves
        )
        options = PolicyOptions()
        if "window_hours" in find_policy(workload.policy).options:
            options = PolicyOptions(
                window_hours=money.window_hours, period=money.period, tolerance=money.tolerance
            )
        return PolicyRecord(
            name=workload.policy,
            options=options,
            placer=workload.placer,
            kappa=workload.kappa,
            site=Site(
                problem=with_boots(problem, boot_hours),
                budget=Budget(amount=money.mean_usd_per_hour),
                instance_types=machines,
                boot_hours=boot_hours,
                is_monthly=money.usd_per_month is not None,
                load_over_stated=self.load_over_stated,
                is_load_stated=len(self.unstated) < len(self.stated),
                rhythm=self.rhythm,
            ),
            rules=self.rules(),
        )

    @property
    def _saves(self) -> CheckpointSchedule:
        """The checkpoint schedule that plans assume on spot nodes."""
        learning = self.settings.learning
        return CheckpointSchedule(
            every_hours=learning.save_minutes / 60.0, cost_hours=learning.save_seconds / SECONDS_PER_HOUR
        )

    def speed(self, name: str, phase: int, width: Width) -> float:
        """Return the speed of a class in a phase at a width; 0 when it cannot run there."""
        key = (name, phase, width)
        known = self._speeds.get(key)
        if known is None:
            job_class = self.planned.get(name)
            curve = (
                None if job_class is None else job_class.phases[phase].speedups.get(str(width.kind.on_demand))
            )
            known = self._speeds[key] = 0.0 if curve is None else float(curve.speed_at(width.gpus))
        return known

    def standing(self) -> Extras:
        """Return the site's standing costs, dollars per hour without any node, by kind."""
        return (*standing_of(self.settings.budget), *self.standing_of_cloud())

    def rules(self) -> Rules:
        """Return the rules of the site's ticks; caps that were lowered by order hold."""
        return rules_of(
            self.settings,
            self.machines,
            warm_pool=warm_pool_of(self.settings, self._boot_seconds, self.boots),
            standing_usd_per_hour=sum(usd for _, usd in self.standing()),
            fixed=self.paid.fixed,
            transfers=self._transfers(),
            lower_caps=self.lower_caps(),
            late_tick_seconds=self.late_tick_seconds(),
        )

    def _transfers(self) -> Mapping[str, Transfer]:
        """Return what it takes to bring checkpoints to far machines, by GPU type."""
        far = self.transfers_of_cloud()
        named = {kind: str(machine.machine_name.on_demand) for kind, machine in self.machines.items() if far}
        return {kind: far[name] for kind, name in named.items() if name in far}
