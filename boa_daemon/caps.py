"""Hard caps on a plan: nothing is launched, and nothing kept, that could break one.

For each window (day and month, UTC) the books are projected: final bills, and every node that may exist, be
it running, booting, ending or only asked for, up to the instant until which it costs at the least:

    kept          now + two ticks + the time to wind down: the next tick can still end it in time
    given back    now + the time to wind down, and the minimum billing in any case

If what is kept would break a cap, nodes are given back until it would not, those without jobs first, then
the youngest; their jobs are told to stop, which makes them checkpoint. Where even that is too late, nodes are
ended under their jobs. New nodes are allowed as long as everything could go on for `least_run_seconds`.

Cost: O(nodes log nodes) where something is given back, O(nodes) otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import floor

from boa_daemon.ledger import MINIMUM_BILLED_SECONDS, bill_within
from boa_daemon.limits import Caps, Held, HeldCode, Window, day_of, month_of
from boa_daemon.state import ClusterState, NodeState, Plan, Rules, WaitReason
from boa_daemon.units import MICRO_DOLLARS_PER_DOLLAR, SECONDS_PER_HOUR, dollars, micro_dollars
from policies.model import JobId, NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class _Purse:
    """One window with its cap and what is settled of it, in micro-dollars."""

    code: HeldCode
    window: Window
    cap: int
    settled: int

    def left(self, nodes: Iterable[NodeState], until: Callable[[NodeState], float]) -> int:
        """Return what the cap leaves when each node goes on until its instant."""
        return (
            self.cap - self.settled - sum(bill_within(node, self.window, until=until(node)) for node in nodes)
        )


def within_caps(state: ClusterState, plan: Plan, rules: Rules) -> Plan:
    """Return the plan with everything taken out that could break a cap, and with what must end for one."""
    caps = rules.caps
    if caps is None:
        return plan
    nodes = [node for node in state.nodes.values() if node.phase != "terminated"]
    purses = _purses(state, caps)
    plan = _wound_down(state, plan, caps, nodes, purses)
    if not plan.launches:
        return plan
    return _fewer_launches(state, plan, rules, nodes, purses)


def _purses(state: ClusterState, caps: Caps) -> list[_Purse]:
    """Return the windows that have a cap."""
    purses = []
    if caps.usd_per_day is not None:
        purses.append(
            _Purse(
                code="cap-day",
                window=day_of(state.now),
                cap=micro_dollars(caps.usd_per_day),
                settled=state.settled_today_micro_dollars,
            )
        )
    if caps.usd_per_month is not None:
        purses.append(
            _Purse(
                code="cap-month",
                window=month_of(state.now),
                cap=micro_dollars(caps.usd_per_month),
                settled=state.settled_month_micro_dollars,
            )
        )
    return purses


def _wound_down(
    state: ClusterState, plan: Plan, caps: Caps, nodes: list[NodeState], purses: list[_Purse]
) -> Plan:
    """Return the plan with nodes given back until keeping the others breaks no cap."""
    keep, drop = state.now + caps.keep_seconds, state.now + caps.wind_down_seconds
    leaving = {node.id for node in nodes if node.phase == "terminating"} | set(plan.releases)
    dropped: set[NodeId] = set()
    held: list[Held] = []
    forced = False
    for purse in purses:
        left = purse.left(nodes, lambda node: drop if node.id in leaving | dropped else keep)
        if left >= 0:
            continue
        for node in sorted(nodes, key=_last_needed):
            if left >= 0:
                break
            if node.id in leaving or node.id in dropped:
                continue
            dropped.add(node.id)
            left += bill_within(node, purse.window, until=keep)
            left -= bill_within(node, purse.window, until=drop)
        short = {"cap_usd": dollars(purse.cap), "settled_usd": dollars(purse.settled)}
        held += [Held(what=f"node {name}", code=purse.code, numbers=short) for name in sorted(dropped)]
        forced |= left < 0 and purse.left(nodes, lambda _: state.now + caps.wind_down_seconds) < 0
    if not dropped and not forced:
        return plan
    return _without(state, plan, dropped, held, forced=forced)


def _last_needed(node: NodeState) -> tuple[bool, float, NodeId]:
    """Return the order in which nodes are given back: those without jobs first, then the youngest."""
    return (node.free_gpus < len(node.gpus), -node.launched_at, node.id)


def _without(
    state: ClusterState, plan: Plan, dropped: set[NodeId], held: list[Held], *, forced: bool
) -> Plan:
    """Return the plan without some nodes: their jobs stop, the empty ones are given back."""
    jobs = {
        job for name in dropped for job in state.nodes[name].gpus if job is not None and job in state.jobs
    }
    stops = [job for job in jobs if state.jobs[job].slots and not state.jobs[job].is_stopping]
    slots = {
        job: taken
        for job, taken in plan.slots.items()
        if job not in jobs and not any(slot.node in dropped for slot in taken)
    }
    code = next((reason.code for reason in held if reason.code in ("cap-day", "cap-month")), "cap-day")
    empty = [name for name in dropped if state.nodes[name].free_gpus == len(state.nodes[name].gpus)]
    waiting: dict[JobId, WaitReason] = dict(plan.waiting)
    reason: WaitReason = "cap-month" if code == "cap-month" else "cap-day"
    waiting.update((job, reason) for job in jobs if job in plan.widths)
    waiting.update((job, reason) for job in plan.slots if job not in slots)
    return replace(
        plan,
        slots=slots,
        stops=tuple(dict.fromkeys((*plan.stops, *sorted(stops)))),
        releases=tuple(dict.fromkeys((*plan.releases, *sorted(empty)))),
        launches={},
        gangs={},
        waiting=waiting,
        held=(*plan.held, *held),
        forced=tuple(sorted(dropped - set(empty))) if forced else (),
    )


def _fewer_launches(
    state: ClusterState, plan: Plan, rules: Rules, nodes: list[NodeState], purses: list[_Purse]
) -> Plan:
    """Return the plan with as many of its launches as every cap leaves room for."""
    caps = rules.caps
    if caps is None:
        return plan
    horizon = state.now + max(caps.least_run_seconds, caps.keep_seconds, MINIMUM_BILLED_SECONDS)
    left = {purse.code: float(purse.left(nodes, lambda _: horizon)) for purse in purses}
    least = caps.keep_seconds + MINIMUM_BILLED_SECONDS
    fresh = min((purse.cap for purse in purses), default=0)
    # Just before midnight today's cap sees little of a new node: tomorrow's must hold its least bill too.
    tomorrow = fresh - sum(node.usd_per_hour for node in nodes) * least * _MICRO_PER_SECOND
    places = None if caps.instances is None else caps.instances - len(nodes)
    launches: dict[str, int] = {}
    held: list[Held] = []
    why: dict[str, HeldCode] = {}
    for name, count in plan.launches.items():
        price = _price(state, plan, name) * _MICRO_PER_SECOND
        allowed, code = count, None
        if places is not None and places < allowed:
            allowed, code = max(places, 0), "cap-instances"
        for purse in purses:
            cost = price * max(min(horizon, purse.window.ends_at) - state.now, 0.0)
            fits = floor(left[purse.code] / cost) if cost > 0 else allowed
            fits = min(fits, floor(tomorrow / (price * least)))
            if fits < allowed:
                allowed, code = max(fits, 0), purse.code
        taken = _whole_gangs(plan.gangs.get(name, ()), count, allowed)
        if taken < count:
            why[name] = code or "cap-instances"
            held.append(
                Held(
                    what=f"{count - taken} of {count} {name}",
                    code=why[name],
                    numbers=_numbers(caps, purses, left, why[name], len(nodes)),
                )
            )
        if taken:
            launches[name] = taken
            places = None if places is None else places - taken
            tomorrow -= taken * price * least
            for purse in purses:
                left[purse.code] -= taken * price * max(min(horizon, purse.window.ends_at) - state.now, 0.0)
    if not held:
        return plan
    return replace(
        plan,
        launches=launches,
        gangs={name: _kept(plan.gangs.get(name, ()), launches[name]) for name in launches},
        waiting=_waiting(plan, rules, why),
        held=(*plan.held, *held),
    )


_MICRO_PER_SECOND = MICRO_DOLLARS_PER_DOLLAR / SECONDS_PER_HOUR


def _price(state: ClusterState, plan: Plan, name: str) -> float:
    """Return the most that a node of a type may cost per hour, over the offers that are known."""
    known = [offer.usd_per_hour for offer in state.offers if offer.instance_type == name]
    return max([plan.instance_types[name].usd_per_hour, *(price for price in known if price is not None)])


def _whole_gangs(gangs: tuple[int, ...], count: int, allowed: int) -> int:
    """Return how many of `count` nodes to launch: whole gangs first, then single nodes."""
    if allowed >= count:
        return count
    tied = sum(_kept(gangs, allowed))
    return tied + min(count - sum(gangs), allowed - tied)


def _kept(gangs: tuple[int, ...], nodes: int) -> tuple[int, ...]:
    """Return the gangs, in order, that fit into so many nodes."""
    kept: list[int] = []
    for size in gangs:
        if sum(kept) + size <= nodes:
            kept.append(size)
    return tuple(kept)


def _numbers(
    caps: Caps, purses: list[_Purse], left: Mapping[str, float], code: HeldCode, present: int
) -> Mapping[str, float]:
    """Return the numbers behind a refusal."""
    if code == "cap-instances":
        return {"cap": float(caps.instances or 0), "present": float(present)}
    purse = next(purse for purse in purses if purse.code == code)
    return {"cap_usd": dollars(purse.cap), "left_usd": left[code] / MICRO_DOLLARS_PER_DOLLAR}


def _waiting(plan: Plan, rules: Rules, why: Mapping[str, HeldCode]) -> dict[JobId, WaitReason]:
    """Return what jobs wait for, now that some types are not launched."""
    codes: dict[str, WaitReason] = {}
    for name, code in why.items():
        gpu_type = plan.instance_types[name].gpu_type
        if code in ("cap-day", "cap-month", "cap-instances", "loop"):
            codes[gpu_type] = code  # type: ignore[assignment] - both are closed lists; these four are in each
    waiting = dict(plan.waiting)
    for job, reason in plan.waiting.items():
        width = plan.widths.get(job)
        if reason == "nodes-to-come" and width is not None and width.gpu_type in codes:
            waiting[job] = codes[width.gpu_type]
    return waiting
