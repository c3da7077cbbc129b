"""The report of a study: its tables, for a terminal and as one HTML file with a picture inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from boa_daemon.comparing.figures import draw_ratios
from boa_daemon.comparing.page import ratio_text
from boa_daemon.comparing.study import ALL, CaseRow, Versus, regrets, rivalry, robustness
from boa_daemon.comparing.study_file import Study
from boa_daemon.planning.plots import as_svg
from boa_daemon.planning.report_page import whole_page, write_page


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyReport:
    """What a study says: rivals over the reference, all over the bound, and other worlds over the first."""

    study: Study
    found: Sequence[CaseRow]
    rivals: Sequence[Versus]
    regrets: Sequence[Versus]
    robustness: Sequence[Versus]

    @classmethod
    def of(cls, study: Study, found: Sequence[CaseRow]) -> StudyReport:
        """Return the report of what was found, be it all or a part."""
        return cls(
            study=study,
            found=found,
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
            "ratios": [one.to_document() for one in self.rivals],
            "regret": [one.to_document() for one in self.regrets],
            "robustness": [one.to_document() for one in self.robustness],
            "rows": [one.to_document() for one in self.found],
        }

    def tables(self) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
        """Return (title, headings, lines) of each table that has a line."""
        file = self.study.file
        money = "all budgets together" if len(file.budgets) > 1 else f"budget {file.budgets[0]}"
        tables: list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]] = [
            (
                f"Waiting over {file.reference}'s, for the same money",
                ("world", "budget", "policy", "pairs", "ratio"),
                [(*_where(one), str(one.pairs), _told(one)) for one in self.rivals],
            ),
            (
                "Waiting over what no policy can beat for what it spent",
                ("world", "budget", "policy", "pairs", "regret"),
                [(*_where(one), str(one.pairs), ratio_text(one.waiting)) for one in self.regrets],
            ),
            (
                f"Waiting and spend over those in {self.study.cases[0].world}, {money}",
                ("world", "policy", "pairs", "waiting", "spend"),
                [
                    (one.world, one.policy, str(one.pairs), ratio_text(one.waiting), ratio_text(one.spend))
                    for one in self.robustness
                    if one.spend is not None
                ],
            ),
        ]
        return [table for table in tables if table[2]]

    def sentences(self) -> list[str]:
        """Return what was run and how to read it."""
        file = self.study.file
        words = [
            f"{len(self.found)} of {self.study.cells} cells: {len(file.traces)} traces, "
            f"{len(file.budgets)} budgets, {len(file.worlds)} worlds, {file.seeds} seeds.",
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
    """Write the report as one HTML file."""
    title = report.study.file.title
    parts = [
        f"<h1>{escape(title)}</h1>",
        *(f"<p>{escape(words)}</p>" for words in report.sentences()),
    ]
    shown = [one for one in report.rivals if one.budget == ALL or len(report.study.file.budgets) == 1]
    if shown:
        parts.append(as_svg(draw_ratios(shown, report.study.file.reference)))
    for name, headings, lines in report.tables():
        head = "".join(f"<th>{escape(word)}</th>" for word in headings)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
        parts.append(f"<h2>{escape(name)}</h2>")
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    write_page(whole_page(title, parts), path)


def _where(one: Versus) -> tuple[str, str, str]:
    """Return world, budget and policy."""
    return one.world, one.budget, one.policy


def _told(one: Versus) -> str:
    """Return a ratio, with a star where not all of it is for the same money."""
    return f"{ratio_text(one.waiting)}{' *' if one.unpaid else ''}"
