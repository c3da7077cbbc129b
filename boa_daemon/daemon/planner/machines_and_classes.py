"""The machines and job classes that the settings and their files define."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from boa_daemon.backends.region_names import name_in
from boa_daemon.backends.slurm import Partition
from boa_daemon.daemon.planner.shared_gpus import check_memory, with_places
from boa_daemon.daemon.planner.slurm_classes import slurm_classes
from boa_daemon.daemon.settings.config import PartitionSettings, Settings
from boa_daemon.engines.engine_kinds import engine_kind
from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.catalog import Catalog, CatalogEntry
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.inputs.resource_needs import (
    GB_PER_GIB,
    NeedsRow,
    disk_gb_of,
    excluded_for,
    without_gpu_types,
)
from boa_daemon.tick.facts.ports import Provider
from policies.links.gpu_kinds import machines_by_kind, on_machines
from policies.model import InstanceType, JobClass, Phase
from policies.speedup import Amdahl

DEFAULT_CLASS = "default"
"""The class of all jobs without a class file: one GPU-hour of work, 95 % of it parallel."""


def site_catalog(settings: Settings, cloud: Provider | type[Provider] | None = None) -> Catalog:
    """Return the catalogue to plan with: of the cloud's own list prices, then the site's price file.

    A type that neither prices is planned at the shipped price; the cloud rents none without a price of its
    region.

    Raises:
        InputError: when the price file cannot be read, or is of another region.
    """
    file = getattr(settings.cloud, "prices", None)
    catalog = Catalog.load(*([file] if file else []), region=settings.cloud.region if file else "")
    catalog = with_partitions(catalog, settings).with_names(rented_types(settings))
    live = {} if cloud is None or isinstance(cloud, type) else cloud.list_prices()
    return catalog.at_prices(live, region=settings.cloud.region, source="the cloud's list prices")


def with_partitions(catalog: Catalog, settings: Settings) -> Catalog:
    """Return the catalogue with the partitions of Slurm as types, at their prices in plans."""
    own = {
        name: CatalogEntry(
            name=name,
            family=name,
            gpu_model=one.gpu,
            gpus=one.gpus,
            usd_per_hour=partition_of(name, one).planned_usd_per_hour,
            source="[cloud] partitions",
        )
        for name, one in settings.cloud.partitions.items()
    }
    return Catalog(entries={**catalog.entries, **own}) if own else catalog


def partition_of(name: str, said: PartitionSettings) -> Partition:
    """Return a partition as the settings describe it."""
    return Partition(name=name, usd_per_hour=said.usd_per_hour, most_nodes=said.nodes)


def rented_types(settings: Settings) -> dict[str, str]:
    """Return the machines of the settings by their names in plans: each type in each region."""
    home, types = settings.cloud.region, settings.cloud.instance_types
    regions = getattr(settings.cloud, "regions", None) or [home]
    ordered = [home, *(region for region in regions if region != home)]
    return {name_in(each, region, home=home): each for region in ordered for each in types}


def machines_of(settings: Settings, catalog: Catalog) -> dict[str, InstanceType]:
    """Return the machines that may be rented, by kind; machines that share a GPU model get separate kinds.

    Raises:
        InputError: when a type is unknown or has no price.
    """
    own: dict[str, InstanceType] = {}
    if settings.workload.classes is not None:
        own = dict(
            load_problem(settings.workload.classes, catalog=catalog, require_rates=False).instance_types
        )
    known = {machine.name: machine for machine in own.values()}
    twice = [name for name, times in Counter(settings.cloud.instance_types).items() if times > 1]
    if twice:
        raise InputError(
            f"[cloud] instance_types names {twice[0]} twice", setting=("cloud", "instance_types")
        )
    catalog = with_partitions(catalog, settings).with_names(rented_types(settings))
    rented = {name: known.get(name) or _listed(name, catalog) for name in rented_types(settings)}
    return machines_by_kind(with_places(rented, settings.cloud.gpu_places, catalog).values(), own)


def _listed(name: str, catalog: Catalog) -> InstanceType:
    """Return a machine of the catalogue; its error names the setting.

    Raises:
        InputError: when the type is unknown or has no price.
    """
    try:
        return catalog.instance_type(name)
    except InputError as error:
        error.setting = error.setting or ("cloud", "instance_types")
        raise


def check_prior_class(settings: Settings, stated: Mapping[str, JobClass]) -> None:
    """Refuse a `prior_class` that is not a class.

    Raises:
        InputError: when `prior_class` is not among the classes.
    """
    prior = settings.learning.prior_class
    if prior is not None and prior not in stated:
        raise InputError(
            f"[learning] prior_class: no class {prior!r} runs here",
            hint=did_you_mean(prior, stated),
            setting=("learning", "prior_class"),
        )


def disk_gb_of_nodes(
    settings: Settings,
    cloud: Provider | type[Provider],
    machines: Mapping[str, InstanceType],
    catalog: Catalog,
) -> dict[str, float | None]:
    """Return by GPU type the disk that jobs on a rented node share, in 10^9 bytes; None if not known."""
    root_gb = None
    if cloud.root_volume_gib is not None:
        root_gb = (getattr(settings.cloud, "volume_gib", None) or cloud.root_volume_gib) * GB_PER_GIB
    own_disks = engine_kind(settings.engine.name).on_rented_nodes
    return {
        kind: disk_gb_of(one.name, catalog, root_gb=root_gb, own_disks=own_disks)
        for kind, one in machines.items()
    }


def configured_classes(
    settings: Settings,
    machines: Mapping[str, InstanceType],
    catalog: Catalog,
    *,
    disk_gb: Mapping[str, float | None],
) -> tuple[dict[str, JobClass], frozenset[str], Mapping[str, NeedsRow]]:
    """Return the classes that can run on the machines, the names of those without a rate, and the needs.

    Raises:
        InputError: when no class can.
    """
    nodes = slurm_classes(settings, machines)
    if settings.workload.classes is None:
        if all(machine.places_per_gpu > 1 for machine in machines.values()):
            hint = "Name a class file in [workload] classes, with shares_gpu in it, or another machine"
            raise InputError(
                "[cloud] gpu_places: no class says that it may share GPUs",
                hint=hint,
                setting=("cloud", "gpu_places"),
            )
        phase = Phase(
            size_gpu_hours=1.0,
            speedups={
                name: Amdahl(parallel_fraction=0.95, max_gpus=64)
                for name, machine in machines.items()
                if machine.places_per_gpu == 1
            },
        )
        default = JobClass(name=DEFAULT_CLASS, phases=(phase,))
        return {DEFAULT_CLASS: default, **nodes}, frozenset({DEFAULT_CLASS, *nodes}), {}
    file = load_problem(settings.workload.classes, require_rates=False)
    found: dict[str, JobClass] = {}
    for stated in file.problem.classes:
        job_class = on_machines(stated, machines, file.instance_types)
        needs = file.needs.get(stated.name)
        check_memory(job_class, needs, machines)
        short = excluded_for(stated.name, needs, machines, catalog, disk_gb=disk_gb)
        within = without_gpu_types(job_class, short)
        if within is None:
            continue
        job_class = within
        phases = tuple(
            replace(
                phase, speedups={kind: curve for kind, curve in phase.speedups.items() if kind in machines}
            )
            for phase in job_class.phases
            if phase.speedups.keys() & machines.keys()
        )
        if len(phases) == len(job_class.phases):
            found[job_class.name] = replace(job_class, phases=phases)
    if not found:
        raise InputError(
            f"no class of {settings.workload.classes} runs on {', '.join(machines)}",
            hint="Name machines of its GPU types in [cloud] instance_types",
            setting=("workload", "classes"),
        )
    unrated = file.classes_without_rates & found.keys()
    return {**found, **nodes}, frozenset({*unrated, *nodes}), file.needs
