"""Report pages: names are escaped, and the answer can be read back from the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

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
