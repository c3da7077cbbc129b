"""Gantt chart of a calendar: a bar for each job, deadlines as ticks. Needs the extra `plot`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from boa_daemon.planning.calendar_plan import PERIODS, CalendarPlan
from boa_daemon.planning.plots import DANGER, INK, SOFT, frame_axes, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#1769aa", "#2b8a3e", "#7048e8", "#0c8599", "#a0522d", "#5c7cfa")
MOST_NAMES = 80
"""With more jobs than this, names are left out."""


def draw_gantt(plan: CalendarPlan, path: Path, title: str) -> None:
    """Draw when each job waits and runs, its deadline, and the ends of the budget's periods."""
    save(gantt_figure(plan, title), path)


def gantt_figure(plan: CalendarPlan, title: str) -> Figure:
    """Return a figure of when jobs wait and run, with deadlines, budget periods, and hours off in grey."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - see check_plot_path
    from matplotlib.figure import Figure  # noqa: PLC0415 - see check_plot_path

    entries = plan.entries
    scale, unit = (24.0, "days") if plan.found.calendar.all_done > 72.0 else (1.0, "hours")
    figure = Figure(figsize=(10.0, min(40.0, 1.8 + 0.22 * len(entries))), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    since = "" if plan.start is None else f" after {plan.start:%Y-%m-%d %H:%M}"
    frame_axes(axes, title, f"{unit}{since}", "")
    types = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(plan.machines)}
    for row, entry in enumerate(entries):
        colour = DANGER if entry.is_late else types[entry.option.gpu_type]
        submitted, starts, ends = (x / scale for x in (entry.job.job.submit_hours, entry.starts, entry.ends))
        axes.plot([submitted, starts], [row, row], color=SOFT, lw=1.0, zorder=1)
        axes.barh(row, ends - starts, left=starts, height=0.7, color=colour, zorder=2)
        if len(entries) <= MOST_NAMES:
            label = f" {entry.option.instances} x {plan.machines[entry.option.gpu_type].name}"
            axes.text(ends, row, label, va="center", fontsize=6.5, color=INK, zorder=4)
        if np.isfinite(entry.job.due_hours):
            due = entry.job.due_hours / scale
            axes.plot([due, due], [row - 0.45, row + 0.45], color=INK, lw=1.8, zorder=3)
    if plan.budget is not None and plan.budget.per in PERIODS:
        period = PERIODS[plan.budget.per]
        for end in np.arange(period, plan.found.calendar.all_done, period):
            axes.axvline(end / scale, color=SOFT, lw=1.0, ls=(0, (4, 3)), zorder=0)
    working, last = plan.limits.working, plan.found.calendar.all_done
    for begin, end in zip(working.begins, working.ends, strict=True):
        if begin < last:
            axes.axvspan(begin / scale, end / scale, color="white", alpha=0.75, lw=0, zorder=2.5)
            axes.axvspan(begin / scale, end / scale, color=SOFT, alpha=0.15, lw=0, zorder=0)
    names = [entry.job.job.id for entry in entries] if len(entries) <= MOST_NAMES else []
    axes.set_yticks(range(len(names)), names, fontsize=7.5)
    axes.invert_yaxis()
    return figure
