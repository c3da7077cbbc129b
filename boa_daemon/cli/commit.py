"""``boa commit``: which commitment pays, how sure that is, and what it would have saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.cli.output import (
    JsonOption,
    OutputFormat,
    OutputOption,
    a_table,
    chosen_format,
    show,
    stderr_console,
    stdout_console,
)
from boa_daemon.cli.planning import ClassesOrTraceOption, PricesOption, budgeted, cell, read_problem, said
from boa_daemon.cli.report import ReportOption, check_report, write_report
from boa_daemon.comparing.hindsight import first_part, loads, rentals_of, split
from boa_daemon.comparing.tasks import Kept, Tasks
from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.commitments_file import CommitmentsFile, read_commitments
from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.planning.budget_plan import budget_plan
from boa_daemon.planning.commitments import Advice, Interval, Proof, advise, proofs
from boa_daemon.planning.rentals import load_between, read_rentals
from boa_daemon.traces.reader import check_classes, read_trace
from boa_daemon.units import HOURS_PER_MONTH
from policies.model import InstanceType
from policies.optimum.commitments import Load, load_of_swings

_FROM = "Give --classes FILE, --trace FILE, or --usage FILE"


def commit(
    *,
    offers: Annotated[
        Path, typer.Option(metavar="FILE", help="What may be committed to, at which discounts.")
    ],
    classes: ClassesOrTraceOption = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Arrivals, simulated; the advice proves itself on them."),
    ] = None,
    usage: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What was rented: instance_type,launched_at,ended_at[,instances]."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="40/h, 900/day or 25000/month, at prices on demand.")
    ] = None,
    spread: Annotated[
        float, typer.Option(min=0.0, max=0.95, help="How far the load may be off where no trace says.")
    ] = 0.25,
    held_out: Annotated[
        float, typer.Option("--held-out", min=0.05, max=0.95, help="Last part of the time, for the proof.")
    ] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of every draw of the simulation.")] = 0,
    prices: PricesOption = None,
    report: ReportOption = None,
    output: OutputOption = OutputFormat.table,
    as_json: JsonOption = False,
) -> None:
    """Say which commitment pays: the level of least bill at the same waiting, and how sure that is."""
    if (usage is None) is (classes is None and trace is None):
        raise InputError("nothing to look at" if usage is None else "--usage goes alone", hint=_FROM)
    check_report(report)
    proven: tuple[Proof, ...] = ()
    if usage is not None:
        catalog = Catalog.load(*(prices or ()))
        rentals, machines, begin, end = read_rentals(usage, catalog)
        names, middle = tuple(m.gpu_type for m in machines), end - held_out * (end - begin)
        terms = _offers(offers, machines, catalog)
        load, early, late = (
            load_between(rentals, names, *ends) for ends in ((begin, end), (begin, middle), (middle, end))
        )
        proven = proofs(early, late, machines, terms.offers)
        found = advise(load.times, _spread(spread), machines, terms.offers)
    else:
        file = _classes(classes, trace, prices)
        if file.problem.budget_unit == "gpus":
            raise InputError("commitments are paid in dollars", file=file.path, hint="Give gpu_types prices")
        file, asked = budgeted(file, budget, is_plan=True)
        if asked.unit == "gpus":
            raise InputError("commitments are paid in dollars", hint="Give a budget such as 40/h")
        if trace is None:
            swings = [part.swing for part in budget_plan(file, asked, "integer-mixed").packing]
            machines = [file.instance_types[swing.gpu_type] for swing in swings]
            terms = _offers(offers, machines, Catalog.load())

            def load_at(factor: float) -> Load:
                return load_of_swings(swings, factor=factor)

            found = advise(load_at, _spread(spread), machines, terms.offers)
        else:
            machines = list(file.instance_types.values())
            terms = _offers(offers, machines, Catalog.load())
            arrivals = read_trace(trace)
            check_classes(arrivals, [job_class.name for job_class in file.problem.classes], trace)
            at = split(arrivals, held_out)
            known = first_part(arrivals, at)
            if len(known.jobs) < 2:
                raise InputError("the first part of the trace has fewer than two jobs", file=trace)
            with stderr_console().status("simulating the trace"):
                rentals = Tasks(kept=Kept.for_user()).run(rentals_of, file, arrivals, known, asked, seed)
            load, early, late = loads(rentals, tuple(m.gpu_type for m in machines), arrivals, at)
            proven = proofs(early, late, machines, terms.offers)
            interval = Interval.of_trace(arrivals, file.problem.classes)
            found = advise(load.times, interval, machines, terms.offers)
    document = _document(found, proven, terms)
    sources = {"offers": offers, "classes": classes, "trace": trace, "usage": usage}
    write_report(
        report,
        "What to commit to",
        "The commitment of least bill at the same waiting, and how sure that is.",
        document=document,
        table=lambda: _print(found, proven, terms),
        figures=list,
        assumed={name: str(path) for name, path in sources.items() if path is not None}
        | {"budget": budget or "as the file says"},
    )
    show(
        chosen_format(output, as_json),
        document,
        rows=lambda: _rows(found),
        table=lambda: _print(found, proven, terms),
    )


def _spread(part: float) -> Interval:
    """Return the interval that a flag says."""
    return Interval(low=1.0 - part, high=1.0 + part)


def _offers(path: Path, machines: Sequence[InstanceType], catalog: Catalog) -> CommitmentsFile:
    """Return the offers, of which one at least must cover what is rented."""
    file = read_commitments(path, machines, catalog)
    if not file.offers:
        raise InputError(
            "the file offers nothing", file=path, hint="Add [[offers]] with name, kind, discount"
        )
    if all(terms.on(machines) is None for terms in file.offers):
        names = ", ".join(f"{machine.name} ({machine.gpu_type})" for machine in machines)
        raise InputError(f"no offer covers {names}", file=path, hint="Offers name a family or a GPU type")
    return file


def _classes(classes: Path | None, trace: Path | None, prices: list[Path] | None) -> ProblemFile:
    """Return the classes, or those beside the trace."""
    if classes is None:
        assert trace is not None
        classes = trace.with_name("classes.yaml")
    return read_problem(classes, prices, require_rates=trace is None)


def _document(found: Sequence[Advice], proven: Sequence[Proof], terms: CommitmentsFile) -> dict[str, Any]:
    """Return the answer as JSON."""
    return {
        "offers_as_of": None if terms.as_of is None else terms.as_of.isoformat(),
        "offers_source": terms.source,
        "terms": [advice.to_document() for advice in found],
        "proof": [proof.to_document() for proof in proven],
    }


def _rows(found: Sequence[Advice]) -> list[dict[str, Any]]:
    """Return one row for each commitment."""
    return [
        {"term_years": advice.term_years, **row, "gpu_types": " ".join(row["gpu_types"])}
        for advice in found
        for row in (line.to_document() for line in advice.lines)
    ]


def _print(found: Sequence[Advice], proven: Sequence[Proof], terms: CommitmentsFile) -> None:
    """Print the answer for people."""
    console = stdout_console()
    numbers = ("$/h", "GPUs", "must be used", "is used")
    for advice in found:
        years = f"{advice.term_years} year{'s' if advice.term_years > 1 else ''}"
        if not advice.lines:
            console.print(said([f"{years}: commit to nothing; on demand is cheapest."]))
            console.print()
            continue
        table = a_table(f"Commit for {years}", "offer", "covers", *numbers, right=numbers)
        for line in advice.lines:
            gpus = "" if line.gpus is None else f"{line.gpus:.1f}"
            if line.instances is not None:
                gpus = f"{line.instances} x {round(line.gpus or 0) // line.instances}"
            table.add_row(
                cell(line.terms.name),
                cell(", ".join(line.gpu_types)),
                f"{line.usd_per_hour:,.2f}",
                gpus,
                f"{line.break_even_use:.0%}",
                f"{line.used_fraction:.0%}",
            )
        console.print(table)
        console.print()
        columns = ("load", "mean GPUs", "on demand", "with this", "saves", "best there")
        cases = a_table("The bill, $/h", "", *columns, right=columns)
        for case in (advice.low, advice.likely, advice.high):
            cases.add_row(
                case.name,
                f"{case.factor:.0%}",
                f"{case.mean_gpus:.1f}",
                f"{case.on_demand:,.2f}",
                f"{case.advised:,.2f}",
                f"{case.saved_fraction:.1%}",
                f"{case.best.bill.total:,.2f}",
            )
        console.print(cases)
        console.print()
        saved = HOURS_PER_MONTH * (advice.likely.on_demand - advice.likely.advised)
        sentences = [
            f"Saves ${saved:,.0f} a month at the same waiting, and has paid for its whole term if the load "
            f"lasts {advice.paid_after_months:.1f} of {12 * advice.term_years} months."
        ]
        sentences += [
            f"Advised from the first part of the time, it saves {_saved(proof):.1%} of the bill in the rest: "
            f"{proof.share_of_best:.0%} of what the best in hindsight saves."
            for proof in proven
            if proof.term_years == advice.term_years
        ]
        console.print(said([*sentences, *advice.warnings]))
        console.print()
    console.print(f"  Discounts as of {terms.as_of}, from {cell(terms.source)}. Nothing was bought.")


def _saved(proof: Proof) -> float:
    """Return the part of the bill that the advice saved."""
    return 1.0 - proof.advised / proof.on_demand if proof.on_demand else 0.0
