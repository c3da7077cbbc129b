"""Plots of waiting against money. Needs matplotlib, the extra `plot`."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boa_daemon.errors import InputError, MissingExtra
from boa_daemon.extras import install_command
from boa_daemon.job.whole_files import whole_file
from boa_daemon.planning.curve import Curve
from boa_daemon.planning.plan_documents import has_weights
from boa_daemon.planning.report_page import Picture
from boa_daemon.units import PER_HOUR, Per, format_hours
from policies.model import Budget
from policies.money_text import in_dollars
from policies.optimum.knee import Knee
from policies.speedup import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png", ".pdf")
_UNDATED: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
"""Metadata without a date, so that the same curve gives the same file."""
LONGEST_NAME = 36
"""Longer names of scenarios are cut in a drawing; its table has them whole."""
INK, LINE, MARK, SOFT, DANGER = "#1f2933", "#1769aa", "#c2410c", "#8895a7", "#c92a2a"
GREY = "#52606d"
"""For text that may be passed over; SOFT is too pale for text."""
HALO = {"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.85}
"""Behind words that lines may cross."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePlot:
    """Data of a plot: the curve, its knee, and optionally a budget to mark, in `unit`."""

    budgets: Floats
    hours: Floats
    knee: Knee
    unit: str
    title: str
    marked: tuple[float, float] | None = None
    is_weighted: bool = False
    per: Per = PER_HOUR


def check_plot_path(path: Path, flag: str = "--plot", suffixes: tuple[str, ...] = SUFFIXES) -> None:
    """Raise an error before any work if the plot cannot be drawn.

    Raises:
        InputError: when the suffix is unknown, the path is a folder, or its folder does not exist.
        MissingExtra: when matplotlib is not installed.
    """
    if path.suffix.lower() not in suffixes:
        kind = "picture" if suffixes == SUFFIXES else "page"
        raise InputError(
            f"{flag} {path}: {path.suffix or 'no suffix'!s} is no {kind}",
            hint=f"Use {' or '.join(suffixes[:2])}",
        )
    if path.is_dir():
        raise InputError(
            f"{flag} {path}: this is a folder", hint=f"Name a file in it, such as curve{suffixes[0]}"
        )
    if not path.absolute().parent.is_dir():
        raise InputError(f"{flag} {path}: folder {path.absolute().parent} does not exist")
    # Every picture is drawn into a file. matplotlib refuses to be imported where the variable is wrong.
    asked = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib as _  # noqa: F401, PLC0415 - an optional library, loaded when it is needed
    except ImportError as error:
        raise MissingExtra(f"{flag} needs matplotlib", hint=install_command("plot")) from error
    finally:
        if asked is not None:
            os.environ["MPLBACKEND"] = asked


def draw_curve(plot: CurvePlot, path: Path) -> None:
    """Draw the curve with its cliff, knee, floor and marked budget, and write it to `path`."""
    save(curve_figure(plot), path)


def curve_figure(plot: CurvePlot) -> Figure:
    """Return a figure of the curve with its cliff, knee, floor and marked budget."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - see check_plot_path
    from matplotlib.figure import Figure  # noqa: PLC0415 - see check_plot_path

    plot = _in_unit(plot)
    figure = Figure(figsize=(9.6, 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    scale, unit = (60.0, "minutes") if plot.hours[-1] < 1.0 else (1.0, "hours")
    _frame(axes, plot, unit)
    cliff = plot.knee.cliff_budget
    right = _right_end(plot)
    left = max(0.0, cliff - 0.12 * (right - cliff))
    axes.axvspan(left, cliff, color=DANGER, alpha=0.10, lw=0)
    axes.plot(plot.budgets, plot.hours * scale, color=LINE, lw=2.6, zorder=3, solid_capstyle="round")
    axes.axhline(plot.knee.floor_hours * scale, color=SOFT, lw=1.2, ls=(0, (4, 3)), zorder=2)
    axes.set_xlim(left, right)
    bottom, top = 0.0, plot.knee.cliff_hours * scale * 1.08
    axes.set_ylim(bottom, top)
    _words(axes, plot, scale, (left, right, top))
    return figure


def curve_words(plot: CurvePlot) -> str:
    """Return what the figure of a curve shows."""
    plot = _in_unit(plot)
    label, mean = _label(plot), "Weighted mean" if plot.is_weighted else "Mean"
    said = (
        f"{mean} job completion time against the budget: infeasible below {label(plot.knee.cliff_budget)}, "
        f"the knee at {label(plot.knee.budget)} with {format_hours(plot.knee.hours)}, "
        f"and never less than {format_hours(plot.knee.floor_hours)}"
    )
    if plot.marked is None:
        return f"{said}."
    budget, hours = plot.marked
    return f"{said}. Your budget of {label(budget)} gives {format_hours(hours)}."


def curve_plot(curve: Curve, title: str, marked: Budget | None, per: Per = PER_HOUR) -> CurvePlot:
    """Return the data of a curve's plot."""
    budgets, hours = curve.vertices()
    if budgets[-1] > budgets[0]:
        end = max(float(budgets[-1]), 1.2 * marked.amount if marked is not None else 0.0)
        budgets, hours = np.append(budgets, end), np.append(hours, hours[-1])
    at = None
    if marked is not None and marked.unit == curve.problem.budget_unit and marked.amount >= curve.cheapest:
        at = marked.amount, float(curve.weighted_hours_at(np.array([marked.amount]))[0])
    return CurvePlot(
        budgets=budgets,
        hours=hours,
        knee=curve.knee(),
        unit=curve.problem.budget_unit,
        title=title,
        marked=at,
        is_weighted=has_weights(curve.problem),
        per=per,
    )


def _right_end(plot: CurvePlot) -> float:
    """Return the right end of the plot: past the bend and the marked budget, but not at a distant floor."""
    wanted = plot.knee.cliff_budget + 1.9 * (plot.knee.flat_budget - plot.knee.cliff_budget)
    if plot.marked is not None:
        wanted = max(wanted, 1.15 * plot.marked[0])
    return max(min(wanted, float(plot.budgets[-1])), plot.knee.cliff_budget * 1.02)


def _frame(axes: Axes, plot: CurvePlot, unit: str) -> None:
    period = "hour" if plot.per.name == "h" else plot.per.name
    money = "GPUs held on average" if plot.unit == "gpus" else f"dollars per {period}, on average"
    mean = "Weighted mean" if plot.is_weighted else "Mean"
    frame_axes(axes, plot.title, f"Budget, {money}", f"{mean} job completion time, {unit}")
    if plot.unit != "gpus":
        axes.xaxis.set_major_formatter(dollar_ticks())


def frame_axes(axes: Axes, title: str, x_name: str, y_name: str) -> None:
    """Set the common style of axes: title, names and a light grid."""
    axes.set_title(title, loc="left", fontsize=14, color=INK, pad=14, fontweight="bold")
    axes.set_xlabel(x_name, color=INK, fontsize=11)
    axes.set_ylabel(y_name, color=INK, fontsize=11)
    axes.grid(color="#e4e7eb", lw=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=INK)


def _words(axes: Axes, plot: CurvePlot, scale: float, frame: tuple[float, float, float]) -> None:
    """Mark and name the cliff, the knee, the floor and the budget."""
    left, right, top = frame
    knee = plot.knee
    span = right - left
    label = _label(plot)
    axes.text(
        knee.cliff_budget - 0.012 * span,
        0.5 * top,
        f"infeasible below {label(knee.cliff_budget)}",
        rotation=90,
        ha="right",
        va="center",
        color=DANGER,
        fontsize=9.5,
    )
    axes.text(
        right,
        knee.floor_hours * scale - 0.028 * top,
        f"floor: no money buys less than {format_hours(knee.floor_hours)}",
        ha="right",
        va="top",
        color=GREY,
        fontsize=9.5,
        zorder=7,
        bbox=HALO,
    )
    axes.plot([knee.budget], [knee.hours * scale], "o", color=INK, ms=8, zorder=5)
    axes.text(
        knee.budget + 0.018 * span,
        knee.hours * scale + 0.018 * top,
        f"knee: {label(knee.budget)}, {format_hours(knee.hours)}",
        ha="left",
        va="bottom",
        color=INK,
        fontsize=10.5,
        zorder=7,
        bbox=HALO,
    )
    if plot.marked is not None:
        budget, hours = plot.marked
        average = "weighted average" if plot.is_weighted else "average"
        height = max(0.62 * top, hours * scale + 0.12 * top)
        axes.plot([budget, budget], [0.0, height - 0.01 * top], color=MARK, lw=1.3, ls=(0, (2, 2)), zorder=4)
        axes.plot([budget], [hours * scale], "o", color=MARK, ms=10, zorder=6)
        place = (budget - left) / span
        axes.text(
            budget,
            height,
            f"your budget: {label(budget)}\n{format_hours(hours)} on {average}",
            ha="left" if place < 0.2 else "right" if place > 0.8 else "center",
            va="bottom",
            color=MARK,
            fontsize=11,
            fontweight="bold",
            zorder=7,
            bbox=HALO,
        )


def draw_scenarios(rows: Sequence[Mapping[str, Any]], path: Path, *, is_rate: bool, per: Per) -> None:
    """Draw the waiting and the spend of each scenario and write it to `path`."""
    save(scenario_figure(rows, is_rate=is_rate, per=per), path)


def scenario_figure(rows: Sequence[Mapping[str, Any]], *, is_rate: bool, per: Per = PER_HOUR) -> Figure:
    """Return a figure with a bar for the waiting and one for the spend of each scenario, the base marked.

    A scenario that is infeasible has its place and says so. Spends are rates, in the unit `per`, or totals.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - see check_plot_path
    from matplotlib.figure import Figure  # noqa: PLC0415 - see check_plot_path

    figure = Figure(figsize=(9.6, 1.6 + 0.42 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    waits = [row["mean_jct_hours"] for row in rows]
    longest = max((hours for hours in waits if hours is not None), default=1.0)
    divisor, unit = (
        (1.0 / 60.0, "minutes") if longest < 2.0 else (1.0, "hours") if longest < 48.0 else (24.0, "days")
    )
    factor = per.hours if is_rate else 1.0
    money = f"dollars per {'hour' if per.name == 'h' else per.name}" if is_rate else "dollars in all"
    frame_axes(left, "Waiting", f"Mean job completion time, {unit}", "")
    frame_axes(right, "Spend", f"Spend, {money}", "")
    right.xaxis.set_major_formatter(dollar_ticks())
    right.xaxis.set_major_locator(_few_ticks())
    left.xaxis.set_major_locator(_few_ticks())
    for place, row in enumerate(rows):
        if row["mean_jct_hours"] is None:
            _beside(left, 0.0, place, _why_not(row, factor, per), colour=DANGER)
            continue
        for axes, value, said in (
            (left, row["mean_jct_hours"] / divisor, format_hours(row["mean_jct_hours"])),
            (right, row["spend"] * factor, f"${row['spend'] * factor:,.0f}"),
        ):
            axes.barh(place, value, height=0.62, color=LINE if place else MARK, zorder=3)
            _beside(axes, value, place, said)
    for axes, base in (
        (left, None if waits[0] is None else waits[0] / divisor),
        (right, None if rows[0]["spend"] is None else rows[0]["spend"] * factor),
    ):
        if base is not None:
            axes.axvline(base, color=MARK, lw=1.2, ls=(0, (4, 3)), zorder=2)
        # Space on the right for the figures beside the bars.
        axes.set_xlim(0.0, max(axes.get_xlim()[1], 1e-9) * 1.22)
    left.set_yticks(range(len(rows)), [_cut(str(row["scenario"])) for row in rows])
    left.set_ylim(len(rows) - 0.4, -0.6)
    return figure


def _beside(axes: Axes, x: float, y: float, words: str, *, colour: str = INK) -> None:
    """Write words right of a point, readable on lines of the grid."""
    axes.annotate(
        words,
        (x, y),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        color=colour,
        fontsize=9.5,
        zorder=5,
        bbox=HALO,
    )


def scenario_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return what the figure of scenarios shows."""
    left = [str(row["scenario"]) for row in rows if row["mean_jct_hours"] is None]
    said = "A bar for the waiting and one for the spend of each scenario; the dashed line is the base"
    return f"{said}. Infeasible: {', '.join(left)}." if left else f"{said}."


def _why_not(row: Mapping[str, Any], factor: float, per: Per) -> str:
    """Return why a scenario has no bar."""
    least = row.get("cheapest_feasible_spend")
    return "no job has a place" if least is None else f"infeasible below ${least * factor:,.0f}/{per.name}"


def _cut(name: str) -> str:
    """Return a name that leaves space for the bars."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _short_usd(amount: float) -> str:
    """Return dollars as the tick of an axis: $72k instead of $72,000."""
    return f"${amount / 1000.0:,.4g}k" if abs(amount) >= 10_000.0 else f"${amount:,.4g}"


def dollar_ticks() -> Any:
    """Return a formatter of dollars that writes cents at all ticks of an axis or at none."""
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415 - see check_plot_path

    class Dollars(FuncFormatter):
        def format_ticks(self, values: Sequence[float]) -> list[str]:
            said = [_short_usd(value) for value in values]
            is_mixed = any("." in one for one in said) and not any(one.endswith("k") for one in said)
            return [in_dollars(value) for value in values] if is_mixed else said

    return Dollars(lambda value, _: _short_usd(value))


def _few_ticks() -> Any:
    """Return a locator with few ticks, whose labels do not touch."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - see check_plot_path

    return MaxNLocator(5)


def bill_figure(cases: Sequence[tuple[str, float, float]], per: Per) -> Figure:
    """Return a figure of bills on demand and with a commitment, a pair of bars for each named case."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - see check_plot_path
    from matplotlib.figure import Figure  # noqa: PLC0415 - see check_plot_path

    figure = Figure(figsize=(9.6, 1.5 + 0.62 * len(cases)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    frame_axes(axes, "The bill", f"Dollars per {'hour' if per.name == 'h' else per.name}", "")
    axes.xaxis.set_major_formatter(dollar_ticks())
    for place, (_, before, after) in enumerate(cases):
        for shift, usd, colour in ((-0.19, before, SOFT), (0.19, after, LINE)):
            axes.barh(
                place + shift,
                usd * per.hours,
                height=0.36,
                color=colour,
                label=None if place else "on demand" if colour == SOFT else "with the commitment",
            )
            words = in_dollars(usd * per.hours) if per is PER_HOUR else f"${usd * per.hours:,.0f}"
            _beside(axes, usd * per.hours, place + shift, words)
    axes.set_yticks(range(len(cases)), [name for name, _, _ in cases])
    axes.set_xlim(0.0, axes.get_xlim()[1] * 1.12)
    axes.set_ylim(len(cases) - 0.4, -0.6)
    figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=9.5)
    return figure


def _label(plot: CurvePlot) -> Callable[[float], str]:
    """Return a function that formats a budget that is in the plot's unit of time."""
    if plot.unit == "gpus":
        return lambda amount: f"{amount:,.1f} GPUs"
    digits = 2 if plot.per is PER_HOUR else 0
    return lambda amount: f"${amount:,.{digits}f}/{plot.per.name}"


def _in_unit(plot: CurvePlot) -> CurvePlot:
    """Return the plot with its dollars per hour in its unit of time."""
    if plot.unit == "gpus" or plot.per is PER_HOUR:
        return plot
    hours, knee = plot.per.hours, plot.knee
    return replace(
        plot,
        budgets=plot.budgets * hours,
        knee=replace(
            knee,
            budget=knee.budget * hours,
            cliff_budget=knee.cliff_budget * hours,
            flat_budget=knee.flat_budget * hours,
        ),
        marked=None if plot.marked is None else (plot.marked[0] * hours, plot.marked[1]),
    )


def as_picture(figure: Figure, words: str) -> Picture:
    """Return a figure as a part of a page, with what it shows in words."""
    return Picture(svg=as_svg(figure), words=words)


def as_svg(figure: Figure) -> str:
    """Return the figure as an SVG element for a page: no header, no metadata, text as text."""
    from matplotlib import rc_context  # noqa: PLC0415 - see check_plot_path

    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "boa", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    body = text[text.index("<svg") :]
    before, _, rest = body.partition("<metadata>")
    return before + rest.partition("</metadata>")[2] if rest else body


def save(figure: Figure, path: Path) -> None:
    """Write the figure to a temporary file and rename it, so that no reader sees half a file."""
    from matplotlib import rc_context  # noqa: PLC0415 - see check_plot_path

    kind = path.suffix.lower().lstrip(".")
    try:
        # Without a fixed salt the ids inside an SVG are random.
        with rc_context({"svg.hashsalt": "boa"}), whole_file(path) as part:
            figure.savefig(part, format=kind, dpi=150, metadata=_UNDATED[kind])
    except OSError as error:
        raise InputError(f"cannot write the plot: {error.strerror}", file=path) from error
