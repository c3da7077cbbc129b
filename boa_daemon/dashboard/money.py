"""The page's documents about money: the curve of waiting against money, the history, and costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from boa_daemon.daemon.money.commitment_worth import commitment_worths
from boa_daemon.daemon.money.cost_labels import CostBy
from boa_daemon.daemon.money.cost_uses import cost_uses
from boa_daemon.daemon.money.costs import nodes_within
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.service.service_base import NotReady
from boa_daemon.daemon.watch.purse_alerts import purse_document
from boa_daemon.dashboard.frontier import frontier_document
from boa_daemon.dashboard.month_pace import PACE_HOURS, PACE_POINTS, month_pace
from boa_daemon.store.storage import Storage
from boa_daemon.store.tables import JOBS
from boa_daemon.tick.facts.limits import fixed_usd
from boa_daemon.units import SECONDS_PER_HOUR
from policies.errors import PolicyError
from policies.model import Problem

POINTS, MOST_COSTS = 360, 32
MEASURED_SECONDS = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A curve, with the problem and budget that it was computed for."""

    problem: Problem
    budget: float
    document: Mapping[str, Any]


class MoneyView:
    """Answers about money; the curve is cached until the problem or the budget changes."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._drawn: _Drawn | None = None
        self._costs: dict[tuple[CostBy, float], tuple[Any, dict[str, Any]]] = {}
        self._uses: dict[float, tuple[Any, dict[str, Any]]] = {}
        self._pace: tuple[Any, dict[str, Any] | None] = (None, None)

    def frontier(self) -> dict[str, Any]:
        """Return the curve at the planned load and prices, and the daemon's measured position.

        Raises:
            NotReady: when no plan is possible, or there is no database.
        """
        daemon, storage = self._service.daemon, self._storage()
        try:
            site = daemon.planner.record(daemon.classes_in_use(storage)).site
            problem, budget = site.problem, site.budget.amount
            if self._drawn is None or (self._drawn.problem, self._drawn.budget) != (problem, budget):
                self._drawn = _Drawn(problem, budget, frontier_document(problem, budget=budget))
        except PolicyError as error:
            raise NotReady(f"there is no curve: {error}") from None
        return {
            "as_of": daemon.world.clock.now(),
            **self._drawn.document,
            "measured": self._measured(storage),
        }

    def history(self, *, hours: float) -> dict[str, Any]:
        """Return the last hours, averaged over at most `POINTS` intervals."""
        self._storage()
        history, now = self._service.daemon.history, self._service.daemon.world.clock.now()
        if history is None:
            raise NotReady("there is no history without a database")
        found = history.read(since=now - hours * SECONDS_PER_HOUR, until=now, points=POINTS)
        return {"as_of": now, **found}

    def month_pace(self) -> dict[str, Any] | None:
        """Return where this month's money ends at the pace of the last days, computed once per tick.

        None before the first tick, before half an hour was seen, or without a database.
        """
        daemon = self._service.daemon
        picture, now = daemon.standing.picture, daemon.world.clock.now()
        if picture is None or daemon.storage is None or daemon.history is None:
            return None
        if self._pace[0] is not picture:
            past = daemon.history.read(
                since=now - PACE_HOURS * SECONDS_PER_HOUR, until=now, points=PACE_POINTS
            )
            beside = self._service.status()["beside_usd_per_hour"]
            at = picture.decision.state.now
            self._pace = (
                picture,
                month_pace(past, picture.figures, now=at, beside_usd_per_hour=beside),
            )
        return self._pace[1]

    def cost(self, *, by: CostBy, hours: float) -> dict[str, Any]:
        """Return the costs of the last hours, cached between two ticks."""
        # Every open page asks, but between two ticks nothing starts or ends.
        picture, now = self._service.daemon.standing.picture, self._service.daemon.world.clock.now()
        seen, answer = self._costs.get((by, hours), (None, {}))
        if seen is None or seen is not picture:
            answer = self._service.cost(by=by, since=max(now - hours * SECONDS_PER_HOUR, 0.0))
            if len(self._costs) >= MOST_COSTS:
                self._costs.clear()
            if picture is not None:
                self._costs[by, hours] = (picture, answer)
        return answer

    def uses(self, *, hours: float) -> dict[str, Any]:
        """Return what the money of the last hours was for, commitments and purses; cached between two ticks.

        `restart_fraction` is the part of the jobs' money that went to jobs which were started again and had
        made no new step yet, from the history by the minute; None where it has nothing.
        """
        daemon, storage = self._service.daemon, self._storage()
        picture, now = daemon.standing.picture, daemon.world.clock.now()
        seen, answer = self._uses.get(hours, (None, {}))
        if seen is None or seen is not picture:
            since, paid = max(now - hours * SECONDS_PER_HOUR, 0.0), daemon.planner.paid
            nodes = nodes_within(storage.queue, since, now)
            answer = {
                "since": since,
                "uses": cost_uses(storage.queue, since=since, now=now, fixed=paid.fixed).to_document(),
                "restart_fraction": self._restart_fraction(since, now),
                "commitments": [
                    one.to_document() for one in commitment_worths(paid, nodes.values(), since=since, now=now)
                ],
            }
            if len(self._uses) >= MOST_COSTS:
                self._uses.clear()
            if picture is not None:
                self._uses[hours] = (picture, answer)
        return {"as_of": now, **answer, **self._purses()}

    def _restart_fraction(self, since: float, now: float) -> float | None:
        """Return the part of jobs' money without a step since a restart; None if nothing is known."""
        history = self._service.daemon.history
        if history is None:
            return None
        series = history.read(since=since, until=now, points=1)["series"]
        work, restart = ((series.get(f"state:{name}") or [None])[0] or 0.0 for name in ("work", "restart"))
        return restart / (work + restart) if work + restart > 0.0 else None

    def _purses(self) -> dict[str, Any]:
        """Return the purses of teams and users with caps, and how far teams are ahead of their shares."""
        standing = self._service.daemon.standing
        teams = {} if standing.decision is None else standing.decision.state.teams
        return {
            "purses": purse_document(standing.purses),
            "shares": [
                {
                    "team": name,
                    "spent_today_usd": money.spent_today_usd,
                    "spent_month_usd": money.spent_month_usd,
                    "ahead_usd": money.ahead_usd,
                    "half_life_hours": money.half_life_seconds / SECONDS_PER_HOUR,
                }
                for name, money in teams.items()
                if money.ahead_usd is not None
            ],
        }

    def _measured(self, storage: Storage) -> dict[str, Any] | None:
        """Return the mean hours of recently finished jobs, and the mean burn rate of that time."""
        history, now = self._service.daemon.history, self._service.daemon.world.clock.now()
        since = now - MEASURED_SECONDS
        query = select(JOBS.c.arrived_at, JOBS.c.ended_at).where(
            JOBS.c.status == "finished", JOBS.c.ended_at >= since
        )
        with storage.store.database.read() as connection:
            hours = [(row.ended_at - row.arrived_at) / SECONDS_PER_HOUR for row in connection.execute(query)]
        if not hours or history is None:
            return None
        burn = history.read(since=since, until=now, points=1)["series"].get("usd_per_hour", [None])[0]
        if burn is None:
            return None
        # Nodes that a commitment covers cost nothing, so its price belongs to what is spent.
        burn += fixed_usd(self._service.daemon.planner.paid.fixed, now - SECONDS_PER_HOUR, now)
        return {"jobs": len(hours), "mean_jct_hours": sum(hours) / len(hours), "usd_per_hour": burn}

    def _storage(self) -> Storage:
        """Return the storage.

        Raises:
            NotReady: when the daemon has no database that it may write.
        """
        storage = self._service.daemon.storage
        if storage is None:
            raise NotReady(self._service.daemon.standing.fault)
        return storage
