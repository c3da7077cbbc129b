"""The report of a study: its tables, for a terminal, as one HTML file with a picture, and in Markdown.

A page of Markdown has its blocks between the lines ``<!-- boa study: NAME -->`` and ``<!-- end -->``, NAME
being one of `BLOCKS`; what stands between is written anew, everything else is left as it is.
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
    """What a study says: by trace, rivals over the reference, all over the bound, worlds over the first."""

    study: Study
    found: Sequence[CaseRow]
    traces: Sequence[TraceLine]
    rivals: Sequence[PairedRatios]
    regrets: Sequence[PairedRatios]
    robustness: Sequence[PairedRatios]

    @classmethod
    def of(cls, study: Study, found: Sequence[CaseRow]) -> StudyReport:
        """Return the report of what was found, be it all or a part."""
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
        """Return it as JSON says it."""
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
        """Return each table that has a line, by its block."""
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
        """Return how like what it was fitted to each drawn load is."""
        return [f"{name}: {one.sentence}" for name, one in self.study.loads.items()]

    def sentences(self) -> list[str]:
        """Return what was run and how to read it."""
        file = self.study.file
        words = [
            f"{len(self.found)} of {self.study.cells} cells: {counted(len(file.traces), 'trace')}, "
            f"{counted(len(self.study.budgets), 'budget')}, {counted(len(file.worlds), 'world')}, "
            f"{counted(file.seeds, 'seed')}.",
            "Ratios are geometric means over pairs on the same jobs; brackets are 95 % intervals.",
        ]
        if any(one.unpaid for one in self.rivals):
            words.append("* as run, at least in part: at no setting does that policy spend as little.")
        words += [
            f"Not done: {one.cell.policy} on {one.case.trace}, {one.case.world}, {one.case.budget}, "
            f"seed {one.cell.seed}: {one.words}"
            for one in self.failures[:10]
        ]
        return words


def write_report(path: Path, report: StudyReport) -> None:
    """Write the report as one HTML file, or the blocks of a page of Markdown.

    Raises:
        InputError: when it cannot be written, or the page of Markdown has no place for a block.
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
    """Return a page of Markdown that has places for blocks; nothing where there is no page yet.

    Raises:
        InputError: when it has none, or one for a block that there is not.
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
        raise InputError("the page has no place for a study", file=path, hint=hint)
    return text


def _in_markdown(path: Path, report: StudyReport) -> str:
    """Return the page with its blocks written anew; one that is not there yet has them all."""
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
    """Return a table whose columns from `right` on are numbers."""
    return PageTable(
        title=title, columns=columns, rows=tuple(rows), right=frozenset(range(right, len(columns)))
    )


def _trace_line(one: TraceLine, rivals: Sequence[str]) -> tuple[str, ...]:
    """Return where the reference stands on a trace, and each rival's ratio; a dash where it could not run."""
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
    """Return world, budget and policy."""
    return one.world, one.budget, one.policy


def _told(one: PairedRatios) -> str:
    """Return a ratio with its interval, with a star where not all of it is for the same money."""
    return f"{ratio_text(one.waiting)}{_star(one)}"


def _star(one: PairedRatios) -> str:
    """Return the sign of what is not all for the same money."""
    return " *" if one.unpaid else ""
