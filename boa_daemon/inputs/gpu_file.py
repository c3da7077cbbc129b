"""The `gpu_types` of a problem file: for each GPU type its price, and the machines that carry it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import Field

from boa_daemon.errors import InputError, MissingPrice
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.document_file import Document, KeyPath
from boa_daemon.inputs.schema import Gpus, Name, Positive, Strict
from boa_daemon.inputs.speedup_file import FORMS
from policies.kinds import kind_of
from policies.model import InstanceType

DEFAULT_GPU_TYPE = "gpu"
"""The only GPU type of a file without `gpu_types`; it costs 1, and budgets can only count GPUs."""
_DEFAULT_LINK_GIGABITS_PER_SECOND = 10.0


class GpuRow(Strict):
    """A price, or the machine with a price."""

    usd_per_gpu_hour: Positive | None = Field(default=None, description="dollars per hour of one GPU")
    instance_type: Name | None = Field(default=None, description="a type that `boa catalog` lists")
    instance_types: list[Name] | None = Field(
        default=None, min_length=1, description="several types with this GPU"
    )
    gpus_per_instance: Gpus | None = Field(default=None, description="GPUs in one machine")
    link_gigabits_per_second: Positive | None = Field(default=None, description="gigabits per second")
    places_per_gpu: int | None = Field(
        default=None,
        ge=2,
        le=8,
        description="also offer the machine with this many jobs on each GPU, to classes with shares_gpu",
    )


def read_machines(
    rows: Mapping[str, GpuRow | None] | None, *, document: Document, catalog: Catalog | None
) -> dict[str, InstanceType]:
    """Return the machine of each GPU type; None for `rows` means one type, `DEFAULT_GPU_TYPE`.

    Raises:
        InputError: when an instance type is unknown or carries other GPUs, with file and line.
        MissingPrice: when a type has no price.
    """
    if rows is None:
        only = InstanceType(name=DEFAULT_GPU_TYPE, gpu_type=DEFAULT_GPU_TYPE, gpus=1, usd_per_hour=1.0)
        return {DEFAULT_GPU_TYPE: only}
    if not rows:
        hint = "Name at least one type, or leave gpu_types out"
        raise document.error("gpu_types is empty", at=("gpu_types",), hint=hint)
    known = catalog or Catalog.load()
    found: dict[str, InstanceType] = {}
    for name, row in rows.items():
        for kind, machine in _machines(name, row or GpuRow(), document, known).items():
            if kind in found:
                problem = f"GPU type {kind!r} is given twice"
                raise document.error(problem, at=("gpu_types", name))
            found[kind] = machine
    return found


def _machines(name: str, row: GpuRow, document: Document, catalog: Catalog) -> dict[str, InstanceType]:
    """Return the machines of one row: the first has the GPU's name, each other one a name of its own."""
    if row.instance_types is None:
        machine = _machine(name, row, document, catalog)
        return {name: machine, **_with_places(name, machine, row.places_per_gpu)}
    if row.model_fields_set != {"instance_types"}:
        other = sorted(row.model_fields_set - {"instance_types"})[0]
        problem = f"GPU type {name!r} has {other} besides instance_types"
        hint = "A price of your own for one of several machines goes into a price file: --prices FILE"
        raise document.error(problem, at=("gpu_types", name, other), hint=hint)
    found: dict[str, InstanceType] = {}
    for number, one in enumerate(row.instance_types):
        at: KeyPath = ("gpu_types", name, "instance_types", number)
        if any(machine.name == one for machine in found.values()):
            raise document.error(f"GPU type {name!r} names {one} twice", at=at)
        kind = str(kind_of(name).on(one)) if found else name
        found[kind] = _rented_machine(kind, row, one, document, catalog, at=at)
    return found


def _with_places(name: str, machine: InstanceType, places: int | None) -> dict[str, InstanceType]:
    """Return a variant of a machine with several jobs on each GPU; empty unless the row asks for it."""
    if places is None:
        return {}
    kind = str(kind_of(name).on(machine.name, places=places))
    gpus = machine.gpus * places
    name = str(machine.machine_name._replace(places=places))
    return {kind: replace(machine, name=name, gpu_type=kind, gpus=gpus, places_per_gpu=places)}


def _machine(name: str, row: GpuRow, document: Document, catalog: Catalog) -> InstanceType:
    at = ("gpu_types", name)
    if name in FORMS:
        raise document.error(f"{name!r} is a form of speed-up and cannot name a GPU type", at=at)
    if row.instance_type is not None:
        there = ("gpu_types", name, "instance_type")
        return _rented_machine(name, row, row.instance_type, document, catalog, at=there)
    if row.usd_per_gpu_hour is None:
        known = catalog.default_instance_for(name)
        hint = "Add usd_per_gpu_hour" + (f", or instance_type: {known.name}" if known else "")
        raise document.error(f"GPU type {name!r} has no price", at=at, hint=hint, kind=MissingPrice)
    gpus = row.gpus_per_instance or 1
    return InstanceType(
        name=name if gpus == 1 else f"{name}-x{gpus}",
        gpu_type=name,
        gpus=gpus,
        usd_per_hour=row.usd_per_gpu_hour * gpus,
        link_gigabits_per_second=row.link_gigabits_per_second or _DEFAULT_LINK_GIGABITS_PER_SECOND,
    )


def _rented_machine(
    name: str, row: GpuRow, instance_type: str, document: Document, catalog: Catalog, *, at: KeyPath
) -> InstanceType:
    """Return a machine of the catalogue, at the file's price if it states one."""
    own_price = row.usd_per_gpu_hour
    try:
        entry = catalog.entry(instance_type)
        usd_per_hour = catalog.price_of(instance_type) if own_price is None else own_price * entry.gpus
    except InputError as error:
        raise document.error(error.problem, at=at, hint=error.hint, kind=type(error)) from None
    if (card := kind_of(name).card) != entry.gpu_type and catalog.default_instance_for(card) is not None:
        raise document.error(f"GPU type {name!r}: {instance_type} carries {entry.gpu_type} GPUs", at=at)
    if row.gpus_per_instance not in (None, entry.gpus):
        problem = f"{instance_type} has {entry.gpus} GPUs; got gpus_per_instance {row.gpus_per_instance}"
        raise document.error(problem, at=("gpu_types", name, "gpus_per_instance"))
    return InstanceType(
        name=instance_type,
        gpu_type=name,
        gpus=entry.gpus,
        usd_per_hour=usd_per_hour,
        link_gigabits_per_second=row.link_gigabits_per_second or entry.link_gigabits_per_second,
    )
