"""docs/reference/job-file.md lists exactly the keys of a job file, with default and meaning."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

from pydantic_core import PydanticUndefined

from boa_daemon.inputs.job_file import JobFile
from boa_daemon.tick.facts.retries import FailureCause

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/job-file.md").read_text(encoding="utf-8")
ROW = re.compile(r"\| `([a-z_]+)` \| (.*?) \| (.*) \|")


def test_the_page_lists_every_key_with_its_default_and_meaning() -> None:
    """An empty default is left out of the table."""
    listed = {found[1]: (found[2], found[3]) for line in PAGE.splitlines() if (found := ROW.fullmatch(line))}
    assert listed == {
        name: (
            "required" if field.is_required() else said(field.get_default(call_default_factory=True)),
            field.description or "",
        )
        for name, field in JobFile.model_fields.items()
    }


def said(default: object) -> str:
    """Return a default as the page writes it."""
    if default is PydanticUndefined or default in (None, "", [], {}):
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def test_the_page_names_every_kind_of_failure() -> None:
    """The page names every failure cause that `retries` accepts."""
    assert [kind for kind in get_args(FailureCause) if f"`{kind}`" not in PAGE] == []
