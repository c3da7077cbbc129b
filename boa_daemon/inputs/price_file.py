"""A user's price file: other prices, other machines, and discounts on list prices.

```toml
as_of = 2026-08-01
region = "us-east-1"
[prices]
"p4d.24xlarge" = 20.0            # USD per hour and instance
[discounts]
p5 = 0.30                        # a fraction off the list price: of a type, a family, or "*"
[[types]]
instance_type = "rack-1"
gpus = 8
gpu_model = "NVIDIA A100"
usd_per_hour = 9.5
```

The same keys work in YAML and JSON; a CSV file holds the rows of ``types``.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from boa_daemon.inputs.document_file import Document, read_document
from boa_daemon.inputs.schema import Count, Gpus, Name, Positive, Strict, checked

TypeStatus: TypeAlias = Literal["current", "previous generation", "retired"]

_Discount = Annotated[float, Field(ge=0.0, lt=1.0)]
# TOML has dates of its own; YAML and CSV write them as text.
_Day = Annotated[str, BeforeValidator(lambda day: day.isoformat() if isinstance(day, date) else day)]


class TypeRow(Strict):
    """One instance type: a row of the shipped catalogue, or a correction to one."""

    instance_type: Name = Field(description="the name, such as p4d.24xlarge")
    family: Name | None = Field(default=None, description="such as p4d")
    gpus: Gpus | None = Field(default=None, description="GPUs in one instance")
    gpu_model: Name | None = Field(default=None, description="such as NVIDIA A100")
    gpu_memory_mib: Count | None = Field(default=None, description="MiB of memory of one GPU")
    vcpus: Count | None = Field(default=None, description="virtual CPUs, the unit of quotas")
    memory_mib: Count | None = Field(default=None, description="MiB of main memory")
    link_gigabits_per_second: Positive | None = Field(
        default=None, description="sustained gigabits per second"
    )
    efa_interfaces: Count | None = Field(default=None, description="EFA interfaces at most")
    instance_store_disks: Count | None = Field(default=None, description="NVMe disks of its own")
    instance_store_gb: Count | None = Field(default=None, description="GB of all of these together")
    usd_per_hour: Positive | None = Field(
        default=None, description="dollars per hour and instance, on demand"
    )
    spot_usd_per_hour_min: Positive | None = Field(
        default=None, description="dollars per hour, cheapest zone"
    )
    spot_usd_per_hour_max: Positive | None = Field(default=None, description="dollars per hour, dearest zone")
    spot_as_of: Name | None = Field(default=None, description="a day, or first and last day")
    vcpu_quota_on_demand: Name | None = Field(default=None, description="Service Quotas code")
    vcpu_quota_spot: Name | None = Field(default=None, description="Service Quotas code")
    zones: Name | None = Field(default=None, description="zone ids, separated by spaces")
    status: TypeStatus | None = Field(default=None, description="current, previous generation or retired")
    cloud: Name | None = Field(default=None, description="the cloud of the price, such as aws or lambda")
    region: Name | None = Field(default=None, description="the region of the price, such as sa-east-1")
    market: Literal["on-demand", "spot"] | None = Field(
        default=None, description="on-demand, or spot: then it is no price on demand"
    )
    currency: Name | None = Field(default=None, description="USD; other currencies are refused")
    as_of: _Day | None = Field(default=None, description="the day of the price, YYYY-MM-DD")
    specs_as_of: _Day | None = Field(default=None, description="the day of the other columns, YYYY-MM-DD")
    source: Name | None = Field(default=None, description="where the price comes from")


class PriceFile(Strict):
    """The content of a price file; every key is optional."""

    as_of: _Day | None = Field(default=None, description="the day of the prices, YYYY-MM-DD")
    region: Name | None = Field(default=None, description="the region of all prices, such as sa-east-1")
    currency: Name | None = Field(default=None, description="USD; other currencies are refused")
    prices: dict[str, Positive] = Field(default={}, description="dollars per hour by instance type")
    discounts: dict[str, _Discount] = Field(
        default={}, description="fractions off list prices by type, family or *"
    )
    types: list[TypeRow] = Field(default=[], description="instance types")


def read_price_file(path: str | Path) -> tuple[PriceFile, Document]:
    """Return the content of a price file, and the document for error messages with lines.

    Raises:
        InputError: when the file cannot be read or a value is out of range, with file and line.
    """
    document = read_document(path)
    if document.language == "csv":
        found = PriceFile(types=read_rows(document))
    else:
        found = checked(PriceFile, document.content, document=document)
    _check_provenance(found, document)
    return found, document


def row_path(document: Document, index: int, *keys: str) -> tuple[str | int, ...]:
    """Return the path of a row of types, for error messages with lines."""
    return (*(() if document.language == "csv" else ("types",)), index, *keys)


def _check_provenance(found: PriceFile, document: Document) -> None:
    """Refuse other currencies, future prices, and two rows for one type and region.

    Raises:
        InputError: with file and line; for two rows with both lines.
    """
    _check_one(found.currency, found.as_of, document, at=())
    rows: dict[tuple[str, str, str, str], int] = {}
    for index, row in enumerate(found.types):
        _check_one(row.currency, row.as_of, document, at=row_path(document, index))
        region = row.region or found.region or ""
        if row.region and found.region and row.region != found.region:
            problem = f"the price of {row.instance_type} is of {row.region}, the file's are of {found.region}"
            hint = "Write one file per region, or give each row its region and the file none"
            raise document.error(problem, at=row_path(document, index), hint=hint)
        first = rows.setdefault(
            (row.instance_type, row.cloud or "", region, row.market or "on-demand"), index
        )
        if first != index:
            where = document.line_of(row_path(document, first))
            place = f" in {region}" if region else ""
            line = "above" if where is None else f"on line {where}"
            problem = f"a second row for {row.instance_type}{place}; the first is {line}"
            hint = "Keep one of them; rows of several regions need a region each"
            raise document.error(problem, at=row_path(document, index), hint=hint)
        if row.usd_per_hour is not None and row.instance_type in found.prices:
            problem = f"{row.instance_type} has a price here and under [prices]"
            raise document.error(problem, at=row_path(document, index), hint="Keep one of them")


def _check_one(
    currency: str | None, as_of: str | None, document: Document, *, at: tuple[str | int, ...]
) -> None:
    """Refuse a currency other than USD and a day that has not come.

    Raises:
        InputError: with file and line.
    """
    if currency is not None and currency != "USD":
        problem = f"prices in {currency}: budgets and caps count USD"
        hint = 'Convert them yourself, and write currency = "USD" with the day of the rate as as_of'
        raise document.error(problem, at=(*at, "currency"), hint=hint)
    try:
        day = None if as_of is None else date.fromisoformat(as_of)
    except ValueError:
        return
    # A day ahead of UTC it is tomorrow already.
    if day is not None and day > datetime.now(UTC).date() + timedelta(days=1):
        problem = f"prices as of {day.isoformat()}, which has not come: a cap on them would be a guess"
        raise document.error(problem, at=(*at, "as_of"), hint="Use the prices of today")


def read_rows(document: Document) -> list[TypeRow]:
    """Return the checked rows of a CSV document.

    Raises:
        InputError: for an unknown column or a value out of range, with file and line.
    """
    return [checked(TypeRow, row, document=document, at=(i,)) for i, row in enumerate(document.content)]
