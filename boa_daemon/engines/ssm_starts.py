"""Starts under SSM, apart from the tick: an order goes to many nodes at once, and no tick waits for it.

What is ordered here is done by threads; what came of it is asked for later. Without threads each order is
done before it returns. Nothing here is written down: a process that dies with an order under way has told
some nodes and not others, and the next one orders the same generation again, which each node starts once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Protocol, TypeAlias, TypeVar

from boa_daemon.engines.ssm_commands import InDoubt, SsmCommands, is_about_the_node
from boa_daemon.tick.ports import Accepted, Refused, Unknown
from policies.model import NodeId

_Value = TypeVar("_Value")
_Item = TypeVar("_Item")
_Ready: TypeAlias = Accepted | Refused | Unknown
AT_ONCE = 10
"""So many nodes are told at once: as many connections as boto3 keeps."""
PATIENCE_SECONDS = 1.0
"""So long a tick waits for the answers about new nodes; what comes later is read at the next look."""
END_TRIES, END_WAIT_SECONDS = 10, 2.0
"""How often those that took a start are told to end where another node refused, and how long apart."""


class Script(Protocol):
    """Makes the script for the node of a rank."""

    def __call__(self, addresses: Mapping[NodeId, str], rank: int) -> str:
        """Return it."""
        ...


class StartOrders:
    """Sends starts, and asks nodes whether they are ready, with so many threads; 0: with none."""

    def __init__(
        self, commands: SsmCommands, address_of: Callable[[NodeId], str], *, at_once: int = 0
    ) -> None:
        self._commands, self._address_of = commands, address_of
        # One pool for whole orders and one for their nodes: an order that waits for its nodes holds none up.
        self._orders = ThreadPoolExecutor(at_once, "boa-start") if at_once else None
        self._nodes = ThreadPoolExecutor(at_once, "boa-ssm") if at_once else None
        self._asked: dict[NodeId, Future[_Ready]] = {}
        self._making = Lock()
        self.may_act: Callable[[], None] = lambda: None
        """Raises where this process may not act any more: what is under way then sends nothing more."""

    def begin(self, nodes: Sequence[NodeId], script: Script, end_script: str) -> Future[Refused | None]:
        """Send each node its script. Should one not take it, the others are ended: the result says why.

        One whose answer was lost may run: it is taken for started, and asked about when it is silent. A
        second generation beside it would be the worse mistake.
        """
        if self._orders is not None:
            return self._orders.submit(self._do, nodes, script, end_script)
        done: Future[Refused | None] = Future()
        done.set_result(self._do(nodes, script, end_script))
        return done

    def _do(self, nodes: Sequence[NodeId], script: Script, end_script: str) -> Refused | None:
        """Do one order."""
        try:
            addresses = dict(zip(nodes, self._map(self._address_of, nodes), strict=True))
        except Exception as error:
            return Refused(reason=f"the address of a node could not be had: {error}")

        def send(rank: int) -> str | Refused:
            with self._making:
                text = script(addresses, rank)
            self.may_act()
            return self._commands.send([nodes[rank]], text, "start a unit")

        told, refused = 0, None
        for answer in self._map(send, range(len(nodes))):
            told += 1
            if isinstance(answer, Refused) and not isinstance(answer, InDoubt):
                refused = refused or answer
                if self._nodes is None:
                    break
        if refused is not None:
            self._end(nodes[:told], end_script)
        return refused

    def _end(self, nodes: Sequence[NodeId], script: str) -> None:
        """Tell those that may have started to end, until they were told or cannot be any more."""
        for left in range(END_TRIES if self._nodes is not None else 1, 0, -1):
            self.may_act()
            answer = self._commands.send_each(nodes, script, "end a unit")
            if not isinstance(answer, Refused) or is_about_the_node(answer.reason):
                return
            if left > 1:
                time.sleep(END_WAIT_SECONDS)

    def _map(self, do: Callable[[_Item], _Value], items: Iterable[_Item]) -> Iterator[_Value]:
        """Yield what comes of each item, in order; one after the other where there are no threads."""
        return map(do, items) if self._nodes is None else self._nodes.map(do, items)

    def ask(self, questions: Mapping[NodeId, Callable[[], _Ready]]) -> dict[NodeId, _Ready]:
        """Return the answers about nodes; of one that has not come in time it is unknown, until it has."""
        if self._nodes is None:
            return {node: ask() for node, ask in questions.items()}
        for node in [node for node, asked in self._asked.items() if node not in questions and asked.done()]:
            del self._asked[node]
        for node, ask in questions.items():
            if node not in self._asked:
                self._asked[node] = self._nodes.submit(ask)
        wait([self._asked[node] for node in questions], timeout=PATIENCE_SECONDS)
        return {node: self._answer(node) for node in questions}

    def _answer(self, node: NodeId) -> _Ready:
        """Return the answer about one node, if it is there."""
        asked = self._asked[node]
        if not asked.done():
            return Unknown(reason=f"{node} is being prepared: SSM takes its time")
        return self._asked.pop(node).result()
