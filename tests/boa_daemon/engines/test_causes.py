"""The line of a failed job's log that its evidence quotes."""

from __future__ import annotations

import pytest

from boa_daemon.engines.causes import last_line


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["Error: no such image", "boa: no file matches the artifacts 'out/*'"], "Error: no such image"),
        (["boa: cannot start in /x: no such folder", ""], "boa: cannot start in /x: no such folder"),
        ([" ", ""], ""),
        ([], ""),
    ],
)
def test_the_evidence_quotes_the_commands_last_line_before_boas_notes(lines: list[str], said: str) -> None:
    """A `boa:` note about artifacts does not explain why the command failed."""
    assert last_line(lines) == said
