"""The load of a run or of a site's past over time, computed exactly from launches and ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.document_file import read_document
from boa_daemon.inputs.schema import Name, NotNegative, Strict, checked
from boa_daemon.inputs.table_schemas import rows_schema
from policies.links.gpu_kinds import machines_by_kind
from policies.model import InstanceType
from policies.optimum.commitments import LoadDistribution


class Rental(NamedTuple):
    """An instance from its launch to its end, in seconds."""

    gpu_type: str
    gpus: int
    begin: float
    end: float


class _Row(Strict):
    instance_type: Name = Field(description="an instance type of `boa catalog`")
    launched_at: NotNegative = Field(description="seconds since the epoch, or since any other instant")
    ended_at: NotNegative | None = Field(default=None, description="the same; empty while it runs")
    instances: int = Field(default=1, ge=1, description="number of such instances")


def usage_schema() -> dict[str, Any]:
    """Return the JSON schema of the rows of a usage file."""
    return rows_schema(_Row)


def load_between(
    rentals: Iterable[Rental], gpu_types: Sequence[str], begin: float, end: float
) -> LoadDistribution:
    """Return the GPUs of each type in use between two instants, as a distribution over time.

    Raises:
        InputError: when `end` is not after `begin`.
    """
    if not end > begin:
        raise InputError("the load needs a period: its end must be after its begin")
    place = {name: number for number, name in enumerate(gpu_types)}
    changes: dict[float, np.ndarray] = {begin: np.zeros(len(gpu_types)), end: np.zeros(len(gpu_types))}
    for rental in rentals:
        first, last = max(rental.begin, begin), min(rental.end, end)
        if first < last:
            for at, sign in ((first, 1.0), (last, -1.0)):
                changes.setdefault(at, np.zeros(len(gpu_types)))[place[rental.gpu_type]] += sign * rental.gpus
    instants = sorted(changes)
    held = np.cumsum([changes[at] for at in instants], axis=0)[:-1]
    lasts = np.diff(instants)
    counts, where = np.unique(held, axis=0, return_inverse=True)
    share = np.bincount(where.ravel(), weights=lasts) / (end - begin)
    return LoadDistribution(gpu_types=tuple(gpu_types), gpus=counts, share=share / share.sum())


def read_rentals(path: Path, catalog: Catalog) -> tuple[list[Rental], list[InstanceType], float, float]:
    """Return the rentals of a CSV file, the machines in it, and its first and last instant.

    Raises:
        InputError: when a column or type is unknown, or an end is before its launch; with file and line.
    """
    document = read_document(path)
    if document.language != "csv":
        raise InputError("usage is CSV: instance_type,launched_at,ended_at[,instances]", file=path)
    rows = [checked(_Row, row, document=document, at=(n,)) for n, row in enumerate(document.content)]
    if not rows:
        raise InputError("the file has no rows", file=path)
    last = max(row.launched_at if row.ended_at is None else row.ended_at for row in rows)
    # Machines with the same GPU and price per GPU are one type of the load; another price is another type.
    alike: dict[tuple[str, float], InstanceType] = {}
    held = []
    for number, row in enumerate(rows):
        try:
            machine = catalog.instance_type(row.instance_type)
        except InputError as error:
            raise document.error(error.problem, at=(number,), hint=error.hint, kind=type(error)) from None
        end = last if row.ended_at is None else row.ended_at
        if end < row.launched_at:
            raise document.error(f"ended_at {end:g} is before launched_at {row.launched_at:g}", at=(number,))
        first = alike.setdefault((machine.gpu_type, round(machine.usd_per_gpu_hour, 9)), machine)
        held.append((first.name, machine.gpus * row.instances, row.launched_at, end))
    machines = machines_by_kind(alike.values(), {})
    kinds = {machine.name: kind for kind, machine in machines.items()}
    rentals = [Rental(kinds[name], gpus, begin, end) for name, gpus, begin, end in held]
    return rentals, list(machines.values()), min(row.launched_at for row in rows), last
