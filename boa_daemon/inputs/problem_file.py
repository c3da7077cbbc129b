"""The problem file: GPU types with prices, classes with phases, and a budget, read into the planner's types.

`docs/reference/problem-file.md` describes the format. Every fault is one `InputError` that names the key, the
file and the line. Cost: O(file); a table entry takes about a microsecond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from boa_daemon.errors import MissingPrice
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.document_file import Document, KeyPath, read_document
from boa_daemon.inputs.gpu_file import GpuRow, read_machines
from boa_daemon.inputs.placements import take_placements
from boa_daemon.inputs.price_age import PriceNote
from boa_daemon.inputs.problem_rows import BudgetRow, ClassRow, FileRow, PhaseRow
from boa_daemon.inputs.resource_needs import ExcludedMachine, NeedsRow, excluded_for, without_gpu_types
from boa_daemon.inputs.schema import a_kind, checked, spoken
from boa_daemon.inputs.speedup_file import limited, read_speedups
from boa_daemon.inputs.step_times import AMOUNTS, RATES, MeasuredPhase, measured_work
from policies.kinds import kind_of
from policies.links.contention import Link
from policies.links.gpu_kinds import on_machines
from policies.links.link_share import across_nodes, network_share
from policies.model import AllReduce, Budget, BudgetUnit, GpuType, InstanceType, JobClass, Phase, Problem
from policies.speedup import SpeedupCurve

_HOW_TO_PRICE = "Add gpu_types: {NAME: {usd_per_gpu_hour: PRICE}}, or count GPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemFile:
    """A parsed problem file; `instance_types` is the machine of each GPU type.

    Classes in `classes_without_rates` have 1 arrival per hour until their rates are estimated. `has_prices`
    is false if the file has no `gpu_types`. `prices` has the day of each price, `warnings` are sentences for
    the user, and `needs` are the classes' needs besides GPUs. `spreads` is the fraction by which the hours of
    a class's jobs may differ. `extrapolated` are the widths of a class on a GPU type that were not measured.
    """

    path: str
    problem: Problem
    budget: Budget | None
    instance_types: Mapping[str, InstanceType]
    classes_without_rates: frozenset[str] = frozenset()
    has_prices: bool = True
    warnings: tuple[str, ...] = ()
    prices: tuple[PriceNote, ...] = ()
    needs: Mapping[str, NeedsRow] = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)
    extrapolated: Mapping[tuple[str, str], frozenset[int]] = field(default_factory=dict)


def load_problem(
    path: str | Path, *, catalog: Catalog | None = None, require_rates: bool = True
) -> ProblemFile:
    """Return the problem in a YAML, JSON or TOML file; ``-`` is standard input.

    Without `require_rates` a class may leave `arrivals_per_hour` out, as the class files of traces do.

    Raises:
        InputError: when the file cannot be read or is not a problem, with file and line.
        MissingPrice: when a GPU type has no price.
    """
    return parse_problem(read_document(path), catalog=catalog, require_rates=require_rates)


def parse_problem(
    document: Document, *, catalog: Catalog | None = None, require_rates: bool = True
) -> ProblemFile:
    """Return the problem that a document holds.

    Raises:
        InputError: when it is not a problem, with file and line.
        MissingPrice: when a GPU type has no price.
    """
    if not isinstance(document.content, Mapping):
        message = f"a problem file is a mapping with the key classes; got {a_kind(document.content)}"
        hint = "A trace goes to boa simulate --trace, a list of jobs to boa calendar"
        raise document.error(message, hint=hint if document.language == "csv" else "")
    file = checked(FileRow, document.content, document=document)
    budget = _budget(file.budget, document)
    if file.gpu_types is None and budget is not None and budget.unit == "usd_per_hour":
        message = "gpu_types is missing: a budget in dollars needs the price of a GPU-hour"
        raise document.error(message, at=("budget",), hint=_HOW_TO_PRICE, kind=MissingPrice)
    machines = read_machines(file.gpu_types, document=document, catalog=catalog)
    measured = [
        [
            _measured(row.name, phase, machines, document, ("classes", number, "phases", place))
            for place, phase in enumerate(row.phases)
        ]
        for number, row in enumerate(file.classes)
    ]
    stated = _job_classes(file.classes, machines, document, measured, require_rates=require_rates)
    needs = {row.name: row.needs for row in file.classes if row.needs is not None}
    classes, excluded = _within_needs(stated, needs, machines, catalog or Catalog.load(), document)
    problem = Problem(
        classes=classes,
        gpu_types=tuple(
            GpuType(name=name, usd_per_gpu_hour=machine.usd_per_gpu_hour)
            for name, machine in machines.items()
        ),
        budget_unit=_unit(budget, has_prices=file.gpu_types is not None),
    )
    return ProblemFile(
        path=document.name,
        problem=problem,
        budget=budget,
        instance_types=machines,
        classes_without_rates=frozenset(row.name for row in file.classes if row.arrivals_per_hour is None),
        has_prices=file.gpu_types is not None,
        warnings=(*_warnings(machines, catalog), *(one.sentence for one in excluded)),
        needs=needs,
        spreads=_spreads(file.classes, measured),
        extrapolated={
            (row.name, kind): widths
            for row, phases in zip(file.classes, measured, strict=True)
            for one in phases
            if one is not None
            for kind, widths in one.extrapolated.items()
        },
        prices=_price_notes(file, machines, catalog, document) if file.gpu_types is not None else (),
    )


def _spreads(
    rows: Sequence[ClassRow], measured: Sequence[Sequence[MeasuredPhase | None]]
) -> dict[str, float]:
    """Return the fraction by which hours of a class's jobs may differ: as stated, else from measurements."""
    found = {}
    for row, phases in zip(rows, measured, strict=True):
        apart = max((one.spread for one in phases if one is not None), default=0.0)
        if row.spread is not None or apart > 0.0:
            found[row.name] = apart if row.spread is None else row.spread
    return found


def with_budget(file: ProblemFile, budget: Budget) -> ProblemFile:
    """Return the file with another budget, in dollars or in GPUs.

    Raises:
        MissingPrice: when the budget is in dollars and the file has no prices.
    """
    if budget.unit == "usd_per_hour" and not file.has_prices:
        names = ", ".join(repr(gpu.name) for gpu in file.problem.gpu_types)
        problem = f"a budget in dollars needs the price of GPU type {names}"
        raise MissingPrice(problem, file=file.path, hint=_HOW_TO_PRICE)
    return replace(file, budget=budget, problem=replace(file.problem, budget_unit=budget.unit))


def _budget(row: BudgetRow | None, document: Document) -> Budget | None:
    """Return the budget; refuse one that is not in exactly one unit."""
    if row is None:
        return None
    if row.usd_per_hour is not None and row.gpus is None:
        return Budget(amount=row.usd_per_hour)
    if row.gpus is not None and row.usd_per_hour is None:
        return Budget(amount=row.gpus, unit="gpus")
    given = "neither" if row.gpus is None else "both"
    raise document.error(f"budget needs either usd_per_hour or gpus; got {given}", at=("budget",))


def _unit(budget: Budget | None, *, has_prices: bool) -> BudgetUnit:
    """Return the unit of costs: the budget's unit, else dollars if prices are known, else GPUs."""
    if budget is not None:
        return budget.unit
    return "usd_per_hour" if has_prices else "gpus"


def _warnings(machines: Mapping[str, InstanceType], catalog: Catalog | None) -> tuple[str, ...]:
    """Return a sentence for each retired machine."""
    entries = (catalog or Catalog.load()).entries
    found = (entries[machine.name].warning for machine in machines.values() if machine.name in entries)
    return tuple(warning for warning in found if warning)


def _price_notes(
    file: FileRow, machines: Mapping[str, InstanceType], catalog: Catalog | None, document: Document
) -> tuple[PriceNote, ...]:
    """Return the day and source of each price: the catalogue's unless the file states the price."""
    entries, rows = (catalog or Catalog.load()).entries, file.gpu_types or {}
    notes = []
    for name, machine in machines.items():
        row = (rows[name] if name in rows else rows[kind_of(name).card]) or GpuRow()
        entry = entries.get(str(machine.machine_name.listed))
        is_own = row.usd_per_gpu_hour is not None or entry is None
        notes.append(
            PriceNote(
                gpu_type=name,
                instance_type=machine.name,
                usd_per_hour=machine.usd_per_hour,
                as_of="" if is_own or entry is None else entry.as_of,
                source=f"set in {document.name}" if is_own or entry is None else entry.source,
            )
        )
    return tuple(notes)


def _job_classes(
    rows: Sequence[ClassRow],
    machines: Mapping[str, InstanceType],
    document: Document,
    measured: Sequence[Sequence[MeasuredPhase | None]],
    *,
    require_rates: bool,
) -> tuple[JobClass, ...]:
    """Return the classes; refuse a repeated name."""
    classes: dict[str, JobClass] = {}
    for index, row in enumerate(rows):
        at: KeyPath = ("classes", index)
        if row.name in classes:
            raise document.error(f"class {row.name!r} is defined twice", at=(*at, "name"))
        if require_rates and row.arrivals_per_hour is None:
            problem = f"{spoken(at, document.content)}: arrivals_per_hour is missing"
            raise document.error(problem, at=at, hint="It counts jobs per hour")
        job_class = JobClass(
            name=row.name,
            phases=tuple(
                _phase(row, phase, one, machines, document=document, at=(*at, "phases", number))
                for number, (phase, one) in enumerate(zip(row.phases, measured[index], strict=True))
            ),
            arrivals_per_hour=1.0 if row.arrivals_per_hour is None else row.arrivals_per_hour,
            weight=row.weight,
            startup_hours=row.startup_hours,
            rescale_hours=row.rescale_hours,
            network=None if row.network is None else AllReduce(**row.network.model_dump()),
            may_share=row.shares_gpu,
        )
        classes[row.name] = on_machines(job_class, machines, machines)
    return tuple(classes.values())


def _within_needs(
    classes: Sequence[JobClass],
    needs: Mapping[str, NeedsRow],
    machines: Mapping[str, InstanceType],
    catalog: Catalog,
    document: Document,
) -> tuple[tuple[JobClass, ...], tuple[ExcludedMachine, ...]]:
    """Return the classes on machines large enough for them, and the machines excluded for each."""
    kept: list[JobClass] = []
    excluded: list[ExcludedMachine] = []
    for index, job_class in enumerate(classes):
        kinds = {kind for phase in job_class.phases for kind in phase.speedups}
        known = {kind: machine for kind, machine in machines.items() if kind in kinds}
        short = excluded_for(job_class.name, needs.get(job_class.name), known, catalog)
        found = without_gpu_types(job_class, short)
        if found is None:
            lacks = "; ".join(f"{one.instance_type} has {one.why}" for one in short.values())
            problem = f"no machine has what class {job_class.name!r} needs: {lacks}"
            raise document.error(problem, at=("classes", index, "needs"), hint="Add a larger machine")
        kept.append(found)
        excluded += short.values()
    return tuple(kept), tuple(excluded)


def _phase(
    row: ClassRow,
    phase: PhaseRow,
    measured: MeasuredPhase | None,
    machines: Mapping[str, InstanceType],
    *,
    document: Document,
    at: KeyPath,
) -> Phase:
    """Return one phase, limited to its class's widths, with the cost of traffic between nodes."""
    size_gpu_hours, curves = _work(phase, measured, machines, document, at)
    if row.min_gpus is not None or row.max_gpus is not None:
        curves = limited(curves, min_gpus=row.min_gpus, max_gpus=row.max_gpus)
        if not curves:
            problem = f"{spoken(at, document.content)}: min_gpus and max_gpus of the class leave no width"
            raise document.error(problem, at=at)
    if row.network is not None:
        need = AllReduce(**row.network.model_dump())
        curves = {
            name: across_nodes(
                curve,
                gpus_per_node=machines[name].gpus,
                share=network_share(Link.of_gigabits(machines[name].link_gigabits_per_second), need),
            )
            for name, curve in curves.items()
        }
    return Phase(size_gpu_hours=size_gpu_hours, speedups=curves)


def _work(
    phase: PhaseRow,
    measured: MeasuredPhase | None,
    machines: Mapping[str, InstanceType],
    document: Document,
    at: KeyPath,
) -> tuple[float, Mapping[str, SpeedupCurve]]:
    """Return the work and the speed-ups of a phase, measured or as stated."""
    if measured is not None:
        return measured.size_gpu_hours, measured.curves
    for key in ("size_gpu_hours", "speedup"):
        if key not in phase.model_fields_set:
            raise document.error(f"{spoken((*at, key), document.content)} is missing", at=(*at, key))
    if phase.size_gpu_hours is None:
        where: KeyPath = (*at, "size_gpu_hours")
        raise document.error(f"{spoken(where, document.content)} must be a number; got nothing", at=where)
    here: KeyPath = (*at, "speedup")
    placed, rest = take_placements(phase.speedup, machines, document=document, at=here)
    if placed and not rest:
        return phase.size_gpu_hours, placed
    return phase.size_gpu_hours, read_speedups(rest, tuple(machines), document=document, at=here) | placed


def _measured(
    name: str, phase: PhaseRow, machines: Mapping[str, InstanceType], document: Document, at: KeyPath
) -> MeasuredPhase | None:
    """Return the measured phase; None if the phase has no measurements."""
    given = phase.model_fields_set
    amounts, rates = [key for key in AMOUNTS if key in given], [key for key in RATES if key in given]
    if not amounts and not rates:
        if "extrapolate_to" in given:
            problem = f"{spoken(at, document.content)}: extrapolate_to goes with measurements"
            raise document.error(problem, at=(*at, "extrapolate_to"), hint="Give steps and step_seconds")
        return None
    what = (*amounts, *rates)[0]
    if given & {"size_gpu_hours", "speedup"}:
        hint = "Measured steps say both the work and the speed-up"
        problem = f"{spoken(at, document.content)} has {what} besides size_gpu_hours or speedup"
        raise document.error(problem, at=at, hint=hint)
    wanted = RATES[rates[0]] if rates else amounts[0]
    if wanted not in amounts or not rates:
        key = next(rate for rate, unit in RATES.items() if unit == wanted) if not rates else wanted
        raise document.error(f"{spoken((*at, key), document.content)} is missing", at=(*at, key))
    if len(amounts) > 1 or len(rates) > 1:
        problem = f"{spoken(at, document.content)} has {' and '.join((*amounts, *rates))}: give one of each"
        raise document.error(problem, at=at, hint=f"For example {wanted} and {rates[0]}")
    amount = getattr(phase, wanted)
    if amount is None:
        raise document.error(f"{spoken((*at, wanted), document.content)} is missing", at=(*at, wanted))
    return measured_work(
        amount,
        rates[0],
        getattr(phase, rates[0]),
        machines,
        extrapolate_to=phase.extrapolate_to,
        class_name=name,
        document=document,
        at=(*at, rates[0]),
    )
