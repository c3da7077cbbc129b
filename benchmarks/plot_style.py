"""The style of the benchmarks' pictures, drawn without a screen. Import it before `pyplot` is used."""

from __future__ import annotations

import matplotlib as mpl

mpl.use("Agg")

STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
