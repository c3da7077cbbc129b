"""The closed list of reason codes and their texts.

Programs may match on a code; a sentence with numbers goes with it for people. A code says what a job waits
for, what the policy wanted and may not do, or otherwise the state of a job. The daemon uses all of these
codes and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from boa_daemon.tick.limits import SENTENCES as HELD
from boa_daemon.tick.state import WaitReason

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
        "nodes-to-come": "the nodes that it is to run on boot, or were asked for",
        "gpus-to-fall-free": "other jobs let go of GPUs sooner than a new node would boot",
        "node-limit": "the limit on nodes is reached; jobs are served in order of arrival",
        "out-of-stock": "the cloud gave no machine of its type when it was last asked",
        "fleet-full": "all nodes of the policy's fixed number are full",
        "quota": "the account's quota is used up",
        "denied": "the account may not launch: see `boa doctor`",
        "throttled": "the cloud asks to slow down",
        "bad-request": "the cloud does not understand the launch: see `boa doctor`",
        "no-price": "no price of its type is known, and nothing is rented without one",
        "cap-day": HELD["cap-day"],
        "cap-month": HELD["cap-month"],
        "cap-hour": HELD["cap-hour"],
        "cap-instances": HELD["cap-instances"],
        "loop": HELD["loop"],
        "budget": "the budget is below what the load takes: money for its nodes has to accrue",
        "given-up": "it is not started again: it failed too often, is at a limit, or waits in vain",
        "resting": "it failed, or its nodes did not take it, and is tried again after a while",
        "not-before": "its file says not to start it yet",
        "after": "another job has to end first",
        "user-day-cap": "its user has spent what they may spend today (UTC)",
        "team-day-cap": HELD["team-day-cap"],
        "team-month-cap": HELD["team-month-cap"],
        "team-share": "its team has spent more than its share, and a team that has not waits",
        "spot": "its date leaves time to wait for spot",
    }
)
"""What a job waits for, by the plan."""

JOB_REASON_TEXTS: Mapping[JobReason, str] = MappingProxyType(
    {
        "new": "it was taken, or has let go of its GPUs, and no tick has looked at it since",
        "starting": "it is to start now",
        "running": "it runs",
        "not-planned": "the policy gives it no GPUs now: others have them all, or `boa down` was ordered",
        "unplanned": "no new plan can be made, and the last one lacks its class",
        "finished": "it ended well",
        "failed": "it failed for good, is at its max_usd or max_hours, or was to follow one that failed",
        "cancelled": "it was cancelled",
    }
)
"""The state of a job that does not wait."""

REASON_TEXTS: Mapping[str, str] = MappingProxyType(
    dict([*WAIT_REASON_TEXTS.items(), *JOB_REASON_TEXTS.items()])
)
"""The text of each code that `Decision.reason` returns."""
