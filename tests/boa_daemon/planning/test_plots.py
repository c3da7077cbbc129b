"""The plot of the curve: its text, its reproducibility, and checks before the work."""

from __future__ import annotations

import struct
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from boa_daemon.errors import InputError, MissingExtra
from boa_daemon.planning.plots import SUFFIXES, CurvePlot, check_plot_path, curve_words, draw_curve
from policies.optimum.knee import knee_of

BUDGETS = np.array([10.0, 12.0, 16.0, 30.0, 60.0])
HOURS = np.array([2.0, 1.0, 0.6, 0.5, 0.5])
PLOT = CurvePlot(
    budgets=BUDGETS,
    hours=HOURS,
    knee=knee_of(BUDGETS, HOURS),
    unit="usd_per_hour",
    title="What a budget buys",
    marked=(14.0, 0.8),
)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_curve_gives_the_same_file(tmp_path: Path, suffix: str) -> None:
    """No other file is left behind."""
    for name in ("one", "two"):
        draw_curve(PLOT, tmp_path / (name + suffix))

    assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"one{suffix}", f"two{suffix}"]


def test_a_png_is_1440_by_810_pixels(tmp_path: Path) -> None:
    """The ratio of 16 : 9 fills a slide."""
    draw_curve(PLOT, tmp_path / "curve.png")
    data = (tmp_path / "curve.png").read_bytes()

    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (1440, 810)


def words_of(plot: CurvePlot, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the text of the picture."""
    import matplotlib as mpl

    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")
    draw_curve(plot, folder / "curve.svg")
    return (folder / "curve.svg").read_text(encoding="utf-8")


def test_the_picture_names_cliff_knee_floor_and_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short times are shown in minutes."""
    words = words_of(PLOT, tmp_path, monkeypatch)

    assert "What a budget buys" in words
    assert "infeasible below $10.00/h" in words
    assert "knee: $" in words
    assert "floor: no money buys less than 30.0 min" in words
    assert "your budget: $14.00/h" in words
    assert "48.0 min on average" in words
    assert "Mean job completion time, minutes" in words


def test_the_picture_names_units_and_a_weighted_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No budget is marked."""
    hours = 4.0 * HOURS
    plot = replace(
        PLOT, unit="gpus", hours=hours, knee=knee_of(BUDGETS, hours), marked=None, is_weighted=True
    )
    words = words_of(plot, tmp_path, monkeypatch)

    assert "Budget, GPUs held on average" in words
    assert "Weighted mean job completion time, hours" in words
    assert curve_words(plot).startswith("Weighted mean job completion time against the budget")
    assert curve_words(PLOT).startswith("Mean job completion time against the budget")
    assert "infeasible below 10.0 GPUs" in words
    assert "your budget" not in words


def test_a_curve_of_one_budget_can_be_drawn(tmp_path: Path) -> None:
    """More money buys nothing in this problem."""
    one = np.array([4.0]), np.array([2.0])
    draw_curve(
        replace(PLOT, budgets=one[0], hours=one[1], knee=knee_of(*one), marked=None), tmp_path / "p.png"
    )

    assert (tmp_path / "p.png").stat().st_size > 0


def test_a_failed_write_keeps_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk leaves no partial file."""
    from matplotlib.figure import Figure

    def full_disk(_figure: Figure, part: Path, **_: object) -> None:
        part.write_bytes(b"half a pic")
        raise OSError(28, "No space left on device")

    path = tmp_path / "curve.png"
    path.write_bytes(b"old")
    monkeypatch.setattr(Figure, "savefig", full_disk)
    with pytest.raises(InputError, match="cannot write the plot: No space left"):
        draw_curve(PLOT, path)

    assert [file.name for file in tmp_path.iterdir()] == ["curve.png"]
    assert path.read_bytes() == b"old"


def test_plot_paths_are_checked(tmp_path: Path) -> None:
    """A wrong suffix, a missing folder and a folder in place of a file are refused."""
    (tmp_path / "folder.png").mkdir()
    for name, says in (
        ("curve.jpeg", ".jpeg is no picture"),
        ("curve", "no suffix is no picture"),
        ("none/curve.svg", "does not exist"),
        ("folder.png", "this is a folder"),
    ):
        with pytest.raises(InputError, match=says) as refusal:
            check_plot_path(tmp_path / name)
        assert refusal.value.exit_code == 2
    check_plot_path(tmp_path / "CURVE.SVG")


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the command that installs it here."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(MissingExtra, match=r"pip install .*'matplotlib"):
        check_plot_path(tmp_path / "curve.svg")
