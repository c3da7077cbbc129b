"""Plan on both markets: translate between the cloud's names and the names in plans.

With `[cloud] market = "planned"` each machine is planned twice, as `g5.xlarge` and as `g5.xlarge@spot`, with
the GPU types `a10g` and `a10g@spot` (`policies.kinds`). The cloud knows one instance type, and a
market for each node and offer. This module translates, so that the tick, the database and the policy need not
know the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from boa_daemon.daemon.planner.shared_gpus import with_whole_gpus
from boa_daemon.learning.spot_history import SpotHistory
from boa_daemon.sim.spot_market import at_terms, class_on_both, machine_on_spot
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.offers import ANY, Offer, scope_of
from boa_daemon.tick.facts.ports import WARNING_SECONDS, Launched, Refused, Unknown
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.stages.places.find_changes import LEAVE_SECONDS
from boa_daemon.units import SECONDS_PER_HOUR
from policies.kinds import machine_name_of
from policies.model import GpuType, InstanceType, JobClass, Problem
from policies.optimum.interruptions import CheckpointSchedule, Interruptions


def with_spot_machines(machines: Mapping[str, InstanceType]) -> dict[str, InstanceType]:
    """Return machines and their spot variants, which carry the highest price that spot may cost."""
    on_spot = (machine_on_spot(machine) for machine in machines.values() if not machine.kind.is_spot)
    return {**machines, **{machine.gpu_type: machine for machine in on_spot}}


def on_planned_markets(job_class: JobClass, machines: Mapping[str, InstanceType]) -> JobClass:
    """Return a class with speeds on both markets; the same object when no machine is on spot."""
    on_spot = any(machine.kind.is_spot for machine in machines.values())
    return class_on_both(job_class, machines) if on_spot else job_class


def with_learnt_spot(
    classes: tuple[JobClass, ...],
    machines: Mapping[str, InstanceType],
    history: SpotHistory | None,
    *,
    boot_hours: float,
    saves: CheckpointSchedule,
) -> tuple[Problem, dict[str, InstanceType]]:
    """Return the problem and the machines, with spot at its measured prices and interruptions."""
    found, terms = dict(machines), {}
    for kind, machine in machines.items():
        if not machine.kind.is_spot or history is None:
            continue
        seen = history.terms(machine.name)
        found[kind] = replace(machine, usd_per_hour=machine.usd_per_hour * seen.planned_fraction)
        terms[kind] = Interruptions(
            per_node_hour=seen.per_node_hour,
            notice_hours=WARNING_SECONDS / SECONDS_PER_HOUR,
            unannounced_fraction=seen.sudden_fraction,
            leave_hours=LEAVE_SECONDS / SECONDS_PER_HOUR,
            boot_hours=boot_hours,
        )
    problem = Problem(
        classes=classes,
        gpu_types=tuple(
            GpuType(name=kind, usd_per_gpu_hour=machine.usd_per_gpu_hour) for kind, machine in found.items()
        ),
    )
    return (at_terms(problem, found, terms, saves) if terms else problem), found


def planned_name(name: str, market: str, names: Iterable[str]) -> str:
    """Return a machine's name in plans, from the cloud's name and market of a node or offer."""
    known = machine_name_of(name)
    if market == "spot" and (on_spot := str(known.on_spot)) in names:
        return on_spot
    return str(known.on_demand)


def offers_as_planned(offers: Iterable[Offer], names: Iterable[str]) -> list[Offer]:
    """Return offers with instance types named as in plans."""
    known = frozenset(names)
    if not any(machine_name_of(name).is_spot for name in known):
        return list(offers)
    return [
        replace(offer, instance_type=planned_name(offer.instance_type, offer.market, known))
        for offer in offers
    ]


def listed_node(node: NodeState) -> NodeState:
    """Return a node with the instance type that the cloud knows."""
    machine = node.instance_type
    is_plain = machine.places_per_gpu == 1 and not machine.machine_name.is_spot
    return node if is_plain else replace(node, instance_type=_plain(machine))


def rented_order(action: LaunchNodes) -> LaunchNodes:
    """Return a launch order with the instance type that the cloud knows."""
    machine = action.instance_type
    if not machine.machine_name.is_spot:
        return action if machine.places_per_gpu == 1 else replace(action, instance_type=_plain(machine))
    offer = action.offer
    if offer is not None:
        offer = replace(offer, instance_type=str(machine_name_of(offer.instance_type).on_demand))
    return replace(action, instance_type=_plain(machine), offer=offer)


def answer_as_planned(
    answer: Launched | Refused | Unknown, names: Iterable[str]
) -> Launched | Refused | Unknown:
    """Return the cloud's answer with its scopes named as in plans."""
    known = frozenset(names)
    if isinstance(answer, Launched):
        return answer if answer.short is None else replace(answer, short=_scoped(answer.short, known))
    return _scoped(answer, known) if isinstance(answer, Refused) else answer


def _scoped(refused: Refused, names: frozenset[str]) -> Refused:
    """Return a refusal that blocks a type on the markets that the cloud meant."""
    return replace(refused, scopes=tuple(s for scope in refused.scopes for s in _scopes(scope, names)))


def _scopes(scope: str, names: frozenset[str]) -> tuple[str, ...]:
    """Return the scopes, named as in plans, for one scope of the cloud."""
    refused = scope_of(scope)
    on_spot = str(machine_name_of(refused.instance_type).on_spot)
    if refused.market == ANY and on_spot in names:
        return scope, str(refused.of_type(on_spot))
    return (str(refused.of_type(planned_name(refused.instance_type, refused.market, names))),)


def _plain(machine: InstanceType) -> InstanceType:
    """Return a machine without market and with whole GPUs."""
    plain = with_whole_gpus(machine)
    return replace(plain, name=str(machine.machine_name.on_demand), gpu_type=machine.kind.card)
