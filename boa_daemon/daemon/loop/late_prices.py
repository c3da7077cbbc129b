"""Prices that become known late: kept over restarts, and final bills corrected by them.

A list price may be published after its date, a history of spot prices ends minutes before now, and both may
be out of reach for days. What the cloud knows is stored after each tick in which it has changed. Whenever it
may change bills that are final, the nodes that ended within the last five weeks are looked at again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy.exc import SQLAlchemyError

from boa_daemon.daemon.planner.planned_markets import listed_node
from boa_daemon.store.amendments import amend_bills
from boa_daemon.store.documents import Documents
from boa_daemon.store.leader import LedElsewhere
from boa_daemon.store.storage import Storage
from boa_daemon.tick.facts.ports import PriceSource, Provider
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.commitments import PricePath, at_list_prices
from boa_daemon.units import dollars
from policies.money_text import in_dollars

AMENDED_SECONDS = 35 * 86_400.0
"""Bills of nodes that ended longer ago than this stay as they are: no cap counts them any more."""
_LOG = logging.getLogger("boa.daemon")


class LatePrices:
    """Keeps what a cloud knows of prices in the database, and corrects bills by it."""

    def __init__(self, cloud: Provider, storage: Storage) -> None:
        self._cloud = cloud if isinstance(cloud, PriceSource) else None
        self._storage = storage
        self._documents = Documents(storage.store.database, "prices")
        self._version = -1

    def restore(self) -> None:
        """Give the cloud what an earlier process has stored; before its first listing."""
        if self._cloud is not None:
            self._cloud.restore_prices(self._documents.read())

    def look(self, *, now: float, has_commitments: bool) -> str:
        """Correct bills and store prices if they have changed; return a sentence on what was corrected.

        Of a node that commitments may have covered the part is charged that they did not cover. The bills of
        such nodes stay as they are where an older version did not write the list prices down.
        """
        if self._cloud is None:
            return ""
        try:
            said = self._corrected(self._cloud, now, has_commitments=has_commitments)
            self._documents.write(self._cloud.price_documents())
        except (SQLAlchemyError, OSError, LedElsewhere) as error:
            # The next tick tries again.
            _LOG.warning("what is known of prices was not stored: %s", type(error).__name__)
            return ""
        return said

    def _corrected(self, cloud: PriceSource, now: float, *, has_commitments: bool) -> str:
        version, lately = cloud.price_version(), cloud.lately_priced()
        if version == self._version and not lately:
            return ""
        since = now - AMENDED_SECONDS
        if version == self._version:
            since = max(since, min(lately.values()) - 1.0)
        records = {
            record.node.id: record
            for record in self._storage.queue.past_instances(since)
            if record.node.ended_at is not None and not (has_commitments and _is_covered_unknown(record.node))
        }
        found = cloud.amended([_at_list(listed_node(record.node)) for record in records.values()])
        amended = [(records[node.id], _charged(records[node.id].node, node.prices)) for node in found]
        total = amend_bills(self._storage, amended)
        cloud.bills_are_right(lately)
        self._version = version
        return _sentence([node for _, node in amended], total) if total else ""


def _is_covered_unknown(node: NodeState) -> bool:
    """Whether commitments may have covered a node, and its list prices were not written down."""
    return node.market == "on-demand" and not node.list_prices


def _at_list(node: NodeState) -> NodeState:
    """Return a node as the cloud charges it, without commitments."""
    return replace(node, prices=node.list_prices) if node.list_prices else node


def _charged(node: NodeState, prices: PricePath) -> NodeState:
    """Return a node at other prices of the cloud."""
    return at_list_prices(node, prices) if node.list_prices else replace(node, prices=prices)


def _sentence(nodes: Sequence[NodeState], total: int) -> str:
    names = ", ".join(sorted(node.id for node in nodes)[:5])
    more = f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""
    what = f"{in_dollars(dollars(abs(total)))} {'more' if total > 0 else 'less'}"
    return f"bills of ended nodes are {what} than charged, as prices became known late: {names}{more}"
