"""The state of the iteration-level simulator, and its clock, as flat sequences that numba can compile.

The same source runs on lists (plain Python) and on arrays (compiled), with bit-identical results. The clock
is a binary heap with one entry per GPU and one per job, because a GPU runs one task and a job sends one
message at a time. Cost: O(log(GPUs + jobs)) per change of the clock.
"""

from __future__ import annotations

from typing import NamedTuple

PLAIN, WEIGHTED, QUEUE = 0, 1, 2
"""Values of `LinkRules.rule`."""
COMPUTING, WAITING, SENDING = 0, 1, 2
"""Values of `State.status`."""
FORWARD, BACKWARD, BARRIER = 0, 1, 2
"""Values of `State.stage`: the worker's next task, or that it waits for the other workers."""
SIZE, FRESH, TOUCHED, IDLE, FINISHED, EVENTS, STAMP, COUNTERS = 0, 1, 2, 3, 4, 5, 6, 7
"""Indices into `State.counter`: lengths of the lists below, events so far, and the number of the pass."""


class LinkRules(NamedTuple):
    """The constants of a run: the link and the link policy."""

    latency: float
    per_byte: float
    contention: float
    max_at_once: int
    threshold: float
    rule: int
    preempts: bool
    bucket_bytes: float
    max_wait: float
    is_strict: bool


class State(NamedTuple):
    """The jobs, their workers ("slots", numbered job by job), the GPUs, the servers and the clock."""

    now: list[float]
    counter: list[int]
    # by job: constants
    first_slot: list[int]
    forward: list[float]
    backward: list[float]
    message_bytes: list[float]
    buckets: list[int]
    weight: list[float]
    # by job: progress
    servers: list[int]
    iterations_left: list[int]
    forward_left: list[int]
    backward_left: list[int]
    at_barrier: list[int]
    finished_at: list[float]
    # by job: its message
    status: list[int]
    buckets_left: list[int]
    sent_bytes: list[float]
    bucket_bytes: list[float]
    bytes_left: list[float]
    latency_left: list[float]
    updated_at: list[float]
    ready_at: list[float]
    started_at: list[float]
    crowd: list[int]
    slack: list[float]
    refused_by: list[int]
    next_watcher: list[int]
    first_below: list[int]
    least_bytes: list[float]
    # lists of jobs, and buffers to sort them
    fresh: list[int]
    finished: list[int]
    order: list[int]
    key: list[float]
    seen: list[int]
    # by slot
    gpu_of: list[int]
    job_of: list[int]
    stage: list[int]
    next_ready: list[int]
    server_at: list[int]
    # by GPU
    ready_head: list[int]
    running: list[int]
    busy_seconds: list[float]
    idle: list[int]
    is_idle_listed: list[int]
    # by server
    load: list[int]
    in_flight: list[int]
    waiting: list[int]
    watchers: list[int]
    touched: list[int]
    is_touched: list[int]
    reserved: list[int]
    # the clock: position in the heap by entry (GPUs first, then jobs); entry and time by position
    where: list[int]
    heap: list[int]
    when: list[float]


def sift_up(s: State, at: int, entry: int, time: float) -> None:
    """Insert an entry at a position of the heap, and move it up until its parent is earlier."""
    while at > 0:
        parent = (at - 1) >> 1
        other, other_time = s.heap[parent], s.when[parent]
        if other_time < time or (other_time == time and other < entry):
            break
        s.heap[at], s.when[at], s.where[other] = other, other_time, at
        at = parent
    s.heap[at], s.when[at], s.where[entry] = entry, time, at


def sink_hole(s: State, at: int) -> int:
    """Move a hole in the heap down to a leaf by moving the earlier child up; return the leaf's position."""
    size = s.counter[SIZE]
    right = 2 * at + 2
    while right < size:
        left = right - 1
        # Branch-free, because the CPU cannot predict which child is earlier.
        is_tie_for_left = (s.when[left] == s.when[right]) & (s.heap[left] < s.heap[right])
        child = right - int((s.when[left] < s.when[right]) | is_tie_for_left)
        s.heap[at], s.when[at], s.where[s.heap[child]] = s.heap[child], s.when[child], at
        at = child
        right = 2 * at + 2
    if right == size:
        s.heap[at], s.when[at], s.where[s.heap[size - 1]] = s.heap[size - 1], s.when[size - 1], at
        at = size - 1
    return at


def schedule(s: State, entry: int, time: float) -> None:
    """Set the time of an entry's event; replace the time that it may have already."""
    at = s.where[entry]
    if at < 0:
        at = s.counter[SIZE]
        s.counter[SIZE] = at + 1
    else:
        at = sink_hole(s, at)
    sift_up(s, at, entry, time)


def unschedule(s: State, entry: int) -> None:
    """Remove an entry's event from the clock."""
    size = s.counter[SIZE] - 1
    s.counter[SIZE] = size
    at = s.where[entry]
    s.where[entry] = -1
    if at != size:
        last, time = s.heap[size], s.when[size]
        sift_up(s, sink_hole(s, at), last, time)


def alone_seconds(c: LinkRules, s: State, job: int) -> float:
    """Return the seconds of the job's all-reduce on an idle link; 0 within one server."""
    return c.latency + c.per_byte * s.message_bytes[job] if s.servers[job] > 1 else 0.0


def rank_of(c: LinkRules, s: State, job: int) -> float:
    """Return the job's remaining service over its weight: GPU-seconds of tasks and buckets not yet ended."""
    service = s.forward_left[job] * s.forward[job] + s.backward_left[job] * s.backward[job]
    if s.servers[job] > 1:
        network = s.iterations_left[job] * alone_seconds(c, s, job) - c.per_byte * s.sent_bytes[job]
        service += network * (s.first_slot[job + 1] - s.first_slot[job])
    return service / s.weight[job]


def push_ready(s: State, slot: int) -> None:
    """Make a worker's next task ready on its GPU, and list the GPU as idle."""
    gpu = s.gpu_of[slot]
    s.next_ready[slot] = s.ready_head[gpu]
    s.ready_head[gpu] = slot
    list_idle(s, gpu)


def list_idle(s: State, gpu: int) -> None:
    """List a GPU among those that may take a task next."""
    if s.is_idle_listed[gpu] == 0:
        s.is_idle_listed[gpu] = 1
        s.idle[s.counter[IDLE]] = gpu
        s.counter[IDLE] += 1


def touch(s: State, server: int) -> None:
    """List a server whose messages in flight have changed."""
    if s.is_touched[server] == 0:
        s.is_touched[server] = 1
        s.touched[s.counter[TOUCHED]] = server
        s.counter[TOUCHED] += 1
