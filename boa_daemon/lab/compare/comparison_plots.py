"""Plots of a comparison: waiting against money, and timelines of two runs. Needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from boa_daemon.lab.compare.comparison_summary import LowerBounds, PolicyLine
from boa_daemon.lab.compare.timeline import RunTimeline
from boa_daemon.planning.plots import INK, LINE, MARK, SOFT, dollar_ticks, frame_axes, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from boa_daemon.lab.compare.study import PairedRatios

COLOURS = (
    "#c2410c",
    "#237032",
    "#862e9c",
    "#c2255c",
    "#4a7a08",
    "#0b7285",
    "#a85500",
    "#5f3dc4",
    "#a61e4d",
    "#087f5b",
    "#7a5a4f",
    "#495057",
    "#b02a5b",
)
LINE_HEIGHT = 0.042
"""Least distance between two labels, as a fraction of the plot's height."""
HIGHEST_NAME = 0.98
"""The highest place of a label: above it stands what a hollow point means."""
LINEAR_SPREAD = 4.0
"""If waits differ by more than this factor, the axis is logarithmic."""
LOG_TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""Ratios that a logarithmic axis names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyPlot:
    """Data of a plot: the lines of a comparison and its lower bounds, in dollars or GPUs."""

    lines: Sequence[PolicyLine]
    floor: LowerBounds
    unit: str
    title: str


def draw_money(plot: MoneyPlot) -> Figure:
    """Return a figure of JCT against money: a labelled line per policy, and the lower bounds."""
    figure, axes = _figure(9.6, 5.8)
    hours = [line.mean_jct_hours for line in plot.lines]
    scale, unit = (60.0, "minutes") if max(hours) < 2.0 else (1.0, "hours")
    money = "GPUs held" if plot.unit == "gpus" else "dollars"
    frame_axes(axes, plot.title, f"Spent per hour of arrivals, {money}", f"Mean job completion time, {unit}")
    if plot.unit != "gpus":
        axes.xaxis.set_major_formatter(dollar_ticks())
    spends = [line.mean_usd_per_hour for line in plot.lines]
    # Nearly equal spends should look so: the axis spans at least a quarter of the largest.
    extra = max(0.0, 0.25 * max(spends) - (max(spends) - min(spends))) / 2.0
    span = max(spends) - min(spends) + 2.0 * extra
    left, right = max(0.0, min(spends) - extra - 0.12 * span), max(spends) + extra + 0.06 * span
    top = 1.12 * scale * max(line.mean_jct_hours * _reach(line) for line in plot.lines)
    axes.set_xlim(left, right + 0.24 * (right - left))
    bottom = 0.0
    if max(hours) > LINEAR_SPREAD * min(hours):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="y", which="minor", labelsize=8)
        bottom = 0.7 * scale * min(line.lower_bound_mean_jct_hours for line in plot.lines)
    axes.set_ylim(bottom, top)
    _draw_floor(axes, plot.floor, scale, (left, right))
    ends: list[tuple[float, float, str, str]] = []
    colours = iter(COLOURS * (1 + len(plot.lines)))
    reference = plot.lines[0].policy
    for policy in dict.fromkeys(line.policy for line in plot.lines):
        colour = LINE if policy == reference else next(colours)
        ends.append(_draw_policy(axes, [line for line in plot.lines if line.policy == policy], scale, colour))
    _name_ends(axes, ends)
    if not all(line.at_equal_spend for line in plot.lines):
        words = f"hollow: spends more or less than {reference}"
        axes.text(
            0.995, 1.02, words, transform=axes.transAxes, ha="right", va="bottom", color=INK, fontsize=9.5
        )
    return figure


def _reach(line: PolicyLine) -> float:
    """Return the upper end of a line's interval as a factor on its point."""
    return 1.0 if line.ratio.high is None else line.ratio.high / line.ratio.mean


def _draw_policy(
    axes: Axes, lines: Sequence[PolicyLine], scale: float, colour: str
) -> tuple[float, float, str, str]:
    """Draw one policy in order of spend, hollow points where spend differs. Return the label's place."""
    own = sorted(lines, key=lambda line: line.mean_usd_per_hour)
    x = [line.mean_usd_per_hour for line in own]
    y = [line.mean_jct_hours * scale for line in own]
    policy = own[0].policy
    bold = colour == LINE
    axes.plot(x, y, color=colour, lw=2.8 if bold else 1.5, zorder=6 if bold else 4)
    for line, at, height in zip(own, x, y, strict=True):
        face = colour if line.at_equal_spend else "white"
        axes.plot([at], [height], "o", color=colour, mfc=face, ms=7.5 if bold else 6, zorder=7 if bold else 5)
        if line.ratio.low is not None and line.ratio.high is not None and not bold:
            ends = [height * end / line.ratio.mean for end in (line.ratio.low, line.ratio.high)]
            axes.plot([at, at], ends, color=colour, lw=1.0, zorder=3)
    return x[-1], y[-1], policy, colour


def _draw_floor(axes: Axes, floor: LowerBounds, scale: float, frame: tuple[float, float]) -> None:
    """Draw the planner's curve, and shade the area that no policy can reach."""
    left, right = frame
    bottom, top = axes.get_ylim()
    bound = floor.bound_hours * scale
    finite = np.isfinite(bound)
    if finite.any():
        axes.fill_between(floor.spends[finite], bottom, bound[finite], color=SOFT, alpha=0.22, lw=0, zorder=1)
        middle = left + 0.5 * (right - left)
        height = float(np.interp(middle, floor.spends[finite], bound[finite]))
        words = "no policy can get here (dashed: what the planner promises without boots and idle GPUs)"
        halfway = bottom + 0.45 * (min(height, top) - bottom)
        axes.text(middle, halfway, words, color=INK, fontsize=9.5, ha="center", va="center")
    planned = floor.planned_hours * scale
    known = np.isfinite(planned)
    axes.plot(floor.spends[known], planned[known], color=INK, lw=1.3, ls=(0, (4, 3)), zorder=2)


def _name_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Write each policy's name right of its last point, moved so that names do not overlap."""
    places: list[float] = []
    # Use fractions of the plot's height, which work for any scale.
    to_share = axes.transData + axes.transAxes.inverted()
    for at, height, _, _ in sorted(ends, key=lambda end: end[1]):
        share = float(to_share.transform((at, height))[1])
        places.append(share if not places else max(share, places[-1] + LINE_HEIGHT))
    # A stack of names that would leave the plot at the top moves down as a whole, as far as there is room.
    places = [share - min(max(places[-1] - HIGHEST_NAME, 0.0), places[0]) for share in places]
    places = [float(to_share.inverted().transform((0.0, share))[1]) for share in places]
    far = max(at for at, _, _, _ in ends)
    left, right = axes.get_xlim()
    for (at, height, policy, colour), place in zip(sorted(ends, key=lambda end: end[1]), places, strict=True):
        where = far + 0.022 * (right - left)
        axes.plot([at, where], [height, place], color=colour, lw=0.7, alpha=0.7, zorder=2)
        axes.text(
            where + 0.006 * (right - left),
            place,
            policy,
            color=colour,
            fontsize=10.5,
            va="center",
            fontweight="bold" if colour == LINE else "normal",
        )


def draw_waiting(runs: Mapping[str, RunTimeline]) -> Figure:
    """Return a figure of the JCT's distribution: the fraction of jobs done within each time."""
    figure, axes = _figure(9.6, 3.6)
    longest = max(float(run.jct_hours[-1]) for run in runs.values())
    scale, unit = (60.0, "minutes") if longest < 3.0 else (1.0, "hours")
    frame_axes(axes, "Who waits how long", f"Job completion time, {unit}", "Share of jobs done")
    for number, ((name, run), colour) in enumerate(zip(runs.items(), (LINE, MARK), strict=False)):
        x = np.concatenate([[0.0], run.jct_hours * scale, [longest * scale]])
        y = np.concatenate([[0.0], np.arange(1, len(run.jct_hours) + 1) / len(run.jct_hours), [1.0]])
        axes.step(x, y, where="post", color=colour, lw=2.0)
        axes.text(0.985, 0.18 - 0.09 * number, name, color=colour, ha="right", transform=axes.transAxes)
    axes.set_xlim(0.0, longest * scale)
    axes.set_ylim(0.0, 1.02)
    axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    return figure


def draw_timeline(runs: Mapping[str, RunTimeline], unit: str) -> Figure:
    """Return a figure of GPUs, burn rate and queue over time, a column per run, on the same scales."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional library, loaded when it is needed

    figure = Figure(figsize=(9.6, 6.6), layout="constrained")
    grid = figure.subplots(3, len(runs), sharey="row", sharex=True, squeeze=False)
    burn = "GPUs billed" if unit == "gpus" else "Burn rate, $/h"
    for column, ((name, run), colour) in enumerate(zip(runs.items(), (LINE, MARK), strict=False)):
        rented, money, queue = (grid[row][column] for row in range(3))
        first = column == 0
        frame_axes(rented, name, "", "GPUs rented (dark: used)" if first else "")
        rented.fill_between(run.hours, 0.0, run.gpus_rented, color=colour, alpha=0.25, lw=0, step="mid")
        rented.fill_between(run.hours, 0.0, run.gpus_used, color=colour, alpha=0.85, lw=0, step="mid")
        frame_axes(money, "", "", burn if first else "")
        money.step(run.hours, run.usd_per_hour, where="mid", color=colour, lw=1.2)
        frame_axes(queue, "", "Hours since the first arrival", "Jobs waiting" if first else "")
        queue.fill_between(run.hours, 0.0, run.queue, color=colour, alpha=0.6, lw=0, step="mid")
    # Axes share limits, so set these after all runs are drawn.
    for axes in grid.flat:
        axes.set_ylim(bottom=0.0)
        axes.set_xlim(0.0, max(float(run.hours[-1]) for run in runs.values()))
    return figure


def draw_ratios(lines: Sequence[PairedRatios], reference: str) -> Figure:
    """Return a figure of each rival's waiting over the reference's in each world, with intervals.

    The scale is logarithmic if one rival would press the others together.
    """
    figure, axes = _figure(9.6, 1.2 + 0.32 * len(lines))
    frame_axes(
        axes, "Who waits how much longer", f"Mean JCT over that of {reference}, for the same money", ""
    )
    axes.axvline(1.0, color=LINE, lw=2.0)
    for place, line in enumerate(lines):
        ratio = line.waiting
        axes.plot([ratio.low or ratio.mean, ratio.high or ratio.mean], [place, place], color=INK, lw=1.5)
        face = "white" if line.unpaid else MARK
        axes.plot([ratio.mean], [place], "o", color=MARK, mfc=face, ms=7)
    means = [line.waiting.mean for line in lines]
    if max(means) > LINEAR_SPREAD * min(means):
        axes.set_xscale("log")
        least, most = axes.get_xlim()
        ticks = [tick for tick in LOG_TICKS if least <= tick <= most]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    axes.set_yticks(range(len(lines)), [f"{line.policy}, {line.world}" for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    return figure


def save_money(plot: MoneyPlot, path: Path) -> None:
    """Write the plot of JCT against money to a file."""
    save(draw_money(plot), path)


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure and its axes."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an optional library, loaded when it is needed

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()
