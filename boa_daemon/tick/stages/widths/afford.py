"""May remove or narrow widths: select the jobs to serve under the ceilings on dollars and nodes.

Two ceilings apply: the policy's for this tick (`Allocation.most_usd_per_hour`, if the budget is below the
load), and the site's own on dollars per hour and nodes, which are never exceeded. A job that can never fit
under the site's caps gets the widest width that fits; without one it waits, and no other job waits for it.
Under the policy's ceiling jobs are served in `Allocation.order`, as long as whole nodes for them cost no
more. Once the first job in line waits for money to accrue, no node is rented for any other job.

Cost: O(jobs + nodes) if there is a ceiling; nothing otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, inf

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.offers import most_usd_per_hour
from boa_daemon.tick.facts.reasons import WaitReason
from boa_daemon.tick.facts.room_caps import ceiling_name, node_limit_name
from boa_daemon.tick.facts.state import ClusterState, Rules
from boa_daemon.tick.money.spending import SLACK, live_nodes, prices_in_use
from boa_daemon.units import counted
from policies.answer import Allocation, ChangedReasons
from policies.fast_dataclasses import fast_init, replace
from policies.model import InstanceType, JobId, NodeId, Width
from policies.money_text import in_dollars

_ANY: tuple[float, WaitReason] = (inf, "cap-instances")
"""Machines that the settings no longer name have no cap: jobs on them keep what they hold."""


def afford(state: ClusterState, draft: Draft) -> Draft:
    """Return the draft with the jobs that fit under the ceilings, and why the others wait."""
    allocation = draft.allocation
    waits: dict[JobId, WaitReason] = {}
    if allocation.nodes is not None:
        return draft
    if allocation.node_prices is not None:
        allocation = _within_caps(state, allocation, draft.rules, waits)
    if allocation.most_usd_per_hour is not None:
        allocation = _served(state, allocation, draft.rules, allocation.most_usd_per_hour, waits)
    if allocation is draft.allocation:
        return draft
    planned = draft.allocation.widths
    unpaid = {job: planned[job] for job, code in waits.items() if code == "budget"}
    return replace(draft, allocation=allocation, left_out=waits, unpaid=unpaid)


def _within_caps(
    state: ClusterState, allocation: Allocation, rules: Rules, waits: dict[JobId, WaitReason]
) -> Allocation:
    """Return the allocation in which no waiting job has a width that the site's caps can never hold."""
    if rules.max_nodes is None and (rules.caps is None or rules.caps.usd_per_hour is None):
        return allocation
    most = {kind: _most_gpus(state, machine, rules) for kind, machine in rules.instance_types.items()}
    wide = {
        job: width
        for job, width in allocation.widths.items()
        if width.gpus > most.get(width.gpu_type, _ANY)[0]
    }
    if not wide:
        return allocation
    changes: dict[JobId, Width | None] = {}
    for job, planned in wide.items():
        gpus, reason = most[planned.gpu_type]
        changes[job] = _fitting(state, allocation, job, planned, gpus)
        if changes[job] is None:
            waits[job] = reason

    def why(job: JobId) -> str:
        planned = wide[job]
        gpus, code = most[planned.gpu_type]
        usd = None if rules.caps is None else rules.caps.usd_per_hour
        cap = node_limit_name(rules.max_nodes or 0)
        if code == "cap-hour" and usd is not None:
            cap = ceiling_name(usd)
        return f"{cap} never holds more than {gpus:.0f} GPUs of {planned.gpu_type}, and {planned} are planned"

    return allocation.with_widths(changes, why)


def _most_gpus(state: ClusterState, machine: InstanceType, rules: Rules) -> tuple[float, WaitReason]:
    """Return the most GPUs of a machine that the site's caps ever allow, and the binding cap."""
    nodes: tuple[float, WaitReason] = (inf, "cap-hour")
    if rules.max_nodes is not None:
        nodes = rules.max_nodes, "cap-instances"
    cap = None if rules.caps is None else rules.caps.usd_per_hour
    if cap is not None:
        nodes = min(nodes, (floor(cap * SLACK / most_usd_per_hour(machine, state.offers)), "cap-hour"))
    return nodes[0] * machine.whole_gpus, nodes[1]


def _fitting(
    state: ClusterState, allocation: Allocation, job: JobId, planned: Width, most_gpus: float
) -> Width | None:
    """Return what a job asks for in place of a width that never fits; None if nothing fits.

    A running job asks for what it would ask for if it waited, so that its share does not depend on GPUs that
    are lent to it. It keeps what is wider, or on another type.
    """
    held = state.jobs[job].job.width
    widest = _widest(state, allocation, job, planned, most_gpus)
    if held is None:
        return widest
    is_wider = widest is None or held.gpu_type != widest.gpu_type or held.gpus > widest.gpus
    return held if is_wider else widest


def _widest(
    state: ClusterState, allocation: Allocation, job_id: JobId, planned: Width, most_gpus: float
) -> Width | None:
    """Return a job's widest width within `most_gpus`; None if there is none."""
    if allocation.node_prices is None:
        return None
    job = state.jobs[job_id].job
    sizes = {planned.gpu_type: 1.0}
    claims = allocation.node_prices.claims([job], [planned], size_per_gpu=sizes, now=state.now)
    fits = [width for width in claims.menus[0].widths if width.gpus <= most_gpus]
    return max(fits, key=lambda width: width.gpus, default=None)


def _served(
    state: ClusterState, allocation: Allocation, rules: Rules, ceiling: float, waits: dict[JobId, WaitReason]
) -> Allocation:
    """Return the allocation with the jobs, in order of service, that whole nodes within the ceiling hold."""
    above = allocation.above_ceiling
    live = live_nodes(state)
    present = sum(node.usd_per_hour for node in live)
    room = SLACK * (max(ceiling, present) if above == "use" else ceiling)
    prices = prices_in_use(state, rules.instance_types)
    sizes = {kind: machine.gpus for kind, machine in rules.instance_types.items()}
    used, cost = dict.fromkeys(sizes, 0), 0.0
    served: dict[JobId, Width] = {}
    unserved: dict[JobId, _Unserved] = {}
    saving_for: JobId | None = None
    for job in _order(state, allocation):
        width, runs = allocation.widths[job], bool(state.jobs[job].slots)
        kind = width.gpu_type
        if kind not in sizes:
            served[job] = width
            continue
        gpus = used[kind] + width.gpus
        more = cost + (ceil(gpus / sizes[kind]) - ceil(used[kind] / sizes[kind])) * prices[kind]
        keeps = runs and (above == "finish" or (above == "use" and job in allocation.stay))
        rents = not runs and more > present * SLACK
        if keeps or (more <= room and not (saving_for and rents)):
            served[job], used[kind], cost = width, gpus, more
            continue
        waits[job] = "budget"
        behind = saving_for if more <= room else None
        unserved[job] = _Unserved(
            usd_per_hour=ceiling,
            rented=present if above == "use" and present > ceiling * SLACK else None,
            served=len(served),
            cost=cost,
            more=more - cost,
            behind=behind,
        )
        if not runs:
            saving_for = saving_for or job
    if above == "leave":
        in_use, gone = _vacate(state, served, ceiling, waits)
        for job in gone:
            unserved[job] = _Unserved(usd_per_hour=ceiling, served=0, cost=in_use, is_vacated=True)
    # The widths are in the order of service.
    return replace(
        allocation,
        widths=served,
        reasons=ChangedReasons(
            jobs=unserved.keys(), say=lambda job: unserved[job].why, others=allocation.reasons
        ),
    )


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class _Unserved:
    """Why a job has no place under the policy's ceiling, in dollars per hour.

    `served` jobs before it cost `cost`, and its nodes `more`. What is `rented` already is more than the
    ceiling, if given. `behind` is the first job that money accrues for, if only that is in the way.
    """

    usd_per_hour: float
    served: int
    cost: float
    more: float = 0.0
    rented: float | None = None
    behind: JobId | None = None
    is_vacated: bool = False

    @property
    def why(self) -> str:
        """The reason in words."""
        pays = f"the budget now pays for {in_dollars(self.usd_per_hour)}/hour"
        if self.rented is not None:
            pays = f"{pays}, {self.rented:.2f} are rented while money is left"
        jobs = counted(self.served, "job")
        if self.is_vacated:
            return (
                f"{pays}, and the nodes in use cost {self.cost:.2f}: those whose jobs come last in the order "
                "of service go back"
            )
        if self.behind is not None:
            return f"{pays}, and it accrues for job {self.behind} first: no node is rented for another job"
        if not self.served:
            return f"{pays}, and its nodes cost {self.more:.2f}"
        before = f"{pays}, the {jobs} served before it cost {self.cost:.2f}"
        return f"{before}, and its nodes would add {self.more:.2f}" if self.more else f"{before} already"


def _order(state: ClusterState, allocation: Allocation) -> list[JobId]:
    """Return the jobs in order of service; first running jobs that must stay or may finish."""
    may_go_on = allocation.above_ceiling == "finish"
    return sorted(
        (job for job in dict.fromkeys((*allocation.order, *allocation.widths)) if job in allocation.widths),
        key=lambda job: not (job in allocation.stay or (may_go_on and state.jobs[job].slots)),
    )


def _vacate(
    state: ClusterState, served: dict[JobId, Width], ceiling: float, waits: dict[JobId, WaitReason]
) -> tuple[float, list[JobId]]:
    """Take jobs off whole nodes until the others cost no more than the ceiling.

    Return what the nodes cost before, and the jobs.
    """
    vacated: list[JobId] = []
    busy: dict[NodeId, set[JobId]] = {}
    for job, width in served.items():
        for slot in state.jobs[job].slots[: width.gpus]:
            if slot.node in state.nodes:
                busy.setdefault(slot.node, set()).add(job)
    cost = sum(state.nodes[name].usd_per_hour for name in busy)
    places = {job: place for place, job in enumerate(served)}
    in_use = cost
    while busy and cost > ceiling * SLACK:
        # Vacate the node whose most urgent job comes last in the order of service.
        worst = max(busy, key=lambda name: (min(places[job] for job in busy[name]), name))
        gone = busy[worst]
        vacated += gone
        for job in gone:
            del served[job]
            waits[job] = "budget"
        busy = {name: jobs - gone for name, jobs in busy.items() if jobs - gone}
        cost = sum(state.nodes[name].usd_per_hour for name in busy)
    return in_use, vacated
