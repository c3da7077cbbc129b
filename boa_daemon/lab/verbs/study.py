"""``boa study``: run all combinations of traces, budgets, policies and worlds of a file; write a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.cli.common.task_progress import OnOption, OutOption, tasks_with_progress
from boa_daemon.errors import PARTLY_DONE, BoaError, InputError, did_you_mean
from boa_daemon.lab.compare.study import CaseRow, run_study
from boa_daemon.lab.compare.study_file import load_study
from boa_daemon.lab.compare.study_page import PRINTED, SUFFIXES, StudyReport, page_text, write_report
from boa_daemon.planning.plots import check_plot_path


def study(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Study file: traces, budgets, policies, worlds, seeds.")
    ],
    *,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help="Run one group of traces; on an .md page, fill in its blocks alone.",
        ),
    ] = None,
    on: OnOption = None,
    out: OutOption = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write an .html report, updated every minute while runs go on; or fill in the blocks of "
            "an .md page."
        ),
    ] = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Run a study file's traces, budgets, policies and worlds; report ratios, regret and robustness."""
    is_page = report is not None and report.suffix.lower() == ".md"
    if report is not None:
        check_plot_path(report, "--report", SUFFIXES)
    asked = load_study(file)
    if only is not None:
        if only not in asked.groups:
            raise InputError(
                f"the study has no group of traces {only!r}", file=file, hint=did_you_mean(only, asked.groups)
            )
        asked = asked.of_group(only)
    if report is not None and is_page:
        page_text(
            report, asked, only
        )  # raise an error before hours of work if the page has no block for a study
    seen: list[CaseRow] = []
    with tasks_with_progress(on, out, asked.cells, "cells") as headway:

        def on_found(found: CaseRow) -> None:
            seen.append(found)
            headway.step()

        def look() -> None:
            so_far = StudyReport.of(asked, list(seen))
            done = [one for one in so_far.rivals if one.world == asked.worlds[0]]
            best = min(done, key=lambda one: one.waiting.mean, default=None)
            if best is not None:
                headway.best = f"{best.policy} waits {best.waiting.mean:.2f} times as long"
            if report is not None and not is_page:
                write_report(report, so_far)

        headway.each_minute = look
        found = run_study(asked, headway.tasks, on_found=on_found)
    told = StudyReport.of(asked, found)
    if told.failures and len(told.failures) == len(found):
        raise BoaError(f"every run failed; the first: {told.failures[0].words}")
    if report is not None:
        write_report(report, told, only)
    show(
        output,
        told.to_document(),
        rows=lambda: _rows(found),
        table=lambda: _print(told),
    )
    if told.failures:
        raise typer.Exit(PARTLY_DONE)


def _rows(found: list[CaseRow]) -> list[dict[str, Any]]:
    """Return a CSV row for each cell, all with the same columns."""
    documents = [one.to_document() for one in found]
    columns = dict.fromkeys(key for document in documents for key in (*document, "error"))
    rows = [{key: document.get(key, "") for key in columns} for document in documents]
    for row in rows:
        knob = row["knob"]
        if isinstance(knob, dict):
            row["knob"] = " ".join(f"{name}={value:g}" for name, value in knob.items())
    return rows


def _print(report: StudyReport) -> None:
    console = stdout_console()
    tables = report.tables()
    for found in (tables[name] for name in PRINTED if name in tables):
        table = a_table(found.title, *found.columns, right=[found.columns[at] for at in found.right])
        for line in found.rows:
            table.add_row(*line)
        console.print(table)
        console.print()
    for words in (*report.sentences(), *report.loads()):
        console.print(words, markup=False)
