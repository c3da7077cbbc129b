"""The gate's settings: which policies it has, how long a lease lasts, and when messages fill idle cards."""

from __future__ import annotations

import math
from typing import Any

import pytest

from boa_daemon.gate.types import POLICIES, GateSettings
from policies.errors import InvalidProblem, UnknownPolicy
from policies.links.ada_srsf import LINK_POLICIES, default_bucket_bytes
from policies.links.contention import ETHERNET_10G

BUCKETS = "ada-srsf-buckets"


def settings(**changes: Any) -> GateSettings:
    """Return settings on the paper's Ethernet."""
    return GateSettings(link=ETHERNET_10G, **changes)


def test_a_gate_has_every_policy_but_the_one_that_pauses_messages() -> None:
    """No transport can; the error names the nearest one."""
    assert set(POLICIES) == set(LINK_POLICIES) - {"srsf-preemptive"}
    with pytest.raises(UnknownPolicy, match=r"ada-srsf-buckets comes nearest"):
        settings(policy="srsf-preemptive")
    with pytest.raises(UnknownPolicy, match=f"'fifo'. Choose one of {POLICIES[0]}"):
        settings(policy="fifo")


@pytest.mark.parametrize(
    "name", ["patience_seconds", "least_lease_seconds", "evaluate_seconds", "free_seconds", "beat_seconds"]
)
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_times_are_finite_and_more_than_zero(name: str, value: float) -> None:
    """A gate that waits for ever would stall jobs."""
    with pytest.raises(InvalidProblem, match=f"{name} must be more than zero"):
        settings(**{name: value})


@pytest.mark.parametrize(
    ("expected", "lease"),
    [(0.0, 0.25), (0.05, 0.25), (0.1, 0.4), (0.3, 1.2), (0.7, 1.2), (0.8, 1.2), (1.0, 1.5), (10.0, 15.0)],
)
def test_a_lease_lasts_four_times_its_message_within_bounds(expected: float, lease: float) -> None:
    """At least a quarter of a second; a long message always has half as long again."""
    assert settings().lease_seconds(expected) == pytest.approx(lease)


@pytest.mark.parametrize("policy", POLICIES)
def test_only_buckets_are_granted_in_parts_and_fill_idle_cards(policy: str) -> None:
    """Other policies grant a whole message."""
    found = settings(policy=policy)
    is_in_buckets = policy == BUCKETS
    assert found.fills is is_in_buckets
    assert found.grant_bytes == (default_bucket_bytes(ETHERNET_10G) if is_in_buckets else math.inf)


def test_a_bucket_is_as_large_as_it_is_set() -> None:
    """Cards are filled unless that is switched off."""
    assert settings(policy=BUCKETS, bucket_bytes=5e6).grant_bytes == 5e6
    assert not settings(policy=BUCKETS, fills_idle_cards=False).fills
