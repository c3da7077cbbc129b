"""`boa demo --gate`: its arithmetic, and its errors."""

from __future__ import annotations

import os

import pytest
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.cli.plan.gate_demo import JOBS, document_of


def test_the_saved_fraction_compares_the_mean_completion_times() -> None:
    """Jobs of 2 s and 4 s take 1 s and 3 s with the gate: the means are 3 and 2, so a third is saved."""
    count = len(JOBS)
    document = document_of([[2.0] * count, [4.0] * count], [[1.0] * count, [3.0] * count])
    assert document["mean_jct_seconds_without"] == 3.0
    assert document["mean_jct_seconds_with_gate"] == 2.0
    assert document["saved_fraction"] == pytest.approx(1.0 / 3.0)
    assert [row["job"] for row in document["jobs"]] == [name for name, *_ in JOBS]


def test_the_gate_demo_without_root_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says that root is needed."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = CliRunner().invoke(app, ["demo", "--gate"])
    assert result.exit_code == 1
    assert "needs root" in str(result.exception)


def test_two_demos_at_once_are_refused() -> None:
    """The flags --gate and --real exclude each other."""
    assert "two demos" in str(CliRunner().invoke(app, ["demo", "--gate", "--real"]).exception)
