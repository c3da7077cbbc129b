"""The picture of the gate on real traffic: each policy over no gate, measured and simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from scipy import stats

from benchmarks.plot_style import STYLE

LABELS = {
    "no gate": "no gate",
    "srsf-1": "SRSF(1)",
    "srsf-2": "SRSF(2)",
    "ada-srsf": "Ada-SRSF (paper)",
    "ada-srsf-buckets": "Ada-SRSF, buckets",
}
COLOURS = {
    "no gate": "#969696",
    "srsf-1": "#4d4d4d",
    "srsf-2": "#74a9cf",
    "ada-srsf": "#d95f02",
    "ada-srsf-buckets": "#1b7837",
}


def draw(results: dict[str, Any], cases: dict[str, str], path: Path) -> None:
    """Draw the ratios to no gate by case, and every run's real mean JCT over the simulated one."""
    there = [name for name in cases if name in results]
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), width_ratios=(3, 2))
        _draw_ratios(left, results, there, cases)
        _draw_agreement(right, results, there)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130)
        plt.close(figure)


def _means(rows: list[dict[str, Any]], kind: str, policy: str) -> Any:
    """Return the mean JCT of each repetition."""
    return np.array([np.mean(row[kind][policy]) for row in rows])


def _draw_ratios(axes: Axes, results: dict[str, Any], there: list[str], cases: dict[str, str]) -> None:
    """Draw real ratios with 95 % intervals, and a line for the simulated ratio."""
    policies = [policy for policy in LABELS if policy != "no gate"]
    width = 0.8 / len(policies)
    for number, policy in enumerate(policies):
        for at, name in enumerate(there):
            rows = results[name]["repetitions"]
            ratio = _means(rows, "real", policy) / _means(rows, "real", "no gate")
            simulated = float(
                (_means(rows, "simulated", policy) / _means(rows, "simulated", "no gate")).mean()
            )
            half = float(stats.t.ppf(0.975, len(ratio) - 1) * ratio.std(ddof=1) / np.sqrt(len(ratio)))
            x = at + (number - 1.5) * width
            axes.errorbar(
                x,
                ratio.mean(),
                yerr=half,
                fmt="o",
                markersize=8,
                capsize=4,
                color=COLOURS[policy],
                label=LABELS[policy] if at == 0 else None,
            )
            axes.plot(
                [x - 0.42 * width, x + 0.42 * width],
                [simulated, simulated],
                color="#e7298a",
                linewidth=2.0,
                zorder=1,
                label="simulator" if at == 0 and number == 3 else None,
            )
    axes.axhline(1.0, color="#969696", linewidth=1)
    axes.set_xticks(range(len(there)), [cases[name] for name in there])
    axes.grid(visible=False, axis="x")
    axes.set_xlim(-0.5, len(there) - 0.5)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.25 * (high - low))
    axes.set_ylabel("mean JCT relative to no gate (paired)")
    axes.set_title("What ordering brings on real traffic", loc="left")
    axes.legend(ncols=2, fontsize=8, loc="upper right")


def _draw_agreement(axes: Axes, results: dict[str, Any], there: list[str]) -> None:
    """Draw each run's real mean JCT against the simulated one."""
    most = 0.0
    for policy, label in LABELS.items():
        pairs = [
            (
                _means(results[name]["repetitions"], "simulated", policy),
                _means(results[name]["repetitions"], "real", policy),
            )
            for name in there
        ]
        x, y = (np.concatenate(side) for side in zip(*pairs, strict=True))
        axes.scatter(x, y, s=12, color=COLOURS[policy], label=label, alpha=0.8)
        most = max(most, float(x.max()), float(y.max()))
    line = np.array([0.0, 1.05 * most])
    axes.plot(line, line, color="#222222", linewidth=1)
    axes.fill_between(line, 0.9 * line, 1.1 * line, color="#000000", alpha=0.06, label="within 10 %")
    axes.set_xlim(0.0, 1.05 * most)
    axes.set_ylim(0.0, 1.05 * most)
    axes.set_xlabel("simulated mean JCT, s")
    axes.set_ylabel("measured mean JCT, s")
    axes.set_title("Each run against the simulator", loc="left")
    axes.legend(fontsize=8, loc="upper left")
