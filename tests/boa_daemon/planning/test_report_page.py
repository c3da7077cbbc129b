"""Report pages: names are escaped, and the answer can be read back from the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from accessibility import faults_of
from browsers import Tab, a_browser

from boa_daemon.errors import InputError
from boa_daemon.planning.report_page import DARK, Heading, PageTable, Picture, Report, write_page

NASTY = "</script><script>alert(1)</script> & <b>"


def a_report() -> Report:
    """Return a page on which every text is hostile."""
    return Report(
        title=NASTY,
        lead=NASTY,
        bad=[NASTY],
        facts={NASTY: NASTY},
        parts=[
            NASTY,
            Heading(NASTY),
            Picture(svg="<svg ></svg>", words=NASTY),
            PageTable(title=NASTY, columns=(NASTY,), rows=((NASTY,),), right=frozenset({0})),
        ],
        assumed={NASTY: NASTY},
        answer={"job": NASTY, "usd": 1.5},
        made_by=NASTY,
    )


def test_hostile_names_are_escaped() -> None:
    """The only script element is the answer, which reads back unchanged."""
    html = a_report().html
    answer = html.partition('<script type="application/json" id="answer">')[2].partition("</script>")[0]

    assert json.loads(answer) == {"job": NASTY, "usd": 1.5}
    assert html.count("<script") == 1
    assert "<b>" not in html


def test_dark_colours_have_enough_contrast_and_apply_to_screens_only() -> None:
    """Each text colour has a contrast of at least 4.5 to 1 to the dark background (WCAG AA)."""
    colours = re.findall(r"(?<![-a-z])(color|background): #([0-9a-f]{6})", DARK)
    (ground,) = [luminance(code) for name, code in colours if name == "background"]

    assert "@media screen and (prefers-color-scheme: dark)" in a_report().html
    for name, code in colours:
        if name == "color":
            assert (luminance(code) + 0.05) / (ground + 0.05) >= 4.5, code


def luminance(code: str) -> float:
    """Return the relative luminance of a colour as defined by WCAG."""
    parts = [int(code[i : i + 2], 16) / 255.0 for i in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_failed_write_leaves_no_partial_page(tmp_path: Path) -> None:
    """A folder has the name of the page."""
    (tmp_path / "plan.html").mkdir()
    with pytest.raises(InputError, match="cannot write the report"):
        write_page("text", tmp_path / "plan.html")

    assert [path.name for path in tmp_path.iterdir()] == ["plan.html"]


@pytest.mark.parametrize(
    ("rows", "folded"), [(1, ""), (60, ""), (61, "1 more row<"), (4000, "3,940 more rows<")]
)
def test_a_table_of_thousands_is_folded(rows: int, folded: str) -> None:
    """All rows are there; those beyond 60 are shown on demand, under the same header, with their colours."""
    cells = tuple((f"job-{number}", str(number)) for number in range(rows))
    last = rows - 1
    table = PageTable(
        title="Jobs", columns=("job", "n"), rows=cells, bad=frozenset({(last, 1)}), mine=frozenset({last})
    ).html
    assert ("<details>" in table) is bool(folded)
    assert folded in table
    assert all(f">job-{number}<" in table for number in range(rows))
    assert table.count("<thead>") == (2 if folded else 1)
    row = table.rpartition("<tr")[2]
    assert 'class="mine"' in row
    assert 'class="text bad short"' in row


@pytest.mark.parametrize("name", ["\u202eevil", "a\u2067b", "\u200fא", "\x1b[31mred"])
def test_a_name_turns_nothing_around(name: str) -> None:
    """Characters that change the direction of what follows are shown as signs."""
    report = Report(title=name, lead=f"{name} waits", parts=[name], bad=[name], made_by=name)
    assert not set("\u202e\u2067\u200f\x1b") & set(report.html)


@pytest.mark.first_set(1)
@pytest.mark.browser
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_no_column_of_a_wide_table_is_a_letter_wide(tmp_path: Path, width: int) -> None:
    """A table scrolls instead; the names in it are long, or written from right to left."""
    names = (
        "a-workload-of-the-large-language-models-of-the-whole-organisation-x",
        "תצוגה-של-עברית-ארוכה-מאוד",
    )
    rows = tuple((name, "8", "1.11", f"{name}, 20/h", "1.12", f"{name}, 40/h") for name in names)
    columns = ("", "traces", "least", "where", "most", "where")
    table = PageTable(title="Ranges", columns=columns, rows=rows * 60, right=frozenset({1, 2, 4}))
    file = tmp_path / "page.html"
    file.write_text(Report(title=names[0], lead=names[0], parts=[table], made_by="by a test").html)
    with a_browser() as browser:
        tab = Tab(browser, width=width)
        tab.page.goto(file.as_uri())
        faults = faults_of(tab.page)
        widths = tab.page.evaluate("[...document.querySelectorAll('td.text')].map((one) => one.offsetWidth)")
        hidden = tab.page.evaluate(
            "[...document.querySelectorAll('tr')].filter((one) => !one.checkVisibility()).length"
        )
        tab.page.locator("summary").click()
        shown = tab.page.evaluate(
            "[...document.querySelectorAll('tr')].filter((one) => one.checkVisibility()).length"
        )
        tab.close()
    assert faults == []
    assert min(one for one in widths if one) >= 100
    assert (hidden, shown) == (61, 122)
