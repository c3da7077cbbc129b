"""docs/reference/settings.md lists every setting with its default and its meaning, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from boa_daemon.daemon.config import UserSettings, setting_rows

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/settings.md").read_text(encoding="utf-8")
ROW = re.compile(r"\| `([a-z_]+)` \| (?:`(.*?)`)? ?\| (.*) \|")


def rows_of_the_page() -> list[tuple[str, str, str, str]]:
    """Return (section, key, default, meaning) of the rows of the page's tables."""
    rows, section = [], ""
    for line in PAGE.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## [").removesuffix("]")
        elif found := ROW.fullmatch(line):
            rows.append((section, found[1], found[2] or "", found[3]))
    return rows


def test_the_page_lists_what_the_program_reads() -> None:
    """Section by section, in the order of the program, with defaults and meanings."""
    of_sections = [row for row in rows_of_the_page() if row[0] != "users.NAME"]
    assert of_sections == list(setting_rows())


def test_the_page_lists_what_one_user_may_do() -> None:
    """The table of users is open-ended, so its keys stand under NAME."""
    listed = {key: meaning for section, key, _, meaning in rows_of_the_page() if section == "users.NAME"}
    assert listed == {key: field.description for key, field in UserSettings.model_fields.items()}
