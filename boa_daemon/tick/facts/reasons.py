"""The closed list of reason codes and their texts.

Programs may match on a code; a sentence with numbers goes with it for people. A code says what a job waits
for, what the policy wanted and may not do, or otherwise the state of a job. The daemon uses all of these
codes and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from boa_daemon.tick.facts.limits import SENTENCES as HELD
from boa_daemon.tick.facts.state import WaitReason

JobReason: TypeAlias = Literal[
    "new",
    "starting",
    "running",
    "not-planned",
    "unplanned",
    "finished",
    "failed",
    "cancelled",
]
"""The state of a job that waits for nothing that a plan names."""

WAIT_REASON_TEXTS: Mapping[WaitReason, str] = MappingProxyType(
    {
        "nodes-to-come": "its nodes are booting or were just requested",
        "gpus-to-fall-free": "other jobs will free GPUs sooner than a new node would boot",
        "node-limit": "the limit on nodes is reached; it starts in the order of service",
        "out-of-stock": "the cloud had no machine of its type when last asked",
        "fleet-full": "all nodes of the policy's fixed fleet are full",
        "quota": "the account's quota is used up",
        "denied": "the account may not launch nodes: see `boa doctor`",
        "throttled": "the cloud throttles requests",
        "bad-request": "the cloud rejects the launch as invalid: see `boa doctor`",
        "no-price": "the price of its type is unknown, and nothing is rented without a price",
        "cap-day": HELD["cap-day"],
        "cap-month": HELD["cap-month"],
        "cap-hour": HELD["cap-hour"],
        "cap-instances": HELD["cap-instances"],
        "loop": HELD["loop"],
        "budget": "the budget is below the load: money for its nodes has to accrue first",
        "given-up": "it is not started again: it failed, reached a limit, or its `after` job ended badly",
        "resting": "it failed or its nodes refused it; it is tried again after a while",
        "not-before": "its file sets a later start (not_before)",
        "held": "it was ordered to wait until it is released",
        "after": "another job has to end first",
        "user-day-cap": "its user's cap for today (UTC) is spent",
        "team-day-cap": HELD["team-day-cap"],
        "team-month-cap": HELD["team-month-cap"],
        "team-share": "its team is ahead of its share, and a team behind its share waits",
        "spot": "its date leaves time to wait for spot",
    }
)
"""What a job waits for, by the plan."""

JOB_REASON_TEXTS: Mapping[JobReason, str] = MappingProxyType(
    {
        "new": "it was submitted, or has released its GPUs, and no tick has seen it since",
        "starting": "it starts now",
        "running": "it runs",
        "not-planned": "the policy gives it no GPUs now: other jobs have all, or `boa down` was ordered",
        "unplanned": "no new plan can be made, and the last one lacks its class",
        "finished": "it finished successfully",
        "failed": "it failed for good, reached its max_usd or max_hours, or its `after` job failed",
        "cancelled": "it was cancelled",
    }
)
"""The state of a job that does not wait."""

REASON_TEXTS: Mapping[str, str] = MappingProxyType(
    dict([*WAIT_REASON_TEXTS.items(), *JOB_REASON_TEXTS.items()])
)
"""The text of each code that `Decision.reason` returns."""
