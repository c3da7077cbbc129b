"""The nodes with room, about which a placer is asked.

Most nodes are full of jobs that stay. Only nodes with a free GPU, or with a job that may move, matter to a
placement. The placer sees those nodes and the GPUs that staying jobs hold on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import eq, is_
from typing import TypeAlias

from boa_daemon.tick.facts.state import ClusterState, NodeState
from policies.model import GpuSlot, JobId, Node, NodeId, Width, width_of
from policies.placement.packing import slots_of_node
from policies.protocols import Placer

Slots: TypeAlias = Mapping[JobId, tuple[GpuSlot, ...]]
_Holders: TypeAlias = dict[NodeId, list[JobId | None]]
_Asked: TypeAlias = tuple[Mapping[JobId, Width], Sequence[Node], dict[JobId, tuple[GpuSlot, ...]]]
"""The last question (wishes and extra nodes) and its answer."""
_Count: TypeAlias = dict[str, Counter[JobId | None]]
"""The number of GPUs of each job, by GPU type; None counts the free ones."""
_Ending: TypeAlias = tuple[frozenset[JobId], list[NodeState]]
"""Jobs about to end, and their nodes."""
_NEW = "(new)"
"""The zone of nodes that are not requested yet."""


class PlaceableNodes:
    """Which job holds which GPU of the nodes with room, and a placer to ask."""

    def __init__(
        self,
        state: ClusterState,
        *,
        leaving: Collection[JobId],
        stopped: frozenset[JobId],
        placer: Placer,
        compact: frozenset[JobId] = frozenset(),
        closed: AbstractSet[NodeId] = frozenset(),
    ) -> None:
        """Collect the ready nodes with a free GPU or a job of `leaving`; `stopped` jobs free their GPUs.

        Jobs in `compact` are placed on as few nodes as their width needs, or not at all. No job is placed on
        `closed` nodes.
        """
        self._placer, self._compact = placer, compact
        self._asked: _Asked | None = None
        self._counted: _Count | None = None
        self._after_nothing: PlaceableNodes | None = None
        self._later: tuple[_Ending, PlaceableNodes] | None = None
        jobs = state.jobs
        running = [job for job in leaving if jobs[job].slots]
        self._movers = {job for job in running if job not in stopped}
        moving = {slot.node for job in running for slot in jobs[job].slots}
        self._nodes: dict[NodeId, Node] = {}
        self._holders: _Holders = {}
        zones = {node.zone for node in state.nodes.values()}
        zones.update(offer.zone for offer in state.offers)
        self._zones: Mapping[NodeId, str] | None = None
        if len(zones) > 1:
            self._zones = {node.id: node.zone for node in state.nodes.values()}
        for node in state.with_gaps_or(moving).values():
            if node.phase != "ready" or node.ends_by is not None or node.id in closed:
                continue
            if node.id in moving or None in node.gpus:
                self._nodes[node.id] = _as_placed(node)
                self._holders[node.id] = [None if job in stopped else job for job in node.gpus]

    @property
    def has_zones(self) -> bool:
        """Whether nodes may be in several zones; each job must then be inside one."""
        return self._zones is not None

    def place(
        self, wishes: Mapping[JobId, Width], *, extra: Sequence[Node] = (), keep_movers: bool = True
    ) -> dict[JobId, tuple[GpuSlot, ...]]:
        """Return the slots of the wishes that fit, in their order.

        With `keep_movers` a running job whose new width does not fit keeps its GPUs, and no other job gets
        them.
        """
        while True:
            placed = self._ask(wishes, extra)
            if self._zones is not None:
                placed = self._in_zones(placed, wishes, extra)
            if not keep_movers or not self._movers:
                return placed
            stuck = (wishes.keys() & self._movers) - placed.keys()
            if not stuck:
                return placed
            wishes = {job: width for job, width in wishes.items() if job not in stuck}

    def shortfall(
        self,
        wishes: Mapping[JobId, Width],
        placed: Slots,
        *,
        extra: Sequence[Node] = (),
        across_zones: bool = False,
    ) -> dict[str, int]:
        """Return how many GPUs beyond the free ones the unplaced wishes need, by GPU type.

        Types whose wishes were all placed are left out. Zero or less means that the placer's rules, not the
        number of GPUs, kept a wish out. With `across_zones` free GPUs count in any zone.
        """
        need: dict[str, int] = {}
        for job, width in wishes.items():
            if job not in placed:
                need[width.gpu_type] = need.get(width.gpu_type, 0) + width.gpus
        if self._zones is not None and not across_zones:
            return self._short_of_new(need, placed, extra)
        free = self._free_for(wishes)
        for kind in need:
            need[kind] -= free.get(kind, 0)
        for extra_node in extra:
            if (kind := extra_node.instance_type.gpu_type) in need:
                need[kind] -= extra_node.instance_type.gpus
        for job in placed:
            if (kind := wishes[job].gpu_type) in need:
                need[kind] += wishes[job].gpus
        return need

    def _short_of_new(self, need: dict[str, int], placed: Slots, extra: Sequence[Node]) -> dict[str, int]:
        """Return the shortfall of new nodes: free GPUs elsewhere are in zones where they do not help."""
        taken = Counter(slot.node for slots in placed.values() for slot in slots)
        for node in extra:
            if (kind := node.instance_type.gpu_type) in need and node.id not in (self._zones or {}):
                need[kind] -= node.instance_type.gpus - taken[node.id]
        return need

    def after(self, placed: Slots) -> PlaceableNodes:
        """Return the room that is left once the placed jobs are on their slots."""
        if not placed:
            same = self._after_nothing
            if same is None:
                same = self._after_nothing = self._on(self._holders)
                same._counted = self._counted
            return same
        left = self._copy()
        holders, gone = left._holders, placed.keys()
        left._movers = self._movers - gone
        taken = {slot.node for slots in placed.values() for slot in slots}
        for node, jobs in self._holders.items():
            if node in taken or not gone.isdisjoint(jobs):
                holders[node] = [None if job in gone else job for job in jobs]
        for job, slots in placed.items():
            for slot in slots:
                holders[slot.node][slot.index] = job
        return left

    def _copy(self) -> PlaceableNodes:
        """Return the same room, without cached answers, whose holders may be changed."""
        return self._on(dict(self._holders))

    def _on(self, holders: _Holders) -> PlaceableNodes:
        """Return the same room, without cached answers, with other holders."""
        room = object.__new__(PlaceableNodes)
        room._placer, room._nodes, room._movers = self._placer, self._nodes, self._movers
        room._zones, room._compact, room._holders = self._zones, self._compact, holders
        room._asked = room._counted = room._after_nothing = room._later = None
        return room

    def without(self, ending: frozenset[JobId], state: ClusterState) -> PlaceableNodes:
        """Return the room once the given running jobs have ended."""
        if not ending:
            return self
        freed = {slot.node for job in ending for slot in state.jobs[job].slots}
        # Sorted, because the order of a set differs between processes.
        question = ending, [state.nodes[name] for name in sorted(freed)]
        known = self._later
        if known is not None and known[0] == question:
            return known[1]
        later = self._copy()
        self._later = question, later
        later._nodes = dict(self._nodes)
        for node in question[1]:
            name = node.id
            if node.phase == "ready" and node.ends_by is None:
                later._nodes[name] = _as_placed(node)
                holders = self._holders.get(name, list(node.gpus))
                later._holders[name] = [None if job in ending else job for job in holders]
        return later

    def free_gpus(self) -> dict[str, int]:
        """Return the number of free GPUs by GPU type."""
        return {kind: count.get(None, 0) for kind, count in self._count.items()}

    @property
    def _count(self) -> _Count:
        """The number of GPUs of each job; cached because several stages ask."""
        if self._counted is None:
            on: dict[str, list[JobId | None]] = {}
            for node, jobs in self._holders.items():
                on.setdefault(self._nodes[node].instance_type.gpu_type, []).extend(jobs)
            self._counted = {kind: Counter(jobs) for kind, jobs in on.items()}
        return self._counted

    def _free_for(self, wishes: Mapping[JobId, Width]) -> dict[str, int]:
        """Return the GPUs that are free or held by the wishing jobs, by GPU type."""
        return {
            kind: sum(map(count.__getitem__, wishes.keys() & count.keys())) + count.get(None, 0)
            for kind, count in self._count.items()
        }

    def _in_zones(
        self, placed: dict[JobId, tuple[GpuSlot, ...]], wishes: Mapping[JobId, Width], extra: Sequence[Node]
    ) -> dict[JobId, tuple[GpuSlot, ...]]:
        """Return the placement with every job inside one zone: jobs across zones are placed again.

        Nodes that are not requested yet count as one zone: those of a job are rented as one gang.
        """
        zones = self._zones or {}
        crossing = [job for job, slots in placed.items() if len({zones.get(s.node, _NEW) for s in slots}) > 1]
        if not crossing:
            return placed
        kept = {job: slots for job, slots in placed.items() if job not in crossing}
        room = self._with(extra)
        for zone in dict.fromkeys(zones.get(node, _NEW) for node in room._nodes):
            rest = {job: wishes[job] for job in crossing if job not in kept}
            kept |= room.after(kept)._only(zone)._ask(rest, ())
        return kept

    def _with(self, extra: Sequence[Node]) -> PlaceableNodes:
        """Return the room with more, empty nodes."""
        more = self._copy()
        more._nodes = self._nodes | {node.id: node for node in extra}
        more._holders |= {node.id: [None] * node.instance_type.gpus for node in extra}
        return more

    def _only(self, zone: str) -> PlaceableNodes:
        """Return the part of the room in one zone."""
        part, zones = self._copy(), self._zones or {}
        part._nodes = {name: node for name, node in self._nodes.items() if zones.get(name, _NEW) == zone}
        part._holders = {node: self._holders[node] for node in part._nodes}
        return part

    def _fitting(self, wishes: Mapping[JobId, Width], extra: Sequence[Node]) -> Mapping[JobId, Width]:
        """Return the wishes, in their order, that the number of GPUs allows."""
        left = self._free_for(wishes) if self._holders else {}
        for blank in extra:
            kind = blank.instance_type.gpu_type
            left[kind] = left.get(kind, 0) + blank.instance_type.gpus
        if len(wishes) == 1:
            return {job: width for job, width in wishes.items() if width.gpus <= left.get(width.gpu_type, 0)}
        fitting: dict[JobId, Width] = {}
        rest = sum(left.values())
        for job, width in wishes.items():
            if not rest:
                break
            kind, gpus = width.gpu_type, width.gpus
            if gpus <= left.get(kind, 0):
                left[kind] -= gpus
                rest -= gpus
                fitting[job] = width
        return fitting

    def _ask(self, wishes: Mapping[JobId, Width], extra: Sequence[Node]) -> dict[JobId, tuple[GpuSlot, ...]]:
        """Return the placer's answer to the wishes, with all other jobs where they are.

        Wishes for which too few GPUs are left are not passed on, so a queue behind a full fleet costs the
        placer nothing.
        """
        if not wishes or not (self._holders or extra):
            return {}
        wishes = self._fitting(wishes, extra)
        if not wishes:
            return {}
        # At a cap on nodes several stages ask the same question.
        asked = self._asked
        if asked is not None and _is_same(asked, wishes, extra):
            return dict(asked[2])
        answer = self._answer(wishes, extra)
        self._asked = wishes, tuple(extra), answer
        return dict(answer)

    def _answer(
        self, wishes: Mapping[JobId, Width], extra: Sequence[Node]
    ) -> dict[JobId, tuple[GpuSlot, ...]]:
        """Return the placer's answer to wishes that passed `_fitting`."""
        nodes = [*self._nodes.values(), *extra]
        beside = getattr(self._placer, "place_beside", None)
        found: dict[JobId, tuple[GpuSlot, ...]]
        if beside is not None:
            found = beside(wishes, nodes=nodes, holders=list(self._holders.values()))
        else:
            found = self._placed_among_all(wishes, nodes)
        if not self._compact:
            return found
        gpus = {node.id: node.instance_type.whole_gpus for node in nodes}
        return {
            job: slots for job, slots in found.items() if job not in self._compact or _is_compact(slots, gpus)
        }

    def _placed_among_all(
        self, wishes: Mapping[JobId, Width], nodes: Sequence[Node]
    ) -> dict[JobId, tuple[GpuSlot, ...]]:
        """Return the answer of a placer that places all jobs together."""
        held: dict[JobId, list[GpuSlot]] = {}
        widths: dict[JobId, Width] = {}
        for node, jobs in self._holders.items():
            if jobs.count(None) == len(jobs):
                continue
            for slot, job in zip(slots_of_node(node, len(jobs)), jobs, strict=True):
                if job is None:
                    continue
                if job in held:
                    held[job].append(slot)
                else:
                    held[job] = [slot]
        for job, slots in held.items():
            if job not in wishes:
                widths[job] = width_of(self._nodes[slots[0].node].instance_type.gpu_type, len(slots))
        placement = self._placer.place(
            widths | dict(wishes),
            nodes=nodes,
            held={job: tuple(slots) for job, slots in held.items()},
        )
        return {job: placement.slots[job] for job in wishes if job in placement.slots}


class LatestRoom:
    """The placeable nodes of the latest tick; used again while nothing changes, as they remember answers."""

    def __init__(self) -> None:
        self._known: tuple[list[NodeState], tuple[object, ...], PlaceableNodes] | None = None

    def of(
        self,
        state: ClusterState,
        *,
        leaving: Sequence[JobId],
        stopped: frozenset[JobId],
        placer: Placer,
        compact: frozenset[JobId],
        closed: AbstractSet[NodeId],
    ) -> PlaceableNodes:
        """Return the placeable nodes of a state: those of the latest call if its arguments were the same.

        Nodes are compared by identity: a simulated node is replaced when it changes, and a comparison of
        values would take longer than it saves.
        """
        nodes, slots = list(state.nodes.values()), [state.jobs[job].slots for job in leaving]
        question = leaving, slots, stopped, placer, compact, closed, state.offers
        known = self._known
        if known is not None:
            before, asked, room = known
            if len(before) == len(nodes) and all(map(is_, before, nodes)) and asked == question:
                return room
        room = PlaceableNodes(
            state, leaving=leaving, stopped=stopped, placer=placer, compact=compact, closed=closed
        )
        self._known = nodes, question, room
        return room


def _is_same(asked: _Asked, wishes: Mapping[JobId, Width], extra: Sequence[Node]) -> bool:
    """Return whether the question is the same as before, in the same order."""
    before, more, _ = asked
    if len(before) != len(wishes) or len(more) != len(extra):
        return False
    if any(one.id != other.id for one, other in zip(more, extra, strict=True)):
        return False
    return all(map(eq, before.items(), wishes.items()))


def _as_placed(node: NodeState) -> Node:
    """Return a ready node as the placer sees it."""
    return Node(id=node.id, instance_type=node.instance_type, is_ready=True, tiers=node.tiers)


def _is_compact(slots: tuple[GpuSlot, ...], gpus: Mapping[NodeId, int]) -> bool:
    """Return whether slots are on as few nodes as possible."""
    used = {slot.node for slot in slots}
    return len(used) <= -(-len(slots) // min(gpus[node] for node in used))
