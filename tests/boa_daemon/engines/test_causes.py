"""The line of a failed job's log that its evidence quotes."""

from __future__ import annotations

import pytest

from boa_daemon.engines.causes import cause_of, last_line


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


@pytest.mark.parametrize("code", [1, 2, 126, 127])
def test_a_full_disk_is_the_cause_whatever_the_code(code: int) -> None:
    """A script that could not be written is a missing command to a shell; another try may find room."""
    end = {"code": code, "disk_full": True, "out_of_memory": False}
    assert cause_of(end, None)[0] == "disk-full"
    missing = "missing-command" if code in (126, 127) else "error"
    assert cause_of({**end, "disk_full": False}, None)[0] == missing
