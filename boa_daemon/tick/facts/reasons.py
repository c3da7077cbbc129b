"""The closed list of reason codes and their texts.

Programs may match on a code; a sentence with numbers goes with it for people. A code says what a job waits
for, what the policy wanted and may not do, or otherwise the state of a job. The daemon uses all of these
codes and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

UnqueuedReason: TypeAlias = Literal[
    "given-up",
    "resting",
    "not-before",
    "held",
    "after",
    "user-day-cap",
    "team-day-cap",
    "team-month-cap",
    "team-share",
    "spot",
]
"""Why a job waits whatever is free: it is in no queue."""
WaitReason: TypeAlias = Literal[
    "nodes-to-come",
    "gpus-to-fall-free",
    "node-limit",
    "out-of-stock",
    "fleet-full",
    "quota",
    "denied",
    "throttled",
    "bad-request",
    "no-price",
    "cap-day",
    "cap-month",
    "cap-hour",
    "cap-instances",
    "loop",
    "budget",
    UnqueuedReason,
]
"""Why a job does not have its width yet; a closed list."""
CapCode: TypeAlias = Literal["cap-day", "cap-month", "cap-hour", "cap-instances"]
"""Which hard cap."""
HeldCode: TypeAlias = (
    CapCode
    | Literal["user-day-cap", "team-day-cap", "team-month-cap", "team-share", "max-usd", "max-hours"]
    | Literal["minimum-hold", "moves-of-job", "moves-of-all", "loop", "no-effect"]
    | Literal["not-ready", "not-free", "restart-worth"]
)
"""Why something that the policy wanted is not done; a closed list."""

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

SENTENCES: Mapping[HeldCode, str] = MappingProxyType(
    {
        "cap-day": "the cap on dollars per day leaves no room for it",
        "cap-month": "the cap on dollars per month leaves no room for it",
        "cap-hour": "the ceiling on dollars per hour leaves no room for it",
        "cap-instances": "the cap on instances is reached",
        "user-day-cap": "its jobs have spent the cap for today (UTC); waiting jobs are not started",
        "team-day-cap": "the team's cap for today (UTC) leaves no room for it",
        "team-month-cap": "the team's cap for this month (UTC) leaves no room for it",
        "team-share": "it is ahead of its share while a team behind its share waits: it starts no jobs",
        "max-usd": "it has cost what its file allows, and is stopped",
        "max-hours": "it has run for as long as its file allows, and is stopped",
        "minimum-hold": "it started too recently to be moved",
        "moves-of-job": "it reached the limit on moves of one job per hour",
        "moves-of-all": "all jobs together reached the limit on moves per hour",
        "loop": "the same order was repeated without success; it is paused",
        "no-effect": "the same order was repeated without effect; it is still tried",
        "restart-worth": "its last change of width has not earned its restarts yet: it does not go back",
        "not-ready": "its next nodes do not have what it needs yet: it works on where it is",
        "not-free": "another job still holds its next GPUs: it moves once they are free",
    }
)
"""What was wanted and is not done, or what is in the way."""

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
        "cap-day": SENTENCES["cap-day"],
        "cap-month": SENTENCES["cap-month"],
        "cap-hour": SENTENCES["cap-hour"],
        "cap-instances": SENTENCES["cap-instances"],
        "loop": SENTENCES["loop"],
        "budget": "the budget is below the load: money for its nodes has to accrue first",
        "given-up": "it is not started again: it failed, reached a limit, or its `after` job ended badly",
        "resting": "it failed or its nodes refused it; it is tried again after a while",
        "not-before": "its file sets a later start (not_before)",
        "held": "it was ordered to wait until it is released",
        "after": "another job has to end first",
        "user-day-cap": "its user's cap for today (UTC) is spent",
        "team-day-cap": SENTENCES["team-day-cap"],
        "team-month-cap": SENTENCES["team-month-cap"],
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


def text_of(code: str, texts: Mapping[Any, str] = REASON_TEXTS) -> str:
    """Return the text of a code; one of another release, which has no text here, as it is."""
    return texts.get(code, code)
