"""The report of a study: tables for the terminal, one HTML file with a plot, or blocks of a Markdown page.

In a Markdown page the text between the lines ``<!-- boa study: NAME -->`` and ``<!-- end -->`` is replaced,
where NAME is one of `BLOCKS`. Everything else stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from boa_daemon.comparing.comparison_page import ratio_text
from boa_daemon.comparing.comparison_plots import draw_ratios
from boa_daemon.comparing.study import (
    ALL,
    CaseRow,
    PairedRatios,
    TraceLine,
    by_trace,
    regrets,
    rivalry,
    robustness,
)
from boa_daemon.comparing.study_file import Study
from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.planning.plots import as_svg
from boa_daemon.planning.report_page import REPORT_STYLE, STYLE, PageTable, whole_page, write_page
from boa_daemon.units import counted, format_hours

BLOCKS = ("traces", "ratios", "regret", "robustness", "loads", "notes")
SUFFIXES = (".html", ".htm", ".md")
_BLOCK = re.compile(r"(<!-- boa study: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyReport:
    """The figures of a study: by trace, rivals' ratios, regrets and robustness."""

    study: Study
    found: Sequence[CaseRow]
    traces: Sequence[TraceLine]
    rivals: Sequence[PairedRatios]
    regrets: Sequence[PairedRatios]
    robustness: Sequence[PairedRatios]

    @classmethod
    def of(cls, study: Study, found: Sequence[CaseRow]) -> StudyReport:
        """Return the report of all or some of the cells."""
        return cls(
            study=study,
            found=found,
            traces=by_trace(study, found),
            rivals=rivalry(study, found),
            regrets=regrets(study, found),
            robustness=robustness(study, found),
        )

    @property
    def failures(self) -> list[CaseRow]:
        """The cells that ended in an error."""
        return [one for one in self.found if one.row is None]

    def to_document(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "title": self.study.file.title,
            "reference": self.study.file.reference,
            "cells": self.study.cells,
            "failed": len(self.failures),
            "traces": [one.to_document() for one in self.traces],
            "ratios": [one.to_document() for one in self.rivals],
            "regret": [one.to_document() for one in self.regrets],
            "robustness": [one.to_document() for one in self.robustness],
            "loads": [{"trace": name} | one.to_document() for name, one in self.study.loads.items()],
            "rows": [one.to_document() for one in self.found],
        }

    def tables(self) -> dict[str, PageTable]:
        """Return each table that has rows, by its block."""
        file, home, rivals = self.study.file, self.study.cases[0].world, self.study.rivals
        budgets = self.study.budgets
        money = "all budgets together" if len(budgets) > 1 else f"budget {budgets[0]}"
        tables = {
            "traces": _table(
                f"Trace by trace in {home}: {file.reference}, and rivals over it",
                ("trace", "budget", "waits", "spends", "regret", *rivals),
                2,
                [_trace_line(one, rivals) for one in self.traces],
            ),
            "ratios": _table(
                f"Waiting over {file.reference}'s, for the same money",
                ("world", "budget", "policy", "longer", "ratio"),
                3,
                [(*_where(one), f"{one.longer} of {one.pairs}", _told(one)) for one in self.rivals],
            ),
            "regret": _table(
                "Waiting over what no policy can beat for what it spent",
                ("world", "budget", "policy", "pairs", "regret"),
                3,
                [(*_where(one), str(one.pairs), ratio_text(one.waiting)) for one in self.regrets],
            ),
            "robustness": _table(
                f"Waiting and spend over those in {home}, {money}",
                ("world", "policy", "pairs", "waiting", "spend"),
                2,
                [
                    (one.world, one.policy, str(one.pairs), ratio_text(one.waiting), ratio_text(one.spend))
                    for one in self.robustness
                    if one.spend is not None
                ],
            ),
        }
        return {name: table for name, table in tables.items() if table.rows}

    def loads(self) -> list[str]:
        """Return a sentence per drawn load on its goodness of fit."""
        return [f"{name}: {one.sentence}" for name, one in self.study.loads.items()]

    def sentences(self) -> list[str]:
        """Return sentences on what was run and how to read the figures."""
        file = self.study.file
        words = [
            f"{len(self.found)} of {self.study.cells} cells: {counted(len(file.traces), 'trace')}, "
            f"{counted(len(self.study.budgets), 'budget')}, {counted(len(file.worlds), 'world')}, "
            f"{counted(file.seeds, 'seed')}.",
            "Ratios are geometric means over pairs on the same jobs; brackets are 95 % intervals.",
        ]
        if any(one.unpaid for one in self.rivals):
            words.append("* partly at a higher spend: no setting of that policy spends as little.")
        words += [
            f"Failed: {one.cell.policy} on {one.case.trace}, {one.case.world}, {one.case.budget}, "
            f"seed {one.cell.seed}: {one.words}"
            for one in self.failures[:10]
        ]
        return words


def write_report(path: Path, report: StudyReport) -> None:
    """Write the report as one HTML file, or the blocks of a Markdown page.

    Raises:
        InputError: when the file cannot be written, or the Markdown page has no block.
    """
    if path.suffix.lower() == ".md":
        write_page(_in_markdown(path, report), path)
        return
    title = report.study.file.title
    parts = [
        f"<h1>{escape(title)}</h1>",
        *(f"<p>{escape(words)}</p>" for words in (*report.sentences(), *report.loads())),
    ]
    shown = [one for one in report.rivals if one.budget == ALL or len(report.study.budgets) == 1]
    if shown:
        parts.append(as_svg(draw_ratios(shown, report.study.file.reference)))
    parts += [table.html for table in report.tables().values()]
    write_page(whole_page(title, parts, style=STYLE + REPORT_STYLE), path)


def page_text(path: Path) -> str:
    """Return the text of a Markdown page with blocks; empty if the page does not exist yet.

    Raises:
        InputError: when the page has no block, or one with an unknown name.
    """
    if not path.exists():
        return ""
    text = path.read_text(encoding="utf-8")
    named = [found[1] for found in _BLOCK.findall(text)]
    wrong = [name for name in named if name not in BLOCKS]
    if wrong:
        raise InputError(f"a study has no block {wrong[0]!r}", file=path, hint=did_you_mean(wrong[0], BLOCKS))
    if not named:
        hint = "Put <!-- boa study: ratios --> and <!-- end --> on lines of their own, or name a new file"
        raise InputError("the page has no block for a study", file=path, hint=hint)
    return text


def _in_markdown(path: Path, report: StudyReport) -> str:
    """Return the page with its blocks replaced; a new page gets all blocks."""
    blocks = dict.fromkeys(BLOCKS, "")
    blocks["loads"] = "\n".join(f"- {words}" for words in report.loads())
    blocks["notes"] = "\n".join(f"- {words}" for words in report.sentences())
    for name, table in report.tables().items():
        marks = tuple("---:" if at in table.right else "---" for at in range(len(table.columns)))
        rows = (table.columns, marks, *table.rows)
        lines = "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows)
        blocks[name] = f"{table.title}:\n\n{lines}"
    places = "\n\n".join(f"<!-- boa study: {name} -->\n<!-- end -->" for name in BLOCKS if blocks[name])
    text = page_text(path) or f"# {report.study.file.title}\n\n{places}\n"
    return _BLOCK.sub(lambda found: f"{found[1]}\n{blocks[found[2]]}\n\n{found[3]}", text)


def _table(title: str, columns: tuple[str, ...], right: int, rows: list[tuple[str, ...]]) -> PageTable:
    """Return a table in which the columns from `right` on hold numbers."""
    return PageTable(
        title=title, columns=columns, rows=tuple(rows), right=frozenset(range(right, len(columns)))
    )


def _trace_line(one: TraceLine, rivals: Sequence[str]) -> tuple[str, ...]:
    """Return the cells of a trace: the reference's figures, and each rival's ratio or a dash."""
    ratios = [one.rivals.get(name) for name in rivals]
    return (
        one.trace,
        one.budget,
        format_hours(one.mean_jct_hours),
        f"{one.spend_over_budget:.0%}",
        f"{one.regret.mean:.2f}",
        *("-" if ratio is None else f"{ratio.waiting.mean:.2f}{_star(ratio)}" for ratio in ratios),
    )


def _where(one: PairedRatios) -> tuple[str, str, str]:
    return one.world, one.budget, one.policy


def _told(one: PairedRatios) -> str:
    """Return a ratio with its interval, and a star if not all pairs have the same spend."""
    return f"{ratio_text(one.waiting)}{_star(one)}"


def _star(one: PairedRatios) -> str:
    """Return a star if not all pairs have the same spend."""
    return " *" if one.unpaid else ""
