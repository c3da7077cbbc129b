"""Against flapping: jobs that keep their width for now, and what is not tried once more.

A policy weighs the cost of a move where it knows that of the class; here stand the rules that hold whatever
the policy. A running job is left alone for a while after its start, is moved so many times per hour, and all
jobs together so many times. A job that was started over and over is not started again, and no more nodes are
rented where a row of launches has not let a single job start. What is held back is noted with its code and
numbers, and the plan says when to look again.

A job on a node that ends is always free to move, and hard caps come after these rules and overrule them.
Giving a node back is never held: that would cost money; it is only noted. Cost: O(jobs + recent acts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from boa_daemon.tick.limits import Act, ActKind, Held, HeldCode, Steady
from boa_daemon.tick.state import ClusterState, JobState, Plan, Rules, WaitReason
from policies.answer import Allocation
from policies.model import Job, JobId, Money, Width
from policies.protocols import Allocator

_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Recent acts, sorted by what was done to whom: instants in order."""

    by_target: dict[tuple[ActKind, str], list[float]]
    stops: list[float]
    launches_without_start: dict[str, list[float]]

    @classmethod
    def of(cls, acts: Sequence[Act]) -> History:
        """Return the history of acts in order of time."""
        by_target: dict[tuple[ActKind, str], list[float]] = {}
        launches: dict[str, list[float]] = {}
        stops: list[float] = []
        for act in acts:
            by_target.setdefault((act.kind, act.target), []).append(act.at)
            if act.kind == "start":
                launches.clear()
            elif act.kind == "launch":
                launches.setdefault(act.target, []).append(act.at)
            elif act.kind == "stop":
                stops.append(act.at)
        return cls(by_target=by_target, stops=stops, launches_without_start=launches)

    def since(self, kind: ActKind, target: str, at: float) -> list[float]:
        """Return when something was done to a target, from an instant on."""
        return [instant for instant in self.by_target.get((kind, target), ()) if instant >= at]


@dataclass(slots=True, kw_only=True)
class Steadied:
    """An allocator that lets jobs change only where the rules allow it.

    `held` collects what was held back, and `wake_at` when the first of it is free.
    """

    allocator: Allocator
    state: ClusterState
    steady: Steady
    held: list[Held] = field(default_factory=list)
    wake_at: float | None = None

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return the policy's widths, those of held jobs as they are."""
        wanted = self.allocator.allocate(jobs, now=now, money=money)
        history = History.of(self.state.acts)
        moves = len([at for at in history.stops if at > now - _HOUR])
        kept: dict[JobId, Width | None] = {}
        optional: list[JobState] = []
        for name, job in self.state.jobs.items():
            width = wanted.widths.get(name)
            if _must_move(self.state, job):
                continue
            if wanted.node_prices is not None and _has_enough(job, width):
                optional.append(job)
                continue
            if width == job.job.width:
                continue
            note = self._why_held(job, history, moves)
            if note is not None:
                self._note(*note)
                kept[name] = job.job.width
            elif job.slots:
                moves += 1
        for job in optional:
            # It changes only where that pays; counted as if it did, so that the limit holds in any case.
            if self._why_held(job, history, moves) is None:
                moves += 1
            else:
                kept[job.job.id] = job.job.width
        wanted = replace(wanted, stay=frozenset(job.job.id for job in optional if job.job.id in kept))
        if not kept:
            return wanted
        widths = {**wanted.widths, **kept}
        return replace(wanted, widths={job: width for job, width in widths.items() if width is not None})

    def _why_held(self, job: JobState, history: History, moves: int) -> tuple[Held, float] | None:
        """Return why a job keeps what it holds, and until when; None where it may change."""
        steady, now, name = self.steady, self.state.now, job.job.id
        starts = history.since("start", name, now - steady.loop_seconds)
        if len(starts) >= steady.loop_times:
            found = {"starts": float(len(starts)), "seconds": steady.loop_seconds}
            return _held(name, "loop", found), starts[-steady.loop_times] + steady.loop_seconds
        if not job.slots:
            return None
        free_at = starts[-1] + steady.minimum_hold_seconds if starts else now
        if free_at > now:
            found = {"held_seconds": now - starts[-1], "minimum_seconds": steady.minimum_hold_seconds}
            return _held(name, "minimum-hold", found), free_at
        stops = history.since("stop", name, now - _HOUR)
        if len(stops) >= steady.moves_per_hour_of_a_job:
            found = {"moves": float(len(stops)), "most": float(steady.moves_per_hour_of_a_job)}
            return _held(name, "moves-of-job", found), stops[-steady.moves_per_hour_of_a_job] + _HOUR
        if moves >= steady.moves_per_hour:
            found = {"moves": float(moves), "most": float(steady.moves_per_hour)}
            first = history.stops[-steady.moves_per_hour] if len(history.stops) >= moves else now
            return _held(name, "moves-of-all", found), first + _HOUR
        return None

    def _note(self, held: Held, until: float) -> None:
        """Keep a note, and the first instant at which one is over."""
        self.held.append(held)
        until = max(until, self.state.now + 1.0)
        self.wake_at = until if self.wake_at is None else min(self.wake_at, until)


def _has_enough(job: JobState, width: Width | None) -> bool:
    """Return whether a job runs on what is planned for it, or on more."""
    held = job.job.width
    if not job.slots or held is None or width is None:
        return False
    return held.gpu_type == width.gpu_type and held.gpus >= width.gpus


def _held(job: JobId, code: HeldCode, numbers: dict[str, float]) -> Held:
    """Return the note on a job."""
    return Held(what=f"job {job}", code=code, numbers=numbers)


def _must_move(state: ClusterState, job: JobState) -> bool:
    """Return whether a node of the job ends anyway."""
    nodes = [state.nodes.get(slot.node) for slot in job.slots]
    return any(node is None or node.phase == "terminating" or node.ends_by is not None for node in nodes)


def steadied(allocator: Allocator, state: ClusterState, rules: Rules) -> Steadied | None:
    """Return the allocator under the rules against flapping; None where the site has none."""
    if rules.steady is None:
        return None
    return Steadied(allocator=allocator, state=state, steady=rules.steady)


def without_loops(state: ClusterState, plan: Plan, notes: Steadied) -> Plan:
    """Return the plan with what was held back, and without launches that lead nowhere."""
    steady, history, now = notes.steady, History.of(state.acts), state.now
    looping = {
        name: launches
        for name, launches in history.launches_without_start.items()
        if name in plan.launches
        and len(launches) >= steady.loop_times
        and now - launches[0] >= steady.launch_seconds
    }
    held = [
        *notes.held,
        *(
            Held(
                what=f"{plan.launches[name]} {name}",
                code="loop",
                numbers={"launches": float(len(launches)), "starts": 0.0, "seconds": now - launches[0]},
            )
            for name, launches in looping.items()
        ),
        *_ends_over_and_over(state, plan, steady, history),
    ]
    wakes = [plan.wake_at, notes.wake_at, *(x[0] + steady.loop_seconds for x in looping.values())]
    gpu_types = {plan.instance_types[name].gpu_type for name in looping}
    loop: WaitReason = "loop"
    stuck = [job for job in plan.waiting if job in plan.widths and plan.widths[job].gpu_type in gpu_types]
    return replace(
        plan,
        launches={name: count for name, count in plan.launches.items() if name not in looping},
        gangs={name: sizes for name, sizes in plan.gangs.items() if name not in looping},
        waiting={**plan.waiting, **dict.fromkeys(stuck, loop)},
        held=(*plan.held, *held),
        wake_at=min((at for at in wakes if at is not None), default=None),
    )


def _ends_over_and_over(state: ClusterState, plan: Plan, steady: Steady, history: History) -> list[Held]:
    """Return a note for each node that was given back again and again and is still there."""
    since = state.now - steady.loop_seconds
    counts = {node: len(history.since("terminate", node, since)) for node in plan.releases}
    return [
        Held(what=f"the end of node {node}", code="no-effect", numbers={"orders": float(count)})
        for node, count in counts.items()
        if count >= steady.loop_times
    ]
