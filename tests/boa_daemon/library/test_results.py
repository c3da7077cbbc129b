"""Results as a notebook shows them: a table of the first rows, a curve, and the hours at a budget."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from boa_daemon.errors import MissingExtra
from boa_daemon.library.results import MOST_SHOWN, Frontier, Result

CURVE = Frontier(
    title="Waiting against money",
    document={"a": 1},
    rows=[],
    budgets=(2.0, 4.0, 8.0),
    hours=(10.0, 6.0, 5.0),
    unit="usd_per_hour",
    knee_budget=4.0,
    cheapest_feasible_spend=2.0,
    largest_useful_spend=8.0,
    page={},
)


def test_a_table_has_the_first_rows_and_says_how_many_more() -> None:
    """Text of others is no markup; numbers have four digits."""
    html = Result(title="<t>", document={}, rows=[{"<n>": 1234.5678, "b": True, "c": "<x>"}])._repr_html_()
    assert "<caption>&lt;t&gt;</caption>" in html
    assert "<th>&lt;n&gt;</th>" in html
    assert "<td>1,235</td><td>True</td><td>&lt;x&gt;</td>" in html
    assert "more" not in html
    for rows, more in ((MOST_SHOWN, False), (MOST_SHOWN + 3, True)):
        html = Result(title="t", document={}, rows=[{"a": number} for number in range(rows)])._repr_html_()
        assert html.count("<tr>") == MOST_SHOWN + 1
        assert ("and 3 more" in html) is more
    assert Result(title="<t>", document={}, rows=[])._repr_html_() == "<p><b>&lt;t&gt;</b></p>"


def test_the_document_is_a_copy() -> None:
    """Whoever changes it changes no result."""
    document = CURVE.to_dict()
    document["a"] = 2
    assert CURVE.to_dict() == {"a": 1}


@pytest.mark.parametrize(
    ("budget", "hours"), [(1.99, math.inf), (2.0, 10.0), (3.0, 8.0), (4.0, 6.0), (6.0, 5.5), (99.0, 5.0)]
)
def test_the_hours_at_a_budget_are_on_the_curve(budget: float, hours: float) -> None:
    """Below the least feasible budget nothing ends; above the largest useful one more buys nothing."""
    assert CURVE.hours_at(budget) == hours


def test_a_plot_marks_the_knee_and_the_budget() -> None:
    """From zero hours on."""
    axes = CURVE.plot(mark=6.0)
    assert [text.get_text() for text in axes.texts] == ["knee: 6.00 h", "marked: 5.50 h"]
    assert axes.get_ylim()[0] == 0.0
    assert axes.get_xlabel() == "dollars per hour"
    assert len(CURVE.plot().texts) == 1


def test_a_page_is_one_file(tmp_path: Path) -> None:
    """With the title."""
    CURVE.write_page(str(tmp_path / "p.html"))
    assert "Waiting against money" in (tmp_path / "p.html").read_text()


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """So for matplotlib."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match="a data frame needs pandas"):
        CURVE.to_frame()
    with pytest.raises(MissingExtra, match="a plot needs matplotlib"):
        CURVE.plot()
