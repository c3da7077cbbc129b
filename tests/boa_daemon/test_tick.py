"""decide() is pure: facts in, a plan and its actions out."""

from __future__ import annotations

import ast
import inspect

import pytest
from hypothesis import given

from boa_daemon import books, caps, diff, explain, plan, room, tick
from boa_daemon.state import ClusterState
from boa_daemon.testing import Wishes, a_job, a_node, a_state, rules, states
from boa_daemon.tick import decide
from policies.first_fit import FirstFit


@given(case=states())
def test_the_same_state_gives_the_same_decision(case: tuple[ClusterState, Wishes]) -> None:
    """A recorded tick can be replayed."""
    state, wishes = case
    first = decide(state, allocator=wishes, placer=FirstFit(), rules=rules())

    assert decide(state, allocator=wishes, placer=FirstFit(), rules=rules()) == first


@pytest.mark.parametrize("module", [books, caps, diff, explain, plan, room, tick])
def test_the_heart_asks_for_no_time_and_no_dice(module: object) -> None:
    """No clock, no randomness, no files, no network is imported."""
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert not imported & {"time", "datetime", "random", "numpy", "os", "io", "socket", "pathlib"}


def test_a_decision_explains_itself_and_says_when_to_look_again() -> None:
    """The plan's wake-up is the decision's."""
    state = a_state(a_job("a"), nodes=[a_node("n1", idle_since=0.0), a_node("n2", idle_since=5.0)], now=10.0)

    decision = decide(state, allocator=Wishes(widths={"a": 1}), placer=FirstFit(), rules=rules())

    assert decision.wake_at == 65.0
    assert "It starts now on n1 (1 GPU)" in decision.explain("a")
