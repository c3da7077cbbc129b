"""The page's files: nothing from elsewhere, and one file that holds all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from boa_daemon.dashboard.assets import CONTENT_SECURITY_POLICY, SCRIPTS, asset, static_page, write_static
from boa_daemon.errors import InputError

FOLDER = Path(__file__).resolve().parents[3] / "boa_daemon/data/page"


def test_every_script_is_in_the_page() -> None:
    """A file that nobody loads, or that is named and missing, is found."""
    assert {path.stem for path in FOLDER.glob("*.js")} == set(SCRIPTS)


@pytest.mark.parametrize("name", ["index.html", "page.css", "page.js"])
def test_nothing_is_loaded_from_elsewhere(name: str) -> None:
    """No address of another host stands in any file; the name of the SVG namespace is none."""
    text = asset(name).decode().replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?://|//[a-z0-9-]+\.[a-z]{2,}|@import|url\((?!#)", text) == []


def test_no_text_becomes_markup() -> None:
    """The scripts build elements; nothing is written as HTML."""
    text = asset("page.js").decode()
    assert (
        re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
        == []
    )


def test_the_policy_allows_nothing_inline() -> None:
    """Scripts and styles are files of the page; nothing else is allowed at all."""
    assert "'unsafe" not in CONTENT_SECURITY_POLICY
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'")


def test_one_file_holds_the_answers() -> None:
    """What is asked for is in it, however it is called; no answer ends the element that holds it."""
    text = static_page(
        title="a plan", answers={"page/frontier": {"title": "</script><script>alert(1)</script>"}}
    )
    (data,) = re.findall(r'<script type="application/json" id="answers">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data)["answers"]["page/frontier"]["title"] == "</script><script>alert(1)</script>"
    assert "page.js" not in text
    assert "page.css" not in text


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """One error, with the file."""
    with pytest.raises(InputError, match=r"cannot write the page.*|.*page\.html"):
        write_static(tmp_path / "none" / "page.html", title="", answers={})
