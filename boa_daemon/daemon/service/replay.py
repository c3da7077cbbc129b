"""Replay a recorded decision: the same facts and policy must give the same actions, or there is a bug."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.learning.policy_record import PolicyRecord
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.explain.runner_up import Alternatives
from boa_daemon.tick.facts.codec import decode, digest, dumps
from boa_daemon.tick.facts.state import ClusterState


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A repeated decision, with the hashes and costs that were recorded."""

    tick: int
    decision: Decision
    inputs_hash: str
    outputs_hash: str
    recorded_inputs_hash: str
    recorded_outputs_hash: str
    recorded_costs: tuple[float | None, float | None]

    @property
    def costs(self) -> tuple[float | None, float | None]:
        """Costs of the choice and of the runner-up, in dollars of money and waiting; None if not weighed."""
        return Alternatives.of(self.decision.state, self.decision.plan).costs

    @property
    def is_same(self) -> bool:
        """Whether facts, actions and costs equal those of the record."""
        hashes = (self.inputs_hash, self.outputs_hash)
        recorded = (self.recorded_inputs_hash, self.recorded_outputs_hash)
        return hashes == recorded and self.recorded_costs == self.costs


def replay(record: Mapping[str, Any]) -> Replay:
    """Repeat the decision of a record.

    Raises:
        InputError: when the record is incomplete.
    """
    try:
        state: ClusterState = decode(record["state"])
        policy = decode(record["policy_document"])
        inputs, outputs, tick = record["inputs_hash"], record["outputs_hash"], int(record["tick"])
        first, second = (record[name]["usd_of_money_and_waiting"] for name in ("chosen", "runner_up"))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"the input is not the record of a decision: {error}",
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
        recorded_costs=(first, second),
    )
