"""The types that the planner and the tick share.

Planner: a `Problem` is GPU types with prices and job classes with phases; a `Budget` is money (or GPUs)
on average over time. Tick: a `Job` is what a policy may know of one job now, `Money` what it may know of
the ledger. The answers of policies are in `policies.answer`.

All are frozen, slotted and keyword-only (a few small ones excepted), and check their values: wrong values
raise `InvalidProblem`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from policies.errors import InvalidProblem
from policies.fast_dataclasses import fast_init
from policies.kinds import Kind, MachineName, kind_of, machine_name_of
from policies.money_text import in_dollars
from policies.speedup import SpeedupCurve

JobId: TypeAlias = str
NodeId: TypeAlias = str
BudgetUnit: TypeAlias = Literal["usd_per_hour", "gpus"]


def check_positive(what: str, value: float, *, zero: bool = False) -> None:
    """Raise `InvalidProblem` unless `value` is finite and positive (or zero, where allowed)."""
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        low = "zero or more" if zero else "more than zero"
        raise InvalidProblem(f"{what} must be a finite number, {low}; got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """A kind of GPU and its planning price: the instance's price divided by its GPUs."""

    name: str
    usd_per_gpu_hour: float

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidProblem("a GPU type needs a name")
        check_positive(f"usd_per_gpu_hour of {self.name}", self.usd_per_gpu_hour)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a job with one speed-up curve per GPU type, for example an epoch.

    `size_gpu_hours` is work: hours on one GPU of the reference type. `speedups` are by GPU type; the phase
    cannot run on a type without one.
    """

    size_gpu_hours: float
    speedups: Mapping[str, SpeedupCurve]

    def __post_init__(self) -> None:
        check_positive("size_gpu_hours", self.size_gpu_hours)
        if not self.speedups:
            raise InvalidProblem("a phase needs a speed-up on at least one GPU type")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """The network traffic of a training iteration: bytes per message, and seconds of computing before it."""

    message_bytes: float
    compute_seconds: float

    def __post_init__(self) -> None:
        check_positive("message_bytes", self.message_bytes)
        check_positive("compute_seconds", self.compute_seconds)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class JobClass:
    """Jobs that scale alike: an arrival rate, a weight, overheads and phases in order.

    `weight` is the value of an hour of a job's time relative to other classes. A job holds its GPUs for
    `startup_hours` before its first work, and for `rescale_hours` more at each change of width or type.
    `network` is the traffic of an iteration between nodes, if known. Only a class that `may_share` GPUs with
    other jobs is planned on machines with several places per GPU.
    """

    name: str
    phases: tuple[Phase, ...]
    arrivals_per_hour: float = 1.0
    weight: float = 1.0
    startup_hours: float = 0.0
    rescale_hours: float = 0.0
    network: AllReduce | None = None
    may_share: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidProblem("a class needs a name")
        if not self.phases:
            raise InvalidProblem(f"class {self.name} needs at least one phase")
        check_positive(f"arrivals_per_hour of class {self.name}", self.arrivals_per_hour)
        check_positive(f"weight of class {self.name}", self.weight)
        check_positive(f"startup_hours of class {self.name}", self.startup_hours, zero=True)
        check_positive(f"rescale_hours of class {self.name}", self.rescale_hours, zero=True)

    @property
    def is_coupled(self) -> bool:
        """Whether the width in one phase affects the cost of the next: several phases and a rescale cost."""
        return len(self.phases) > 1 and self.rescale_hours > 0.0

    @property
    def size_gpu_hours(self) -> float:
        """Work of the whole job, hours on one reference GPU."""
        if len(self.phases) == 1:
            return float(self.phases[0].size_gpu_hours)
        return math.fsum(phase.size_gpu_hours for phase in self.phases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A time average: `amount` dollars per hour, or GPUs held, depending on `unit`."""

    amount: float
    unit: BudgetUnit = "usd_per_hour"

    def __post_init__(self) -> None:
        check_positive("a budget", self.amount)

    def __str__(self) -> str:
        return f"{self.amount:g} GPUs" if self.unit == "gpus" else f"{in_dollars(self.amount)}/hour"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """GPU types with prices, and the classes to run on them.

    With a budget in GPUs every GPU counts as one, whatever its price.
    """

    classes: tuple[JobClass, ...]
    gpu_types: tuple[GpuType, ...]
    budget_unit: BudgetUnit = "usd_per_hour"

    def __post_init__(self) -> None:
        if not self.classes:
            raise InvalidProblem("a problem needs at least one class")
        if not self.gpu_types:
            raise InvalidProblem("a problem needs at least one GPU type")
        _check_distinct("GPU type", [gpu.name for gpu in self.gpu_types])
        _check_distinct("class", [job_class.name for job_class in self.classes])
        known = {gpu.name for gpu in self.gpu_types}
        for job_class in self.classes:
            for number, phase in enumerate(job_class.phases):
                if not phase.speedups.keys() <= known:
                    missing = sorted(phase.speedups.keys() - known)[0]
                    raise InvalidProblem(
                        f"class {job_class.name}, phase {number}: GPU type {missing!r} has a speed-up but no "
                        f"price; known types are {', '.join(sorted(known))}"
                    )

    def price_of(self, gpu_type: str) -> float:
        """Return what one GPU-hour takes from the budget: the type's price, or 1 when GPUs are counted."""
        if self.budget_unit == "gpus":
            return 1.0
        return next(gpu.usd_per_gpu_hour for gpu in self.gpu_types if gpu.name == gpu_type)


def _check_distinct(what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidProblem(f"{what} {name!r} is defined twice")
        seen.add(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """A machine that the cloud rents out, and its price.

    `link_gigabits_per_second` is the bandwidth of its network card. If several jobs may share a GPU, each GPU
    has `places_per_gpu` places, and `gpus` counts places: place i is on GPU i modulo `whole_gpus`, and no job
    holds two places on one GPU.
    """

    name: str
    gpu_type: str
    gpus: int
    usd_per_hour: float
    link_gigabits_per_second: float = 10.0
    places_per_gpu: int = 1

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise InvalidProblem(f"{self.name}: an instance type has at least one GPU, got {self.gpus}")
        if self.places_per_gpu < 1 or self.gpus % self.places_per_gpu:
            raise InvalidProblem(
                f"{self.name}: {self.gpus} places cannot be split into {self.places_per_gpu} on each GPU"
            )
        check_positive(f"usd_per_hour of {self.name}", self.usd_per_hour)
        check_positive(f"link_gigabits_per_second of {self.name}", self.link_gigabits_per_second)

    @property
    def kind(self) -> Kind:
        """The parts of `gpu_type`."""
        return kind_of(self.gpu_type)

    @property
    def machine_name(self) -> MachineName:
        """The parts of `name`."""
        return machine_name_of(self.name)

    @property
    def usd_per_gpu_hour(self) -> float:
        """Planning price of a GPU: its share of the price of the whole instance."""
        return self.usd_per_hour / self.gpus

    @property
    def whole_gpus(self) -> int:
        """Physical GPUs, however many jobs share them: the most that one job can hold of this machine."""
        return self.gpus // self.places_per_gpu

    def one_per_gpu(self, places: Iterable[int], *, held: Iterable[int] = ()) -> list[int]:
        """Return one free place of each GPU; GPUs with the most free places come first.

        GPUs on which the job already holds a place (`held`) are left out.
        """
        if self.places_per_gpu == 1:
            return list(places)
        own = {place % self.whole_gpus for place in held}
        by_gpu: dict[int, list[int]] = {}
        for place in places:
            if place % self.whole_gpus not in own:
                by_gpu.setdefault(place % self.whole_gpus, []).append(place)
        return [min(by_gpu[gpu]) for gpu in sorted(by_gpu, key=lambda gpu: (-len(by_gpu[gpu]), gpu))]


@fast_init
@dataclass(frozen=True, slots=True, order=True)
class Width:
    """A number of GPUs of one type: what a job holds or should hold."""

    gpu_type: str
    gpus: int

    @property
    def kind(self) -> Kind:
        """The parts of `gpu_type`."""
        return kind_of(self.gpu_type)

    def __str__(self) -> str:
        return f"{self.gpus} x {self.gpu_type}"


@lru_cache(maxsize=65_536)
def width_of(gpu_type: str, gpus: int) -> Width:
    """Return a width, always the same value for the same arguments: `is` then finds most equal widths."""
    return Width(gpu_type, gpus)


@fast_init
@dataclass(frozen=True, slots=True, order=True)
class GpuSlot:
    """One GPU of one node; `index` counts them from 0."""

    node: NodeId
    index: int


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An instance as a policy sees it; if it is not `is_ready`, it was requested or is booting.

    `tiers` are the network parts above it within its zone, the widest first; empty if not known.
    """

    id: NodeId
    instance_type: InstanceType
    is_ready: bool
    tiers: tuple[str, ...] = ()


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a policy may know of one job now.

    `phase` counts from 0. The job's work is `scale` times that of its class. `width` is what it holds; None
    while it waits. `draw` is uniform on [0, 1) and fixed at arrival; where the optimum mixes two plans, it
    selects the plan of the job. `remaining_gpu_hours` is the work left in all phases, hours on one reference
    GPU. `restarts` counts the starts after the first. `counted_at` is the instant at which the work left is
    right; it is in the future while the job starts up, and None means now.
    """

    id: JobId
    class_name: str
    arrived_at: float
    phase: int
    remaining_gpu_hours: float
    scale: float = 1.0
    weight: float = 1.0
    draw: float = 0.0
    width: Width | None = None
    restarts: int = 0
    counted_at: float | None = None


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """What a policy may know of the ledger: hours of budget accrued since it opened, and the spend since.

    `spent` is final bills, running meters and requested nodes together: dollars, or GPU-hours if the budget
    is in GPUs. `elapsed_hours` are hours of budget. `accrual` is the hours of budget per hour of this month;
    it differs from 1 if every month has the same money. `period_elapsed_hours` are the hours of budget that
    accrued in this period, `period_left_hours` the hours until it ends. `is_refused` means that the cloud
    has no stock of some type now. `memory` is the policy's memory from its last tick, `memory_age_hours` ago.
    `hour_of_week` is the hours since Monday, 0 h UTC.
    """

    spent: float
    elapsed_hours: float
    accrual: float = 1.0
    period_elapsed_hours: float = 0.0
    period_left_hours: float = 730.0
    is_refused: bool = False
    memory: tuple[float, ...] = ()
    memory_age_hours: float = 0.0
    hour_of_week: float = 0.0
