"""The report of a study: tables for the terminal, one HTML file with a plot, or blocks of a Markdown page.

In a Markdown page the text between the lines ``<!-- boa study: NAME -->`` and ``<!-- end -->`` is replaced,
where NAME is one of `BLOCKS`, or one of them and a group of traces: ``best of at a cap``. Everything else
stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.lab.compare.comparison_page import ratio_text
from boa_daemon.lab.compare.comparison_plots import draw_ratios
from boa_daemon.lab.compare.comparison_summary import Decomposition
from boa_daemon.lab.compare.study import (
    ALL,
    PARTS,
    BestRival,
    CaseRow,
    PairedRatios,
    TraceLine,
    by_trace,
    is_below_bound,
    regrets,
    rivalry,
    robustness,
)
from boa_daemon.lab.compare.study_file import Study
from boa_daemon.planning.plots import as_svg
from boa_daemon.planning.report_page import Heading, PageTable, Part, Picture, Report, write_page
from boa_daemon.tasks.content_hash import code_hash
from boa_daemon.units import counted, format_hours

PRINTED = ("traces", "ratios", "regret", "robustness")
"""The tables that the command prints; pages have all."""
BLOCKS = ("summary", *PRINTED, "best", "worlds", "gain", "hours", "loads", "notes")
LEADING = ("ratios", "best")
"""The tables that stand before the others on an HTML page."""
SUFFIXES = (".html", ".htm", ".md")
_Figure: TypeAlias = tuple[float, str, TraceLine]
"""A figure, its star, and the trace it is of."""
_BLOCK = re.compile(r"(<!-- boa study: (\S+)(?: of (.+?))? -->\n).*?(<!-- end -->)", re.DOTALL)


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

    def of_group(self, name: str) -> StudyReport:
        """Return the report of one group of traces."""
        return StudyReport.of(
            self.study.of_group(name), [one for one in self.found if name in one.case.groups]
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
        file, home, rivals = self.study.file, self.study.worlds[0], self.study.rivals
        budgets = self.study.budgets
        money = "all budgets together" if len(budgets) > 1 else f"budget {budgets[0]}"
        has_boots = any(one.regret_with_boots for one in self.traces)
        regret = ("regret", "with boots") if has_boots else ("regret",)
        tables = {
            "summary": _table(
                f"From trace to trace in {home}: waiting over {file.reference}'s, and its own over the bound",
                (
                    "",
                    "traces" if len(budgets) == 1 else "traces and budgets",
                    "least",
                    "where",
                    "most",
                    "where",
                ),
                (1, 2, 4),
                self._ranges(),
            ),
            "traces": _table(
                f"Trace by trace in {home}: {file.reference}, and rivals over it",
                ("trace", "budget", "waits", "spends", *regret, *rivals),
                2,
                [_trace_line(one, rivals, has_boots=has_boots) for one in self.traces],
            ),
            "best": _table(
                f"{file.reference} and its best rival in {home}: mean and 95th percentile of waiting",
                ("trace", "budget", "waits", "95 %", "best rival", "its waits", "its 95 %", "ratio"),
                2,
                [_best_line(one, one.best) for one in self.traces if one.best is not None],
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
            "worlds": _table(
                f"{file.reference} world by world: waiting, and spend over the budget",
                ("trace", "budget", *(name for world in self.study.worlds for name in (world, "spends"))),
                2,
                self._worlds() if len(self.study.worlds) > 1 else [],
            ),
            "gain": _table(
                f"{file.reference}'s gain over the best fixed fleet in {home}, as a product",
                ("trace", "budget", "best fleet", "over it", "best rule", "elasticity", "optimisation"),
                2,
                [_gain_line(one, one.gain) for one in self.traces if one.gain is not None],
            ),
            "hours": _table(
                f"What {file.reference} does with the GPU-hours that it rents in {home}",
                ("trace", "budget", "works", "starts", "boots", "idle", "waits", *regret),
                2,
                [_hours_line(one, has_boots=has_boots) for one in self.traces],
            ),
        }
        return {name: table for name, table in tables.items() if table.rows}

    def _worlds(self) -> list[tuple[str, ...]]:
        """Return a row for each trace and budget: waiting and spend in each world, or dashes."""
        found: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
        for world in self.study.worlds:
            for one in by_trace(self.study, self.found, world):
                cells = format_hours(one.mean_jct_hours), f"{one.spend_over_budget:.0%}"
                found.setdefault((one.trace, one.budget), {})[world] = cells
        return [
            (*where, *(cell for world in self.study.worlds for cell in cells.get(world, ("-", "-"))))
            for where, cells in found.items()
        ]

    def _ranges(self) -> list[tuple[str, ...]]:
        """Return a row for each rival, the best rival and each bound: least and greatest over the traces."""
        reference = self.study.file.reference
        figures: list[tuple[str, list[_Figure]]] = [
            (
                name,
                [
                    (ratio.waiting.mean, _star(ratio), one)
                    for one in self.traces
                    if (ratio := one.rivals.get(name)) is not None
                ],
            )
            for name in self.study.rivals
        ]
        best = [(one.best.waiting.mean, _star(one.best), one) for one in self.traces if one.best is not None]
        figures.append(("the best rival", best))
        figures.append((f"{reference} over the bound", [(o.regret.mean, "", o) for o in self.traces]))
        with_boots = [
            (one.regret_with_boots.mean, "", one) for one in self.traces if one.regret_with_boots is not None
        ]
        figures.append((f"{reference} over the bound with boots", with_boots))
        nearest = [
            (over * min([1.0, *(r.waiting.mean for r in one.rivals.values() if not r.unpaid)]), "", one)
            for over, _, one in with_boots
        ]
        figures.append(("the best run of any policy over the bound with boots", nearest))
        several = len(self.study.budgets) > 1
        return [
            (
                name,
                str(len(found)),
                *_end(min(found, key=_value), several),
                *_end(max(found, key=_value), several),
            )
            for name, found in figures
            if found
        ]

    def verdict(self) -> str:
        """Return in a sentence how the best rival fares, and how far the reference is from the bound."""
        reference, home = self.study.file.reference, self.study.worlds[0]
        best = [one.best for one in self.traces if one.best is not None]
        if not best:
            return f"No rival of {reference} has finished in {home} yet."
        means = [one.waiting.mean for one in best]
        least, most = min(means), max(means)
        ahead = sum(mean > 1.0 for mean in means)
        span = f"{least:.2f}" if f"{least:.2f}" == f"{most:.2f}" else f"{least:.2f} to {most:.2f}"
        cases = counted(len(best), "trace" if len(self.study.budgets) == 1 else "case")
        over = max(one.regret.mean for one in self.traces)
        return (
            f"For the same money the best rival of {reference} waits {span} times as long in {home}, and "
            f"longer in {ahead} of {cases}; {reference} is within a factor of {over:.2f} of what no policy "
            "can beat."
        )

    def bad_news(self) -> list[str]:
        """Return what speaks against the reference or the figures, in sentences."""
        reference = self.study.file.reference
        rows = [one for one in self.rivals if one.budget == ALL or len(self.study.budgets) == 1]
        said = [
            f"In {one.world} {one.policy} waits less than {reference}: {ratio_text(one.waiting)} times."
            for one in rows
            if one.waiting.mean < 1.0
        ]
        open_ones = [
            f"{one.policy} in {one.world}"
            for one in rows
            if one.waiting.mean >= 1.0 and one.waiting.low is not None and one.waiting.low < 1.0
        ]
        if open_ones:
            more = f" and {len(open_ones) - 5} more" if len(open_ones) > 5 else ""
            said.append(f"Not decided, as the interval holds 1: {', '.join(open_ones[:5])}{more}.")
        lost = [one for one in self.traces if one.best is not None and one.best.waiting.mean < 1.0]
        said += [
            f"On {one.trace} for {one.budget} {one.best.policy} waits {ratio_text(one.best.waiting)} times."
            for one in lost[:5]
            if one.best is not None
        ]
        over = [one for one in self.traces if one.spend_over_budget > 1.02]
        said += [
            f"{reference} spent {one.spend_over_budget:.0%} of its budget on {one.trace}, {one.budget}."
            for one in over[:5]
        ]
        if self.failures:
            said.append(f"{counted(len(self.failures), 'cell')} failed, and left no figure.")
        return said

    def loads(self) -> list[str]:
        """Return a sentence per drawn load on its goodness of fit."""
        return [f"{name}: {one.sentence}" for name, one in self.study.loads.items()]

    def sentences(self) -> list[str]:
        """Return sentences on what was run and how to read the figures."""
        seeds = self.study.seeds
        words = [
            f"{len(self.found)} of {self.study.cells} cells: {counted(len(self.study.traces), 'trace')}, "
            f"{counted(len(self.study.budgets), 'budget')}, {counted(len(self.study.worlds), 'world')}, "
            f"{'up to ' if len(seeds) > 1 else ''}{counted(max(seeds), 'seed')}.",
            "Ratios are geometric means over pairs on the same jobs; brackets are 95 % intervals.",
        ]
        if any(one.unpaid for one in self.rivals):
            words.append("* partly at a higher spend: no setting of that policy spends as little.")
        words += [
            f"Below its bound, which shows a mistake in the run or the bound: {_cell_text(one)}."
            for one in self.found
            if one.row is not None and is_below_bound(one.row)
        ][:10]
        words += [f"Failed: {_cell_text(one)}: {one.words}" for one in self.failures[:10]]
        return words


def write_report(path: Path, report: StudyReport, only: str | None = None) -> None:
    """Write the report as one HTML file, or the blocks of a Markdown page; with `only`, those of one group.

    Raises:
        InputError: when the file cannot be written, or the Markdown page has no such block.
    """
    if path.suffix.lower() == ".md":
        write_page(_in_markdown(path, report, only), path)
        return
    shown = [one for one in report.rivals if one.budget == ALL or len(report.study.budgets) == 1]
    reference = report.study.file.reference
    parts: list[Part] = []
    if shown:
        words = (
            f"Each rival's mean job completion time over that of {reference}, for the same money: right of "
            "the line it waits longer. Bars are 95 % intervals; a hollow point spent more in some pairs."
        )
        parts.append(Picture(svg=as_svg(draw_ratios(shown, reference)), words=words))
    tables = report.tables()
    first = [tables.pop(name) for name in LEADING if name in tables]
    parts += [*first, *report.sentences(), *report.loads()]
    parts += [Heading("All tables"), *tables.values()] if tables else []
    page = Report(
        title=report.study.file.title,
        lead=report.verdict(),
        bad=report.bad_news(),
        parts=parts,
        made_by=_made_by(),
    )
    write_page(page.html, path)


def page_text(path: Path, study: Study, only: str | None = None) -> str:
    """Return the text of a Markdown page with blocks; empty if the page does not exist yet.

    With `only`, a group of traces of the study, blocks of other groups are left alone.

    Raises:
        InputError: when the page has no block to fill in, or one with an unknown name or of an unknown group.
    """
    if not path.exists():
        return ""
    text = path.read_text(encoding="utf-8")
    named = [(found[1], found[2]) for found in _BLOCK.findall(text)]
    for name, group in named:
        if name not in BLOCKS:
            raise InputError(f"a study has no block {name!r}", file=path, hint=did_you_mean(name, BLOCKS))
        if group and group not in study.groups and only is None:
            hint = did_you_mean(group, study.groups)
            raise InputError(f"the study has no group of traces {group!r}", file=path, hint=hint)
    if only is not None and only not in {group for _, group in named}:
        hint = f"Put <!-- boa study: ratios of {only} --> and <!-- end --> on lines of their own"
        raise InputError(f"the page has no block of the group {only!r}", file=path, hint=hint)
    if not named:
        hint = "Put <!-- boa study: ratios --> and <!-- end --> on lines of their own, or name a new file"
        raise InputError("the page has no block for a study", file=path, hint=hint)
    return text


def _made_by() -> str:
    """Return a sentence on the code that the figures are of."""
    return f"Run with code {code_hash()}."


def _in_markdown(path: Path, report: StudyReport, only: str | None) -> str:
    """Return the page with its blocks, or those of one group, replaced; a new page gets all blocks."""
    text = page_text(path, report.study, only)
    groups = ("", *dict.fromkeys(found[2] for found in _BLOCK.findall(text))) if only is None else (only,)
    blocks = {group: _blocks(report.of_group(group) if group else report) for group in groups}
    tables = blocks.get("") or blocks[groups[0]]
    of = f" of {only}" if only else ""
    places = "\n\n".join(f"<!-- boa study: {name}{of} -->\n<!-- end -->" for name in BLOCKS if tables[name])

    def filled(block: re.Match[str]) -> str:
        tables = blocks.get(block[3] or "")
        return block[0] if tables is None else f"{block[1]}\n{tables[block[2]]}\n\n{block[4]}"

    return _BLOCK.sub(
        filled,
        text or f"# {report.study.file.title}\n\n{places}\n",
    )


def _blocks(report: StudyReport) -> dict[str, str]:
    """Return every block as Markdown; empty if it has nothing to say."""
    blocks = dict.fromkeys(BLOCKS, "")
    blocks["loads"] = "\n".join(f"- {words}" for words in report.loads())
    blocks["notes"] = "\n".join(f"- {words}" for words in (*report.sentences(), _made_by()))
    for name, table in report.tables().items():
        marks = tuple("---:" if at in table.right else "---" for at in range(len(table.columns)))
        rows = (table.columns, marks, *table.rows)
        lines = "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows)
        blocks[name] = f"{table.title}:\n\n{lines}"
    return blocks


def _table(
    title: str, columns: tuple[str, ...], right: int | tuple[int, ...], rows: list[tuple[str, ...]]
) -> PageTable:
    """Return a table in which the columns `right`, or those from `right` on, hold numbers."""
    numbers = range(right, len(columns)) if isinstance(right, int) else right
    return PageTable(title=title, columns=columns, rows=tuple(rows), right=frozenset(numbers))


def _trace_line(one: TraceLine, rivals: Sequence[str], *, has_boots: bool) -> tuple[str, ...]:
    """Return the cells of a trace: the reference's figures, and each rival's ratio or a dash."""
    ratios = [one.rivals.get(name) for name in rivals]
    return (
        one.trace,
        one.budget,
        format_hours(one.mean_jct_hours),
        f"{one.spend_over_budget:.0%}",
        *_regrets(one, has_boots=has_boots),
        *("-" if ratio is None else f"{ratio.waiting.mean:.2f}{_star(ratio)}" for ratio in ratios),
    )


def _regrets(one: TraceLine, *, has_boots: bool) -> tuple[str, ...]:
    """Return the regret of a trace, and if the table has that column the one over the bound with boots."""
    regret = f"{one.regret.mean:.2f}"
    if not has_boots:
        return (regret,)
    return regret, "-" if one.regret_with_boots is None else f"{one.regret_with_boots.mean:.2f}"


def _best_line(one: TraceLine, best: BestRival) -> tuple[str, ...]:
    """Return the reference's waiting beside that of its best rival."""
    return (
        one.trace,
        one.budget,
        format_hours(one.mean_jct_hours),
        format_hours(one.p95_jct_hours),
        best.policy,
        format_hours(best.mean_jct_hours),
        format_hours(best.p95_jct_hours),
        f"{best.waiting.mean:.2f}{_star(best)}",
    )


def _gain_line(one: TraceLine, gain: Decomposition) -> tuple[str, ...]:
    """Return the factors of the gain over the best fixed fleet."""
    total, elasticity, rest = (f"{r.mean:.2f}" for r in (gain.total, gain.elasticity, gain.optimisation))
    return (one.trace, one.budget, gain.fleet, total, gain.rule, elasticity, rest)


def _hours_line(one: TraceLine, *, has_boots: bool) -> tuple[str, ...]:
    """Return the parts of the rented GPU-hours by use, and the waiting."""
    parts = (f"{100.0 * one.parts[name]:.1f} %" for name in PARTS)
    waits = format_hours(one.mean_jct_hours)
    return (one.trace, one.budget, *parts, waits, *_regrets(one, has_boots=has_boots))


def _value(figure: _Figure) -> float:
    return figure[0]


def _end(figure: _Figure, several: bool) -> tuple[str, str]:
    """Return a figure and where it is; with its budget if the study has several."""
    value, star, one = figure
    return f"{value:.2f}{star}", f"{one.trace}, {one.budget}" if several else one.trace


def _cell_text(one: CaseRow) -> str:
    """Return the place of a cell."""
    return f"{one.cell.policy} on {one.case.trace}, {one.case.world}, {one.case.budget}, seed {one.cell.seed}"


def _where(one: PairedRatios) -> tuple[str, str, str]:
    return one.world, one.budget, one.policy


def _told(one: PairedRatios) -> str:
    """Return a ratio with its interval, and a star if not all pairs have the same spend."""
    return f"{ratio_text(one.waiting)}{_star(one)}"


def _star(one: PairedRatios | BestRival) -> str:
    """Return a star if not all pairs have the same spend."""
    return " *" if one.unpaid else ""
