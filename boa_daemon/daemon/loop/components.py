"""The components of a daemon: clock, cloud, engine, storage, planner, and what was measured.

This module constructs and looks up components. `adaptive_daemon.py` plans from measurements, `loop.py` ticks.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from boa_daemon.daemon.jobs.job_view import JobView
from boa_daemon.daemon.jobs.liveness import Liveness
from boa_daemon.daemon.loop.fallback_tick import FallbackTick, WithoutDatabase
from boa_daemon.daemon.loop.last_state import LastState, LastStateFile
from boa_daemon.daemon.loop.late_prices import LatePrices
from boa_daemon.daemon.money.purses import Purses, TeamTerms
from boa_daemon.daemon.money.standing_costs import StandingCosts
from boa_daemon.daemon.planner.node_view import Fleet
from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.settings_reload import SettingsReader
from boa_daemon.daemon.watch.alerts import Alerts, check_channels
from boa_daemon.daemon.watch.daemon_health import DaemonHealth
from boa_daemon.daemon.watch.history_store import HistoryStore
from boa_daemon.daemon.watch.job_notifications import JobNotifier
from boa_daemon.daemon.watch.metrics import Metrics
from boa_daemon.daemon.watch.safety_nets import SafetyNets
from boa_daemon.daemon.watch.site_metrics import SiteMetrics
from boa_daemon.daemon.watch.tick_gaps import TickGaps
from boa_daemon.errors import InputError
from boa_daemon.gate.supervisor import GateSupervisor
from boa_daemon.learning.beliefs import Beliefs, EvidenceWeights
from boa_daemon.learning.boot_times import BootTimes
from boa_daemon.learning.budget_watch import BudgetWatch
from boa_daemon.learning.learner import Learner
from boa_daemon.learning.learning_step import LearningStep
from boa_daemon.learning.spot_history import SpotHistory
from boa_daemon.store.best_effort import read_best_effort
from boa_daemon.store.records import InstanceRecord
from boa_daemon.store.samples import SqlSamples, read_figures
from boa_daemon.store.storage import Storage
from boa_daemon.tick.decide.controller import Controller
from boa_daemon.tick.facts.pending_ends import PendingEnds
from boa_daemon.tick.facts.ports import Clock, Provider, Runner
from boa_daemon.tick.facts.team_money import TeamMoney
from policies.model import JobClass, Width

BOOTS_SECONDS = 14 * 86_400.0
"""Age limit of boot times that a start reads back from the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything outside the daemon: the clock, the cloud, and the engine that runs jobs."""

    clock: Clock
    cloud: Provider
    runner: Runner


class DaemonComponents:
    """The components of a daemon; `storage` is None when the daemon has no database that it may write."""

    def __init__(
        self,
        settings: Settings,
        world: World,
        storage: Storage | None,
        *,
        fault: str = "",
        gate: GateSupervisor | None = None,
        why_no_gate: str = "",
        last_state: LastState | None = None,
        last_state_file: LastStateFile | None = None,
    ) -> None:
        self.world, self.storage, self.gate, self.why_no_gate = world, storage, gate, why_no_gate
        self._known_lower_caps: Mapping[str, float] = {}
        self.awaited_seconds: float | None = None
        """Seconds until the database is to be opened again, for a daemon without one; None: never."""
        self.last_state, self.last_state_file = last_state, last_state_file
        """What an earlier process knew, for a daemon without a database; and where this one writes it."""
        self.ends = PendingEnds()
        self.tick_gaps = TickGaps()
        self.without_database = WithoutDatabase(
            cloud=world.cloud, runner=world.runner, clock=world.clock, ends=self.ends
        )
        self.metrics = Metrics()
        self.site_metrics = SiteMetrics(self.metrics.registry)
        self.standing = DaemonHealth(fault=fault, started_at=world.clock.now())
        self.wake: Callable[[float], None] = lambda _seconds: None
        self.after_ticks: Callable[[], None] = lambda: None
        self.settings_source: SettingsReader | None = None
        """Where the settings come from; None for a daemon that reads none, as in tests."""
        self.apply_settings: Callable[[str], list[str]] = lambda _consent: []
        """Reads the settings again and uses them, given the code of consent."""
        self.classes_besides: frozenset[str] = frozenset()
        """Classes that are planned though no job here has them: those of jobs that Slurm schedules."""
        self.after_tick: Callable[[], None] = lambda: None
        """Called after each tick that decided; it must not wait for anything."""
        self._lock = threading.Lock()
        database = None if storage is None else storage.store.database
        self.alerts = Alerts(database, settings.alerts)
        self.nets = SafetyNets(self._alert, self.metrics.net_is_lost)
        self._sweep_fault = ""
        self.own_faults: dict[str, Callable[[], str]] = {
            "notifier": self.alerts.fault,
            "leak sweeps": lambda: self._sweep_fault,
        }
        """Faults of nets that are not the cloud's: by name, what returns why the net is lost, if it is."""
        self.kept = None if database is None else HistoryStore(database)
        self.history = None if self.kept is None else self.kept.history
        self.spot = SpotHistory({} if self.kept is None else self.kept.spot.read())
        self.liveness, self.boots = Liveness(), BootTimes()
        if storage is not None:
            for record in storage.queue.past_instances(world.clock.now() - BOOTS_SECONDS):
                self._note_boot(record)
        self.learning = LearningStep(learner=Learner(None if database is None else SqlSamples(database)))
        self.watched = BudgetWatch(None if database is None else read_best_effort(database))
        self._planned: Controller | None = None
        self.late_prices = None if storage is None else LatePrices(world.cloud, storage)
        self.standing_costs = None if storage is None else StandingCosts(storage.store)
        self.use(settings)
        if storage is not None:
            storage.store.speed = self._speed
            self.work = JobView(
                storage.queue,
                world.runner,
                world.clock,
                class_of=self._class_of,
                elastic_class=self._elastic_class,
                spread_of=self._spread_of,
                user_caps=self._user_caps,
                teams=self._teams,
                alert=self._alert,
                classify=self._classify,
                learner=self.learning.learner,
                liveness=self.liveness,
            )
            self.news = JobNotifier(storage.queue, self.alerts, lambda: self.settings)
            self.fleet = Fleet(
                world.cloud,
                world.runner,
                storage.queue,
                world.clock,
                look=self._look,
                alert=self._alert,
                may_act=storage.check_leads,
                machines=lambda: tuple(self.planner.machines.values()),
                spot=self.spot,
                awaited=self.work.awaited_nodes,
                paid=lambda: self.planner.paid,
            )
            self.last_resort = FallbackTick(
                cloud=world.cloud,
                clock=world.clock,
                ends=self.ends,
                fleet=self.fleet,
                runner=world.runner,
                work=self.work,
                storage=storage,
                grace_seconds=settings.daemon.checkpoint_seconds,
            )

    def classes_in_use(self, storage: Storage) -> set[str]:
        """Return the classes of the active jobs, and those that are planned besides."""
        return {job.class_name for job in list(storage.queue.active.values())} | self.classes_besides

    @property
    def database_busy_seconds(self) -> float:
        """For how long the database has not finished what it was asked."""
        return 0.0 if self.storage is None else self.storage.store.database.busy_seconds

    def use(self, settings: Settings) -> None:
        """Apply settings; an error leaves the present ones in force.

        Raises:
            InputError: when classes or machines are wrong.
        """
        planner = Planner(settings, cloud=self.world.cloud)
        if self.storage is not None:
            planner.take_up(read_figures(self.storage.store.database))
            for job in list(self.storage.queue.active.values()):
                planner.take_active(job.class_name, {**job.content, "elastic": not job.is_rigid})
            self.storage.store.prices = {
                name: machine.usd_per_gpu_hour for name, machine in planner.machines.items()
            }
        check_channels(settings)
        if self.world.cloud.boot_seconds is not None:
            # A real cloud's boot time must be measured; a simulated one boots as the settings say.
            planner.boots = self.boots
        planner.spot = self.spot
        planner.standing_of_cloud = self.world.cloud.standing
        planner.transfers_of_cloud = self.world.cloud.transfers
        planner.lower_caps = self._lower_caps
        planner.late_tick_seconds = self.tick_gaps.longest
        self.settings, self.planner = settings, planner
        learning = settings.learning
        self.learning.beliefs = Beliefs(
            weights=EvidenceWeights(prior_jobs=learning.prior_jobs, half_life_hours=learning.half_life_hours)
        )
        self.alerts.use(settings.alerts)
        self.learning.tries.fraction = settings.workload.explore_fraction
        self.liveness.floor_seconds = settings.daemon.stall_seconds
        self._controllers: dict[str, Controller] = {}

    def _lower_caps(self) -> Mapping[str, float]:
        """Return the caps that were lowered by order; the last known ones while there is no database."""
        if self.storage is not None:
            self._known_lower_caps = self.storage.orders.lower_caps
        return self._known_lower_caps

    def _note_boot(self, record: InstanceRecord) -> None:
        """Record how long a node took to become ready."""
        node = record.node
        self.boots.take(
            node.id,
            str(node.instance_type.machine_name.on_demand),
            launched_at=node.launched_at,
            ready_at=record.ready_at,
        )

    def _look(self) -> None:
        """Update the jobs from the engine, at the beginning of a listing of nodes."""
        self.work.look()

    def _elastic_class(self, content: Mapping[str, Any]) -> str:
        """Return the name of the class that a job is planned by once it is known to be elastic."""
        try:
            return self.planner.class_for({**content, "elastic": True}).name
        except InputError:
            return self.planner.class_for({**content, "elastic": True}, within_instances=False).name

    def _classify(self, content: Mapping[str, Any]) -> JobClass:
        """Return the class that a job file is planned by, and plan for it.

        Raises:
            InputError: when there is no such class.
        """
        try:
            found = self.planner.class_for(content)
        except InputError:
            found = self.planner.class_for(content, within_instances=False)
        self.planner.take_active(found.name, content)
        return found

    def _class_of(self, name: str) -> JobClass | None:
        return self.planner.class_of(name)

    def _spread_of(self, name: str) -> float:
        """Return how much the job sizes of a class vary."""
        return self.learning.beliefs.spread_of(name)

    def _user_caps(self) -> Mapping[str, float]:
        """Return the cap in dollars per day (UTC) of each user who has one."""
        users = self.settings.users.items()
        return {name: user.usd_per_day_cap for name, user in users if user.usd_per_day_cap is not None}

    def _teams(self, purses: Purses, now: float) -> Mapping[str, TeamMoney]:
        """Return the money of each team; shares are parts of the budget."""
        budget = self.settings.budget
        return purses.money(
            {
                name: TeamTerms(
                    usd_per_day_cap=team.usd_per_day_cap,
                    usd_per_month_cap=team.usd_per_month_cap,
                    share=team.share,
                )
                for name, team in self.settings.teams.items()
            },
            now=now,
            usd_per_hour=budget.mean_usd_per_hour,
            half_life_hours=budget.share_half_life_hours,
        )

    def _speed(self, name: str, phase: int, width: Width) -> float:
        """Return the speed of a class; 0 when unknown."""
        return self.planner.speed(name, phase, width)

    def say_settings_refused(self, note: str) -> None:
        """Alert once an hour that the settings in force are not those of the files."""
        hour = int(self.world.clock.now() // 3600)
        digest = hashlib.sha256(note.encode()).hexdigest()[:8]
        self._alert(f"settings:{digest}:{hour}", note)

    def _alert(self, key: str, sentence: str) -> None:
        """Send an alert once."""
        self.alerts.say(key, sentence, at=self.world.clock.now())
