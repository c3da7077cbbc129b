"""``boa commit``: advise on commitments: which one pays off, how sure that is, what it would have saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from boa_daemon.cli.common.completion import complete_policies
from boa_daemon.cli.common.output import (
    OutputFormat,
    OutputOption,
    a_table,
    show,
    stderr_console,
    stdout_console,
)
from boa_daemon.cli.common.planning_options import (
    ClassesOrTraceOption,
    PricesOption,
    cell,
    indented_lines,
    read_problem,
    with_budget_flag,
)
from boa_daemon.cli.common.report import ReportOption, check_report, write_report
from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.document_file import read_document
from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.planning.commitment_advice import AdviceRequest, CommitmentAdvice
from boa_daemon.planning.commitments import TermAdvice
from boa_daemon.planning.plots import as_picture, bill_figure
from boa_daemon.planning.report_page import Picture
from boa_daemon.traces.reader import check_classes, class_file_of, read_trace
from boa_daemon.units import HOURS_PER_MONTH, Per, counted, per_of
from policies.registry import DEFAULT_POLICY, find_policy

_FROM = "Give --classes FILE, --trace FILE, or --usage FILE"


def commit(
    *,
    offers: Annotated[Path, typer.Option(metavar="FILE", help="Commitments on offer, with their discounts.")],
    classes: ClassesOrTraceOption = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Arrivals to simulate; the advice is tested on their last part."),
    ] = None,
    usage: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Past rentals: instance_type,launched_at,ended_at[,instances]."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="40/h, 900/day or 25000/month, at on-demand prices.")
    ] = None,
    spread: Annotated[
        float,
        typer.Option(min=0.0, max=0.95, help="Without a trace: how far the load may be off, as a fraction."),
    ] = 0.25,
    held_out: Annotated[
        float,
        typer.Option(
            "--held-out", min=0.05, max=0.95, help="Last fraction of the time, on which the advice is tested."
        ),
    ] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulation.")] = 0,
    policy: Annotated[
        str,
        typer.Option(
            help="Policy that runs the trace, as in `boa simulate`.",
            autocompletion=complete_policies,
        ),
    ] = DEFAULT_POLICY,
    prices: PricesOption = None,
    report: ReportOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Advise which commitment gives the smallest bill at the same waiting, and how sure that is."""
    if (usage is None) is (classes is None and trace is None):
        raise InputError(
            "no load is given" if usage is None else "--usage excludes --classes and --trace", hint=_FROM
        )
    check_report(report)
    name = find_policy(policy).name
    question = AdviceRequest(
        offers=read_document(offers), spread=spread, held_out=held_out, seed=seed, policy=name
    )
    if usage is not None:
        found = question.from_usage(usage, Catalog.load(*(prices or ())))
    else:
        file = _classes(classes, trace, prices)
        if file.problem.budget_unit == "gpus":
            raise InputError("commitments are paid in dollars", file=file.path, hint="Give gpu_types prices")
        file, asked = with_budget_flag(file, budget, is_plan=True)
        if trace is None:
            found = question.from_classes(file, asked)
        else:
            arrivals = read_trace(trace)
            check_classes(arrivals, [job_class.name for job_class in file.problem.classes], trace)
            with stderr_console().status("simulating the trace"):
                found = question.from_trace(file, asked, arrivals, trace)
    per = per_of(budget)
    document = found.to_document()
    sources = {"offers": offers, "classes": classes, "trace": trace, "usage": usage}
    write_report(
        report,
        "What to commit to",
        _lead(found.advice, per),
        document=document,
        table=lambda: _print(found, per),
        pictures=lambda: _pictures(found.advice, per),
        assumed={name: path.name for name, path in sources.items() if path is not None}
        | {"budget": budget or "as the file says"},
        bad=_bad_news(found.advice),
    )
    show(
        output,
        document,
        rows=found.rows,
        table=lambda: _print(found, per),
    )


def _classes(classes: Path | None, trace: Path | None, prices: list[Path] | None) -> ProblemFile:
    """Return the classes of the file, or of the class file beside the trace."""
    if classes is None:
        assert trace is not None
        classes = class_file_of(trace, None)
    return read_problem(classes, prices, require_rates=trace is None)


def _pictures(found: Sequence[TermAdvice], per: Per) -> list[Picture]:
    """Return a picture of the bills of each term, on demand and with what is advised."""
    pictures = []
    for advice in found:
        if advice.lines:
            years = counted(advice.term_years, "year")
            cases = [
                (f"{case.name} load, {years}", case.on_demand, case.advised)
                for case in (advice.low, advice.likely, advice.high)
            ]
            words = (
                f"The bill for a low, likely and high load, on demand and with the commitment for {years}."
            )
            pictures.append(as_picture(bill_figure(cases, per), words))
    return pictures


def _bad_news(found: Sequence[TermAdvice]) -> list[str]:
    """Return how each advised commitment can turn out badly, and its warnings."""
    said = []
    for advice in found:
        if advice.lines:
            months, paid = 12 * advice.term_years, advice.paid_after_months
            said.append(
                f"The commitment for {counted(advice.term_years, 'year')} is paid whether used or not: it "
                f"loses money if the load ends before {paid:.1f} of {months} months."
            )
            if advice.low.advised > advice.low.on_demand:
                more = HOURS_PER_MONTH * (advice.low.advised - advice.low.on_demand)
                said.append(f"With the low load it costs ${more:,.0f} a month more than on demand.")
            said += advice.warnings
    return list(dict.fromkeys(said))


def _lead(found: Sequence[TermAdvice], per: Per) -> str:
    """Return a sentence about the term that saves most."""
    best = max(found, key=lambda one: one.likely.on_demand - one.likely.advised, default=None)
    if best is None or not best.lines:
        return "Commit to nothing: on demand is cheapest."
    years = f"{best.term_years} year{'s' if best.term_years > 1 else ''}"
    saved = HOURS_PER_MONTH * (best.likely.on_demand - best.likely.advised)
    usd = sum(line.usd_per_hour for line in best.lines)
    return f"Commit to {per.usd(usd)} for {years}: that saves ${saved:,.0f} a month at the same waiting."


def _print(found: CommitmentAdvice, per: Per) -> None:
    console = stdout_console()
    numbers = (f"$/{per.name}", "GPUs", "must be used", "is used")
    ran = "" if found.policy is None else f" under {found.policy}"
    for advice in found.advice:
        years = f"{advice.term_years} year{'s' if advice.term_years > 1 else ''}"
        if not advice.lines:
            console.print(indented_lines([f"{years}: commit to nothing; on demand is cheapest."]))
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
                f"{line.usd_per_hour * per.hours:,.2f}",
                gpus,
                f"{line.break_even_use:.0%}",
                f"{line.used_fraction:.0%}",
            )
        console.print(table)
        console.print()
        columns = ("load", "mean GPUs", "on demand", "with this", "saves", "best there")
        cases = a_table(f"The bill, $/{per.name}", "", *columns, right=columns)
        for case in (advice.low, advice.likely, advice.high):
            cases.add_row(
                case.name,
                f"{case.factor:.0%}",
                f"{case.mean_gpus:.1f}",
                f"{case.on_demand * per.hours:,.2f}",
                f"{case.advised * per.hours:,.2f}",
                f"{case.saved_fraction:.1%}",
                f"{case.best.bill.total * per.hours:,.2f}",
            )
        console.print(cases)
        console.print()
        saved = HOURS_PER_MONTH * (advice.likely.on_demand - advice.likely.advised)
        sentences = [
            f"Saves ${saved:,.0f} a month at the same waiting, and breaks even over its term if the load "
            f"lasts {advice.paid_after_months:.1f} of {12 * advice.term_years} months."
        ]
        sentences += [
            f"Advised from the first part of the time{ran}, it {proof.sentence}."
            for proof in found.proofs
            if proof.term_years == advice.term_years
        ]
        console.print(indented_lines([*sentences, *advice.warnings]))
        console.print()
    console.print(
        f"  Discounts as of {found.terms.as_of}; source: {cell(found.terms.source)}. Nothing was bought."
    )
