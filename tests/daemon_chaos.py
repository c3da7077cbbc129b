"""Weeks of the daemon in minutes: Poisson arrivals, and a cloud that refuses, loses answers and lags.

The cloud and the engine keep their own records; at the end the daemon's ledger is compared with them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from boa_daemon.backends.simulated import FileCloud
from boa_daemon.store.purses import read_purses
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.limits import Window, day_of
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import Accepted, Launched, Provider, Refused, Unknown
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.ledger import bill_within, charge_for
from boa_daemon.units import dollars
from policies.model import NodeId


class ChaosClock:
    """A clock that the chaos run sets."""

    def __init__(self, instant: float) -> None:
        self.instant = instant

    def now(self) -> float:
        """Return the instant."""
        return self.instant


@dataclass(slots=True)
class FaultyCloud(Provider):
    """A cloud that fails at random; its bills are right."""

    inner: FileCloud
    clock: ChaosClock
    chance: Random
    faults: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def nodes(self) -> Sequence[NodeState]:
        """Return the nodes; some young nodes are not listed yet, and 2 % of calls interrupt a node."""
        listed = list(self.inner.nodes())
        live = [node for node in listed if node.ended_at is None]
        if live and self.chance.random() < 0.02:
            self.faults["interruptions"] += 1
            self.inner.interrupt(self.chance.choice(live).id)
            listed = list(self.inner.nodes())
        young = {node.id for node in live if self.clock.now() - node.launched_at < 60.0}
        hidden = {name for name in young if self.chance.random() < 0.5}
        self.faults["late listings"] += len(hidden)
        return [node for node in listed if node.id not in hidden or node.ended_at is not None]

    def offers(self) -> Sequence[Offer]:
        """Return the offers of the cloud."""
        return self.inner.offers()

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Launch, refuse, or launch and lose the answer."""
        draw = self.chance.random()
        if draw < 0.10:
            self.faults["refusals"] += 1
            return Refused(reason="no capacity", kind="no-capacity")
        answer = self.inner.launch(action)
        if draw < 0.15:
            self.faults["lost answers"] += 1
            return Unknown(reason="timeout")
        return answer

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """End nodes, refuse as throttled, or end nodes and lose the answer."""
        draw = self.chance.random()
        if draw < 0.05:
            self.faults["throttled ends"] += 1
            return {action.node: Refused(reason="throttled", kind="throttled") for action in actions}
        answers = self.inner.terminate(actions)
        if draw < 0.10:
            self.faults["lost ends"] += 1
            return {action.node: Unknown(reason="timeout") for action in actions}
        return dict(answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a run; dollars are those of the cloud's own records."""

    jobs: int
    finished: int
    restarts: int
    faults: Mapping[str, int]
    failed_ticks: int
    moves: int
    leaked: int
    started_twice: int
    ledger_difference_micro_dollars: int
    spent_usd: float
    budget_usd: float
    dearest_day_usd: float
    day_cap_usd: float
    most_instances: int
    dearest_team_day: float = 0.0
    """The most that a team spent on a day, as a part of its cap: by its generations and the nodes' bills."""
    purse_difference_usd: float = 0.0
    """How far the purses are from the same."""


def rehearse(
    folder: Path,
    *,
    days: float,
    seed: int,
    tick_seconds: float = 300.0,
    jobs_per_hour: float = 4.0,
    teams: Mapping[str, Mapping[str, Any]] | None = None,
) -> Outcome:
    """Run the daemon for `days`, end all nodes, and compare the daemon's ledger with the cloud's records.

    With `teams` the members of the teams submit in turn.
    """
    usd_per_hour, cap = 10.0, 300.0
    settings: dict[str, Any] = {
        "budget": {"usd_per_hour": usd_per_hour, "usd_per_day_cap": cap, "max_instances": 40},
        "cloud": {"boot_seconds": 120.0},
        "daemon": {"tick_seconds": tick_seconds},
        "teams": dict(teams or {}),
    }
    users = [str(user) for team in (teams or {}).values() for user in team["members"]] or ["ann"]
    chance, clock = Random(seed), ChaosClock(1_800_000_000.0 - 1_800_000_000.0 % 86_400.0)
    begin, faults = clock.instant, defaultdict[str, int](int)

    def opened() -> DaemonInAFolder:
        return DaemonInAFolder(
            folder,
            clock,
            settings,
            wrap_cloud=lambda inner: FaultyCloud(inner=inner, clock=clock, chance=chance, faults=faults),
        )

    play = opened()
    end, next_job, jobs, restarts, most = begin + days * 86_400.0, begin, 0, 0, 0
    failed = 0
    while clock.instant < end:
        while next_job <= clock.instant:
            play.service.submit(
                [job_content(f"j{jobs}", hours=1.0, max_gpus=8)], user=users[jobs % len(users)]
            )
            jobs, next_job = jobs + 1, next_job + chance.expovariate(jobs_per_hour) * 3600.0
        failed += play.daemon.tick() is None
        most = max(most, sum(node.ended_at is None for node in play.cloud.nodes()))
        if chance.random() < 0.01:
            play.close()
            play, restarts = opened(), restarts + 1
        clock.instant += tick_seconds
    spent = play.cloud.bill_micro_dollars()
    play.service.down(is_down=True)
    for _ in range(40):
        play.daemon.tick()
        clock.instant += tick_seconds
    found = replace(
        _outcome(play),
        jobs=jobs,
        restarts=restarts,
        failed_ticks=failed,
        faults=dict(faults),
        spent_usd=dollars(spent),
        budget_usd=days * 24.0 * usd_per_hour,
        most_instances=most,
    )
    play.close()
    return found


def _spent_by_team(play: DaemonInAFolder) -> dict[tuple[str, int], float]:
    """Return micro-dollars by (team, day) from all generations and the cloud's bills, not the purses."""
    queue = play.storage.queue
    nodes = {node.id: node for node in play.cloud.everything()}
    spent: dict[tuple[str, int], float] = defaultdict(float)
    for usage in queue.usages(0.0):
        job, until = queue.job(usage.job), usage.ended_at or play.clock.now()
        for day in range(int(usage.started_at // 86_400.0), int(until // 86_400.0) + 1):
            window = day_of(day * 86_400.0)
            begins, ends = max(usage.started_at, window.begins_at), min(until, window.ends_at)
            for slot in usage.slots:
                node, part = nodes[slot.node], Window(begins_at=begins, ends_at=max(ends, begins))
                last = min(until, node.ended_at or until)
                bill = bill_within(node, part, until=last) / node.instance_type.gpus
                spent["" if job is None else job.team, day] += bill
    return spent


def _dearest_team_day(play: DaemonInAFolder, spent: Mapping[tuple[str, int], float]) -> float:
    """Return the largest part of its daily cap that a team spent on a day."""
    teams = play.settings.teams
    caps = {name: team.usd_per_day_cap for name, team in teams.items() if team.usd_per_day_cap is not None}
    return max((used / 1e6 / caps[name] for (name, _), used in spent.items() if name in caps), default=0.0)


def _purse_difference(play: DaemonInAFolder, spent: Mapping[tuple[str, int], float]) -> float:
    """Return the largest difference, in USD, of a team's purse and the cost of its generations."""
    kept: dict[str, float] = defaultdict(float)
    for team, _, amount in read_purses(play.storage.store.database, since=0):
        kept[team] += amount
    for (team, _), cost in spent.items():
        kept[team] -= cost if team else 0.0
    return max((abs(rest) / 1e6 for rest in kept.values()), default=0.0)


def _outcome(play: DaemonInAFolder) -> Outcome:
    """Return the outcome according to the records of the cloud and the daemon."""
    by_day: dict[int, int] = defaultdict(int)
    nodes, by_team = play.cloud.everything(), _spent_by_team(play)
    for node in nodes:
        for day, part in charge_for(node).days:
            by_day[day] += part
    return Outcome(
        jobs=0,
        finished=sum(row["status"] == "finished" for row in play.service.jobs(limit=20_000)["jobs"]),
        restarts=0,
        faults={},
        failed_ticks=0,
        moves=sum(generation > 1 for _, generation in play.runner.started),
        leaked=sum(node.ended_at is None for node in nodes),
        started_twice=len(play.runner.started) - len(set(play.runner.started)),
        ledger_difference_micro_dollars=play.storage.store.settled_micro_dollars()
        - play.cloud.bill_micro_dollars(),
        spent_usd=0.0,
        budget_usd=0.0,
        dearest_day_usd=dollars(max(by_day.values(), default=0)),
        dearest_team_day=_dearest_team_day(play, by_team),
        purse_difference_usd=_purse_difference(play, by_team),
        day_cap_usd=play.settings.budget.usd_per_day_cap or 0.0,
        most_instances=0,
    )
