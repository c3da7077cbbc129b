"""Pages to show: what a name may hold, and that the answer comes back from the page word for word."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.planning.report_page import DARK, PageTable, Report, write_page

NASTY = "</script><script>alert(1)</script> & <b>"


def a_report() -> Report:
    """Return a page on which every text is a nasty one."""
    return Report(
        title=NASTY,
        lead=NASTY,
        pictures=[],
        printed=[NASTY, PageTable(title=NASTY, columns=(NASTY,), rows=((NASTY,),), right=frozenset({0}))],
        assumed={NASTY: NASTY},
        answer={"job": NASTY, "usd": 1.5},
        made_by=NASTY,
    )


def test_names_are_text_and_never_part_of_the_page() -> None:
    """The only script element is the answer, and it reads back as it was."""
    html = a_report().html
    answer = html.partition('<script type="application/json" id="answer">')[2].partition("</script>")[0]

    assert json.loads(answer) == {"job": NASTY, "usd": 1.5}
    assert html.count("<script") == 1
    assert "<b>" not in html


def test_a_dark_screen_can_be_read_and_paper_stays_white() -> None:
    """Each colour of text stands out from the dark ground by 4.5 to 1 (WCAG AA); printing knows no dark."""
    colours = re.findall(r"(?<![-a-z])(color|background): #([0-9a-f]{6})", DARK)
    (ground,) = [luminance(code) for name, code in colours if name == "background"]

    assert "@media screen and (prefers-color-scheme: dark)" in a_report().html
    for name, code in colours:
        if name == "color":
            assert (luminance(code) + 0.05) / (ground + 0.05) >= 4.5, code


def luminance(code: str) -> float:
    """Return the relative luminance of a colour, as WCAG has it."""
    parts = [int(code[i : i + 2], 16) / 255.0 for i in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_page_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    """A folder of the name is in the way."""
    (tmp_path / "plan.html").mkdir()
    with pytest.raises(InputError, match="cannot write the report"):
        write_page("text", tmp_path / "plan.html")

    assert [path.name for path in tmp_path.iterdir()] == ["plan.html"]
