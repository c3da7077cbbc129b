"""Plots of waiting against money. Needs matplotlib, the extra `plot`."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boa_daemon.errors import InputError, MissingExtra
from boa_daemon.extras import install_command
from boa_daemon.job.whole_files import whole_file
from boa_daemon.planning.curve import Curve
from boa_daemon.planning.plan_documents import has_weights
from boa_daemon.units import format_hours
from policies.model import Budget
from policies.optimum.knee import Knee
from policies.speedup import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png", ".pdf")
_UNDATED: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
"""Metadata without a date, so that the same curve gives the same file."""
INK, LINE, MARK, SOFT, DANGER = "#1f2933", "#1769aa", "#d9480f", "#8895a7", "#c92a2a"


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
    try:
        import matplotlib as _  # noqa: F401, PLC0415 - an optional library, loaded when it is needed
    except ImportError as error:
        raise MissingExtra(f"{flag} needs matplotlib", hint=install_command("plot")) from error


def draw_curve(plot: CurvePlot, path: Path) -> None:
    """Draw the curve with its cliff, knee, floor and marked budget, and write it to `path`."""
    save(curve_figure(plot), path)


def curve_figure(plot: CurvePlot) -> Figure:
    """Return a figure of the curve with its cliff, knee, floor and marked budget."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - see check_plot_path
    from matplotlib.figure import Figure  # noqa: PLC0415 - see check_plot_path

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


def curve_plot(curve: Curve, title: str, marked: Budget | None) -> CurvePlot:
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
    )


def _right_end(plot: CurvePlot) -> float:
    """Return the right end of the plot: past the bend and the marked budget, but not at a distant floor."""
    wanted = plot.knee.cliff_budget + 1.9 * (plot.knee.flat_budget - plot.knee.cliff_budget)
    if plot.marked is not None:
        wanted = max(wanted, 1.15 * plot.marked[0])
    return max(min(wanted, float(plot.budgets[-1])), plot.knee.cliff_budget * 1.02)


def _frame(axes: Axes, plot: CurvePlot, unit: str) -> None:
    money = "GPUs held on average" if plot.unit == "gpus" else "dollars per hour, on average"
    mean = "Weighted mean" if plot.is_weighted else "Mean"
    frame_axes(axes, plot.title, f"Budget, {money}", f"{mean} job completion time, {unit}")
    if plot.unit != "gpus":
        axes.xaxis.set_major_formatter("${x:,.4g}")


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
    label = _label(plot.unit)
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
        knee.floor_hours * scale - 0.015 * top,
        f"floor: no money buys less than {format_hours(knee.floor_hours)}",
        ha="right",
        va="top",
        color=SOFT,
        fontsize=9.5,
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
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.85},
    )
    if plot.marked is not None:
        budget, hours = plot.marked
        height = max(0.62 * top, hours * scale + 0.12 * top)
        axes.plot([budget, budget], [0.0, height - 0.01 * top], color=MARK, lw=1.3, ls=(0, (2, 2)), zorder=4)
        axes.plot([budget], [hours * scale], "o", color=MARK, ms=10, zorder=6)
        place = (budget - left) / span
        axes.text(
            budget,
            height,
            f"your budget: {label(budget)}\n{format_hours(hours)} on average",
            ha="left" if place < 0.2 else "right" if place > 0.8 else "center",
            va="bottom",
            color=MARK,
            fontsize=11,
            fontweight="bold",
        )


def draw_scenarios(rows: Sequence[Mapping[str, Any]], path: Path, money: str) -> None:
    """Draw each scenario as a point, mean job completion time against money; the base is marked."""
    save(scenario_figure(rows, money), path)


def scenario_figure(rows: Sequence[Mapping[str, Any]], money: str) -> Figure:
    """Return a figure with each scenario as a point: mean job completion time against money, base marked."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - see check_plot_path
    from matplotlib.figure import Figure  # noqa: PLC0415 - see check_plot_path

    figure = Figure(figsize=(9.6, 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    frame_axes(axes, "What if", f"Spend, {money}", "Mean job completion time, hours")
    for number, row in enumerate(rows):
        if row["mean_jct_hours"] is not None:
            colour = LINE if number else MARK
            axes.plot([row["spend"]], [row["mean_jct_hours"]], "o", color=colour, ms=9)
            axes.annotate(
                row["scenario"],
                (row["spend"], row["mean_jct_hours"]),
                xytext=(8, 5),
                textcoords="offset points",
                color=colour,
            )
    axes.margins(0.15)
    axes.set_ylim(bottom=0.0)
    return figure


def _label(unit: str) -> Callable[[float], str]:
    """Return a function that formats a budget."""
    return (lambda amount: f"{amount:,.1f} GPUs") if unit == "gpus" else (lambda amount: f"${amount:,.2f}/h")


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
