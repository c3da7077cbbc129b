"""A user's price file: other prices, other machines, and discounts on list prices.

```toml
as_of = 2026-08-01
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

from datetime import date
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from boa_daemon.inputs.document_file import Document, read_document
from boa_daemon.inputs.schema import Gpus, Name, Positive, Strict, checked

TypeStatus: TypeAlias = Literal["current", "previous generation", "retired"]

_Discount = Annotated[float, Field(ge=0.0, lt=1.0)]
_Count = Annotated[int, Field(ge=0, le=10**12)]
# TOML has dates of its own; YAML and CSV write them as text.
_Day = Annotated[str, BeforeValidator(lambda day: day.isoformat() if isinstance(day, date) else day)]


class TypeRow(Strict):
    """One instance type: a row of the shipped catalogue, or a correction to one."""

    instance_type: Name = Field(description="the name, such as p4d.24xlarge")
    family: Name | None = Field(default=None, description="such as p4d")
    gpus: Gpus | None = Field(default=None, description="GPUs in one instance")
    gpu_model: Name | None = Field(default=None, description="such as NVIDIA A100")
    gpu_memory_mib: _Count | None = Field(default=None, description="MiB of memory of one GPU")
    vcpus: _Count | None = Field(default=None, description="virtual CPUs, the unit of quotas")
    memory_mib: _Count | None = Field(default=None, description="MiB of main memory")
    link_gigabits_per_second: Positive | None = Field(
        default=None, description="sustained gigabits per second"
    )
    efa_interfaces: _Count | None = Field(default=None, description="EFA interfaces at most")
    instance_store_disks: _Count | None = Field(default=None, description="NVMe disks of its own")
    instance_store_gb: _Count | None = Field(default=None, description="GB of all of these together")
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
    as_of: _Day | None = Field(default=None, description="the day of the price, YYYY-MM-DD")
    specs_as_of: _Day | None = Field(default=None, description="the day of the other columns, YYYY-MM-DD")
    source: Name | None = Field(default=None, description="where the price comes from")


class PriceFile(Strict):
    """The content of a price file; every key is optional."""

    as_of: _Day | None = Field(default=None, description="the day of the prices, YYYY-MM-DD")
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
        return PriceFile(types=read_rows(document)), document
    return checked(PriceFile, document.content, document=document), document


def read_rows(document: Document) -> list[TypeRow]:
    """Return the checked rows of a CSV document.

    Raises:
        InputError: for an unknown column or a value out of range, with file and line.
    """
    return [checked(TypeRow, row, document=document, at=(i,)) for i, row in enumerate(document.content)]
