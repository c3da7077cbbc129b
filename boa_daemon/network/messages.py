"""Which messages are in flight, and how fast they move: the kernel's half of the link policies.

Does what `policies.ada_srsf.LinkPolicy` says, without looking at everybody every time; a test holds the two
together. A refused message watches one server that refuses it and is looked at again when a message leaves
there: until then nothing can have changed in its favour. Where that is not so (preemption, ageing, the
queue-aware rule) every job is looked at. Cost: O(watchers of the servers left, and their servers), or
O(jobs).
"""

from __future__ import annotations

from boa_daemon.network.state import (
    FRESH,
    QUEUE,
    SENDING,
    STAMP,
    TOUCHED,
    WAITING,
    WEIGHTED,
    Rules,
    State,
    rank_of,
    schedule,
    touch,
    unschedule,
)
from policies.ada_srsf import LEAST_RANK
from policies.adadual import INFINITY, overlap_pays, threshold
from policies.contention import pace


def admit(c: Rules, s: State) -> None:
    """Start the messages that the policy lets start, in its order; pause what it pauses."""
    if s.counter[FRESH] == 0 and s.counter[TOUCHED] == 0:
        return
    candidates = gather(c, s)
    sort_candidates(c, s, candidates)
    if c.preempts:
        preempt(c, s, candidates)
        return
    stamp = s.counter[STAMP]
    for index in range(candidates):
        job = s.order[index]
        server = blocking_server(c, s, job) if is_clear(s, job, stamp) else s.server_at[s.first_slot[job]]
        if server < 0:
            start(c, s, job)
        elif not looks_at_all(c):
            watch(s, job, server)
        elif is_overdue(c, s, job):
            for slot in range(s.first_slot[job], s.first_slot[job] + s.servers[job]):
                s.reserved[s.server_at[slot]] = stamp


def looks_at_all(c: Rules) -> bool:
    """Return whether a refusal can turn without a message leaving the server that caused it."""
    return c.preempts or c.rule == QUEUE or c.max_wait < INFINITY


def gather(c: Rules, s: State) -> int:
    """List in `order` the jobs whose turn it might be, and return how many.

    A refused message watches one server that refuses it, and is looked at again when a message leaves there.
    """
    s.counter[STAMP] += 1
    found = 0
    for index in range(s.counter[FRESH]):
        job = s.fresh[index]
        join_queue(c, s, job)
        if not looks_at_all(c):
            found = consider(c, s, job, found)
    s.counter[FRESH] = 0
    if looks_at_all(c):
        for job in range(len(s.status)):
            if s.status[job] == WAITING or (c.preempts and s.status[job] == SENDING):
                s.order[found] = job
                found += 1
        return found
    for index in range(s.counter[TOUCHED]):
        server = s.touched[index]
        job, s.watchers[server] = s.watchers[server], -1
        while job >= 0:
            following = s.next_watcher[job]
            found = consider(c, s, job, found)
            job = following
    return found


def consider(c: Rules, s: State, job: int, found: int) -> int:
    """List the job among `found` candidates, unless one of its servers is full; return how many there are."""
    for slot in range(s.first_slot[job], s.first_slot[job] + s.servers[job]):
        if s.load[s.server_at[slot]] >= c.max_at_once:
            watch(s, job, s.server_at[slot])
            return found
    s.order[found] = job
    return found + 1


def watch(s: State, job: int, server: int) -> None:
    """Have the job looked at again when a message leaves the server."""
    s.next_watcher[job] = s.watchers[server]
    s.watchers[server] = job


def sort_candidates(c: Rules, s: State, candidates: int) -> None:
    """Sort `order`: overdue first and oldest first, then by rank; ties: in flight first, then by job."""
    for index in range(candidates):
        job = s.order[index]
        s.key[job] = s.ready_at[job] if is_overdue(c, s, job) else rank_of(c, s, job)
        at = index
        while at > 0 and goes_before(c, s, job, s.order[at - 1]):
            s.order[at] = s.order[at - 1]
            at -= 1
        s.order[at] = job


def goes_before(c: Rules, s: State, job: int, other: int) -> bool:
    """Return whether a candidate is visited before another."""
    late, other_late = is_overdue(c, s, job), is_overdue(c, s, other)
    if late != other_late:
        return late
    if s.key[job] != s.key[other]:
        return s.key[job] < s.key[other]
    if s.status[job] != s.status[other]:
        return s.status[job] > s.status[other]
    return job < other


def is_overdue(c: Rules, s: State, job: int) -> bool:
    """Return whether the job's message has waited long enough to go before all others."""
    return s.now[0] - s.ready_at[job] > c.max_wait


def is_clear(s: State, job: int, stamp: int) -> bool:
    """Return whether none of the job's servers is reserved or taken in this pass."""
    for slot in range(s.first_slot[job], s.first_slot[job] + s.servers[job]):
        if s.reserved[s.server_at[slot]] == stamp:
            return False
    return True


def blocking_server(c: Rules, s: State, job: int) -> int:
    """Return a server on which the message fails the policy's test, or -1 where it may start."""
    ratio, behind = c.threshold, 0
    first, beyond = s.first_slot[job], s.first_slot[job] + s.servers[job]
    for slot in range(first, beyond):
        if s.load[s.server_at[slot]] >= c.max_at_once:
            return s.server_at[slot]
        behind = max(behind, s.waiting[s.server_at[slot]] - 1)
    for slot in range(first, beyond):
        server = s.server_at[slot]
        for index in range(s.load[server]):
            other = s.in_flight[server * c.max_at_once + index]
            if c.rule == QUEUE:
                ratio = threshold(c.per_byte, c.contention, 1.0, 1.0, float(behind))
            elif c.rule == WEIGHTED:
                new = 1.0 / max(rank_of(c, s, job), LEAST_RANK)
                old = 1.0 / max(rank_of(c, s, other), LEAST_RANK)
                ratio = threshold(c.per_byte, c.contention, new, old, 0.0)
            if not overlap_pays(s.bytes_left[job], bytes_left_now(c, s, other), ratio):
                return server
    return -1


def preempt(c: Rules, s: State, candidates: int) -> None:
    """Give every server to the best message that wants it and gets all of its servers; pause the rest."""
    stamp = s.counter[STAMP]
    for index in range(candidates):
        job = s.order[index]
        if is_clear(s, job, stamp):
            s.seen[job] = stamp
            for slot in range(s.first_slot[job], s.first_slot[job] + s.servers[job]):
                s.reserved[s.server_at[slot]] = stamp
        elif s.status[job] == SENDING:
            settle(c, s, job)
            leave(c, s, job)
            unschedule(s, len(s.running) + job)
            join_queue(c, s, job)
    for index in range(candidates):
        job = s.order[index]
        if s.seen[job] == stamp and s.status[job] == WAITING:
            start(c, s, job)


def join_queue(c: Rules, s: State, job: int) -> None:
    """Note that the job's message waits; the queue-aware rule wants to know where."""
    s.status[job] = WAITING
    if c.rule == QUEUE:
        for slot in range(s.first_slot[job], s.first_slot[job] + s.servers[job]):
            s.waiting[s.server_at[slot]] += 1


def start(c: Rules, s: State, job: int) -> None:
    """Put the job's message in flight on each of its servers."""
    s.status[job] = SENDING
    s.updated_at[job] = s.now[0]
    s.crowd[job] = 0
    if s.started_at[job] < 0.0:
        s.started_at[job] = s.now[0]
    for node in range(s.first_slot[job], s.first_slot[job] + s.servers[job]):
        server = s.server_at[node]
        if c.rule == QUEUE:
            s.waiting[server] -= 1
        s.in_flight[server * c.max_at_once + s.load[server]] = job
        s.load[server] += 1
        touch(s, server)


def leave(c: Rules, s: State, job: int) -> None:
    """Take the job's message off each of its servers."""
    for node in range(s.first_slot[job], s.first_slot[job] + s.servers[job]):
        server = s.server_at[node]
        s.load[server] -= 1
        base = server * c.max_at_once
        last = s.in_flight[base + s.load[server]]
        for index in range(s.load[server]):
            if s.in_flight[base + index] == job:
                s.in_flight[base + index] = last
        touch(s, server)


def change_paces(c: Rules, s: State) -> None:
    """Give each message on a touched server the pace of its most crowded server."""
    for index in range(s.counter[TOUCHED]):
        server = s.touched[index]
        s.is_touched[server] = 0
        for place in range(s.load[server]):
            job = s.in_flight[server * c.max_at_once + place]
            crowd = 1
            for node in range(s.first_slot[job], s.first_slot[job] + s.servers[job]):
                crowd = max(crowd, s.load[s.server_at[node]])
            if crowd != s.crowd[job]:
                settle(c, s, job)
                s.crowd[job] = crowd
                rest = s.latency_left[job] + s.bytes_left[job] * pace(c.per_byte, c.contention, crowd)
                schedule(s, len(s.running) + job, s.now[0] + rest)
    s.counter[TOUCHED] = 0


def bytes_left_now(c: Rules, s: State, job: int) -> float:
    """Return what a message in flight still has to send."""
    moving = s.now[0] - s.updated_at[job] - s.latency_left[job]
    if moving <= 0.0 or s.crowd[job] == 0:
        return s.bytes_left[job]
    return max(0.0, s.bytes_left[job] - moving / pace(c.per_byte, c.contention, s.crowd[job]))


def settle(c: Rules, s: State, job: int) -> None:
    """Bring a message's latency and bytes left up to now."""
    s.bytes_left[job] = bytes_left_now(c, s, job)
    s.latency_left[job] = max(0.0, s.latency_left[job] - (s.now[0] - s.updated_at[job]))
    s.updated_at[job] = s.now[0]
