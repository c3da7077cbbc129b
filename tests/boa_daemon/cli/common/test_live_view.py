"""The live view of a cluster: what runs and what it costs, on any width of terminal."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from boa_daemon.cli.common.live_view import ROWS, clock_text, status_line, view
from boa_daemon.testing import a_class, a_job, a_node, a_state, some_slots
from policies.model import Budget

STATE = a_state(
    a_job("a"),
    a_job("b"),
    nodes=[a_node("n1"), a_node("n2", phase="requested"), a_node("n3")],
    held={"a": some_slots("n1", 0, 1, 2)},
    now=3600.0,
)


def shown(state: Any = STATE, width: int = 200) -> str:
    """Return the view as text."""
    console = Console(width=width, file=StringIO(), record=True)
    console.print(view(state, {"c": a_class("c")}, started_at=0.0, budget=Budget(amount=5.0), finished=7))
    return console.export_text()


CLOCKS = [(0.0, "00:00"), (3599.0, "00:59"), (3661.0, "01:01"), (360_000.0, "100:00")]


@pytest.mark.parametrize(("seconds", "text"), CLOCKS)
def test_time_is_hours_and_minutes(seconds: float, text: str) -> None:
    """More than a day has more hours."""
    assert clock_text(seconds) == text


def test_a_status_line_counts_and_says_what_is_spent_of_the_budget() -> None:
    """An hour of three nodes at four dollars, and an hour of budget; of GPUs in GPU-hours."""
    line = status_line(STATE, started_at=0.0, budget=Budget(amount=5.0))
    assert line == "01:00  1 job running, 1 waiting, 3 nodes, $12.00/h now, $12.00 of $5.00"
    gpus = status_line(STATE, started_at=1800.0, budget=Budget(amount=5.0, unit="gpus"))
    assert gpus == "00:30  1 job running, 1 waiting, 3 nodes, 12.0 GPUs now, 12.00 of 2.50 GPU-hours"


def test_nodes_show_their_gpus_and_jobs_what_they_hold() -> None:
    """A block for each GPU: filled where a job holds it."""
    text = " ".join(shown().split())
    assert "7 jobs finished" in text
    for said in ("■ ■ ■ □ 3 used", "□ □ □ □ booting", "□ □ □ □ idle", "3 x gpu", "waits"):
        assert said in text


def test_a_narrow_terminal_has_the_tables_below_each_other() -> None:
    """A wide one beside each other."""
    assert any("Nodes" in line and "Jobs" in line for line in shown(width=200).splitlines())
    assert not any("Nodes" in line and "Jobs" in line for line in shown(width=60).splitlines())


def test_many_rows_are_counted() -> None:
    """So that the view fits on a terminal."""
    nodes = {f"n{number}": a_node(f"n{number}") for number in range(ROWS + 5)}
    text = shown(replace(STATE, nodes={**STATE.nodes, **nodes}))
    assert "and 5 more" in text
    assert "and" not in shown(replace(STATE, nodes=dict(list(nodes.items())[:ROWS]), jobs={}))
