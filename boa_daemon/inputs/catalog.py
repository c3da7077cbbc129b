"""The catalogue: instance types that the cloud rents, with GPUs, prices and the day of each price.

The shipped rows (`data/instance_types.csv`) go stale; the user's price file overrides them. A type without a
price raises `MissingPrice`, because a price of zero would be wrong. Planning prices are per GPU-hour: whole
instances are rented, so a GPU costs its share of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from boa_daemon.errors import InputError, MissingPrice, did_you_mean
from boa_daemon.inputs.document_file import Document, read_document
from boa_daemon.inputs.price_age import SPOT_SOURCE
from boa_daemon.inputs.price_file import (
    PriceFile,
    TypeRow,
    TypeStatus,
    read_price_file,
    read_rows,
    row_path,
)
from policies.model import InstanceType
from policies.money_text import price_in_dollars

_EVERY_TYPE = "*"
HOME_REGION = "us-east-1"
"""The region of the shipped prices, and of a price file that does not name its region."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """An instance type in the catalogue; `usd_per_hour` is None if no price is known.

    `as_of` is the day of the price and `specs_as_of` that of the rest, both ISO dates, empty if unknown.
    Quotas are Service Quotas codes, counted in `vcpus`. The instance store is the machine's own NVMe disks,
    `instance_store_gb` in all: they cost nothing, and their content is lost when the instance ends.
    """

    name: str
    family: str
    gpu_model: str
    gpus: int
    usd_per_hour: float | None
    gpu_memory_mib: int = 0
    vcpus: int = 0
    memory_mib: int = 0
    link_gigabits_per_second: float = 10.0
    efa_interfaces: int = 0
    instance_store_disks: int = 0
    instance_store_gb: int = 0
    spot_usd_per_hour_min: float | None = None
    spot_usd_per_hour_max: float | None = None
    spot_as_of: str = ""
    vcpu_quota_on_demand: str = ""
    vcpu_quota_spot: str = ""
    zones: tuple[str, ...] = ()
    status: TypeStatus = "current"
    as_of: str = ""
    specs_as_of: str = ""
    source: str = ""
    region: str = ""
    """The region of the price; empty if a user's file does not say it."""

    @property
    def gpu_type(self) -> str:
        """The short name of the GPU: ``a100`` for ``NVIDIA A100``."""
        return self.gpu_model.lower().removeprefix("nvidia ").replace(" ", "-")

    @property
    def usd_per_gpu_hour(self) -> float | None:
        """Planning price: the instance's price divided by its GPUs; None if no price is known."""
        return None if self.usd_per_hour is None else self.usd_per_hour / self.gpus

    @property
    def is_retired(self) -> bool:
        """Whether the cloud no longer rents the type; it serves simulation and history only."""
        return self.status == "retired"

    @property
    def warning(self) -> str:
        """A warning for plans with a retired type; empty for other types."""
        if not self.is_retired:
            return ""
        described = f", last described {self.specs_as_of}" if self.specs_as_of else ""
        price = (
            "has no price"
            if self.usd_per_hour is None
            else f"costs {price_in_dollars(self.usd_per_hour)}/hour"
        )
        dated = f" as of {self.as_of}" if self.as_of else ""
        return (
            f"{self.name} is retired{described}: it {price}{dated}, serves simulation, and cannot be launched"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Instance types by name."""

    entries: Mapping[str, CatalogEntry]

    @classmethod
    def load(cls, *overrides: str | Path, region: str = "") -> Catalog:
        """Return the shipped catalogue as changed by price files; later files override earlier ones.

        With a `region` rows of other regions are skipped, and a file of another region is refused. Prices of
        the shipped catalogue stay, whatever region they are of: `in_region` leaves them out.

        Discounts are fractions off shipped list prices; only the most specific of type, family and ``*``
        applies. A price that a file states is not discounted.

        Raises:
            InputError: when a file cannot be read or names an unknown type, with file and line.
        """
        catalog = _shipped()
        discounts: dict[str, float] = {}
        stated: set[str] = set()
        for path in overrides:
            prices, document = read_price_file(path)
            prices = _of_region(prices, document, region)
            catalog = catalog._with_types(prices, document)._with_prices(prices, document)
            catalog._check_discounts(prices, document)
            discounts.update(prices.discounts)
            stated.update(prices.prices, (row.instance_type for row in prices.types if row.usd_per_hour))
        return catalog._with_discounts(discounts, stated)

    def in_region(self, region: str) -> Catalog:
        """Return the catalogue with the prices of this region alone; all others are unknown there."""
        entries = dict(self.entries)
        for name, entry in self.entries.items():
            if entry.usd_per_hour is not None and (entry.region or HOME_REGION) != region:
                place = f"in {entry.region}" if entry.region else f"{entry.source} for no stated region"
                source = f"none in {region}: {price_in_dollars(entry.usd_per_hour)} is the price {place}"
                entries[name] = replace(entry, usd_per_hour=None, source=source, as_of="")
        return Catalog(entries=entries)

    def with_names(self, names: Mapping[str, str]) -> Catalog:
        """Return the catalogue with further names of its types, such as a type in another region."""
        new = {name: own for name, own in names.items() if name not in self.entries and own in self.entries}
        if not new:
            return self
        entries = {name: replace(self.entries[own], name=name) for name, own in new.items()}
        return Catalog(entries={**self.entries, **entries})

    def at_prices(self, prices: Mapping[str, float], *, region: str, source: str) -> Catalog:
        """Return the catalogue with these prices of a region, in dollars per hour by type."""
        entries = dict(self.entries)
        for name, usd in prices.items():
            if name in entries:
                entries[name] = replace(
                    entries[name], usd_per_hour=usd, region=region, source=source, as_of=""
                )
        return Catalog(entries=entries)

    def entry(self, name: str) -> CatalogEntry:
        """Return the entry of a type.

        Raises:
            InputError: when the catalogue does not list it.
        """
        if name not in self.entries:
            hint = did_you_mean(name, self.entries) or "`boa catalog --all` lists the types"
            raise InputError(f"unknown instance type {name!r}", hint=hint)
        return self.entries[name]

    def price_of(self, name: str) -> float:
        """Return the on-demand price of one instance, USD per hour.

        Raises:
            InputError: when the catalogue does not list the type.
            MissingPrice: when it has no price.
        """
        price = self.entry(name).usd_per_hour
        if price is None:
            hint = f'Name one in a price file: [prices] "{name}" = USD per hour'
            raise MissingPrice(f"instance type {name!r} has no price in the catalogue", hint=hint)
        return price

    def instance_type(self, name: str) -> InstanceType:
        """Return a type as the planner's `InstanceType`.

        Raises:
            InputError: when the catalogue does not list the type.
            MissingPrice: when it has no price.
        """
        entry = self.entry(name)
        return InstanceType(
            name=name,
            gpu_type=entry.gpu_type,
            gpus=entry.gpus,
            usd_per_hour=self.price_of(name),
            link_gigabits_per_second=entry.link_gigabits_per_second,
        )

    def select(
        self, *, family: str | None = None, gpu_type: str | None = None, with_retired: bool = False
    ) -> tuple[CatalogEntry, ...]:
        """Return the entries that match all given filters, in the order of the catalogue."""
        return tuple(
            entry
            for entry in self.entries.values()
            if (family is None or entry.family == family)
            and (gpu_type is None or entry.gpu_type == gpu_type)
            and (with_retired or not entry.is_retired)
        )

    def default_instance_for(self, gpu_type: str) -> CatalogEntry | None:
        """Return the type to suggest for a GPU: newest status, then most GPUs, then cheapest per GPU-hour.

        None if no type with that GPU has a price.
        """
        # Most GPUs before cheapest: a job that fits in one machine needs no network.
        statuses = ("current", "previous generation", "retired")
        priced = (entry for entry in self.entries.values() if entry.usd_per_hour is not None)
        return min(
            (entry for entry in priced if entry.gpu_type == gpu_type),
            key=lambda entry: (statuses.index(entry.status), -entry.gpus, entry.usd_per_hour),
            default=None,
        )

    def _with_types(self, prices: PriceFile, document: Document) -> Catalog:
        """Return the catalogue with a file's instance types added or corrected."""
        entries = dict(self.entries)
        for index, row in enumerate(prices.types):
            known = entries.get(row.instance_type)
            if known is None and (row.gpus is None or row.gpu_model is None):
                at = row_path(document, index)
                hint = did_you_mean(row.instance_type, entries) or "Add gpus and gpu_model"
                problem = f"the new instance type {row.instance_type!r} needs gpus and gpu_model"
                raise document.error(problem, at=at, hint=hint)
            values = _values(row)
            if row.usd_per_hour is not None:
                said = {"source": f"set in {document.name}", "as_of": prices.as_of or ""}
                values = {**said, "region": prices.region or "", **values}
            entries[row.instance_type] = replace(known, **values) if known else _new_entry(values)
        return Catalog(entries=entries)

    def _with_prices(self, prices: PriceFile, document: Document) -> Catalog:
        """Return the catalogue with a file's prices."""
        entries = dict(self.entries)
        for name, usd_per_hour in prices.prices.items():
            if name not in entries:
                hint = did_you_mean(name, entries) or "Describe a new type under types"
                raise document.error(f"unknown instance type {name!r}", at=("prices", name), hint=hint)
            entries[name] = replace(
                entries[name],
                usd_per_hour=usd_per_hour,
                source=f"set in {document.name}",
                as_of=prices.as_of or "",
                region=prices.region or "",
            )
        return Catalog(entries=entries)

    def _check_discounts(self, prices: PriceFile, document: Document) -> None:
        """Raise `InputError` for a discount on an unknown type or family."""
        known = {_EVERY_TYPE, *self.entries, *(entry.family for entry in self.entries.values())}
        for name in prices.discounts:
            if name not in known:
                problem = f"unknown instance type or family {name!r}"
                raise document.error(problem, at=("discounts", name), hint=did_you_mean(name, known))

    def _with_discounts(self, discounts: Mapping[str, float], stated: set[str]) -> Catalog:
        """Return the catalogue with discounted list prices; prices that a user stated are unchanged."""
        entries = dict(self.entries)
        for name, entry in self.entries.items():
            keys = [key for key in (name, entry.family, _EVERY_TYPE) if key in discounts]
            if keys and name not in stated and entry.usd_per_hour is not None and discounts[keys[0]] > 0:
                off = discounts[keys[0]]
                source = f"list price less {100 * off:g} %: {entry.source}"
                entries[name] = replace(entry, usd_per_hour=entry.usd_per_hour * (1.0 - off), source=source)
        return Catalog(entries=entries)


@cache
def _shipped() -> Catalog:
    """Return the catalogue of the package."""
    with resources.as_file(resources.files("boa_daemon") / "data" / "instance_types.csv") as path:
        rows = read_rows(read_document(path))
    return Catalog(
        entries={row.instance_type: _new_entry({"region": HOME_REGION, **_values(row)}) for row in rows}
    )


def _of_region(prices: PriceFile, document: Document, region: str) -> PriceFile:
    """Return a file's prices in a region; without a region a file may have one row per type alone.

    Raises:
        InputError: when the file is of another region, or of several and none is asked for.
    """
    if region and prices.region and prices.region != region:
        problem = f"prices of {prices.region}, but nodes are rented in {region}"
        hint = f"`boa prices refresh {document.name} --region {region}` fetches the prices of that region"
        raise document.error(problem, at=("region",), hint=hint)
    types = [row for row in prices.types if not (region and row.region) or row.region == region]
    seen: dict[tuple[str, str], TypeRow] = {}
    for row in types:
        other = seen.setdefault((row.instance_type, row.market or "on-demand"), row)
        if other is not row:
            places = " and in ".join(one.region or HOME_REGION for one in (other, row))
            problem = f"prices of {row.instance_type} in {places}"
            hint = "Keep the rows of one region in the file: `boa prices import --region` writes such a file"
            raise document.error(problem, at=row_path(document, prices.types.index(row)), hint=hint)
    return prices.model_copy(update={"types": _of_markets(types, document, is_rented=bool(region))})


def _of_markets(types: Sequence[TypeRow], document: Document, *, is_rented: bool) -> list[TypeRow]:
    """Return one row per type: a spot price beside the price on demand.

    A spot price alone is the price to plan with; where nodes are rented (`is_rented`) it is no price on
    demand.
    """
    spot = {row.instance_type: row for row in types if row.market == "spot"}
    listed = {row.instance_type for row in types if row.market != "spot"}
    rows = []
    for row in types:
        beside = spot.get(row.instance_type)
        if beside is None or (row is beside and row.instance_type in listed):
            rows += [row] if beside is None else []
            continue
        values: dict[str, Any] = {
            "spot_usd_per_hour_min": beside.spot_usd_per_hour_min or beside.usd_per_hour,
            "spot_usd_per_hour_max": beside.spot_usd_per_hour_max or beside.usd_per_hour,
            "spot_as_of": beside.spot_as_of or beside.as_of,
        }
        if row is beside:
            source = row.source or f"set in {document.name}"
            values |= {"usd_per_hour": None} if is_rented else {"source": f"{SPOT_SOURCE}{source}"}
            values |= {"as_of": None, "region": None, "source": None} if is_rented else {}
        rows.append(row.model_copy(update=values))
    return rows


def _values(row: TypeRow) -> dict[str, Any]:
    """Return the fields of an entry that a row states."""
    values = row.model_dump(exclude_none=True)
    values["name"] = values.pop("instance_type")
    values.pop("currency", None)
    values.pop("market", None)
    values.pop("cloud", None)
    if row.zones is not None:
        values["zones"] = tuple(row.zones.split())
    return values


def _new_entry(values: Mapping[str, Any]) -> CatalogEntry:
    """Return an entry; its family is the part of the name before the dot, unless stated."""
    family = str(values["name"]).partition(".")[0]
    return CatalogEntry(**{"family": family, "usd_per_hour": None, **values})
