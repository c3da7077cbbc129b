"""An index of the free GPUs of a cluster, for a fast choice of the nodes of each job.

A job on exclusive GPUs takes the fewest nodes. If it needs several, it takes the nearest ones, under the
narrowest network part that has them; of those, nodes with quiet links; of those, the fullest that fit, so
that whole nodes stay or become empty. Nodes are indexed ("shelved") by whether they are in use, how many GPUs
are free and whether their link is busy, so a choice looks at a few short lists. A GPU with several places
counts as free while one of its places is free; a job gets one place per GPU, first on the GPUs with the
fewest other jobs.

    symbol   here         meaning
    n        gpus         GPUs wanted
    f_v      room         GPUs of node v with a free place
    -        senders      jobs on v that span several nodes, and so use its link

Cost: O(largest instance) per node taken, plus a shift in a sorted list; O(nodes x tiers) for a job on several
nodes if the network parts above them are known.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from policies.model import GpuSlot, InstanceType, JobId, Node, NodeId, Width

_Shelf = list[int]
"""Indices of nodes, ascending."""
_Key = tuple[str, bool, int, bool]
"""(GPU type, whether in use, free GPUs, whether the link is busy)."""
_Shelves = dict[_Key, _Shelf]


@lru_cache(maxsize=65_536)
def slots_of_node(node: NodeId, gpus: int) -> tuple[GpuSlot, ...]:
    """Return the slots of a node in order; cached, because millions of them are needed."""
    return tuple(GpuSlot(node, index) for index in range(gpus))


class ClusterPacking:
    """The nodes of a cluster, the jobs placed on them, and the index of free GPUs."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._ids = [node.id for node in nodes]
        self._kinds = kinds = [node.instance_type for node in nodes]
        self._type = [kind.gpu_type for kind in kinds]
        self._capacity = [kind.gpus for kind in kinds]
        self._free = [list(range(gpus - 1, -1, -1)) for gpus in self._capacity]
        self._senders: dict[int, set[JobId]] = {}
        self._slots: dict[JobId, tuple[GpuSlot, ...]] = {}
        self._total_free: dict[str, int] = {}
        self._widest: dict[str, int] = {}
        self._shared: set[int] = set()
        self._under: dict[tuple[str, ...], list[int]] = {}
        # Both indexes are built when they are first needed. The index of free GPUs is needed at the first
        # search, after all jobs that keep their GPUs were entered.
        self._places: dict[NodeId, int] | None = None
        self._filed: _Shelves | None = None
        seen: InstanceType | None = None
        for place, machine in enumerate(kinds):
            kind = machine.gpu_type
            self._total_free[kind] = self._total_free.get(kind, 0) + machine.gpus
            if machine is not seen:
                seen, self._widest[kind] = machine, max(self._widest.get(kind, 0), machine.whole_gpus)
            if machine.places_per_gpu > 1:
                self._shared.add(place)
            tiers = nodes[place].tiers
            for depth in range(1, len(tiers) + 1):
                self._under.setdefault(tiers[:depth], []).append(place)

    @property
    def _index(self) -> dict[NodeId, int]:
        """The index of each node by its name."""
        if self._places is None:
            self._places = {node: at for at, node in enumerate(self._ids)}
        return self._places

    def occupy(self, holders: Sequence[Sequence[JobId | None]], leaving: Collection[JobId]) -> None:
        """Enter the jobs that hold the GPUs of the first nodes, except those that are `leaving`.

        `holders` names the job on each GPU, node by node. The slots of these jobs are not recorded.
        """
        home: dict[JobId, int] = {}
        for node, jobs in enumerate(holders):
            free = [gpu for gpu in self._free[node] if (job := jobs[gpu]) is None or job in leaving]
            taken = len(jobs) - len(free)
            if not taken:
                continue
            self._free[node] = free
            self._total_free[self._type[node]] -= taken
            for job in jobs:
                if job is None or job in leaving:
                    continue
                first = home.setdefault(job, node)
                if first != node:
                    self._senders.setdefault(first, set()).add(job)
                    self._senders.setdefault(node, set()).add(job)

    @property
    def slots(self) -> dict[JobId, tuple[GpuSlot, ...]]:
        """The GPUs of each placed job."""
        return dict(self._slots)

    def slots_of(self, job: JobId) -> tuple[GpuSlot, ...]:
        """Return the GPUs of a placed job."""
        return self._slots[job]

    def free_gpus(self, gpu_type: str) -> int:
        """Return the number of free GPUs of the type, on all nodes together."""
        return self._total_free.get(gpu_type, 0)

    def free_slots(self, gpu_type: str) -> list[GpuSlot]:
        """Return all free GPUs of the type, one place on each."""
        return [
            GpuSlot(self._ids[node], gpu)
            for node, kind in enumerate(self._type)
            if kind == gpu_type
            for gpu in self._kinds[node].one_per_gpu(self._free[node])
        ]

    def hold(self, job: JobId, slots: Sequence[GpuSlot]) -> None:
        """Give the job exactly these free GPUs."""
        by_node: dict[int, list[int]] = {}
        for slot in slots:
            by_node.setdefault(self._index[slot.node], []).append(slot.index)
        self._give(job, slots, by_node)

    def keep(self, job: JobId, slots: Sequence[GpuSlot], width: Width) -> bool:
        """Give the job these GPUs if they exist, are free, and have the width's type and number.

        Return whether they do. Two places on one GPU are not allowed.
        """
        if len(slots) != width.gpus:
            return False
        by_node: dict[int, list[int]] = {}
        for slot in slots:
            node, gpu = self._index.get(slot.node), slot.index
            if node is None or self._type[node] != width.gpu_type or gpu not in self._free[node]:
                return False
            taken = by_node.setdefault(node, [])
            if gpu in taken:
                return False
            taken.append(gpu)
        for node in self._shared & by_node.keys():
            if len(self._kinds[node].one_per_gpu(by_node[node])) < len(by_node[node]):
                return False
        self._give(job, slots, by_node)
        return True

    def _give(self, job: JobId, slots: Sequence[GpuSlot], by_node: Mapping[int, Sequence[int]]) -> None:
        """Give the job free GPUs; `by_node` groups their indices by node."""
        spans = len(by_node) > 1
        for node, taken in by_node.items():
            self._unshelve(node)
            free = self._free[node]
            if len(taken) == len(free):
                free.clear()
            else:
                for gpu in taken:
                    free.remove(gpu)
            self._total_free[self._type[node]] -= len(taken)
            if spans:
                self._senders.setdefault(node, set()).add(job)
            self._shelve(node)
        self._slots[job] = tuple(slots)

    def remove(self, job: JobId) -> tuple[GpuSlot, ...]:
        """Free the job's GPUs and return them."""
        slots = self._slots.pop(job)
        for node in dict.fromkeys(self._index[slot.node] for slot in slots):
            self._unshelve(node)
            freed = [slot.index for slot in slots if slot.node == self._ids[node]]
            self._free[node] = sorted([*self._free[node], *freed], reverse=True)
            self._total_free[self._type[node]] += len(freed)
            if node in self._senders:
                self._senders[node].discard(job)
            self._shelve(node)
        return slots

    def add(self, job: JobId, width: Width, *, kappa: float = 1) -> bool:
        """Place the job if enough GPUs are free, and return whether it was placed.

        A job of 2 to `kappa` GPUs takes the free GPUs of the fullest nodes, on any number of nodes.
        """
        if self.free_gpus(width.gpu_type) < width.gpus:
            return False
        if 1 < width.gpus <= kappa:
            nodes = self._leftovers(width)
        elif (key := self._best_shelf(width)) is None:
            nodes = self._fewest(width)
        elif self._shared:
            nodes = self._shelves[key][:1]
        else:
            self._fill(key, (job,), width.gpus)
            return True
        if self._shared and sum(map(self._room, nodes)) < width.gpus:
            return False
        slots: list[GpuSlot] = []
        left, spans = width.gpus, len(nodes) > 1
        for node in nodes:
            taken = min(left, self._room(node))
            slots += self._take(node, taken, job, spans=spans)
            left -= taken
        self._slots[job] = tuple(slots)
        return True

    def add_alike(self, jobs: Sequence[JobId], width: Width, *, kappa: float = 1) -> None:
        """Place jobs of one width, with the same result as calling `add` for each in turn.

        The first job takes the fullest node with room. That node is then also the fullest for the next job as
        long as it has room, and after it the next node that was equally full. So a shelf is filled at once.
        """
        done = 0
        while done < len(jobs):
            key = None if self._shared or 1 < width.gpus <= kappa else self._best_shelf(width)
            if key is None:
                self.add(jobs[done], width, kappa=kappa)
                done += 1
            else:
                done += self._fill(key, jobs[done:], width.gpus)

    def _fill(self, key: _Key, jobs: Sequence[JobId], gpus: int) -> int:
        """Give jobs the first free GPUs of the nodes on a shelf, node by node; return how many were placed.

        Only valid if no node has shared GPUs.
        """
        kind, _, room, is_busy = key
        shelves, placed, each = self._shelves, self._slots, room // gpus
        shelf, done = shelves[key], 0
        nodes = shelf[: -(-len(jobs) // each)]
        del shelf[: len(nodes)]
        for node in nodes:
            free, known = self._free[node], slots_of_node(self._ids[node], self._capacity[node])
            for job in jobs[done : done + each]:
                placed[job] = tuple([known[gpu] for gpu in free[: -gpus - 1 : -1]])
                del free[-gpus:]
                done += 1
            if free:
                insort(shelves.setdefault((kind, True, len(free), is_busy), []), node)
        self._total_free[kind] -= done * gpus
        return done

    def _take(self, node: int, gpus: int, job: JobId, *, spans: bool) -> Sequence[GpuSlot]:
        """Give the job the first free GPUs of a node."""
        free, known = self._free[node], slots_of_node(self._ids[node], self._capacity[node])
        self._unshelve(node)
        taken: Sequence[GpuSlot]
        if gpus == len(known):
            taken = known
            free.clear()
        elif node in self._shared:
            chosen = self._kinds[node].one_per_gpu(free)[:gpus]
            taken = [known[place] for place in chosen]
            self._free[node] = [place for place in free if place not in chosen]
        else:
            taken = [known[gpu] for gpu in free[: -gpus - 1 : -1]]
            del free[len(free) - gpus :]
        self._total_free[self._type[node]] -= gpus
        if spans:
            self._senders.setdefault(node, set()).add(job)
        self._shelve(node)
        return taken

    def _leftovers(self, width: Width) -> list[int]:
        """Return the fullest nodes, as many as the width needs."""
        chosen: list[int] = []
        left = width.gpus
        for in_use in (True, False):
            for free in range(1, self._widest.get(width.gpu_type, 0) + 1):
                for busy in (False, True):
                    for node in self._shelves.get((width.gpu_type, in_use, free, busy), ()):
                        if left <= 0:
                            return chosen
                        chosen.append(node)
                        left -= free
        return chosen

    def _fewest(self, width: Width) -> list[int]:
        """Return the fewest nodes for a width that needs several; then the nearest, then quiet links."""
        nodes = self._quietest(width, self._shelves)
        for depth in range(max(map(len, self._under), default=0), 0, -1):
            near: list[tuple[int, int, list[int]]] = []
            for tier, under in self._under.items():
                if len(tier) == depth:
                    spare = sum(self._room(at) for at in under if self._type[at] == width.gpu_type)
                    found = self._quietest(width, self._shelves_of(under)) if spare >= width.gpus else []
                    if 0 < len(found) <= len(nodes):
                        near.append((self._busy_links(found), spare, found))
            if near:
                # Fewest busy links, then the network part with the least room, to keep others for wide jobs.
                return min(near)[2]
        return nodes

    def _busy_links(self, nodes: Sequence[int]) -> int:
        """Return how many of the nodes have a link that a job uses."""
        return sum(bool(self._senders.get(node)) for node in nodes)

    def _shelves_of(self, nodes: Iterable[int]) -> _Shelves:
        """Build an index of the given nodes."""
        found: _Shelves = {}
        if self._shared or self._senders:
            for node in nodes:
                if self._free[node]:
                    found.setdefault(self._key_of(node), []).append(node)
            return found
        kinds, free, capacity = self._type, self._free, self._capacity
        for node in nodes:
            if room := len(free[node]):
                found.setdefault((kinds[node], room < capacity[node], room, False), []).append(node)
        return found

    def _quietest(self, width: Width, shelves: _Shelves) -> list[int]:
        """Return the fewest nodes with enough room; those with quiet links if that takes no more nodes."""
        nodes = self._greedy(width, shelves, busy=(False, True))
        if self._senders and self._busy_links(nodes):
            quiet = self._greedy(width, shelves, busy=(False,))
            if 0 < len(quiet) <= len(nodes):
                return quiet
        return nodes

    def _greedy(self, width: Width, shelves: _Shelves, *, busy: Sequence[bool]) -> list[int]:
        """Return the freest nodes until one node fits the rest, and that node; empty if none does."""
        chosen: list[int] = []
        left, kind = width.gpus, width.gpu_type
        widest = self._widest.get(kind, 0)
        kinds = [(is_busy, used) for is_busy in busy for used in (True, False)]
        for free in range(widest, 0, -1):
            for is_busy, used in kinds:
                for node in shelves.get((kind, used, free, is_busy), ()):
                    chosen.append(node)
                    left -= free
                    if left <= widest:
                        sizes = range(left, widest + 1)
                        keys = ((kind, in_use, size, is_sent) for is_sent, in_use in kinds for size in sizes)
                        last = self._first(keys, shelves, chosen)
                        if last is not None:
                            return [*chosen, last]
        return []

    def _best_shelf(self, width: Width) -> _Key | None:
        """Return the best shelf for a job on one node: in use, then the fullest, then with a busy link."""
        kind, shelves, widest = width.gpu_type, self._shelves, self._widest.get(width.gpu_type, 0)
        links = (True, False) if self._senders else (False,)
        for used in (True, False):
            for free in range(width.gpus, widest + 1):
                for is_busy in links:
                    key = kind, used, free, is_busy
                    if shelves.get(key):
                        return key
        return None

    def _first(self, keys: Iterable[_Key], shelves: _Shelves, avoid: Collection[int]) -> int | None:
        """Return the first node on the shelves `keys`, in order, that is not in `avoid`."""
        for key in keys:
            for node in shelves.get(key, ()):
                if node not in avoid:
                    return node
        return None

    @property
    def _shelves(self) -> _Shelves:
        """The index of all nodes, built at the first use."""
        if self._filed is None:
            self._filed = self._shelves_of(range(len(self._ids)))
        return self._filed

    def _key_of(self, node: int) -> _Key:
        """Return the shelf of a node."""
        free = len(self._free[node])
        room = self._room(node) if node in self._shared else free
        return self._type[node], free < self._capacity[node], room, bool(self._senders.get(node))

    def _room(self, node: int) -> int:
        """Return the number of GPUs of a node with a free place: the most that one more job can get there."""
        free = self._free[node]
        if node not in self._shared:
            return len(free)
        return len({place % self._kinds[node].whole_gpus for place in free})

    def _shelve(self, node: int) -> None:
        """Put a node on its shelf if it has free GPUs."""
        if self._filed is not None and self._free[node]:
            insort(self._filed.setdefault(self._key_of(node), []), node)

    def _unshelve(self, node: int) -> None:
        """Take a node off its shelf."""
        if self._filed is not None and self._free[node]:
            shelf = self._filed[self._key_of(node)]
            del shelf[bisect_left(shelf, node)]
