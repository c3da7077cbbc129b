"""Pages to show: what a name may hold, and that the answer comes back from the page word for word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.planning.report_page import PageTable, Report, write_page

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


def test_a_page_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    """A folder of the name is in the way."""
    (tmp_path / "plan.html").mkdir()
    with pytest.raises(InputError, match="cannot write the report"):
        write_page("text", tmp_path / "plan.html")

    assert [path.name for path in tmp_path.iterdir()] == ["plan.html"]
