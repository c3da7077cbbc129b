"""decide(): the pure core of a tick, from the observed state to a plan and its actions.

It reads no clock, no network and no random numbers. The same state gives the same decision, so every recorded
tick can be replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from boa_daemon.tick.decide.diff import diff
from boa_daemon.tick.decide.gc_pause import without_gc
from boa_daemon.tick.decide.without_limits import Limits, held_next, narrowed_next, site_without
from boa_daemon.tick.explain.explain import explain_job
from boa_daemon.tick.explain.headline import headline
from boa_daemon.tick.facts.actions import Action
from boa_daemon.tick.facts.claims import with_claims_held, with_claims_started
from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.needs import Fact, Stage, facts_of, needs_of
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.reasons import WAIT_REASON_TEXTS, JobReason, WaitReason
from boa_daemon.tick.facts.room_caps import NARROWS
from boa_daemon.tick.facts.state import ClusterState, Rules
from boa_daemon.tick.money.caps import within_instances
from boa_daemon.tick.stages.end.keep_warm import keep_warm
from boa_daemon.tick.stages.end.order_links import order_links
from boa_daemon.tick.stages.end.schedule_wake_up import schedule_wake_up
from boa_daemon.tick.stages.jobs.give_up import give_up
from boa_daemon.tick.stages.jobs.set_aside import set_aside
from boa_daemon.tick.stages.limits.break_loops import break_loops
from boa_daemon.tick.stages.limits.end_silent import end_silent
from boa_daemon.tick.stages.limits.keep_caps import keep_caps
from boa_daemon.tick.stages.limits.keep_job_limits import keep_job_limits
from boa_daemon.tick.stages.limits.keep_spend_ceiling import keep_spend_ceiling
from boa_daemon.tick.stages.limits.keep_until_ready import keep_until_ready
from boa_daemon.tick.stages.nodes.bring_together import bring_together
from boa_daemon.tick.stages.nodes.check_stock import check_stock
from boa_daemon.tick.stages.nodes.empty_nodes import empty_nodes
from boa_daemon.tick.stages.nodes.keep_fleet import keep_fleet
from boa_daemon.tick.stages.nodes.keep_node_limit import keep_node_limit
from boa_daemon.tick.stages.nodes.release import release
from boa_daemon.tick.stages.nodes.rent import rent
from boa_daemon.tick.stages.nodes.start_early import start_early
from boa_daemon.tick.stages.nodes.use_spare import use_spare
from boa_daemon.tick.stages.places.call_back import call_back
from boa_daemon.tick.stages.places.find_changes import find_changes
from boa_daemon.tick.stages.places.place import place
from boa_daemon.tick.stages.widths.afford import afford
from boa_daemon.tick.stages.widths.ask_policy import ask_policy
from boa_daemon.tick.stages.widths.change_machine import change_machine
from boa_daemon.tick.stages.widths.keep_still import keep_still
from boa_daemon.tick.stages.widths.leave_lent import leave_lent
from boa_daemon.tick.stages.widths.meet_dates import meet_dates
from boa_daemon.tick.stages.widths.narrow import narrow
from policies.fast_dataclasses import fast_init
from policies.memo import Memo
from policies.model import JobId
from policies.protocols import Allocator, Placer

STAGES: tuple[Stage, ...] = (
    # Select the jobs that this tick plans for.
    give_up,
    set_aside,
    # Choose the width of each job.
    ask_policy,
    keep_still,
    change_machine,
    afford,
    narrow,
    meet_dates,
    leave_lent,
    # Choose GPUs for each job, and the nodes to rent for them.
    find_changes,
    place,
    call_back,
    rent,
    keep_fleet,
    keep_node_limit,
    check_stock,
    # Make better use of the rented nodes.
    start_early,
    bring_together,
    empty_nodes,
    use_spare,
    release,
    # Enforce the limits.
    keep_spend_ceiling,
    break_loops,
    keep_job_limits,
    end_silent,
    keep_caps,
    keep_until_ready,
    # Choose which returned nodes go into the warm pool.
    keep_warm,
    # Order the messages on shared links, and set the time of the next tick.
    order_links,
    schedule_wake_up,
)
"""The stages in the order in which they run: each takes the plan so far and returns a better one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What a decision was made by, to make it again without some limits; each such plan is kept."""

    allocator: Allocator
    placer: Placer
    rules: Rules
    plans: dict[Limits, Plan] = field(default_factory=dict)

    def plan_without(self, state: ClusterState, limits: Limits) -> Plan:
        """Return the plan for a state without some limits."""
        if limits not in self.plans:
            seen, rules = site_without(state, self.rules, limits)
            decision = decide(seen, allocator=self.allocator, placer=self.placer, rules=rules)
            self.plans[limits] = decision.plan
        return self.plans[limits]


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The state that a tick saw, the plan it made, and the ordered actions that carry the plan out.

    `basis` is what `decide` made it by; None if it was put together otherwise.
    """

    state: ClusterState
    plan: Plan
    actions: tuple[Action, ...]
    basis: Basis | None = field(default=None, compare=False, repr=False)

    @property
    def wake_at(self) -> float | None:
        """The instant of the next decision if nothing happens before."""
        return self.plan.wake_at

    def explain(self, job: JobId) -> str:
        """Return why a job has its width and its nodes, or why it waits.

        The first sentence says it all; the figures follow.

        Raises:
            InputError: when no job of that id is present.
        """
        figures = explain_job(self.state, self.plan, job)
        return f"{headline(self.state, self.plan, job)} {figures}{self._held_next(job)}"

    def _held_next(self, job: JobId) -> str:
        """Return which limits would hold a job without the one that it waits for; empty if none would."""
        basis, seen = self.basis, self.state.all_jobs[job]
        if basis is None or job in self.plan.jobs.ends:
            return ""
        plan_without = partial(basis.plan_without, self.state)
        # What stops starts nowhere yet, whatever is lifted.
        codes = () if seen.is_stopping else held_next(job, self.plan, plan_without)
        names = narrowed_next(job, self.plan, plan_without)
        also = "; and without that as well: "
        said = ""
        if names:
            said = f" Without that limit alone it would be no wider: {also.join(names)} {NARROWS} it either."
        if codes:
            texts = also.join(WAIT_REASON_TEXTS[code] for code in codes)
            said += f" Without what it waits for alone it would still wait: {texts}."
        return said

    def reason(self, job: JobId, *, holds_gpus: bool) -> WaitReason | JobReason:
        """Return the reason code of an unfinished job.

        `holds_gpus` says whether the job holds GPUs now, which may be later than this decision.
        """
        seen, planned = self.state.all_jobs.get(job), self.plan.jobs[job]
        if holds_gpus:
            return planned.waits_for or "running"
        if seen is None:
            return "new"
        if planned.given_up is not None:
            return "given-up"
        if planned.waits_for is not None:
            return planned.waits_for
        if planned.slots is not None:
            return "starting"
        if seen.slots:
            return "new"
        if planned.width is not None:
            # The job was about to start, but its GPUs are held by a job that is not ready to move.
            return "gpus-to-fall-free"
        return "unplanned" if job in self.state.unplanned else "not-planned"


@without_gc
def decide(state: ClusterState, *, allocator: Allocator, placer: Placer, rules: Rules) -> Decision:
    """Return what to do now: each stage takes the plan so far and returns a better one, with its reasons."""
    draft = Draft(rules=within_instances(rules), allocator=allocator, placer=placer)
    idle = _idle_stages[facts_of(state, draft.rules)]
    seen = state
    for stage in STAGES:
        if stage is ask_policy:
            # Whether a job may start at all is decided from what it holds; all else from what it claims.
            seen = with_claims_held(state, {*draft.set_aside, *draft.plan.jobs.given_up})
        if stage not in idle:
            draft = stage(seen, draft)
    plan = with_claims_started(state, seen, draft.plan)
    basis = Basis(allocator=allocator, placer=placer, rules=rules)
    return Decision(state=state, plan=plan, actions=diff(state, plan), basis=basis)


def _without_effect(facts: tuple[Fact, ...]) -> frozenset[Stage]:
    """Return the stages that change nothing if only these facts hold, as each says itself."""
    with_needs = ((stage, needs_of(stage)) for stage in STAGES)
    return frozenset(stage for stage, needs in with_needs if needs is not None and needs.isdisjoint(facts))


_idle_stages = Memo(_without_effect)
