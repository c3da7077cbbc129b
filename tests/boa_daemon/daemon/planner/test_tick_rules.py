"""The rules of a tick are those of the settings, or lower ones that were ordered."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.daemon.planner.tick_rules import rules_of
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.testing import an_instance_type
from boa_daemon.tick.facts.state import Rules

BUDGET = {
    "usd_per_hour": 10.0,
    "usd_per_day_cap": 300.0,
    "usd_per_month_cap": 7000.0,
    "usd_per_hour_ceiling": 20.0,
    "max_instances": 6,
}


def rules(*, lower: dict[str, float] | None = None, **budget: Any) -> Rules:
    """Return the rules under a budget."""
    daemon = {"tick_seconds": 7.0, "idle_hold_seconds": 80.0, "checkpoint_seconds": 33.0}
    given = {"budget": {**BUDGET, **budget}, "daemon": daemon, "steady": {"minimum_hold_seconds": 77.0}}
    return rules_of(
        Settings.model_validate(given),
        {"gpu": an_instance_type()},
        warm_pool=None,
        standing_usd_per_hour=0.25,
        fixed=(),
        transfers={},
        lower_caps=lower or {},
    )


def test_each_limit_of_the_settings_is_a_limit_of_the_tick() -> None:
    """Money by the day, month and hour, nodes, and the times that limits count with."""
    found = rules()
    caps = found.caps
    assert caps is not None
    assert (caps.usd_per_day, caps.usd_per_month, caps.usd_per_hour) == (300.0, 7000.0, 20.0)
    assert (caps.instances, found.max_nodes) == (6, 6)
    assert (caps.tick_seconds, caps.checkpoint_seconds, caps.standing_usd_per_hour) == (7.0, 33.0, 0.25)
    assert (found.idle_hold_seconds, found.longest_hold_seconds) == (80.0, 80.0)
    assert found.steady.minimum_hold_seconds == 77.0


@pytest.mark.parametrize(
    ("lower", "in_force"),
    [
        ({}, (300.0, 7000.0)),
        ({"day": 100.0}, (100.0, 7000.0)),
        ({"month": 50.0}, (300.0, 50.0)),
        ({"day": 900.0, "month": 9000.0}, (300.0, 7000.0)),
        ({"day": 0.01}, (0.01, 7000.0)),
    ],
)
def test_an_ordered_cap_holds_where_it_is_lower(
    lower: dict[str, float], in_force: tuple[float, float]
) -> None:
    """An order never loosens a cap."""
    caps = rules(lower=lower).caps
    assert caps is not None
    assert (caps.usd_per_day, caps.usd_per_month) == in_force


def test_an_ordered_cap_holds_where_the_settings_have_none() -> None:
    """Where neither says one, there is none."""
    free = {"usd_per_day_cap": None, "usd_per_month_cap": None}
    caps, plain = rules(lower={"day": 40.0}, **free).caps, rules(**free).caps
    assert caps is not None
    assert plain is not None
    assert (caps.usd_per_day, caps.usd_per_month) == (40.0, None)
    assert (plain.usd_per_day, plain.usd_per_month) == (None, None)
