"""docs/reference/settings.md lists exactly the settings of the program, with default and meaning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from boa_daemon.daemon.settings.config import TeamSettings, UserSettings
from boa_daemon.daemon.settings.setting_layers import setting_rows

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


def test_the_page_lists_every_setting_with_its_default_and_meaning() -> None:
    """The sections and settings have the program's order."""
    of_sections = [row for row in rows_of_the_page() if not row[0].endswith(".NAME")]
    assert of_sections == list(setting_rows())


@pytest.mark.parametrize(("table", "kind"), [("users", UserSettings), ("teams", TeamSettings)])
def test_the_page_lists_the_keys_of_an_open_ended_table(table: str, kind: type[BaseModel]) -> None:
    """The keys of users and teams are in the sections users.NAME and teams.NAME."""
    listed = {key: meaning for section, key, _, meaning in rows_of_the_page() if section == f"{table}.NAME"}
    assert listed == {key: field.description for key, field in kind.model_fields.items()}
