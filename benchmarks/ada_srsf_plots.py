"""Pictures of the report: distributions of job completion times, and ratios with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from benchmarks.plot_style import STYLE

Row = dict[str, Any]

DEFAULT = "ada-srsf-buckets-default"
"""Buckets of 25 MB or of thirty latencies, whichever is longer; they differ only above 10 Gbit/s."""

LABELS = {
    "srsf-1": "SRSF(1)",
    "srsf-2": "SRSF(2)",
    "srsf-3": "SRSF(3)",
    "ada-srsf": "Ada-SRSF (paper)",
    "ada-srsf-buckets": "Ada-SRSF, 25 MB buckets",
    DEFAULT: "Ada-SRSF, default buckets",
    "srsf-preemptive": "preemptive (ideal)",
}
COLOURS = {
    "srsf-1": "#4d4d4d",
    "srsf-2": "#a6bddb",
    "srsf-3": "#74a9cf",
    "ada-srsf": "#d95f02",
    "ada-srsf-buckets": "#1b7837",
    DEFAULT: "#5aae61",
    "srsf-preemptive": "#c7e9c0",
}
PLACER_COLOURS = {"RAND": "#bdbdbd", "LS": "#9e9ac8", "FF": "#fdae6b", "LWF-2": "#74c476", "LWF-1": "#1b7837"}


def draw(stored: dict[str, Any], folder: Path) -> None:
    """Draw each picture whose part was run."""
    folder.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE):
        if "placement" in stored:
            _save(folder / "ada-srsf-cdf.png", lambda: _draw_cdf(stored["placement"]["rows"]))
            _save(folder / "ada-srsf-placement.png", lambda: _draw_placement(stored["placement"]["rows"]))
        if {"speeds", "exclusive", "buckets"} <= stored.keys():
            _save(folder / "ada-srsf-policies.png", lambda: _draw_policies(stored))


def _save(path: Path, paint: Callable[[], Any]) -> None:
    """Draw one picture and write it to a file."""
    figure = paint()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _pick(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Return the rows whose setting has these values."""
    return [row for row in rows if all(row["setting"].get(key) == value for key, value in wanted.items())]


def _draw_cdf(rows: list[Row]) -> Any:
    """Draw the share of jobs completed by a time, by link policy and by placer."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    for policy in ("srsf-2", "srsf-1", "ada-srsf", "ada-srsf-buckets", "srsf-preemptive"):
        (row,) = _pick(rows, policy=policy, placer="LWF-1")
        _curve(left, row, LABELS[policy], COLOURS[policy])
    for placer, colour in PLACER_COLOURS.items():
        (row,) = _pick(rows, policy="srsf-1", placer=placer)
        _curve(right, row, placer, colour)
    left.set_title("Order of messages (placed by LWF-1)", loc="left")
    right.set_title("Placement (messages by SRSF(1))", loc="left")
    left.set_ylabel("share of jobs done within that time")
    for axes, times, shares in ((left, (400, 16_000), (0.5, 1.0)), (right, (50, 60_000), (0.0, 1.0))):
        axes.set_xscale("log")
        axes.set_xlim(*times)
        axes.set_ylim(*shares)
        axes.set_xlabel("job completion time (s)")
        axes.legend(loc="lower right")
    return figure


def _curve(axes: Axes, row: Row, label: str, colour: str) -> None:
    """Draw one distribution from its quantiles."""
    quantiles = row["jct_quantiles_seconds"]
    is_paper = row["setting"]["policy"] == "ada-srsf"
    style = "--" if is_paper else "-"
    axes.plot(quantiles, np.linspace(0, 1, len(quantiles)), style, label=label, color=colour, lw=1.8)


def _draw_placement(rows: list[Row]) -> Any:
    """Draw mean completion time relative to LWF-1, by placer, for three link policies."""
    placers = ("LWF-1", "LWF-2", "FF", "LWF-4", "LWF-8", "LWF-16", "LWF-32", "LS", "RAND")
    policies = ("srsf-1", "ada-srsf", "ada-srsf-buckets")
    figure, axes = plt.subplots(figsize=(9, 4))
    for number, policy in enumerate(policies):
        picked = [_pick(rows, policy=policy, placer=placer)[0]["to_lwf_1"] for placer in placers]
        _bars(axes, number, len(policies), picked, policy)
    axes.set_xticks(range(len(placers)), placers)
    axes.axhline(1, color="black", lw=0.8)
    axes.set_ylabel("mean completion time / LWF-1")
    axes.set_title("What placement is worth (mean of paired ratios, 95 % intervals)", loc="left")
    axes.legend(loc="upper left")
    axes.grid(visible=False, axis="x")
    return figure


def _draw_policies(stored: dict[str, Any]) -> Any:
    """Draw mean completion time relative to SRSF(1), by link speed and link policy."""
    policies = ("srsf-2", "srsf-3", "ada-srsf", "ada-srsf-buckets", DEFAULT, "srsf-preemptive")
    speeds = (1.0, 10.0, 25.0, 100.0)
    figure, both = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for axes, part, title in ((both[0], "speeds", "Shared GPUs"), (both[1], "exclusive", "One job per GPU")):
        for number, policy in enumerate(policies):
            picked = []
            for speed in speeds:
                wanted: dict[str, Any] = {"gigabits": speed, "placer": "LWF-1", "paper_form": False}
                if policy == DEFAULT and speed > 10.0:
                    wanted |= {"policy": "ada-srsf-buckets", "shared": part == "speeds"}
                    row = _pick(stored["buckets"]["rows"], **wanted)[0]
                else:
                    wanted |= {"policy": policy.removesuffix("-default"), "bucket_bytes": 25e6}
                    row = _pick(stored[part]["rows"], **wanted)[0]
                picked.append(row["to_srsf_1"])
            _bars(axes, number, len(policies), picked, policy, bottom=1.0)
        axes.set_xticks(range(len(speeds)), [f"{speed:g} Gbit/s" for speed in speeds])
        axes.axhline(1, color="black", lw=0.8)
        axes.set_ylim(0.7, 1.25)
        axes.set_title(title, loc="left")
        axes.grid(visible=False, axis="x")
    both[0].set_ylabel("mean completion time / SRSF(1)")
    handles, labels = both[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _bars(
    axes: Axes, number: int, of: int, ratios: list[dict[str, float]], policy: str, *, bottom: float = 0.0
) -> None:
    """Draw one series of a grouped bar chart with its intervals; bars start at `bottom`."""
    label, colour, width = LABELS[policy], COLOURS[policy], 0.8 / of
    at = np.arange(len(ratios)) + (number - (of - 1) / 2) * width
    middle = np.array([ratio["ratio"] for ratio in ratios])
    reach = np.array([[r["ratio"] - r["low"] for r in ratios], [r["high"] - r["ratio"] for r in ratios]])
    whiskers = {"lw": 1, "capsize": 2}
    axes.bar(
        at, middle - bottom, width * 0.92, bottom, yerr=reach, label=label, color=colour, error_kw=whiskers
    )
