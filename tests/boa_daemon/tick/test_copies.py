"""Copies of frozen values: what `dataclasses.replace` makes, and the same decisions in a whole run."""

from __future__ import annotations

import dataclasses
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from boa_daemon.sim.scenarios import Scenario, settings_of
from boa_daemon.sim.wiring import simulate
from boa_daemon.testing import a_node
from boa_daemon.tick import copies
from boa_daemon.tick.copies import replace
from boa_daemon.tick.decision import Decision
from boa_daemon.tick.offers import Offer
from boa_daemon.tick.state import Plan
from policies.model import Budget


def test_a_copy_is_what_dataclasses_would_make() -> None:
    """With the changes, without others, and as frozen as before."""
    plan = Plan(widths={}, slots={})
    node = a_node("n1")

    assert replace(plan, wake_at=3.0) == dataclasses.replace(plan, wake_at=3.0) != plan
    assert replace(node, phase="terminated") == dataclasses.replace(node, phase="terminated")
    with pytest.raises(FrozenInstanceError):
        replace(plan, wake_at=3.0).wake_at = 4.0  # type: ignore[misc]


def test_what_checks_itself_is_checked_and_what_is_no_field_refused() -> None:
    """As `dataclasses` does."""
    with pytest.raises(ValueError, match="a budget"):
        replace(Budget(amount=1.0), amount=-1.0)
    with pytest.raises(TypeError, match="wake_et"):
        replace(Plan(widths={}, slots={}), wake_et=3.0)
    assert hasattr(Offer, "__post_init__")


def test_a_run_decides_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every state, plan and action of a run, with these copies and with those of `dataclasses`."""
    settings = settings_of(Scenario(name="steady"), hours=4.0)

    def decided() -> list[Decision]:
        seen: list[Decision] = []
        simulate(settings, seen.append)
        return seen

    fast = decided()
    plain: Any = lambda kind: None  # noqa: E731
    monkeypatch.setattr(copies, "_reader", plain)

    slow = decided()
    assert len(fast) > 10
    assert [(one.state, one.actions) for one in fast] == [(one.state, one.actions) for one in slow]
    assert [one.plan.widths for one in fast] == [one.plan.widths for one in slow]
