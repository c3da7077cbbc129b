"""The life of a node as a table: every state that EC2 can report, what is done, by when, and what it costs.

No state is without a deadline, except those that cost nothing, and no state is billed that EC2 does not
bill: EC2 charges for the compute of `running` instances alone, and for the disk until the instance is
terminated. A time that is not known is decided against us: `pending` counts from LaunchTime on.
The table is printed in `docs/reference/node-states.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from boa_daemon.tick.facts.pending_ends import LASTING_SECONDS

Cost: TypeAlias = Literal["compute and extras", "its disk", "extras", "nothing"]

PENDING_SECONDS, STOPPING_SECONDS, SHUTDOWN_SECONDS = 900.0, 900.0, 900.0
IMPAIRED_SECONDS, EVENT_SECONDS = 300.0, 600.0
EARLY_SECONDS = 300.0
"""An instance that ends by itself this soon after its launch counts as a launch that failed."""
FREE_SPOT_SECONDS = 3600.0
"""EC2 does not charge for a Linux spot instance that it takes back within the first hour."""
UNSEEN_SECONDS = 120.0
"""An instance that ends this long after it was last seen `pending` may have run unseen: it is charged."""
OVERDUE_SECONDS = 30.0
"""An instance that runs this long after the end that EC2 announced is ended by us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStateRule:
    """One row: EC2's `state`, what was `wanted`, what is `done` within `seconds`, and what people are told.

    `seconds` None: at once, or nothing is left to do.
    """

    state: str
    wanted: str
    done: str
    costs: Cost
    told: str
    seconds: float | None = None


NODE_STATES: Mapping[str, NodeStateRule] = MappingProxyType(
    {
        "booting": NodeStateRule(
            state="pending", wanted="a node", costs="compute and extras", seconds=PENDING_SECONDS,
            done="waits; ended at the deadline, and its offer rests", told="alert at the deadline",
        ),
        "running": NodeStateRule(
            state="running", wanted="a node", costs="compute and extras",
            done="jobs run; it ends when no job needs it, and with its lease", told="`boa instances`",
        ),
        "impaired": NodeStateRule(
            state="running, a status check of the instance, its host or its disks `impaired`",
            wanted="a node", costs="compute and extras", seconds=IMPAIRED_SECONDS,
            done="jobs leave at the deadline, then it is ended", told="note at once, alert at the deadline",
        ),
        "scheduled": NodeStateRule(
            state="running, with a scheduled event (retirement, stop, reboot, maintenance)", wanted="a node",
            costs="compute and extras", seconds=EVENT_SECONDS,
            done="jobs leave this long before the event, then it is ended",
            told="alert with the event and its time",
        ),
        "announced": NodeStateRule(
            state="running, after a spot warning or at the end of a block", wanted="a node",
            costs="compute and extras", seconds=OVERDUE_SECONDS,
            done="jobs leave at once; ended by us if it runs on after the announced end",
            told="alert when it is overdue",
        ),
        "not stopped": NodeStateRule(
            state="running", wanted="stopped in the warm pool", costs="compute and extras", seconds=300.0,
            done="the order is repeated each minute; ended at the deadline", told="log",
        ),
        "not ended": NodeStateRule(
            state="pending, running, stopping or stopped", wanted="its end", costs="compute and extras",
            seconds=SHUTDOWN_SECONDS, done="the order is repeated each minute", told="alert at the deadline",
        ),
        "end refused": NodeStateRule(
            state="any; the order to end it is refused (a protection, a missing right) or has no answer",
            wanted="its end", costs="compute and extras", seconds=LASTING_SECONDS,
            done="the order is repeated after 2, 4, 8 s and so on, then each minute; caps set aside for it",
            told="alert at the deadline, or at once if only people can help: the cost per hour, what to do",
        ),
        "tags copied": NodeStateRule(
            state="any, with our tags, and made by another launch or service (its token, its `aws:` tags)",
            wanted="nothing", costs="nothing", done="left alone: not used, counted, ended or swept",
            told="note and alert, with the command that takes the tags off",
        ),
        "made another type": NodeStateRule(
            state="running, and a person has changed its type while it was stopped", wanted="a node",
            costs="compute and extras",
            done="counted at the price of its new type from its start on; ended when no job needs it",
            told="alert with both types and the price",
        ),
        "own tenancy": NodeStateRule(
            state="running, with tenancy dedicated or host", wanted="a node", costs="compute and extras",
            done="counted at the price of shared hardware, which is about a tenth and $2/hour too low",
            told="alert with what EC2 charges, and the command that mends it",
        ),
        "pooled": NodeStateRule(
            state="stopped", wanted="stopped in the warm pool", costs="its disk",
            done="started when a job needs it; ended when its disk costs more than a start saves",
            told="`boa status`",
        ),
        "stopping": NodeStateRule(
            state="stopping", wanted="anything", costs="its disk", seconds=STOPPING_SECONDS,
            done="waits; ended at the deadline", told="alert at the deadline",
        ),
        "stopped by others": NodeStateRule(
            state="stopping or stopped by AWS or a person", wanted="a node", costs="its disk",
            done="its bill ends at the stop, its jobs wait for other nodes; it joins the warm pool, and is "
            "ended at once without one",
            told="alert with EC2's reason",
        ),
        "started by others": NodeStateRule(
            state="running, started by a person", wanted="stopped", costs="compute and extras",
            done="it is a new node from its start on", told="`boa instances`",
        ),
        "restarted by others": NodeStateRule(
            state="running, stopped and started by a person between two listings", wanted="a node",
            costs="compute and extras",
            done="it is a new node from its start on; the earlier one is billed up to then",
            told="alert",
        ),
        "ended by others": NodeStateRule(
            state="shutting-down or terminated by a person or a clean-up rule", wanted="a node",
            costs="extras",
            done="its jobs wait for other nodes; if it was the second in a row that others ended or stopped "
            "within 5 minutes of its start, its offer rests 3 to 30 min", told="alert with EC2's reason",
        ),
        "ending": NodeStateRule(
            state="shutting-down", wanted="anything", costs="extras", seconds=SHUTDOWN_SECONDS,
            done="waits: it takes part in caps on nodes until it is terminated", told="alert at the deadline",
        ),
        "never ran": NodeStateRule(
            state="terminated before it ran: no capacity, a limit, a key, a snapshot, a fault",
            wanted="a node", costs="nothing",
            done="its `StateReason` counts as a [refusal](refusals.md) of its offer, which rests 3 to 30 min",
            told="note, and an alert once a day",
        ),
        "not started": NodeStateRule(
            state="stopped again after a start of ours, before it ran", wanted="a node", costs="its disk",
            done="the run is free, its `StateReason` counts as a [refusal](refusals.md) of its offer",
            told="note, and an alert once a day",
        ),
        "ended early": NodeStateRule(
            state="terminated by itself within 5 minutes of its launch", wanted="a node",
            costs="compute and extras", done="charged, and its offer rests 3 to 30 min",
            told="note, and an alert once a day",
        ),
        "interrupted early": NodeStateRule(
            state="spot, terminated by EC2 in its first hour", wanted="a node", costs="extras",
            done="its compute is free; its jobs wait for other nodes. If that, or the warning, came within 5 "
            "minutes of its launch, its offer rests 3 to 30 min",
            told="`boa explain`; alert once a day if its offer rests",
        ),
        "ended": NodeStateRule(
            state="terminated", wanted="anything", costs="compute and extras",
            done="charged to the second at which it left `running`; its jobs wait for other nodes",
            told="`boa explain`; log with EC2's reason if EC2 ended it",
        ),
        "hidden": NodeStateRule(
            state="not in the listing", wanted="a node", costs="compute and extras", seconds=300.0,
            done="billed as last seen; then described by its id, and gone only if EC2 does not know it",
            told="log",
        ),
    }
)  # fmt: skip
"""The rows by a short name. "Costs" is what it costs from then on."""

_RAN = frozenset(
    {
        "Client.UserInitiatedShutdown",
        "Client.UserInitiatedHibernate",
        "Client.InstanceInitiatedShutdown",
        "Client.InstanceTerminated",
        "Server.SpotInstanceTermination",
        "Server.SpotInstanceShutdown",
        "Server.ScheduledStop",
        "Server.CapacityBlockEnd",
        "Server.ScheduledInstanceTermination",
    }
)
"""Reasons of instances that ran; other reasons come from launches that failed, unless it may have run."""


TAKEN_BACK = "Server.SpotInstanceTermination"
"""EC2's reason for a spot instance that it took back."""
OF_PEOPLE = ("Client.UserInitiatedShutdown", "Client.UserInitiatedHibernate")
"""Reasons of instances that a call has ended or stopped: ours, or that of a person or a clean-up rule."""


def state_reason(instance: Mapping[str, Any]) -> str:
    """Return the code of EC2's reason for an instance's last change of state; empty without one."""
    code = str((instance.get("StateReason") or {}).get("Code") or "")
    if code:
        return code
    said = str(instance.get("StateTransitionReason") or "").partition(":")[0].strip()
    return said if said.startswith(("Client.", "Server.")) else ""


def reason_sentence(instance: Mapping[str, Any]) -> str:
    """Return EC2's own words for an instance's last change of state."""
    reason = instance.get("StateReason") or {}
    said = str(reason.get("Message") or instance.get("StateTransitionReason") or "no reason given")
    return said if said.startswith(state_reason(instance)) else f"{state_reason(instance)}: {said}"


def failed_to_start(instance: Mapping[str, Any]) -> bool:
    """Return whether EC2 ended or stopped an instance because its launch or start failed.

    EC2 has the same reasons, such as `Server.InternalError`, for instances that ran: the caller knows that
    this one cannot have run.
    """
    code = state_reason(instance)
    return bool(code) and code not in _RAN


def is_free_interruption(instance: Mapping[str, Any], *, ended_at: float) -> bool:
    """Return whether EC2 took a spot instance back so early that its compute is free."""
    if instance.get("InstanceLifecycle") != "spot":
        return False
    seconds = ended_at - float(instance["LaunchTime"].timestamp())
    return state_reason(instance) == TAKEN_BACK and seconds < FREE_SPOT_SECONDS
