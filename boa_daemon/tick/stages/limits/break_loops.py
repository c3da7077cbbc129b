"""May cut launches: stop renting nodes of a type if many launches in a row let no job start.

Giving a node back is never paused, because that would cost money. If it was ordered repeatedly without
effect, a note says so. Cost: O(jobs + recent acts), if there are rules against flapping.
"""

from __future__ import annotations

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.limits import Held, Steady
from boa_daemon.tick.facts.needs import only_with
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.reasons import WaitReason
from boa_daemon.tick.facts.recent_acts import RecentActs
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.room.launches import cut_launches
from policies.fast_dataclasses import replace


@only_with("steady")
def break_loops(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft without looping launches, and with notes on them and on orders without effect."""
    plan, steady, now = draft.plan, draft.rules.steady, state.now
    if steady is None:
        return draft
    history = RecentActs.of(state.acts)
    looping = {
        name: launches
        for name, launches in history.launches_without_start.items()
        if name in plan.launches
        and len(launches) >= steady.loop_times
        and now - launches[0] >= steady.launch_seconds
    }
    held = [
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
    if not held:
        return draft
    gpu_types = {plan.instance_types[name].gpu_type for name in looping}
    loop: WaitReason = "loop"
    widths = ((job, plan.jobs.widths.get(job)) for job in plan.jobs.waiting)
    stuck = [job for job, width in widths if width is not None and width.gpu_type in gpu_types]
    plan = replace(
        cut_launches(plan, dict.fromkeys(looping, 0)),
        jobs=plan.jobs.waiting_for(dict.fromkeys(stuck, loop)),
        held=(*plan.held, *held),
    )
    again = (launches[0] + steady.loop_seconds for launches in looping.values())
    return replace(draft, plan=plan.looked_at_by(*again))


def _ends_over_and_over(state: ClusterState, plan: Plan, steady: Steady, history: RecentActs) -> list[Held]:
    """Return a note for each node that was given back repeatedly and still exists."""
    since = state.now - steady.loop_seconds
    counts = {node: len(history.since("terminate", node, since)) for node in plan.releases}
    return [
        Held(what=f"the end of node {node}", code="no-effect", numbers={"orders": float(count)})
        for node, count in counts.items()
        if count >= steady.loop_times
    ]
