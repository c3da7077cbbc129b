"""Runs a command of `boa` in this process."""

from __future__ import annotations

import sys

import pytest

from boa_daemon.cli import main


def exit_code(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run `boa` with these arguments, and return the exit code."""
    monkeypatch.setattr(sys, "argv", ["boa", *words])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0
