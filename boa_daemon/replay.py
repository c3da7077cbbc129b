"""Deciding once more from a record: the same facts and policy give the same actions, or a bug is found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from boa_daemon.codec import decode, digest, dumps
from boa_daemon.errors import InputError
from boa_daemon.site import PolicyRecord
from boa_daemon.state import ClusterState
from boa_daemon.store.decisions import DaemonStore
from boa_daemon.tick import Decision, decide


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A decision made again, beside what was recorded."""

    tick: int
    decision: Decision
    inputs_hash: str
    outputs_hash: str
    recorded_inputs_hash: str
    recorded_outputs_hash: str

    @property
    def is_same(self) -> bool:
        """Whether facts and actions are those of the record."""
        return (self.inputs_hash, self.outputs_hash) == (
            self.recorded_inputs_hash,
            self.recorded_outputs_hash,
        )


def replay(record: Mapping[str, Any]) -> Replay:
    """Decide from a record once more.

    Raises:
        InputError: when it is not a whole record.
    """
    try:
        state: ClusterState = decode(record["state"])
        policy = decode(record["policy_document"])
        inputs, outputs, tick = record["inputs_hash"], record["outputs_hash"], int(record["tick"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"that is not the record of a decision: {error}",
            hint="Write one with `boa decisions --record TICK`",
        ) from None
    allocator, placer, rules = PolicyRecord.of(policy).build()
    decision = decide(state, allocator=allocator, placer=placer, rules=rules)
    return Replay(
        tick=tick,
        decision=decision,
        inputs_hash=digest(dumps(state)),
        outputs_hash=digest(dumps(list(decision.actions))),
        recorded_inputs_hash=inputs,
        recorded_outputs_hash=outputs,
    )


def record_text(store: DaemonStore, tick: int) -> str:
    """Return the record of a decision as JSON."""
    return json.dumps(store.decision_record(tick))
