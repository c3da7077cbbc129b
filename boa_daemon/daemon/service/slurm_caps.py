"""The caps of teams that say in dollars what limits of Slurm's accounts say in minutes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from boa_daemon.daemon.planner.machines_and_classes import site_catalog
from boa_daemon.daemon.planner.slurm_classes import check_partitions
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.slurm.limits import Controller, MoneyLimit, NodeSize, SlurmLimit, money_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamCap:
    """The month's cap of a team: its account, and which resource on which partition's nodes it comes from."""

    team: str
    account: str
    partition: str
    machine: str
    usd_per_hour: float
    money: MoneyLimit


@dataclass(slots=True, kw_only=True)
class SlurmCaps:
    """The caps of the teams, and what was left out and why."""

    caps: list[TeamCap] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def caps_of(limits: Sequence[SlurmLimit], controller: Controller, settings: Settings) -> SlurmCaps:
    """Return a month's cap for each account with a limit, at the prices of the partitions' machines.

    Where partitions differ, the limit is worth the dollars of the one where it is worth most: elsewhere
    Slurm's own limit comes first.

    Raises:
        InputError: when the settings name no partition, or a machine has no price.
    """
    nodes = _nodes(settings)
    found = SlurmCaps()
    by_team: dict[str, list[TeamCap]] = defaultdict(list)
    for limit in limits:
        who = f"account {limit.account}" + (f", user {limit.user}" if limit.user else "")
        if limit.user:
            found.left_out.append(f"{who}: a user has a cap per day, and none per month")
            continue
        if controller.forgets_hours == float("inf"):
            found.left_out.append(
                f"{who}: its usage is never forgotten ({controller.said}), so it is no cap of a month"
            )
            continue
        served = [name for name in nodes if limit.partition in ("", name)]
        worth = [
            TeamCap(
                team=settings.slurm.teams.get(limit.account, limit.account),
                account=limit.account,
                partition=name,
                machine=nodes[name].machine,
                usd_per_hour=nodes[name].usd_per_hour,
                money=money,
            )
            for name in served
            if (money := money_of(limit, nodes[name], name, controller)) is not None
        ]
        if not worth:
            given = ",".join(f"{name}={value:.15g}" for name, value in limit.minutes.items())
            where = "of its partition" if limit.partition not in ("", *nodes) else "here"
            found.left_out.append(f"{who}: {given or 'no limit'} counts nothing that nodes {where} use")
            continue
        best = max(worth, key=lambda one: one.money.usd)
        by_team[best.team].append(best)
    for team, caps in by_team.items():
        chosen, *others = sorted(caps, key=lambda one: one.money.usd_per_month)
        found.caps.append(chosen)
        found.left_out += [
            f"account {one.account}: the team {team} has the smaller cap of account {chosen.account}"
            for one in others
        ]
    return found


def _nodes(settings: Settings) -> Mapping[str, NodeSize]:
    """Return the size of a node of each partition."""
    check_partitions(settings)
    catalog = site_catalog(settings)
    found = {}
    for name, said in settings.slurm.partitions.items():
        entry = catalog.entry(said.instance_type)
        found[name] = NodeSize(
            machine=entry.name,
            usd_per_hour=catalog.price_of(entry.name),
            cpus=entry.vcpus,
            memory_mib=float(entry.memory_mib),
            gpus=entry.gpus,
            gpu_model=entry.gpu_type,
        )
    return found
