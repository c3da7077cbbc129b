"""What the daemon plans for: a policy from the settings, with everything that it brings along."""

from __future__ import annotations

import pytest

from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.planner import Planner
from policies.registry import POLICIES, build_policy


def settings(policy: str) -> Settings:
    """Return settings under a policy, with a short hold of idle nodes."""
    return Settings.model_validate(
        {
            "budget": {"usd_per_hour": 20.0},
            "workload": {"policy": policy},
            "daemon": {"idle_hold_seconds": 45.0},
        }
    )


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_keeps_its_pace_and_its_rounds_under_the_daemon(name: str) -> None:
    """As in the simulator; but no idle node is held for longer than the settings allow."""
    record = Planner(settings(name)).record([])
    built = build_policy(record.name, record.site, record.options)
    _, _, rules = record.build()
    assert (rules.pace, rules.round_seconds) == (built.pace, built.round_seconds)
    own = built.idle_hold_seconds
    assert rules.idle_hold_seconds == (45.0 if own is None else min(own, 45.0))
