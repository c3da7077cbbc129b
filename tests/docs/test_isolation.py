"""The page on isolation: each line names a test, and that test exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "isolation.md"


def test_each_line_of_the_threat_model_has_its_test() -> None:
    """Every row of the tables ends with a test that pytest would find."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.endswith("| test |")]
    assert len(rows) > 25
    for row in rows:
        found = re.search(r"`(tests/\S+\.py)::(\w+)` \|$", row)
        assert found, row
        tree = ast.parse((ROOT / found[1]).read_text(encoding="utf-8"))
        assert found[2] in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, row
