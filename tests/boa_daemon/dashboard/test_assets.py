"""Files of the page: nothing is loaded from other hosts, and a static page is a single file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from boa_daemon.dashboard.assets import CONTENT_SECURITY_POLICY, SCRIPTS, asset, static_page, write_static
from boa_daemon.errors import InputError

FOLDER = Path(__file__).resolve().parents[3] / "boa_daemon/data/page"


def test_scripts_lists_exactly_the_script_files() -> None:
    """A file that is not loaded, or a listed file that is missing, fails the test."""
    assert {path.stem for path in FOLDER.glob("*.js")} == set(SCRIPTS)


@pytest.mark.parametrize("name", ["index.html", "page.css", "page.js"])
def test_no_file_of_the_page_names_another_host(name: str) -> None:
    """The name of the SVG namespace is not an address that is loaded."""
    text = asset(name).decode().replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?://|//[a-z0-9-]+\.[a-z]{2,}|@import|url\((?!#)", text) == []


def test_the_scripts_never_write_html() -> None:
    """The scripts create elements, so text from the daemon cannot become markup."""
    text = asset("page.js").decode()
    assert (
        re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
        == []
    )


def test_the_content_security_policy_forbids_inline_code() -> None:
    """The default is to allow nothing."""
    assert "'unsafe" not in CONTENT_SECURITY_POLICY
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'")


def test_a_static_page_contains_the_answers() -> None:
    """A `</script>` in an answer does not end the element that holds it."""
    text = static_page(
        title="a plan", answers={"page/frontier": {"title": "</script><script>alert(1)</script>"}}
    )
    (data,) = re.findall(r'<script type="application/json" id="answers">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data)["answers"]["page/frontier"]["title"] == "</script><script>alert(1)</script>"
    assert "page.js" not in text
    assert "page.css" not in text


def test_a_static_page_in_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(InputError, match=r"cannot write the page.*|.*page\.html"):
        write_static(tmp_path / "none" / "page.html", title="", answers={})
