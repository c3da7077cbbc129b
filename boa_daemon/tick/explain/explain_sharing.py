"""Explain which nodes, GPUs and links a job shares with others, and who sends first there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, NodeState
from boa_daemon.tick.room.link_order import rank
from policies.model import GpuSlot, JobId, NodeId
from policies.placement.lwf import senders


def explain_span(state: ClusterState, slots: Sequence[GpuSlot], *, is_to_come: bool) -> str:
    """Return why a job is, or will be, on several nodes; some of them may be gone by now."""
    names = dict.fromkeys(slot.node for slot in slots)
    present = [state.nodes[name] for name in names if name in state.nodes]
    largest = max((node.instance_type.whole_gpus for node in present), default=len(slots))
    if len(slots) > largest:
        why = f"because {len(slots)} GPUs are more than the {largest} of one node"
    else:
        why = f"because no one node had {len(slots)} GPUs free when it was placed"
    nearness = _nearness(present) if len(present) == len(names) else ""
    return f"It is {'to be ' if is_to_come else ''}on {len(names)} nodes {why}.{nearness}"


def explain_neighbours(state: ClusterState, plan: Plan, job_id: JobId, slots: Sequence[GpuSlot]) -> list[str]:
    """Return the jobs that share GPUs with a job once the plan is carried out, and which GPUs."""
    own = {_gpu_of(state, slot) for slot in slots} - {None}
    found: dict[JobId, list[str]] = {}
    for other, job in state.jobs.items() if own else ():
        if other == job_id or other in plan.jobs.stops:
            continue
        for slot in plan.jobs.slots.get(other, job.slots):
            if (gpu := _gpu_of(state, slot)) in own and gpu is not None:
                found.setdefault(other, []).append(f"GPU {gpu.index} of {gpu.node}")
    return [f"It shares {', '.join(gpus)} with job {other}." for other, gpus in found.items()]


def _gpu_of(state: ClusterState, slot: GpuSlot) -> GpuSlot | None:
    """Return the GPU of a slot; None if each GPU has only one job."""
    node = state.nodes.get(slot.node)
    if node is None or node.instance_type.places_per_gpu == 1:
        return None
    return GpuSlot(slot.node, slot.index % node.instance_type.whole_gpus)


def _nearness(nodes: Iterable[NodeState]) -> str:
    """Return the network tiers that nodes share; empty unless known for all of them."""
    above = [node.tiers for node in nodes]
    if not all(above):
        return ""
    shared = [tier[0] for tier in zip(*above, strict=False) if len(set(tier)) == 1]
    if not shared:
        return " They share no part of the network below their zone."
    return f" All are under {shared[-1]}, tier {len(shared)} of {max(map(len, above))} of the network."


def explain_links(state: ClusterState, plan: Plan, job_id: JobId, nodes: Iterable[NodeId]) -> list[str]:
    """Return the jobs that share a link with a job, and who sends first there, or why there is no order."""
    sentences = _measured(state, job_id)
    found: dict[tuple[JobId, bool], list[str]] = {}
    for name, jobs in plan.link_order.items():
        if job_id not in jobs:
            continue
        place = jobs.index(job_id)
        for at, other in enumerate(jobs):
            if other != job_id:
                found.setdefault((other, place < at), []).append(name)
    own = _ranked_by(state, job_id)
    for (other_id, is_first), names in found.items():
        others = _ranked_by(state, other_id)
        who = "it" if is_first else other_id
        sentences.append(
            f"It shares the link of {', '.join(names)} with job {other_id}; {who} sends first, because less "
            f"of {who} is left: {min(own, others):.3g} against {max(own, others):.3g} GPU-hours over weight."
        )
    return sentences + _unordered(state, plan, job_id, nodes)


def _ranked_by(state: ClusterState, job_id: JobId) -> float:
    """Return a job's rank on links: from the gate if one runs, which may know more jobs."""
    if state.gate is not None and job_id in state.gate.jobs:
        return state.gate.jobs[job_id].ranked_by_hours
    return rank(state.jobs[job_id].job)[0]


def _measured(state: ClusterState, job_id: JobId) -> list[str]:
    """Return the measured message wait of a job, if any, and the expected saving by ordering."""
    seen = None if state.gate is None else state.gate.jobs.get(job_id)
    if seen is None or seen.exposed_fraction is None:
        return []
    said = f"It waits for messages {seen.exposed_fraction:.0%} of its time"
    if seen.gain_fraction is not None:
        said += f"; ordering its links should change its remaining time by {-seen.gain_fraction:+.1%}"
    return [f"{said}."]


def _unordered(state: ClusterState, plan: Plan, job_id: JobId, nodes: Iterable[NodeId]) -> list[str]:
    """Return the shared links whose messages are not ordered, and why."""
    held = {name: plan.jobs.slots.get(name, job.slots) for name, job in state.jobs.items()}
    sharing = senders(held)
    found: dict[tuple[JobId, str], list[NodeId]] = {}
    for node in nodes:
        ordered = plan.link_order.get(node, ())
        for other in sharing.get(node, ()):
            if other != job_id and not (job_id in ordered and other in ordered):
                found.setdefault((other, _why_unordered(state, job_id, other, node)), []).append(node)
    return [
        f"It shares the link of {', '.join(names)} with job {other}; neither sends first: {why}."
        for (other, why), names in found.items()
    ]


def _why_unordered(state: ClusterState, job_id: JobId, other: JobId, node: NodeId) -> str:
    """Return why the messages of two jobs on a link are not ordered."""
    if state.gate is None:
        return "no gate runs"
    silent = [job for job in (job_id, other) if job not in state.gate.jobs]
    if silent:
        return f"{' and '.join(silent)} {'do' if len(silent) > 1 else 'does'} not ask the gate"
    return state.gate.links[node].why if node in state.gate.links else "they do not send through it"
