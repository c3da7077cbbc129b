"""Random sites under several limits at once: what a tick sees and decides there."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from boa_daemon.testing import a_job, a_node, a_state, an_instance_type
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.facts.limits import Caps, FixedCost, Steady
from boa_daemon.tick.facts.offers import Cooldown, Market, Offer, RefusalKind
from boa_daemon.tick.facts.state import ClusterState, Due, JobState, JobTerms, NodeState, Rules, UserMoney
from boa_daemon.tick.facts.team_money import TeamMoney
from policies.model import (
    Budget,
    GpuSlot,
    GpuType,
    InstanceType,
    JobClass,
    JobId,
    NodeId,
    Phase,
    Problem,
    Width,
)
from policies.online.best_effort import Account
from policies.placement.first_fit import FirstFit
from policies.registry import PolicyOptions, build_policy
from policies.site import BuiltPolicy, Site
from policies.speedup import Amdahl

NOW = 1_700_000_000.0
SLOW = an_instance_type(gpu_type="slow")
FAST = an_instance_type(gpu_type="fast", gpus=8, usd_per_gpu_hour=2.5)
SITES: tuple[tuple[InstanceType, ...], ...] = ((SLOW,), (SLOW, FAST), (FAST,))
REFUSALS: tuple[RefusalKind, ...] = ("no-capacity", "quota", "denied", "throttled", "bad-request")
MARKETS: tuple[tuple[Market, ...], ...] = (("on-demand",), ("on-demand", "spot"), ("spot",))


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedSite:
    """A decision, the policy, and the rules under which it was made."""

    decision: Decision
    policy: BuiltPolicy
    rules: Rules

    def decided(self, state: ClusterState, rules: Rules) -> Decision:
        """Return the decision of the same policy in another state, or under other rules."""
        return decide(state, allocator=self.policy.allocator, placer=FirstFit(), rules=rules)


def a_capped_site(seed: int) -> CappedSite:
    """Return a decision about random jobs on random nodes, under random caps, purses, quotas and dates."""
    draw = random.Random(seed)
    kinds = draw.choice(SITES)
    effort = draw.random() < 0.25
    budget = draw.choice((20.0, 8.0) if effort else (60.0, 120.0, 400.0))
    policy = _built(kinds, budget, effort)
    nodes = [_node(draw, f"n{number}", kinds) for number in range(draw.choice((0, 1, 2, 3, 4, 6)))]
    state = _with_jobs(draw, kinds, nodes)
    hours = draw.choice((0.0, 3.0, 200.0))
    spent = budget * hours * draw.choice((0.0, 1.0, 1.0, 2.0))
    state = replace(state, books_opened_at=NOW - 3600.0 * hours, settled_micro_dollars=round(1e6 * spent))
    caps = _caps(draw)
    today = round(1e6 * caps.get("usd_per_day", 0.0) * draw.choice((0.0, 0.5, 0.97, 1.0)))
    month = round(1e6 * caps.get("usd_per_month", 0.0) * draw.choice((0.0, 0.5, 0.99, 1.0)))
    state = replace(state, settled_today_micro_dollars=today, settled_month_micro_dollars=max(month, today))
    if draw.random() < 0.5:
        offers = [offer for kind in kinds for offer in _offers(draw, kind)]
        state = replace(state, offers=tuple(offers))
    if draw.random() < 0.2:
        scope = draw.choice(kinds).name + draw.choice(("", "", "/*/*/2"))
        rest = Cooldown(until=NOW + 200.0, kind=draw.choice(REFUSALS))
        state = replace(state, cooldowns={scope: rest})
    state = _with_terms(draw, kinds, state)
    rules = Rules(
        instance_types={kind.gpu_type: kind for kind in kinds},
        max_nodes=draw.choice((None, None, 1, 2, 4)),
        caps=Caps(**caps) if caps else None,
        steady=Steady() if draw.random() < 0.4 else None,
    ).under(policy)
    decision = decide(state, allocator=policy.allocator, placer=FirstFit(), rules=rules)
    return CappedSite(decision=decision, policy=policy, rules=rules)


@lru_cache(maxsize=32)
def _built(kinds: tuple[InstanceType, ...], budget: float, effort: bool) -> BuiltPolicy:
    """Return the default policy, or a best effort, for three classes on these machines."""
    classes = []
    for number in range(3):
        speedups = {
            kind.gpu_type: Amdahl(
                parallel_fraction=0.85 + 0.05 * number,
                speed=2.0 if kind is FAST else 1.0,
                max_gpus=16,
            )
            for kind in kinds
        }
        phases = (Phase(size_gpu_hours=4.0, speedups=speedups),)
        classes.append(
            JobClass(
                name=f"c{number}",
                phases=phases,
                arrivals_per_hour=4.0,
                startup_hours=0.05,
                rescale_hours=0.03,
            )
        )
    types = [GpuType(name=kind.gpu_type, usd_per_gpu_hour=kind.usd_per_hour / kind.gpus) for kind in kinds]
    problem = Problem(classes=tuple(classes), gpu_types=tuple(types))
    money = Budget(amount=budget)
    site = Site(problem=problem, budget=money, instance_types={kind.gpu_type: kind for kind in kinds})
    account = Account(budget=budget) if effort else None
    return build_policy("boa-paced", site, PolicyOptions(), account=account)


def _node(draw: random.Random, name: NodeId, kinds: tuple[InstanceType, ...]) -> NodeState:
    """Return a node that is ready, booting or ending, on either market."""
    kind = draw.choice(kinds)
    launched_at = NOW - draw.choice((60.0, 900.0, 7200.0))
    node = a_node(name, kind=kind, launched_at=launched_at)
    phase = draw.choice(("ready",) * 6 + ("requested", "terminating"))
    if phase == "requested":
        node = a_node(name, kind=kind, launched_at=launched_at, phase="requested")
    if phase == "terminating":
        node = a_node(name, kind=kind, launched_at=launched_at, phase="terminating")
    if draw.random() < 0.3:
        node = replace(node, market="spot", prices=((launched_at, 0.4 * kind.usd_per_hour),))
    if draw.random() < 0.1 and phase == "ready":
        node = replace(node, ends_by=NOW + 100.0)
    return node


def _with_jobs(draw: random.Random, kinds: tuple[InstanceType, ...], nodes: list[NodeState]) -> ClusterState:
    """Return jobs of which some hold GPUs of the ready nodes."""
    free = {
        kind.gpu_type: [
            GpuSlot(node.id, index)
            for node in nodes
            if node.phase == "ready" and node.instance_type is kind
            for index in range(kind.gpus)
        ]
        for kind in kinds
    }
    held: dict[JobId, tuple[GpuSlot, ...]] = {}
    jobs = []
    count = draw.randint(1, 9)
    for number in range(count):
        jobs.append(
            a_job(
                f"j{number}",
                class_name=f"c{draw.randrange(3)}",
                arrived_at=NOW - draw.choice((10.0, 600.0, 7200.0)) * (count - number),
                remaining_gpu_hours=draw.uniform(0.1, 4.0),
                draw=draw.random(),
                weight=draw.choice((1.0, 1.0, 1.0, 3.0)),
            )
        )
        width, kind = draw.choice((0, 0, 1, 2, 4, 8)), draw.choice(kinds).gpu_type
        if width and width <= len(free[kind]):
            held[f"j{number}"], free[kind] = tuple(free[kind][:width]), free[kind][width:]
    return a_state(*jobs, nodes=nodes, held=held, now=NOW)


def _caps(draw: random.Random) -> dict[str, Any]:
    """Return some hard caps; none at all in a third of the cases."""
    caps: dict[str, Any] = {}
    if draw.random() < 0.25:
        caps["usd_per_hour"] = draw.choice((2.0, 4.0, 8.0, 20.0, 40.0))
    if draw.random() < 0.25:
        caps["usd_per_day"] = draw.choice((1.0, 10.0, 100.0))
    if draw.random() < 0.2:
        caps["usd_per_month"] = draw.choice((10.0, 1000.0))
    if draw.random() < 0.15:
        caps["instances"] = draw.randint(1, 5)
    if draw.random() < 0.15:
        caps["fixed"] = (FixedCost(name="plan", usd_per_hour=1.0),)
    return caps


def _offers(draw: random.Random, kind: InstanceType) -> list[Offer]:
    """Return offers of a type, of which some have no price or no node left."""
    found = []
    for market in draw.choice(MARKETS):
        price: float | None = kind.usd_per_hour * (0.4 if market == "spot" else 1.0)
        if draw.random() < 0.1:
            price = None
        left = draw.choice((None, None, 0, 1, 3))
        found.append(
            Offer(
                instance_type=kind.name,
                zone="a",
                market=market,
                usd_per_hour=price,
                nodes_left=left,
                pool=market,
            )
        )
    return found


def _with_terms(draw: random.Random, kinds: tuple[InstanceType, ...], state: ClusterState) -> ClusterState:
    """Return the state in which jobs have users, teams, dates and limits of their own."""
    users: Mapping[str, UserMoney] = {}
    teams: Mapping[str, TeamMoney] = {}
    if draw.random() < 0.25:
        users = {"eve": UserMoney(cap_usd=10.0, spent_usd=draw.choice((2.0, 9.99, 10.0)))}
    if draw.random() < 0.3:
        red = TeamMoney(
            day_cap_usd=10.0,
            spent_today_usd=draw.choice((0.0, 9.0, 9.9, 11.0)),
            month_cap_usd=draw.choice((None, 100.0)),
            spent_month_usd=draw.choice((0.0, 99.0, 101.0)),
            ahead_usd=draw.choice((None, 5.0, -5.0)),
        )
        teams = {"red": red, "blue": TeamMoney(ahead_usd=draw.choice((None, -5.0, 5.0)))}
    jobs = {name: _on_terms(draw, kinds, job, with_teams=bool(teams)) for name, job in state.jobs.items()}
    return replace(state, jobs=jobs, users=users, teams=teams)


def _on_terms(
    draw: random.Random, kinds: tuple[InstanceType, ...], job: JobState, *, with_teams: bool
) -> JobState:
    """Return a job with terms of its own, which may be rigid or stopping."""
    terms: dict[str, Any] = {}
    if draw.random() < 0.5:
        terms["user"] = "eve"
    if draw.random() < 0.5 and with_teams:
        terms["team"] = draw.choice(("red", "blue"))
    if draw.random() < 0.05:
        terms["not_before"] = NOW + 500.0
    if draw.random() < 0.05:
        terms["waits_for"] = "j1" if job.job.id == "j0" else "j0"
    if draw.random() < 0.1:
        hours = tuple((Width(kind.gpu_type, gpus), 4.0 / gpus) for kind in kinds for gpus in (1, 2, 4, 8))
        terms["due"] = Due(at=NOW + draw.choice((600.0, 7200.0, 36_000.0)), hours=hours)
    if draw.random() < 0.05:
        terms["money_ends_at"] = NOW + draw.choice((-1.0, 100.0))
    if terms:
        job = replace(job, terms=JobTerms(**terms))
    if job.slots and draw.random() < 0.1:
        job = replace(job, is_rigid=True)
    if job.slots and draw.random() < 0.1:
        job = replace(job, is_stopping=True)
    if job.slots and draw.random() < 0.5:
        job = replace(job, began_at=NOW - draw.choice((30.0, 3000.0)))
    return job
