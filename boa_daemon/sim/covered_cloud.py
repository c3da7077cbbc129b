"""A simulated cloud whose nodes cost what commitments leave of their price, as the daemon counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from boa_daemon.clock import VirtualClock
from boa_daemon.sim.cloud_api import CloudApi
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import Accepted, Launched, Refused, Unknown
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.commitments import SiteCommitments
from policies.model import NodeId


class CoveredCloud:
    """Implement `Cloud` over another one; the world bills nodes at their prices on demand all the same."""

    def __init__(self, cloud: CloudApi, clock: VirtualClock, paid: SiteCommitments) -> None:
        self._cloud, self._clock, self._paid = cloud, clock, paid
        self._before: dict[NodeId, NodeState] = {}

    def nodes(self) -> Sequence[NodeState]:
        """Return the live nodes, and those that ended since the last call, at the prices that are left."""
        self._before = self._paid.priced(self._cloud.nodes(), self._before, self._clock.now())
        return list(self._before.values())

    def offers(self) -> Sequence[Offer]:
        """Return the cloud's offers."""
        return self._cloud.offers()

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Request nodes."""
        return self._cloud.launch(action)

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Give nodes back."""
        return self._cloud.terminate(actions)
