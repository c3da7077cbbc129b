"""docs/reference/settings.md lists every setting with its default and its meaning, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from boa_daemon.daemon.config import TeamSettings, UserSettings
from boa_daemon.daemon.setting_layers import setting_rows

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
    of_sections = [row for row in rows_of_the_page() if not row[0].endswith(".NAME")]
    assert of_sections == list(setting_rows())


@pytest.mark.parametrize(("table", "kind"), [("users", UserSettings), ("teams", TeamSettings)])
def test_the_page_lists_the_keys_of_an_open_ended_table(table: str, kind: type[BaseModel]) -> None:
    """Users and teams have any name, so their keys stand under NAME."""
    listed = {key: meaning for section, key, _, meaning in rows_of_the_page() if section == f"{table}.NAME"}
    assert listed == {key: field.description for key, field in kind.model_fields.items()}
