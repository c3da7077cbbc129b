"""Selects the waiting messages that are tested for a start, and their order.

A message's rank does not change while it waits or is in flight. So each refused message watches one server
that refuses it, and is tested again only when a message leaves that server; before that, the answer is the
same. An event tests the best-ranked watchers of the servers that messages have left, until these are full
again; `boa_daemon.lab.network.watchers` keeps the order. With ageing or the queue-aware rule, an answer can
change at any time, and with the strict reading it depends on the messages before; so all waiting messages are
tested, or all up to the first refused one. Cost: O(log(waiting)) per message tested, or O(jobs)
to sort and test all.
"""

from __future__ import annotations

from boa_daemon.lab.network.messages import blocking_server, bytes_left_now, join_queue, pause, start
from boa_daemon.lab.network.state import (
    FRESH,
    PLAIN,
    QUEUE,
    SENDING,
    STAMP,
    TOUCHED,
    WAITING,
    LinkRules,
    State,
    rank_of,
)
from boa_daemon.lab.network.watchers import pop_watcher, ranks_before, watch
from policies.links.adadual import INFINITY, overlap_pays


def admit(c: LinkRules, s: State) -> None:
    """Start the messages that the policy allows, in its order; pause those that it pauses."""
    if s.counter[FRESH] == 0 and s.counter[TOUCHED] == 0:
        return
    if c.rule == QUEUE or c.max_wait < INFINITY or c.is_strict:
        ask_everybody(c, s)
    else:
        ask_in_turn(c, s)


def ask_in_turn(c: LinkRules, s: State) -> None:
    """Test new messages and watchers of servers just left, by rank; the refused ones watch a server."""
    sort_fresh(c, s)
    left, asked, refused = s.counter[TOUCHED], 0, 0
    while True:
        server = best_open_server(c, s, left)
        if asked < s.counter[FRESH] and (server < 0 or ranks_before(s, s.fresh[asked], s.watchers[server])):
            job = s.fresh[asked]
            asked += 1
        elif server >= 0:
            job = pop_watcher(s, server)
        else:
            break
        wall = better_server(s, job) if c.preempts else blocking_server(c, s, job)
        if wall >= 0:
            s.order[refused] = job
            s.refused_by[job] = wall
            refused += 1
            continue
        if c.preempts:
            refused = displace(c, s, job, refused)
            left = s.counter[TOUCHED]
        start(c, s, job)
    s.counter[FRESH] = 0
    # Only now, so that no message is tested twice in one instant.
    for index in range(refused):
        watch(s, s.order[index], s.refused_by[s.order[index]])


def sort_fresh(c: LinkRules, s: State) -> None:
    """Sort the new messages by rank; they wait from now on."""
    for index in range(s.counter[FRESH]):
        job = s.fresh[index]
        join_queue(c, s, job)
        s.key[job] = rank_of(c, s, job)
        at = index
        while at > 0 and ranks_before(s, job, s.fresh[at - 1]):
            s.fresh[at] = s.fresh[at - 1]
            at -= 1
        s.fresh[at] = job


def best_open_server(c: LinkRules, s: State, left: int) -> int:
    """Return, of the first `left` touched servers, the one with the best message worth testing, or -1."""
    best = -1
    for index in range(left):
        server = s.touched[index]
        if s.watchers[server] < 0 or refuses_all(c, s, server):
            continue
        if best < 0 or ranks_before(s, s.watchers[server], s.watchers[best]):
            best = server
    return best


def refuses_all(c: LinkRules, s: State, server: int) -> bool:
    """Return whether it is clear without tests that the server still refuses all of its watchers."""
    if s.load[server] >= c.max_at_once:
        return True
    if c.rule == PLAIN:
        least = s.least_bytes[s.watchers[server]]
        for index in range(s.load[server]):
            other = s.in_flight[server * c.max_at_once + index]
            if not overlap_pays(least, bytes_left_now(c, s, other), c.threshold):
                return True
    return False


def better_server(s: State, job: int) -> int:
    """Return a server of the job that sends a message with an equal or better rank, or -1."""
    for slot in range(s.first_slot[job], s.first_slot[job] + s.servers[job]):
        server = s.server_at[slot]
        if s.load[server] > 0 and s.key[s.in_flight[server]] <= s.key[job]:
            return server
    return -1


def displace(c: LinkRules, s: State, job: int, refused: int) -> int:
    """Pause the messages in flight on the job's servers; add them to the `refused`, and return how many."""
    for slot in range(s.first_slot[job], s.first_slot[job] + s.servers[job]):
        server = s.server_at[slot]
        if s.load[server] > 0:
            other = s.in_flight[server]
            pause(c, s, other)
            s.order[refused] = other
            s.refused_by[other] = server
            refused += 1
    return refused


def ask_everybody(c: LinkRules, s: State) -> None:
    """Test all waiting messages; overdue ones reserve their servers. Strict: the first refusal ends it."""
    candidates = list_candidates(c, s)
    sort_candidates(c, s, candidates)
    if c.preempts:
        share_out(c, s, candidates)
        return
    stamp = s.counter[STAMP]
    for index in range(candidates):
        job = s.order[index]
        if is_clear(s, job, stamp) and blocking_server(c, s, job) < 0:
            start(c, s, job)
        elif c.is_strict:
            return
        elif is_overdue(c, s, job):
            for slot in range(s.first_slot[job], s.first_slot[job] + s.servers[job]):
                s.reserved[s.server_at[slot]] = stamp


def list_candidates(c: LinkRules, s: State) -> int:
    """List in `order` the waiting jobs, with preemption also the sending ones; return how many."""
    s.counter[STAMP] += 1
    for index in range(s.counter[FRESH]):
        join_queue(c, s, s.fresh[index])
    s.counter[FRESH] = 0
    found = 0
    for job in range(len(s.status)):
        if s.status[job] == WAITING or (c.preempts and s.status[job] == SENDING):
            s.order[found] = job
            found += 1
    return found


def sort_candidates(c: LinkRules, s: State, candidates: int) -> None:
    """Sort `order`: overdue jobs first, oldest first; then by rank. Ties: in flight first, then by job."""
    for index in range(candidates):
        job = s.order[index]
        s.key[job] = s.ready_at[job] if is_overdue(c, s, job) else rank_of(c, s, job)
        at = index
        while at > 0 and goes_before(c, s, job, s.order[at - 1]):
            s.order[at] = s.order[at - 1]
            at -= 1
        s.order[at] = job


def goes_before(c: LinkRules, s: State, job: int, other: int) -> bool:
    """Return whether a candidate sorts before another."""
    late, other_late = is_overdue(c, s, job), is_overdue(c, s, other)
    if late != other_late:
        return late
    if s.key[job] != s.key[other]:
        return s.key[job] < s.key[other]
    if s.status[job] != s.status[other]:
        return s.status[job] > s.status[other]
    return job < other


def is_overdue(c: LinkRules, s: State, job: int) -> bool:
    """Return whether the job's message has waited long enough to go before all others."""
    return s.now[0] - s.ready_at[job] > c.max_wait


def is_clear(s: State, job: int, stamp: int) -> bool:
    """Return whether none of the job's servers is reserved or taken in this pass."""
    for slot in range(s.first_slot[job], s.first_slot[job] + s.servers[job]):
        if s.reserved[s.server_at[slot]] == stamp:
            return False
    return True


def share_out(c: LinkRules, s: State, candidates: int) -> None:
    """In order, give each message all of its servers if none is taken; pause the other messages in flight."""
    stamp = s.counter[STAMP]
    for index in range(candidates):
        job = s.order[index]
        if is_clear(s, job, stamp):
            s.seen[job] = stamp
            for slot in range(s.first_slot[job], s.first_slot[job] + s.servers[job]):
                s.reserved[s.server_at[slot]] = stamp
        elif s.status[job] == SENDING:
            pause(c, s, job)
    for index in range(candidates):
        job = s.order[index]
        if s.seen[job] == stamp and s.status[job] == WAITING:
            start(c, s, job)
