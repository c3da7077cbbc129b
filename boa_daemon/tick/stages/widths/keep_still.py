"""May undo changes of width: a job that moved recently or started repeatedly keeps what it holds.

A policy weighs the cost of a move if it knows the cost for the job's class; the rules here hold for any
policy. A running job is left alone for a while after its start. It does not go back to wider or narrower
widths before its last change has earned the restarts. It moves a limited number of times per hour, and so do
all jobs together. A job that was started repeatedly is not started again. Each held-back change is noted with
its code and numbers, and the plan wakes up when the change may be possible. A job that was told to move
finishes that move (`boa_daemon.tick.facts.claims`).

A job on a node that ends may always move, and hard caps come later and overrule these rules. A rigid job
keeps what it holds whatever the rules against flapping say. A width that a user ordered is applied at once,
and the job is then left alone. Cost: O(jobs + recent acts), if there are rules against flapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.limits import Held, HeldNumber, Steady
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.reasons import HeldCode
from boa_daemon.tick.facts.recent_acts import RecentActs
from boa_daemon.tick.facts.state import Claim, ClusterState, JobState
from boa_daemon.units import SECONDS_PER_HOUR
from policies.answer import NodePrices
from policies.fast_dataclasses import replace
from policies.model import JobId, Width
from policies.online.node_prices import WholeNodePrices

_HOUR = 3600.0


@only_with("terms", "steady", "claims")
def keep_still(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with the policy's widths, except that jobs that may not move keep theirs."""
    draft = _obey(state, _keep_rigid(state, _keep_claims(state, draft)))
    steady, wanted, now = draft.rules.steady, draft.allocation, state.now
    if steady is None:
        return draft
    limits = MoveLimits.of(state, steady)
    moves, started = limits.moves, limits.history.started
    kept: dict[JobId, Width | None] = {}
    notes: list[tuple[Held, float]] = []
    optional: list[JobState] = []
    held_back: dict[str, str] = {}
    for name, job in state.jobs.items():
        if not job.slots and name not in started:
            continue
        width = wanted.widths.get(name)
        if (job.slots and _must_move(state, job)) or _is_ordered(job):
            continue
        if wanted.node_prices is not None and _has_enough(job, width) and name not in wanted.exact:
            optional.append(job)
            continue
        if width is job.job.width or width == job.job.width:
            continue
        note = limits.why_held(job, moves) or _why_not_back(job, width, wanted.node_prices, now)
        if note is not None:
            notes.append(note)
            kept[name] = job.job.width
        elif job.slots:
            moves += 1
    for job in optional:
        # These jobs change only if that pays. Count a move for each, so that the limit holds in any case.
        narrower = job.before if job.before is not None and _is_narrower(job.before, job.job.width) else None
        note = limits.why_held(job, moves) or _why_not_back(job, narrower, wanted.node_prices, now)
        if note is None:
            moves += 1
        else:
            kept[job.job.id] = job.job.width
            held_back[note[0].what] = note[0].sentence
    # A job that may not change now keeps what it holds whatever other jobs need: caps share out the rest.
    stay = wanted.stay | {name for name, width in kept.items() if width is not None}
    # A width that is planned as it is keeps the plan's reason.
    kept = {name: width for name, width in kept.items() if width != wanted.widths.get(name)}
    if kept:
        held_back.update((note.what, note.sentence) for note, _ in notes)
        planned = wanted.widths
        wanted = wanted.with_widths(kept, partial(_why_kept, planned, held_back), stay=stay)
    elif stay != wanted.stay:
        wanted = replace(wanted, stay=stay)
    plan = draft.plan
    if notes:
        plan = replace(plan, held=(*plan.held, *(held for held, _ in notes)))
        plan = plan.looked_at_by(*(max(until, now + 1.0) for _, until in notes))
    return replace(draft, allocation=wanted, plan=plan)


def _keep_claims(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft in which jobs that were told to move finish that move."""
    claimed = {
        name: claim.width
        for name, claim in state.claims.items()
        if claim.slots and name in draft.allocation.widths and _is_moving(state.jobs[name], claim)
    }
    if not claimed:
        return draft
    planned = draft.allocation.widths
    return replace(
        draft,
        allocation=draft.allocation.with_widths(
            claimed,
            lambda job: (
                f"it was told to move to {claimed[job]}, and finishes that move"
                + (
                    ""
                    if planned[job] == claimed[job]
                    else f" before it may get the {planned[job]} planned now"
                )
            ),
            stay=draft.allocation.stay | claimed.keys(),
        ),
    )


def _is_moving(job: JobState, claim: Claim) -> bool:
    """Return whether a job stops, or is about to start, for a claim that its user did not overrule since."""
    return job.job.width is not None and job.terms.ordered_gpus in (None, claim.width.gpus)


def _keep_rigid(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft in which rigid jobs keep what they hold: a move would cost them all their work."""
    fixed = {
        name: job.job.width
        for name, job in state.bound_jobs.items()
        if job.is_rigid and job.slots and job.job.width is not None and not _must_move(state, job)
    }
    if not fixed:
        return draft
    wanted = draft.allocation
    kept = wanted.with_widths(
        fixed,
        lambda job: f"it keeps {fixed[job]}: nothing shows that it would keep its work on other GPUs",
        stay=wanted.stay | fixed.keys(),
    )
    return replace(draft, allocation=kept)


def _why_kept(planned: Mapping[JobId, Width], held_back: Mapping[str, str], job: JobId) -> str:
    """Return why a job keeps what it holds although another width is planned."""
    wanted = planned.get(job)
    what = "nothing is" if wanted is None else f"{wanted} are"
    why = held_back[f"job {job}"].removeprefix(f"job {job}: ")
    return f"it keeps its width for now ({what} planned): {why}"


def _obey(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft in which jobs with an ordered width get exactly that, and no lent GPUs."""
    ordered = {name for name, job in state.bound_jobs.items() if job.terms.ordered_gpus is not None}
    if not ordered:
        return draft
    wanted = draft.allocation
    return replace(draft, allocation=replace(wanted, exact=wanted.exact | ordered))


def _is_ordered(job: JobState) -> bool:
    """Return whether a job holds another width than the one that its user ordered."""
    held, ordered = job.job.width, job.terms.ordered_gpus
    return ordered is not None and held is not None and held.gpus != ordered


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLimits:
    """The rules against flapping and the recent acts; `moves` counts all jobs' moves in the last hour."""

    steady: Steady
    history: RecentActs
    now: float
    moves: int

    @classmethod
    def of(cls, state: ClusterState, steady: Steady) -> MoveLimits:
        """Return the rules applied to the acts in the state."""
        history = RecentActs.of(state.acts)
        moves = sum(at > state.now - _HOUR for at in history.stops)
        return cls(steady=steady, history=history, now=state.now, moves=moves)

    def why_held(self, job: JobState, moves: int) -> tuple[Held, float] | None:
        """Return why a job keeps what it holds, and until when; None if it may change."""
        steady, history, now, name = self.steady, self.history, self.now, job.job.id
        if not job.slots and name not in history.started:
            return None
        starts = history.since("start", name, now - steady.loop_seconds)
        if len(starts) >= steady.loop_times:
            found: dict[HeldNumber, float] = {"starts": float(len(starts)), "seconds": steady.loop_seconds}
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


def _why_not_back(
    job: JobState, width: Width | None, prices: NodePrices | None, now: float
) -> tuple[Held, float] | None:
    """Return why a job does not go back to a width now, and until when; None if it may.

    A change of width and the change back cost two restarts. They are earned once the job has run for so long
    that the difference in speed between the two widths is worth them.
    """
    held, before, began_at = job.job.width, job.before, job.began_at
    if held is None or width is None or before is None or began_at is None:
        return None
    if not isinstance(prices, WholeNodePrices) or before.gpu_type != held.gpu_type:
        return None
    if not (held.gpus < min(width.gpus, before.gpus) or held.gpus > max(width.gpus, before.gpus)):
        return None
    worth_seconds = SECONDS_PER_HOUR * prices.restarts_earned_hours(job.job, held, before)
    if now - began_at >= worth_seconds:
        return None
    numbers: dict[HeldNumber, float] = {
        "held_seconds": now - began_at,
        "restarts_earned_after_seconds": worth_seconds,
    }
    return _held(job.job.id, "restart-worth", numbers), began_at + worth_seconds


def _is_narrower(width: Width, held: Width | None) -> bool:
    """Return whether a width has fewer GPUs of the type that is held."""
    return held is not None and width.gpu_type == held.gpu_type and width.gpus < held.gpus


def _has_enough(job: JobState, width: Width | None) -> bool:
    """Return whether a job runs on at least what is planned for it."""
    held = job.job.width
    if not job.slots or held is None or width is None:
        return False
    return held.gpu_type == width.gpu_type and held.gpus >= width.gpus


def _held(job: JobId, code: HeldCode, numbers: dict[HeldNumber, float]) -> Held:
    return Held(what=f"job {job}", code=code, numbers=numbers)


def _must_move(state: ClusterState, job: JobState) -> bool:
    """Return whether a node of the job ends or is gone."""
    nodes = [state.nodes.get(slot.node) for slot in job.slots]
    return any(node is None or node.phase == "terminating" or node.ends_by is not None for node in nodes)
