"""The simulated cloud's API, which throttles requests and loses answers; controllers talk to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boa_daemon.sim.draws import Draws
from boa_daemon.sim.simulated_cloud import SimulatedCloud
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import Accepted, Launched, Refused, Unknown
from boa_daemon.tick.facts.state import NodeState
from policies.model import NodeId

THROTTLED_SECONDS = 5.0
"""The API refills two launches per second; a few seconds are enough."""


class CloudApi:
    """Implement `Cloud` over a cloud that always answers.

    `patience_seconds` is how long a controller waits for nodes that no listing shows.
    """

    def __init__(self, cloud: SimulatedCloud, draws: Draws) -> None:
        self.patience_seconds = 300.0
        self._cloud, self._draws = cloud, draws
        self._unheard: dict[str, Launched | Refused] = {}

    def nodes(self) -> Sequence[NodeState]:
        """Return the live nodes, and those that ended since the last call."""
        return self._cloud.nodes()

    def offers(self) -> Sequence[Offer]:
        """Return the offers; empty if the world names no zones, markets or quotas."""
        return self._cloud.offers()

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Request nodes. Repeating an order whose answer was lost gives the same answer."""
        if action.id in self._unheard:
            return self._unheard[action.id]
        answer = self._draws.of_request()
        if answer == "throttled":
            return self._throttled()
        if answer == "lost":
            return self._lost()
        outcome = self._cloud.launch(action)
        if answer == "lost-but-done":
            self._unheard[action.id] = outcome
            return self._lost()
        return outcome

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Give nodes back; the answer of a request applies to all its nodes."""
        answer, names = self._draws.of_request(), [action.node for action in actions]
        if answer == "throttled":
            return dict.fromkeys(names, self._throttled())
        if answer == "lost":
            return dict.fromkeys(names, self._lost())
        outcomes = self._cloud.terminate(actions)
        return dict.fromkeys(names, self._lost()) if answer == "lost-but-done" else outcomes

    def _throttled(self) -> Refused:
        """Refuse a request because of too many requests."""
        return self._cloud.refuse(
            Refused(reason="too many requests", kind="throttled", retry_after_seconds=THROTTLED_SECONDS)
        )

    def _lost(self) -> Unknown:
        """Count a lost answer; tick again soon, and once the controller gives up waiting for its nodes."""
        self._cloud.meter.refused("no-answer")
        self._cloud.look_again()
        self._cloud.look_again(self.patience_seconds + 1.0)
        return Unknown(reason="the answer was lost")
