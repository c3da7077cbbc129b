"""Gantt chart of a calendar: a bar for each job, deadlines as ticks, dates below. Needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boa_daemon.planning.calendar_plan import PERIODS, CalendarPlan
from boa_daemon.planning.plots import DANGER, HALO, INK, SOFT, frame_axes, save
from boa_daemon.units import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#1769aa", "#237032", "#7048e8", "#0b7285", "#a0522d", "#3f5bd6")
MOST_NAMES = 80
"""With more jobs than this, names are left out."""
MOST_DATES = 9
"""Most dates named below the chart."""


def draw_gantt(plan: CalendarPlan, path: Path, title: str) -> None:
    """Draw when each job waits and runs, its deadline, and the ends of the budget's periods."""
    save(gantt_figure(plan, title), path)


def gantt_figure(plan: CalendarPlan, title: str) -> Figure:
    """Return a figure of when jobs wait and run, with deadlines, budget periods, and hours off in grey.

    Jobs that find no place have a row that says so.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - see check_plot_path
    from matplotlib.figure import Figure  # noqa: PLC0415 - see check_plot_path

    entries, left_out = plan.entries, plan.found.calendar.left_out
    scale, unit = (24.0, "days") if plan.found.calendar.all_done > 72.0 else (1.0, "hours")
    rows = len(entries) + len(left_out)
    figure = Figure(figsize=(10.0, min(40.0, 2.2 + 0.24 * rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    frame_axes(axes, title, f"{unit} after the begin" if plan.start is None else "", "")
    types = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(plan.machines)}
    dates = [entry.job.due_hours for entry in entries if np.isfinite(entry.job.due_hours)]
    widest = max(plan.found.calendar.all_done, *dates, 0.0) / scale
    small: Any = {"textcoords": "offset points", "va": "center", "fontsize": 7.5, "zorder": 4}
    shows_names = rows <= MOST_NAMES
    # A short job of a long list is still visible.
    least = 0.002 * plan.found.calendar.all_done / scale
    for row, entry in enumerate(entries):
        colour = DANGER if entry.is_late else types[entry.option.gpu_type]
        submitted, starts, ends = (x / scale for x in (entry.job.job.submit_hours, entry.starts, entry.ends))
        axes.plot([submitted, starts], [row, row], color=SOFT, lw=1.0, zorder=1)
        axes.barh(
            row,
            max(ends - starts, least),
            left=starts,
            height=0.7,
            color=colour,
            hatch="////" if entry.is_late else None,
            edgecolor="white",
            lw=0.0,
            zorder=2,
        )
        last = ends
        if np.isfinite(entry.job.due_hours):
            due = entry.job.due_hours / scale
            axes.plot([due, due], [row - 0.45, row + 0.45], color=INK, lw=1.8, zorder=3)
            near = 0.05 * widest
            last = max(ends, due + 0.2 * near) if ends - near < due < ends + 1.6 * near else ends
        if shows_names:
            axes.annotate(
                f"{entry.option.instances}x", (last, row), xytext=(3, 0), **small, color=INK, bbox=HALO
            )
    for row, job in enumerate(left_out, start=len(entries)):
        axes.annotate("no place", (job.job.submit_hours / scale, row), xytext=(3, 0), **small, color=DANGER)
    has_periods = _shade(axes, plan, scale)
    names = [entry.job.job.id for entry in entries] + [job.job.id for job in left_out]
    axes.set_yticks(range(len(names)) if shows_names else [], names if shows_names else [], fontsize=8)
    axes.set_ylim(rows - 0.3, -0.9)
    if plan.start is not None:
        _name_days(axes, plan.start, scale)
    used = [name for name in types if any(e.option.gpu_type == name for e in entries)]
    _legend(figure, plan, {name: types[name] for name in used}, has_periods=has_periods)
    return figure


def gantt_words(plan: CalendarPlan) -> str:
    """Return what the chart shows."""
    late = sum(entry.is_late for entry in plan.entries)
    out = len(plan.found.calendar.left_out)
    said = (
        f"A bar for each of {counted(len(plan.entries), 'job')} from its start to its end, a thin line while "
        "it waits, and a tick at its deadline; the number beside it is that of its instances"
    )
    return f"{said}. Late: {late}. Without a place: {out}."


def _shade(axes: Axes, plan: CalendarPlan, scale: float) -> bool:
    """Draw the ends of the budget's periods and the hours off; return whether there are such periods."""
    last, has_periods = plan.found.calendar.all_done, False
    if plan.budget is not None and plan.budget.per in PERIODS:
        period = PERIODS[plan.budget.per]
        for end in np.arange(period, last, period):
            axes.axvline(end / scale, color=SOFT, lw=1.0, ls=(0, (4, 3)), zorder=0)
            has_periods = True
    for begin, end in zip(plan.limits.working.begins, plan.limits.working.ends, strict=True):
        if begin < last:
            axes.axvspan(begin / scale, end / scale, color="white", alpha=0.75, lw=0, zorder=2.5)
            axes.axvspan(begin / scale, end / scale, color=SOFT, alpha=0.15, lw=0, zorder=0)
    return has_periods


def _name_days(axes: Axes, start: datetime, scale: float) -> None:
    """Write dates below the axis, about eight of them, at midnight or at whole hours."""
    left, right = axes.get_xlim()
    hours = (right - left) * scale
    steps = (1.0, 3.0, 6.0, 12.0, 24.0, 48.0, 72.0, 168.0, 336.0, 672.0, 1344.0)
    step = next((one for one in steps if hours / one <= MOST_DATES), hours / MOST_DATES)
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    shift = (midnight - start).total_seconds() / 3600.0
    first = shift + step * np.ceil((left * scale - shift) / step)
    places = np.arange(first, right * scale, step)
    form = "%d %b" if step >= 24.0 else "%d %b %H:%M"
    axes.set_xticks(
        [float(at) / scale for at in places],
        [f"{start + timedelta(hours=float(at)):{form}}" for at in places],
    )
    zone = start.tzname() or "UTC"
    axes.set_xlabel(f"{start:%Y}" if step >= 24.0 else f"{start:%Y}, {zone}", color=INK, fontsize=11)
    axes.set_xlim(left, right)


def _legend(figure: Figure, plan: CalendarPlan, types: Mapping[str, str], *, has_periods: bool) -> None:
    """Write what the signs mean, above the chart."""
    from matplotlib.lines import Line2D  # noqa: PLC0415 - see check_plot_path
    from matplotlib.patches import Patch  # noqa: PLC0415 - see check_plot_path

    signs: list[Any] = [Patch(color=colour, label=plan.machines[name].name) for name, colour in types.items()]
    if any(entry.is_late for entry in plan.entries):
        signs.append(Patch(facecolor=DANGER, hatch="////", edgecolor="white", lw=0.0, label="late"))
    signs.append(Line2D([], [], color=SOFT, lw=1.0, label="waits"))
    if any(np.isfinite(entry.job.due_hours) for entry in plan.entries):
        mark: Any = {"marker": "|", "markersize": 9, "markeredgewidth": 1.8, "ls": ""}
        signs.append(Line2D([], [], color=INK, label="deadline", **mark))
    if has_periods and plan.budget is not None:
        words = f"the next {plan.budget.per}'s money"
        signs.append(Line2D([], [], color=SOFT, lw=1.0, ls=(0, (4, 3)), label=words))
    if len(plan.limits.working.begins):
        signs.append(Patch(color=SOFT, alpha=0.25, label="hours off"))
    figure.legend(handles=signs, loc="outside upper right", ncols=len(signs), frameon=False, fontsize=9)
