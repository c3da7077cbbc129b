"""Messages in flight: where they meet, how fast they move, and whether another one may start.

Implements the rules of `policies.links.ada_srsf.LinkPolicy` and `policies.links.contention`; a test compares
the two. `boa_daemon.lab.network.admission` selects the messages to test. Cost: O(servers of the message x
messages in flight on each) per message that starts, ends or is tested.
"""

from __future__ import annotations

from boa_daemon.lab.network.state import (
    QUEUE,
    SENDING,
    TOUCHED,
    WAITING,
    WEIGHTED,
    LinkRules,
    State,
    rank_of,
    schedule,
    touch,
    unschedule,
)
from policies.links.ada_srsf import LEAST_RANK
from policies.links.adadual import overlap_pays, threshold
from policies.links.contention import pace


def blocking_server(c: LinkRules, s: State, job: int) -> int:
    """Return a server on which the message fails the policy's test, or -1 if it may start."""
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


def join_queue(c: LinkRules, s: State, job: int) -> None:
    """Mark the job's message as waiting; for the queue-aware rule, count it at each of its servers."""
    s.status[job] = WAITING
    if c.rule == QUEUE:
        for slot in range(s.first_slot[job], s.first_slot[job] + s.servers[job]):
            s.waiting[s.server_at[slot]] += 1


def start(c: LinkRules, s: State, job: int) -> None:
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


def pause(c: LinkRules, s: State, job: int) -> None:
    """Pause the job's message; bytes already sent stay sent."""
    advance_message(c, s, job)
    leave(c, s, job)
    unschedule(s, len(s.running) + job)
    join_queue(c, s, job)


def leave(c: LinkRules, s: State, job: int) -> None:
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


def change_paces(c: LinkRules, s: State) -> None:
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
                advance_message(c, s, job)
                s.crowd[job] = crowd
                rest = s.latency_left[job] + s.bytes_left[job] * pace(c.per_byte, c.contention, crowd)
                schedule(s, len(s.running) + job, s.now[0] + rest)
    s.counter[TOUCHED] = 0


def bytes_left_now(c: LinkRules, s: State, job: int) -> float:
    """Return the bytes that a message in flight still has to send."""
    moving = s.now[0] - s.updated_at[job] - s.latency_left[job]
    if moving <= 0.0 or s.crowd[job] == 0:
        return s.bytes_left[job]
    return max(0.0, s.bytes_left[job] - moving / pace(c.per_byte, c.contention, s.crowd[job]))


def advance_message(c: LinkRules, s: State, job: int) -> None:
    """Update a message's remaining latency and bytes to the present time."""
    s.bytes_left[job] = bytes_left_now(c, s, job)
    s.latency_left[job] = max(0.0, s.latency_left[job] - (s.now[0] - s.updated_at[job]))
    s.updated_at[job] = s.now[0]
