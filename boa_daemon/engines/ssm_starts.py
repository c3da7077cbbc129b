"""Starts of generations under SSM in threads, so that no tick waits for them.

A start is sent to many nodes in parallel, and its outcome is read later. Without threads, each start is done
before its call returns. Nothing here is saved. If the process dies during a start, some nodes have been told
and others have not; the next process starts the same generation again, and each node starts its unit only
once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Protocol, TypeAlias, TypeVar

from boa_daemon.engines.ssm_commands import InDoubt, SsmCommands, is_about_the_node
from boa_daemon.tick.facts.ports import Accepted, Refused, Unknown
from policies.model import NodeId

_Value = TypeVar("_Value")
_Item = TypeVar("_Item")
_Ready: TypeAlias = Accepted | Refused | Unknown
AT_ONCE = 10
"""Number of parallel calls; boto3 keeps as many connections."""
PATIENCE_SECONDS = 1.0
"""How long a tick waits for answers about new nodes; later answers are read at the next tick."""
END_TRIES, END_WAIT_SECONDS = 10, 2.0
"""After a refused start, how often the other nodes are told to end their units, and the pause between."""


class Script(Protocol):
    """Makes the start script for the node of a rank."""

    def __call__(self, addresses: Mapping[NodeId, str], rank: int) -> str:
        """Return the script."""
        ...


class StartOrders:
    """Sends starts, and asks nodes whether they are ready, with `at_once` threads; 0: without threads."""

    def __init__(
        self, commands: SsmCommands, address_of: Callable[[NodeId], str], *, at_once: int = 0
    ) -> None:
        self._commands, self._address_of = commands, address_of
        # Two pools, for starts and for their nodes, so that waiting starts do not block calls to nodes.
        self._orders = ThreadPoolExecutor(at_once, "boa-start") if at_once else None
        self._nodes = ThreadPoolExecutor(at_once, "boa-ssm") if at_once else None
        self._asked: dict[NodeId, Future[_Ready]] = {}
        self._making = Lock()
        self.may_act: Callable[[], None] = lambda: None
        """Raises if this process may not act any more; pending starts then send nothing further."""

    def begin(self, nodes: Sequence[NodeId], script: Script, end_script: str) -> Future[Refused | None]:
        """Send each node its script; if a node refuses, end the others. The result is the refusal, or None.

        If SSM's answer for a node was lost, its unit may run: it counts as started, and is asked later if it
        is silent. Starting a second generation beside it would be the worse mistake.
        """
        if self._orders is not None:
            return self._orders.submit(self._do, nodes, script, end_script)
        done: Future[Refused | None] = Future()
        done.set_result(self._do(nodes, script, end_script))
        return done

    def _do(self, nodes: Sequence[NodeId], script: Script, end_script: str) -> Refused | None:
        try:
            addresses = dict(zip(nodes, self._map(self._address_of, nodes), strict=True))
        except Exception as error:
            return Refused(reason=f"the address of a node could not be read: {error}")

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
        """Tell nodes that may have started to end their units, until SSM accepts or cannot reach a node."""
        for left in range(END_TRIES if self._nodes is not None else 1, 0, -1):
            self.may_act()
            answer = self._commands.send_each(nodes, script, "end a unit")
            if not isinstance(answer, Refused) or is_about_the_node(answer.reason):
                return
            if left > 1:
                time.sleep(END_WAIT_SECONDS)

    def _map(self, do: Callable[[_Item], _Value], items: Iterable[_Item]) -> Iterator[_Value]:
        """Yield the results of a function for items, in order; sequentially if there are no threads."""
        return map(do, items) if self._nodes is None else self._nodes.map(do, items)

    def ask(self, questions: Mapping[NodeId, Callable[[], _Ready]]) -> dict[NodeId, _Ready]:
        """Return the answers about nodes; a node whose answer is not there in time is unknown for now."""
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
        """Return the answer about one node, or that it is still being prepared."""
        asked = self._asked[node]
        if not asked.done():
            return Unknown(reason=f"{node} is being prepared: SSM has not answered yet")
        return self._asked.pop(node).result()
