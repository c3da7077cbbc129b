"""The report of a comparison: one self-contained HTML file with plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from boa_daemon.lab.compare.cells import REFERENCE, CellResult, Comparison
from boa_daemon.lab.compare.comparison_plots import MoneyPlot, draw_money, draw_timeline, draw_waiting
from boa_daemon.lab.compare.comparison_summary import (
    Decomposition,
    PolicyLine,
    Ratio,
    at_cap,
    best_rival,
    decompose,
)
from boa_daemon.lab.compare.timeline import record
from boa_daemon.planning.plots import as_svg
from boa_daemon.planning.report_page import Heading, PageTable, Part, Picture, Report, write_page
from boa_daemon.tasks.content_hash import code_hash
from boa_daemon.tasks.tasks import Tasks
from boa_daemon.units import PER_HOUR, Per, counted, format_hours

NOTEWORTHY = 0.02
"""The page tells of a spend over the budget from this fraction on."""
HEADINGS = ("policy", "setting", "mean JCT", "p95", "spent", "ratio", "same money")


def write_comparison(
    path: Path,
    comparison: Comparison,
    rows: Sequence[CellResult],
    lines: Sequence[PolicyLine],
    plot: MoneyPlot,
    *,
    tasks: Tasks,
) -> None:
    """Write the report. For it the reference and its best rival are run once more with seed 0."""
    parts: list[Part] = [
        Picture(
            svg=as_svg(draw_money(plot)),
            words="Mean job completion time against money, a point for each policy and budget. Hollow points "
            "did not spend the same as BOA. Dashed: the plan, for GPUs that boot in no time and are rented "
            "one by one. Grey: no policy can reach this area.",
        ),
        about(comparison),
    ]
    for budget in comparison.budgets:
        for cap in comparison.caps:
            own = at_cap(rows, cap), at_cap(lines, cap)
            parts += _section(comparison, *own, budget.amount, plot.unit, tasks=tasks)
    report = Report(
        title=plot.title,
        lead=verdict(comparison, lines),
        bad=bad_news(comparison, lines),
        parts=parts,
        made_by=f"Run with code {code_hash()}.",
    )
    write_page(report.html, path)


def verdict(comparison: Comparison, lines: Sequence[PolicyLine]) -> str:
    """Return in a sentence who waits least for the same money, and by how much."""
    said = []
    for budget in comparison.budgets:
        for cap in comparison.caps:
            own = [line for line in at_cap(lines, cap) if line.budget == budget.amount]
            rival = best_rival(own, budget.amount)
            where = (
                "" if len(comparison.budgets) * len(comparison.caps) == 1 else f"{budget}{cap_text(cap)}: "
            )
            if rival is None:
                mean = format_hours(own[0].mean_jct_hours)
                said.append(f"{where}{comparison.reference} takes {mean} on average")
                continue
            paid = rival.ratio_at_equal_spend
            ratio = rival.ratio if paid is None else paid
            money = "for more money" if paid is None else "for the same money"
            # A ratio of 1.00 is no difference, unless an interval says how sure that is.
            is_even = ratio.low is None and abs(ratio.mean - 1.0) < 0.005
            times = "" if is_even else f"{ratio_text(ratio)} times "
            said.append(
                f"{where}{money} the best of {counted(len(own) - 1, 'rival')}, {rival.policy}, waits "
                f"{times}as long as {comparison.reference}"
            )
    text = "; ".join(said)
    return f"{text[:1].upper()}{text[1:]}."


def bad_news(comparison: Comparison, lines: Sequence[PolicyLine]) -> list[str]:
    """Return what speaks against the reference or the figures, in sentences."""
    said = []
    for line in lines:
        if line.policy == comparison.reference:
            off = line.mean_usd_per_hour / line.budget - 1.0
            if off > NOTEWORTHY:
                said.append(f"{line.policy} spent {off:.0%} more than its budget.")
            continue
        ratio = line.ratio_at_equal_spend
        if ratio is not None and ratio.mean < 0.995:
            said.append(f"{line.policy} waits less than {comparison.reference}: {ratio_text(ratio)} times.")
        elif ratio is not None and ratio.low is not None and ratio.low < 1.0:
            said.append(
                f"Between {line.policy} and {comparison.reference} these runs do not decide: "
                f"{ratio_text(ratio)}."
            )
    apart = [one.policy for one in lines if not one.at_equal_spend and one.policy != comparison.reference]
    if apart:
        names = ", ".join(dict.fromkeys(apart))
        said.append(f"Not at equal spend, so read the last column: {names}.")
    if comparison.seeds == 1:
        said.append("One seed: the figures are of one order of these jobs, and have no interval.")
    return said


def about(comparison: Comparison) -> str:
    """Return sentences about what was run."""
    shared, seeds = comparison.shared, comparison.seeds
    trace = shared.trace
    again = (
        ""
        if seeds == 1
        else f" Seed 0 is the trace as it is; {'another' if seeds == 2 else f'{seeds - 1} others'} put"
        f"{'s' if seeds == 2 else ''} its jobs at its arrival times in another order. Ratios are paired "
        "by seed; brackets are 95 % intervals."
    )
    capped = (
        ""
        if comparison.caps == (None,)
        else " No policy ever holds more nodes than the cap, and jobs that do not fit wait."
    )
    learning = ", which learns while it runs" if shared.learns else ""
    return (
        f"{len(trace.jobs)} jobs arrive over {format_hours(trace.window_hours)}; nodes boot in "
        f"{shared.boot_seconds:g} s and are billed by the second. A ratio is the mean JCT over that of "
        f"{comparison.reference}{learning}. Each "
        "rival's setting was tuned until it spent the same, boots and idle nodes included, within 1 % "
        "where its settings allow that; elsewhere the last column interpolates its JCT between two settings."
        f"{capped}{again}"
    )


def table_cells(
    line: PolicyLine, unit: str, reference: str = REFERENCE, per: Per = PER_HOUR
) -> tuple[str, ...]:
    """Return the cells of a line, in the order of `HEADINGS`."""
    spent = f"{line.mean_usd_per_hour:,.2f} GPUs" if unit == "gpus" else per.usd(line.mean_usd_per_hour)
    off = line.mean_usd_per_hour / line.target_usd_per_hour - 1.0
    return (
        line.policy,
        knob_text(line, unit, per),
        format_hours(line.mean_jct_hours),
        format_hours(line.p95_jct_hours),
        spent if line.at_equal_spend else f"{off:+.1%}  {spent}",
        "" if line.policy == reference else ratio_text(line.ratio),
        "" if line.policy == reference else equal_text(line.ratio_at_equal_spend),
    )


def knob_text(line: PolicyLine, unit: str, per: Per = PER_HOUR) -> str:
    """Return the tuned setting of a line as text; a range if it differs between seeds."""
    nouns = {"gpus_per_job": ("GPU/job", "GPUs/job"), "nodes": ("node", "nodes")}
    texts = []
    for name, (low, high) in line.knobs.items():
        if name == "planning_budget":
            if unit == "gpus":
                texts.append(f"plan {_range(low, high, '.1f')} GPUs")
            else:
                planned = _range(low * per.hours, high * per.hours, ".1f" if per is PER_HOUR else ",.0f")
                texts.append(f"plan ${planned}/{per.name}")
        elif name == "efficiency":
            texts.append(f"at least {_range(low, high, '.2f')}")
        elif name == "utility":
            texts.append(f"utility {_range(low, high, '.2f')}")
        elif name == "share":
            texts += [f"+{_range(low, high, '.0%')}"] if high > 0.0 else []
        else:
            number, (one, many) = _range(low, high, ".0f"), nouns.get(name, (name, name))
            texts.append(f"{number} {one if number == '1' else many}")
    return ", ".join(texts)


def ratio_text(ratio: Ratio) -> str:
    """Return a ratio with its interval."""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.mean:.2f}"
    return f"{ratio.mean:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def equal_text(ratio: Ratio | None) -> str:
    """Return the ratio at equal spend; a dash if every setting spends more."""
    return "-" if ratio is None else ratio_text(ratio)


def decomposition_text(why: Decomposition) -> str:
    """Return a sentence that splits the gain over a fixed fleet into elasticity and optimisation."""
    return (
        f"For the same money the best fixed fleet, {why.fleet}, waits {ratio_text(why.total)} times as long "
        f"as BOA. Renting as needed by a simple rule, {why.rule}, explains a factor of "
        f"{ratio_text(why.elasticity)} of that (elasticity); choosing widths to fit the budget explains "
        f"{ratio_text(why.optimisation)} (optimisation)."
    )


def cap_text(cap: int | None) -> str:
    """Return the cap as the end of a heading; empty without a cap."""
    return "" if cap is None else f", at most {counted(cap, 'node')}"


def _range(low: float, high: float, form: str) -> str:
    """Return a number, or a range if the two differ."""
    texts = [format(low, form), format(high, form)]
    return texts[0] if texts[0] == texts[1] else "-".join(texts)


def _section(
    comparison: Comparison,
    rows: Sequence[CellResult],
    lines: Sequence[PolicyLine],
    budget: float,
    unit: str,
    *,
    tasks: Tasks,
) -> list[Part]:
    """Return the page's section on one budget and cap."""
    own = [line for line in lines if line.budget == budget]
    amount = f"{budget:,.4g} GPUs" if unit == "gpus" else comparison.per.usd(budget)
    parts: list[Part] = [
        Heading(f"Budget {amount}{cap_text(own[0].max_nodes)}"),
        _table(own, unit, comparison.per),
    ]
    why = decompose(rows, lines, budget)
    if why is not None:
        parts.append(decomposition_text(why))
    rival = best_rival(lines, budget)
    chosen = [comparison.reference, *([] if rival is None else [rival.policy])]
    shown = {row.policy: row for row in rows if row.budget == budget and row.seed == 0}
    asked = {p: tasks.submit(record, comparison.settings_of_row(shown[p])) for p in chosen}
    runs = {policy: future.result() for policy, future in asked.items()}
    names = " and ".join(runs)
    parts.append(
        Picture(
            svg=as_svg(draw_waiting(runs)),
            words=f"The share of jobs that are done within each time, under {names}.",
        )
    )
    parts.append(
        Picture(
            svg=as_svg(draw_timeline(runs, unit)),
            words=f"GPUs rented and used, the burn rate, and the queue over time, under {names}.",
        )
    )
    return parts


def _table(lines: Sequence[PolicyLine], unit: str, per: Per) -> PageTable:
    return PageTable(
        title="Each policy for the same money",
        columns=HEADINGS,
        rows=tuple(table_cells(line, unit, lines[0].policy, per) for line in lines),
        right=frozenset(range(2, len(HEADINGS))),
        mine=frozenset(at for at, line in enumerate(lines) if line.policy == lines[0].policy),
    )
