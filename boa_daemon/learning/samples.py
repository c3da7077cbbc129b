"""Samples of the work of jobs, row by row: speeds, arrivals, sizes. Old rows are merged.

    kind       one row is                        total          moment                        seconds   at
    speed      a class at a width for an hour    samples done   0                             of work   begin
    seen       the first arrival of a class      0              0                             0         then
    arrivals   a class in an hour                0              squares of minutes' counts    0         begin
    size       a job that ended by itself        work           its logarithm                 0         end
    cut        a job that was ended              work           0                             0         end

`count` is how many things were merged; the figures of sizes are then means. Work is hours on one reference
GPU over the scale of the job. Keys are made from the content of a row, so writing one twice changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

from policies.online.estimates import SizeSums

SampleKind: TypeAlias = Literal["speed", "seen", "arrivals", "size", "cut"]
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
BY_HOUR_SECONDS, BY_WEEK_SECONDS, KEPT_SECONDS = 2.0 * HOUR, 14.0 * DAY, 91.0 * DAY
"""Stretches of work older than the first are merged by the hour, older than the second by the week, and older
than the third into one per width. Thirteen half-lives of a week have passed by then."""
ENOUGH_MORE = 1.5
"""What was seen of a class over that at its last estimate, before it is estimated again: half as much more
moves an estimate by less than its own error."""
BAND = 0.25
"""Width of the bands of log(work) within which jobs that were cut off are merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One row; see the table above. `batch` and `gradient_noise` are in samples, for speeds alone."""

    key: str
    kind: SampleKind
    class_name: str
    at: float
    gpu_type: str = ""
    gpus: int = 0
    count: float = 1.0
    total: float = 0.0
    moment: float = 0.0
    seconds: float = 0.0
    batch: float | None = None
    gradient_noise: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleHistory:
    """All rows, and the number of the last job whose arrival is among them."""

    rows: tuple[Sample, ...] = ()
    arrived_through: int = 0


class SampleStore(Protocol):
    """A store of rows."""

    def read(self) -> SampleHistory:
        """Return everything."""
        ...

    def write(
        self,
        rows: Iterable[Sample],
        *,
        forget: Iterable[str] = (),
        arrived_through: int | None = None,
    ) -> None:
        """Replace rows with the same keys and drop others, all or nothing."""
        ...


def compact_samples(
    rows: Mapping[str, Sample], *, now: float, kept_seconds: float = KEPT_SECONDS
) -> tuple[list[Sample], list[str]]:
    """Return rows that replace older ones, and the keys to drop; arrivals that are too old are dropped."""
    groups: dict[str, list[Sample]] = {}
    gone: list[str] = []
    for row in rows.values():
        group = _group(row, now - row.at, kept_seconds)
        if group is None:
            gone.append(row.key)
        elif group != row.key:
            groups.setdefault(group, []).append(row)
    merged = []
    for group, members in groups.items():
        known = rows.get(group)
        parts = members if known is None else [known, *members]
        merged.append(replace(merge_samples(parts), key=group))
        gone += [row.key for row in members]
    return merged, gone


def _group(row: Sample, age: float, kept_seconds: float) -> str | None:
    """Return the key of the row to merge with: its own while young, None if it is dropped."""
    if row.kind == "seen":
        return row.key
    if row.kind == "arrivals":
        return None if age > kept_seconds else row.key
    if row.kind == "speed":
        if age <= BY_HOUR_SECONDS:
            return row.key
        return f"speed|{row.class_name}|{row.gpu_type}|{row.gpus}|{_batches(row)}|{_period(row.at, age)}"
    if age <= DAY:
        return row.key
    if row.kind == "cut" and age > kept_seconds:
        return None
    band = f"|{math.floor(math.log(row.total) / BAND)}" if row.kind == "cut" else ""
    day = f"d{int(row.at // DAY)}" if age <= BY_WEEK_SECONDS else _period(row.at, age)
    return f"{row.kind}|{row.class_name}{band}|{day}"


def _period(at: float, age: float) -> str:
    """Return the hour, the week, or "old" for an instant."""
    if age <= BY_WEEK_SECONDS:
        return f"h{int(at // HOUR)}"
    return f"w{int(at // (7.0 * DAY))}" if age <= KEPT_SECONDS else "old"


def _batches(row: Sample) -> str:
    """Return which batch sizes are merged: with known noise only those of about the same size."""
    if row.gradient_noise is None or row.batch is None:
        return "-"
    return f"b{round(math.log2(row.batch))}"


def merge_samples(rows: list[Sample]) -> Sample:
    """Return rows of one kind merged into one."""
    first, count = rows[0], sum(row.count for row in rows)
    weights = [row.seconds if row.kind == "speed" else row.count for row in rows]
    at = sum(row.at * weight for row, weight in zip(rows, weights, strict=True)) / sum(weights)
    if first.kind == "speed":
        seconds = sum(row.seconds for row in rows)
        means = {
            name: sum((getattr(row, name) or 0.0) * row.seconds for row in rows) / seconds
            for name in ("batch", "gradient_noise")
            if all(getattr(row, name) is not None for row in rows)
        }
        total = sum(row.total for row in rows)
        return replace(
            first,
            at=at,
            count=count,
            total=total,
            seconds=seconds,
            batch=means.get("batch"),
            gradient_noise=means.get("gradient_noise"),
        )
    if first.kind == "cut":
        # The smallest is a lower bound for each of them.
        return replace(first, at=at, count=count, total=min(row.total for row in rows))
    sums = SizeSums()
    for row in rows:
        sums = sums.plus(SizeSums(weight=row.count, mean=row.total, log_mean=row.moment))
    return replace(first, at=at, count=count, total=sums.mean, moment=sums.log_mean)
