"""What is said of a failure."""

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
def test_the_commands_own_last_line_comes_before_what_was_said_of_it(lines: list[str], said: str) -> None:
    """A note on artifacts says nothing of why it failed."""
    assert last_line(lines) == said
