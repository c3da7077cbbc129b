"""The docs build as a site, and a broken link is an error."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a folder."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(folder / "mkdocs.yml")]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_every_page_stands_in_the_menu_and_no_font_is_fetched() -> None:
    """But for the pages of decisions, which their index lists."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = [page for section in config["nav"] for pages in section.values() for page in pages]
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    expected = {page for page in pages if not page.startswith("decisions/")} | {"decisions/README.md"}
    assert sorted(listed) == sorted(expected)
    assert config["theme"]["font"] is False


@pytest.mark.exhaustive  # Takes ten seconds; test_docs checks every link faster.
def test_the_site_builds_and_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    """Every page is built, with a search index; the build fails with a page that links to a missing one."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    done = build(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [path for path in (tmp_path / "docs").rglob("*.md") if path.name != "README.md"]
    site = tmp_path / "build/site"
    missing = [
        path
        for path in pages
        if not (site / path.relative_to(tmp_path / "docs").with_suffix("") / "index.html").is_file()
    ]
    assert missing == []
    assert (site / "search.json").is_file()

    (tmp_path / "docs/how-to/look-at-it.md").write_text("[nowhere](none.md)\n")
    assert build(tmp_path).returncode != 0
