"""docs/reference/job-file.md lists exactly the keys of a job file, with default and meaning.

To record a wanted change: ``BOA_RECORD_DOCS=1 pytest tests/docs``, then read the difference.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import get_args

from pydantic_core import PydanticUndefined

from boa_daemon.inputs.job_file import JobFile
from boa_daemon.tick.facts.retries import FailureCause

FILE = Path(__file__).resolve().parents[2] / "docs/reference/job-file.md"
TABLE = re.compile(r"(?<=\|---\|---\|---\|\n)(\| `.*\|\n)+")


def rows() -> str:
    """Return the rows of the table that the page must have."""
    found = ""
    for name, field in JobFile.model_fields.items():
        default = "required" if field.is_required() else said(field.get_default(call_default_factory=True))
        found += f"| `{name}` | {default} | {field.description or ''} |\n"
    return found


def test_the_page_lists_every_key_with_its_default_and_meaning() -> None:
    """An empty default is left out of the table."""
    page = FILE.read_text(encoding="utf-8")
    if os.environ.get("BOA_RECORD_DOCS"):
        page = TABLE.sub(lambda _: rows(), page, count=1)
        FILE.write_text(page, encoding="utf-8")
    found = TABLE.search(page)
    assert found is not None
    assert found[0] == rows()


def said(default: object) -> str:
    """Return a default as the page writes it."""
    if default is PydanticUndefined or default in (None, "", [], {}):
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def test_the_page_names_every_kind_of_failure() -> None:
    """The page names every failure cause that `retries` accepts."""
    page = FILE.read_text(encoding="utf-8")
    assert [kind for kind in get_args(FailureCause) if f"`{kind}`" not in page] == []
