"""Emulates the double counting in the paper's public simulator, to measure its effect on the figures.

In that simulator a waiting job that tests AdaDUAL asks the message in flight for its remaining bytes. Asking
adds the progress since the last tick to the message without moving its time stamp, and the tick adds the
progress again. So a message about which w jobs ask moves 1 + w times as fast. This happens only with AdaDUAL.
The emulation is not part of the product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from boa_daemon.lab.network import kernel, messages
from boa_daemon.lab.network.state import SENDING, TOUCHED, WAITING, LinkRules, State, schedule
from policies.links.contention import pace


@contextmanager
def double_counting() -> Iterator[None]:
    """Make messages faster than the wire while jobs ask about them; for the plain Python engine only."""
    honest = kernel.change_paces, messages.bytes_left_now
    boosts: dict[int, int] = {}
    seen = [-1]

    def bytes_left_now(c: LinkRules, s: State, job: int) -> float:
        moving = s.now[0] - s.updated_at[job] - s.latency_left[job]
        if moving <= 0.0 or s.crowd[job] == 0:
            return s.bytes_left[job]
        per_byte = pace(c.per_byte, c.contention, s.crowd[job]) / (1 + boosts.get(job, 0))
        return max(0.0, s.bytes_left[job] - moving / per_byte)

    def change_paces(c: LinkRules, s: State) -> None:
        waiting = s.status.count(WAITING)
        if s.counter[TOUCHED] == 0 and waiting == seen[0]:
            return
        seen[0] = waiting
        asking = _asking(c, s)
        for job, status in enumerate(s.status):
            if status != SENDING:
                continue
            crowd = max(s.load[server] for server in _servers(s, job))
            if crowd != s.crowd[job] or asking[job] != boosts.get(job, 0):
                messages.advance_message(c, s, job)
                s.crowd[job] = crowd
                boosts[job] = asking[job]
                per_byte = pace(c.per_byte, c.contention, crowd) / (1 + asking[job])
                rest = s.latency_left[job] + s.bytes_left[job] * per_byte
                schedule(s, len(s.running) + job, s.now[0] + rest)
        for index in range(s.counter[TOUCHED]):
            s.is_touched[s.touched[index]] = 0
        s.counter[TOUCHED] = 0

    kernel.change_paces, messages.bytes_left_now = change_paces, bytes_left_now
    try:
        yield
    finally:
        kernel.change_paces, messages.bytes_left_now = honest


def _servers(s: State, job: int) -> list[int]:
    """Return the servers of a job."""
    return s.server_at[s.first_slot[job] : s.first_slot[job] + s.servers[job]]


def _asking(c: LinkRules, s: State) -> Counter[int]:
    """Count the jobs that ask about each message: that of the first busy server, if none carries two."""
    asking: Counter[int] = Counter()
    for job, status in enumerate(s.status):
        if status == WAITING:
            loads = [(s.load[server], server) for server in _servers(s, job)]
            if max(load for load, _ in loads) == 1:
                server = next(server for load, server in loads if load == 1)
                asking[s.in_flight[server * c.max_at_once]] += 1
    return asking
