"""The event loop of the iteration-level simulator.

`run` advances until a job finishes or an arrival is due, and returns to `boa_daemon.lab.network.simulate`,
which removes, adds and places jobs; these events are rare. The order within one instant: tasks and messages
end; (jobs leave, arrive, are placed); messages are admitted; paces change; idle GPUs take a task. Events less
than a rounding error apart are one instant. Ties go to the job that comes first in the case, then to its
lower worker.

Written in the subset of Python that numba compiles (see `boa_daemon.lab.network.compiled`), so that both use
the same source. Cost per event: O(log(GPUs + jobs)) for the clock, plus the ready tasks of the GPU, or the
messages tested when one starts or ends (`boa_daemon.lab.network.admission`).
"""

from __future__ import annotations

from boa_daemon.lab.network.admission import admit
from boa_daemon.lab.network.messages import change_paces, leave
from boa_daemon.lab.network.state import (
    BACKWARD,
    BARRIER,
    COMPUTING,
    EVENTS,
    FINISHED,
    FORWARD,
    FRESH,
    IDLE,
    SIZE,
    LinkRules,
    State,
    list_idle,
    push_ready,
    rank_of,
    schedule,
    unschedule,
)
from policies.links.adadual import INFINITY

ROUNDING = 1e-12
"""Events this close, relative to the clock (at least one second), are one instant."""


def run(c: LinkRules, s: State, next_arrival: float) -> None:
    """Advance until a job finishes, an arrival is due, or no events are left."""
    gpus = len(s.running)
    while True:
        admit(c, s)
        change_paces(c, s)
        give_tasks(c, s)
        if s.counter[SIZE] == 0 and next_arrival == INFINITY:
            return
        first = min(s.when[0], next_arrival) if s.counter[SIZE] > 0 else next_arrival
        limit = first + ROUNDING * max(1.0, first)
        while s.counter[SIZE] > 0 and s.when[0] <= limit:
            entry = s.heap[0]
            s.now[0] = s.when[0]
            s.counter[EVENTS] += 1
            unschedule(s, entry)
            if entry < gpus:
                end_task(c, s, entry)
            else:
                end_bucket(c, s, entry - gpus)
        if next_arrival <= limit:
            s.now[0] = max(s.now[0], next_arrival)
            return
        if s.counter[FINISHED] > 0:
            return


def end_task(c: LinkRules, s: State, gpu: int) -> None:
    """End the task that runs on a GPU; the last backward task of an iteration makes the message ready."""
    slot = s.running[gpu]
    job = s.job_of[slot]
    s.running[gpu] = -1
    if s.stage[slot] == FORWARD:
        s.forward_left[job] -= 1
        s.stage[slot] = BACKWARD
        push_ready(s, slot)
        return
    s.backward_left[job] -= 1
    s.stage[slot] = BARRIER
    s.at_barrier[job] += 1
    list_idle(s, gpu)
    if s.at_barrier[job] == s.first_slot[job + 1] - s.first_slot[job]:
        s.at_barrier[job] = 0
        if s.servers[job] > 1:
            s.buckets_left[job] = s.buckets[job]
            s.ready_at[job] = s.now[0]
            ready_bucket(c, s, job)
        else:
            end_iteration(s, job)


def ready_bucket(c: LinkRules, s: State, job: int) -> None:
    """Make the next bucket of the job's message ready."""
    s.bucket_bytes[job] = min(c.bucket_bytes, s.message_bytes[job] - s.sent_bytes[job])
    s.bytes_left[job] = s.bucket_bytes[job]
    s.latency_left[job] = c.latency
    s.started_at[job] = -1.0
    s.fresh[s.counter[FRESH]] = job
    s.counter[FRESH] += 1


def end_bucket(c: LinkRules, s: State, job: int) -> None:
    """End the bucket in flight; the last one ends the iteration."""
    leave(c, s, job)
    alone = c.latency + c.per_byte * s.bucket_bytes[job]
    s.slack[job] = min(s.slack[job], s.now[0] - s.started_at[job] - alone)
    s.status[job] = COMPUTING
    s.buckets_left[job] -= 1
    if s.buckets_left[job] > 0:
        s.sent_bytes[job] += s.bucket_bytes[job]
        ready_bucket(c, s, job)
    else:
        s.sent_bytes[job] = 0.0
        end_iteration(s, job)


def end_iteration(s: State, job: int) -> None:
    """Start the next iteration's forward tasks, or finish the job."""
    s.iterations_left[job] -= 1
    if s.iterations_left[job] == 0:
        s.finished_at[job] = s.now[0]
        s.finished[s.counter[FINISHED]] = job
        s.counter[FINISHED] += 1
    else:
        begin_iteration(s, job)


def begin_iteration(s: State, job: int) -> None:
    """Make the forward task of each worker ready."""
    for slot in range(s.first_slot[job], s.first_slot[job + 1]):
        s.stage[slot] = FORWARD
        push_ready(s, slot)


def give_tasks(c: LinkRules, s: State) -> None:
    """Give each idle GPU the ready task whose job has the least service left."""
    for index in range(s.counter[IDLE]):
        gpu = s.idle[index]
        s.is_idle_listed[gpu] = 0
        if s.running[gpu] >= 0 or s.ready_head[gpu] < 0:
            continue
        best, before_best = s.ready_head[gpu], -1
        before, slot = best, s.next_ready[best]
        best_rank = rank_of(c, s, s.job_of[best]) if slot >= 0 else 0.0
        while slot >= 0:
            rank = rank_of(c, s, s.job_of[slot])
            if rank < best_rank or (rank == best_rank and slot < best):
                best, before_best, best_rank = slot, before, rank
            before, slot = slot, s.next_ready[slot]
        if before_best < 0:
            s.ready_head[gpu] = s.next_ready[best]
        else:
            s.next_ready[before_best] = s.next_ready[best]
        job = s.job_of[best]
        seconds = s.forward[job] if s.stage[best] == FORWARD else s.backward[job]
        s.running[gpu] = best
        s.busy_seconds[gpu] += seconds
        schedule(s, gpu, s.now[0] + seconds)
    s.counter[IDLE] = 0
