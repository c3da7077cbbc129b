"""Results that a notebook shows: rows, an HTML table, a data frame, and the command's document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from boa_daemon.errors import MissingExtra
from boa_daemon.extras import install_command
from boa_daemon.units import format_hours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

MOST_SHOWN = 100
"""Largest number of rows that a notebook shows; the rest is counted."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """A result: `document` is what the command prints as JSON, `rows` what it prints as CSV."""

    title: str
    document: Mapping[str, Any] = field(repr=False)
    rows: Sequence[Mapping[str, Any]] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the document, as the command line prints it; its keys are stable."""
        return dict(self.document)

    def to_frame(self) -> DataFrame:
        """Return the rows as a pandas data frame.

        Raises:
            MissingExtra: when pandas is not installed.
        """
        try:
            import pandas  # noqa: PLC0415 - optional
        except ImportError:
            raise MissingExtra("a data frame needs pandas", hint=install_command("pandas")) from None
        return pandas.DataFrame([dict(row) for row in self.rows])

    def _repr_html_(self) -> str:
        """Return the rows as a table for a notebook."""
        if not self.rows:
            return f"<p><b>{escape(self.title)}</b></p>"
        head = "".join(f"<th>{escape(str(name))}</th>" for name in self.rows[0])
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_text(value))}</td>" for value in row.values()) + "</tr>"
            for row in self.rows[:MOST_SHOWN]
        )
        left = len(self.rows) - MOST_SHOWN
        more = f"<p>and {left} more: <code>to_frame()</code> has all</p>" if left > 0 else ""
        caption = f"<caption>{escape(self.title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


@dataclass(frozen=True, kw_only=True)
class Solved(Result):
    """The optimum at a budget. Hours are means over arriving jobs; spend is in the budget's unit.

    `multiplier` is -d(sum of arrivals x weight x JCT)/d(budget): hours per hour that one more unit saves.
    """

    mean_jct_hours: float
    mean_spend: float
    multiplier: float
    cheapest_feasible_spend: float
    largest_useful_spend: float


@dataclass(frozen=True, kw_only=True)
class Planned(Solved):
    """The optimum with the knee, what one more unit of budget saves, and quotas to ask for."""

    knee_budget: float
    next_unit_saves_hours: float


@dataclass(frozen=True, kw_only=True)
class Frontier(Result):
    """The whole curve: `budgets` and `hours` are its vertices, the least mean JCT in hours at each budget."""

    budgets: tuple[float, ...]
    hours: tuple[float, ...]
    unit: str
    knee_budget: float
    cheapest_feasible_spend: float
    largest_useful_spend: float
    page: Mapping[str, Any] = field(repr=False)

    def plot(self, axes: Axes | None = None, *, mark: float | None = None) -> Axes:
        """Draw the curve, its knee, and a budget to mark; return the axes.

        Raises:
            MissingExtra: when matplotlib (the extra `plot`) is not installed.
        """
        try:
            from matplotlib.figure import Figure  # noqa: PLC0415 - optional
        except ImportError:
            raise MissingExtra("a plot needs matplotlib", hint=install_command("plot")) from None
        axes = Figure(figsize=(7.0, 4.0), layout="constrained").subplots() if axes is None else axes
        axes.plot(self.budgets, self.hours)
        for budget, name in ((self.knee_budget, "knee"), (mark, "marked")):
            if budget is not None:
                at = self.hours_at(budget)
                axes.plot([budget], [at], "o")
                axes.annotate(f"{name}: {format_hours(at)}", (budget, at), (6, 6), textcoords="offset points")
        axes.set_xlabel("GPUs" if self.unit == "gpus" else "dollars per hour")
        axes.set_ylabel("mean hours from arrival to end")
        axes.set_ylim(bottom=0.0)
        return axes

    def hours_at(self, budget: float) -> float:
        """Return the least mean JCT in hours at a budget; infinite below the least feasible one."""
        import numpy as np  # noqa: PLC0415 - slow to import, and not needed to read a result

        if budget < self.budgets[0] * (1.0 - 1e-12):
            return float("inf")
        return float(np.interp(budget, self.budgets, self.hours))

    def write_page(self, path: str) -> None:
        """Write the curve with its sliders as one static HTML file.

        Raises:
            InputError: when the file cannot be written.
        """
        from pathlib import Path  # noqa: PLC0415

        from boa_daemon.dashboard.assets import write_static  # noqa: PLC0415 - seldom needed

        write_static(Path(path), title=self.title, answers={"page/frontier": self.page})


@dataclass(frozen=True, kw_only=True)
class Committed(Result):
    """Advice on commitments by term in years: dollars per hour to commit to, and what they save.

    `saved_fraction` is the part of the on-demand bill saved at the likely load, `least_saved_fraction` the
    least over its interval. If that is negative, the commitment may lose money.
    """

    usd_per_hour: Mapping[int, float]
    saved_fraction: Mapping[int, float]
    least_saved_fraction: Mapping[int, float]


@dataclass(frozen=True, kw_only=True)
class Simulated(Result):
    """One run over a trace. Hours are over finished jobs, dollars per hour over the hours of arrivals."""

    policy: str
    mean_jct_hours: float
    p95_jct_hours: float
    mean_usd_per_hour: float
    lower_bound_mean_jct_hours: float


@dataclass(frozen=True, kw_only=True)
class Compared(Result):
    """Policies on the same jobs for the same money; `ratios` are mean JCTs over BOA's, paired by seed."""

    ratios: Mapping[str, float]


def _text(value: Any) -> str:
    """Format a value for people."""
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    return f"{value:,.4g}"
