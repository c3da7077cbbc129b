"""The waiting messages that watch a server, best rank first: one pairing heap per server.

Source: Fredman, Sedgewick, Sleator, Tarjan, "The pairing heap: a new form of self-adjusting heap",
Algorithmica 1 (1986). A message watches one server at a time, so the heaps need one entry per job. Each entry
also stores the least bytes in its subtree. Cost: O(1) to insert, amortised O(log(watchers)) to remove the
best.
"""

from __future__ import annotations

from boa_daemon.lab.network.state import State


def ranks_before(s: State, job: int, other: int) -> bool:
    """Return whether a waiting message is tested before another; ties go to the first job of the case."""
    return s.key[job] < s.key[other] or (s.key[job] == s.key[other] and job < other)


def watch(s: State, job: int, server: int) -> None:
    """Have the job's message tested again when a message leaves the server."""
    s.first_below[job] = -1
    s.next_watcher[job] = -1
    s.least_bytes[job] = s.bytes_left[job]
    best = s.watchers[server]
    s.watchers[server] = job if best < 0 else meld(s, best, job)


def meld(s: State, job: int, other: int) -> int:
    """Meld two heaps: put the worse root below the better one, and return the better."""
    if ranks_before(s, other, job):
        job, other = other, job
    s.next_watcher[other] = s.first_below[job]
    s.first_below[job] = other
    s.least_bytes[job] = min(s.least_bytes[job], s.least_bytes[other])
    return job


def pop_watcher(s: State, server: int) -> int:
    """Remove and return the best-ranked message that watches the server."""
    best = s.watchers[server]
    # Meld its children in pairs from the left, then meld the pairs from the right.
    pairs, job = -1, s.first_below[best]
    while job >= 0:
        other, rest = s.next_watcher[job], -1
        if other >= 0:
            rest = s.next_watcher[other]
            job = meld(s, job, other)
        s.next_watcher[job] = pairs
        pairs, job = job, rest
    root = -1
    while pairs >= 0:
        rest = s.next_watcher[pairs]
        root = pairs if root < 0 else meld(s, root, pairs)
        pairs = rest
    s.watchers[server] = root
    return best
