"""The daemon: one tick after the other for months, whatever happens to it or around it.

A tick that fails, by whatever is raised, is tried again at the next; what memory believes is read back from
disk first. Meanwhile `last_resort.py` keeps the caps. While the database cannot be written nothing is
started, because an intent that is not on disk is a leak in waiting. While it cannot be read at all, the
daemon only looks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from boa_daemon.clock import SMALL_SECONDS, SteadyClock
from boa_daemon.daemon import systemd
from boa_daemon.daemon.alerts import Alerts, check_channels, due
from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.costs import spent_usd
from boa_daemon.daemon.history import MinuteRows, figures_of
from boa_daemon.daemon.job_view import Work
from boa_daemon.daemon.journal import Journal
from boa_daemon.daemon.known_jobs import KnownJobs
from boa_daemon.daemon.last_resort import LastResort
from boa_daemon.daemon.liveness import Liveness
from boa_daemon.daemon.markets import as_listed
from boa_daemon.daemon.metrics import Metrics
from boa_daemon.daemon.news import News
from boa_daemon.daemon.node_view import Fleet
from boa_daemon.daemon.planner import Planner
from boa_daemon.daemon.progress import KEEP_SECONDS
from boa_daemon.daemon.purses import Purses, TeamTerms
from boa_daemon.daemon.site_metrics import SiteMetrics
from boa_daemon.daemon.standing_costs import StandingCosts
from boa_daemon.daemon.summary import DecisionSummary
from boa_daemon.errors import BoaError, InputError
from boa_daemon.gate.supervisor import GateSupervisor
from boa_daemon.learning.beliefs import Beliefs, Planned, Weights, explain_belief
from boa_daemon.learning.boots import Boots
from boa_daemon.learning.budget_watch import BudgetWatch, at_dearer_offers
from boa_daemon.learning.exploring import TryWorth
from boa_daemon.learning.learner import Learner
from boa_daemon.learning.policy_record import DOWN, PolicyRecord
from boa_daemon.learning.samples import DAY
from boa_daemon.learning.speedups import explain_curve
from boa_daemon.learning.spot_history import SpotHistory
from boa_daemon.learning.step import LearningStep
from boa_daemon.store.best_effort import read_best_effort, write_best_effort
from boa_daemon.store.documents import Documents
from boa_daemon.store.leader import LedElsewhere
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import InstanceRecord, JobRecord
from boa_daemon.store.samples import SqlSamples, read_figures, write_figures
from boa_daemon.store.storage import Storage
from boa_daemon.tick.actions import TerminateNode
from boa_daemon.tick.codec import dumps
from boa_daemon.tick.controller import ActsFailed, Controller, Ports
from boa_daemon.tick.decision import Decision, decide
from boa_daemon.tick.limits import fixed_usd
from boa_daemon.tick.ports import Clock, KeepsJobs, Provider, Runner
from boa_daemon.tick.shortfall import shortfall_sentence
from boa_daemon.tick.state import NodeState
from boa_daemon.tick.team_money import TeamMoney
from boa_daemon.units import counted
from policies.errors import InfeasibleBudget, PolicyError
from policies.links.machines import off_market
from policies.model import JobClass, JobId, NodeId, Width
from policies.online.best_effort import Account
from policies.online.pacing import Pace

_LOG = logging.getLogger("boa.daemon")
AWAITED_SECONDS = 3.0
"""Between looks while nodes are on their way: what they wait when they are ready is lost to their jobs."""
BOOTS_SECONDS = 14 * 86_400.0
"""Boots of so long ago are read back at a start."""
LATE_TICKS, LATE_SECONDS = 3, 60.0
"""After so many intervals and so long without a tick that was done, the daemon is not ready."""

SWEEP_PATIENCE_SECONDS = 5.0
"""A sweep waits this long for a tick to end, then leaves it to the next sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything outside: time, machines, what runs jobs on them."""

    clock: Clock
    cloud: Provider
    runner: Runner


@dataclass(slots=True)
class Standing:
    """How the daemon is: the last decision, what is wrong, and what it was told."""

    decision: Decision | None = None
    picture: DecisionSummary | None = None
    fault: str = ""
    tick_seconds: float = 0.0
    is_started: bool = False
    is_ready: bool = False
    is_down: bool = False
    reattached: tuple[int, int] = (0, 0)
    started_at: float = 0.0
    notes: list[str] = field(default_factory=list)
    plan_fault: str = ""
    pace: Pace | None = None
    done_at: float = field(default_factory=time.monotonic)
    is_late: bool = False
    clock_note: str = ""


class ClockInDoubt(BoaError):
    """The cloud says that the time is another than ours."""


class NotOurs(BoaError):
    """The cluster is another daemon's: this one only observes."""


class Daemon:
    """Ticks. `books` is None where the database cannot be read: then it only observes."""

    def __init__(
        self,
        settings: Settings,
        world: World,
        books: Storage | None,
        *,
        fault: str = "",
        gate: GateSupervisor | None = None,
        why_no_gate: str = "",
    ) -> None:
        self.world, self.books, self.gate, self.why_no_gate = world, books, gate, why_no_gate
        self.awaited_url = ""
        """The database that did not answer at the start, where that is why this daemon only observes."""
        self.metrics = Metrics()
        self.site_metrics = SiteMetrics(self.metrics.registry)
        self.standing = Standing(fault=fault, started_at=world.clock.now())
        self.wake: Callable[[float], None] = lambda _seconds: None
        self._lock = threading.Lock()
        database = None if books is None else books.store.database
        self.alerts = Alerts(database, settings.alerts)
        self.history = None if database is None else MinuteRows(database)
        self._trails = None if database is None else Documents(database, "progress")
        self._trails_at = -inf
        self._spot_notes = None if database is None else Documents(database, "spot")
        self.spot = SpotHistory({} if self._spot_notes is None else self._spot_notes.read())
        self.liveness = Liveness()
        self.liveness, self.boots = Liveness(), Boots()
        if books is not None:
            for record in books.queue.past_instances(world.clock.now() - BOOTS_SECONDS):
                self._note_boot(record)
        self.learning = LearningStep(learner=Learner(None if database is None else SqlSamples(database)))
        self.watched = BudgetWatch(None if database is None else read_best_effort(database))
        self._planned: Controller | None = None
        self.standing_costs = None if books is None else StandingCosts(books.store)
        self.use(settings)
        if books is not None:
            books.store.speed = self._speed
            self.work = Work(
                books.queue,
                world.runner,
                world.clock,
                class_of=self._class_of,
                elastic_class=self._elastic_class,
                spread_of=self._spread_of,
                user_caps=self._user_caps,
                teams=self._teams,
                alert=self._alert,
                learner=self.learning.learner,
                liveness=self.liveness,
            )
            self.news = News(books.queue, self.alerts, lambda: self.settings)
            self.fleet = Fleet(
                world.cloud,
                world.runner,
                books.queue,
                world.clock,
                look=self._look,
                alert=self._alert,
                may_act=books.check_leads,
                machines=lambda: tuple(self.planner.machines.values()),
                spot=self.spot,
                awaited=self.work.awaited_nodes,
                paid=lambda: self.planner.paid,
            )
            self.last_resort = LastResort(
                cloud=world.cloud,
                fleet=self.fleet,
                runner=world.runner,
                work=self.work,
                books=books,
                grace_seconds=settings.daemon.checkpoint_seconds,
            )

    def use(self, settings: Settings) -> None:
        """Take settings; nothing changes where they are wrong.

        Raises:
            InputError: when classes or machines are wrong.
        """
        planner = Planner(settings, cloud=self.world.cloud)
        if self.books is not None:
            planner.take_up(read_figures(self.books.store.database))
            for job in list(self.books.queue.active.values()):
                planner.take_active(job.class_name, {**job.content, "elastic": not job.is_rigid})
            self.books.store.prices = {
                name: machine.usd_per_gpu_hour for name, machine in planner.machines.items()
            }
        check_channels(settings)
        if self.world.cloud.boot_seconds is not None:
            # What a real cloud takes nobody knows beforehand; a simulated one does what the settings say.
            planner.boots = self.boots
        planner.spot = self.spot
        planner.standing_of_cloud = self.world.cloud.standing
        self.settings, self.planner = settings, planner
        learning = settings.learning
        self.learning.beliefs = Beliefs(
            weights=Weights(prior_jobs=learning.prior_jobs, half_life_hours=learning.half_life_hours)
        )
        self.alerts.settings = settings.alerts
        self.learning.tries.fraction = settings.workload.explore_fraction
        self.liveness.floor_seconds = settings.daemon.stall_seconds
        self._controllers: dict[str, Controller] = {}

    def start(self) -> None:
        """Find what an earlier process left: nodes of later ticks than ours, jobs that run.

        No tick is done before that, and where the cloud does not answer the next tick tries again.
        """
        if self.books is None or self.standing.is_started:
            return
        known = [record.node for record in self.books.queue.instances.values()]
        self.world.cloud.remember([as_listed(node) for node in known])
        self.world.cloud.listen(lambda: self.wake(0.0))
        nodes = self.world.cloud.nodes()
        self.books.store.never_below(max((_tick_of(node) for node in nodes), default=0))
        live = sum(node.ended_at is None for node in nodes)
        self.standing.reattached = (self.work.reattach(), live)
        if self._trails is not None:
            self.work.progress.restore(self._trails.read())
        self.standing.is_down = self.books.store.flag("is_down")
        self.standing.is_started = True
        self._number_jobs(self.books.queue)
        jobs, count = self.standing.reattached
        _LOG.info("re-attached to %s and %s", counted(jobs, "job"), counted(count, "instance"))

    def _number_jobs(self, queue: JobQueue) -> None:
        """Begin above the jobs that the engine still keeps files of, where the database has never had one."""
        runner = self.world.runner
        if queue.has_had_jobs or not isinstance(runner, KeepsJobs):
            return
        try:
            queue.begin_after(runner.job_folders())
        except Exception as error:
            # Nodes that an earlier daemon left are looked after all the same.
            _LOG.warning("whether the engine keeps files of earlier jobs could not be asked: %s", error)

    def tick(self) -> Decision | None:
        """Do one tick; return what was decided, None where it could not be done."""
        with self._lock:
            began = time.perf_counter()
            try:
                if self.books is not None:
                    self.books.check_leads()
                self.start()
                decision = self._observe_only() if self._is_observing else self._run_once()
            except Exception as error:
                # Whatever it is, money goes on being spent: nothing that is raised ends the caps.
                self._stumble(error)
                decision = None
            self.standing.tick_seconds = time.perf_counter() - began
            if decision is not None:
                try:
                    self._succeed(decision)
                except Exception as error:
                    self._stumble(error)
            systemd.alive(self.status_line)
            return decision

    @property
    def _is_observing(self) -> bool:
        """Whether nothing may be touched."""
        return self.books is None or self.settings.daemon.observe

    def _run_once(self) -> Decision:
        """Observe, decide, act."""
        self._check_clock()
        if self.world.cloud.elsewhere():
            self.world.cloud.nodes()
            if said := self.world.cloud.elsewhere():
                raise NotOurs(said)
        self._learn()
        self._explore()
        if self.standing_costs is not None:
            self.standing_costs.charge(self.planner.standing(), now=self.world.clock.now())
        controller = self.controller()
        self.standing.pace = controller.rules.pace
        decision = controller.run_once()
        going = {action.node for action in decision.actions if isinstance(action, TerminateNode)}
        self.world.cloud.renew([name for name in decision.state.nodes if name not in going])
        return decision

    def _check_clock(self) -> None:
        """Say that the machine's clock jumped; do nothing while nobody knows what the time is.

        Raises:
            ClockInDoubt: when the cloud disagrees with our clock, until that is settled.
        """
        clock = self.world.clock
        if not isinstance(clock, SteadyClock):
            return
        if clock.doubt:
            self.world.cloud.nodes()
        if doubt := clock.doubt:
            raise ClockInDoubt(doubt)
        jump = clock.jump_seconds
        is_off = abs(jump) > SMALL_SECONDS
        self.standing.clock_note = (
            f"the clock of this machine is {abs(jump):.0f} s {'ahead' if jump > 0 else 'behind'}: it is not "
            "followed. Set it right; where it is right, restart the daemon"
            if is_off
            else ""
        )
        if is_off:
            self._alert(f"clock:{int(clock.now() // DAY)}", self.standing.clock_note)

    def _observe_only(self) -> Decision | None:
        """Observe and decide; record where there is a database, and touch nothing."""
        if self.books is None:
            count = sum(node.ended_at is None for node in self.world.cloud.nodes())
            self.standing.notes = [f"{counted(count, 'instance')} listed; nothing is touched"]
            return None
        self._learn()
        controller = self.controller()
        self.standing.pace = controller.rules.pace
        state = controller.observe()
        decision = decide(
            state, allocator=controller.allocator, placer=controller.placer, rules=controller.rules
        )
        self.books.store.record_decision(state, decision.actions, decision.plan)
        return decision

    def _succeed(self, decision: Decision) -> None:
        """Take a decision in: figures, messages, and when to look again."""
        standing = self.standing
        if standing.fault:
            _LOG.info("working again after: %s", standing.fault)
        caps = self.planner.rules().caps
        last = standing.decision
        before = set() if last is None else {held.what for held in last.plan.held}
        picture = DecisionSummary.of(decision, caps)
        standing.decision, standing.picture, standing.fault = decision, picture, ""
        standing.is_ready, standing.is_late, standing.done_at = True, False, time.monotonic()
        self.metrics.ticked(picture, standing.tick_seconds)
        self.metrics.goes_so_far(self.watched.shortfall)
        self.news.look(decision.state.now)
        if self.books is not None:
            rates = figures_of(decision.state, dict(self.books.queue.active))
            self._write_history(rates, now=decision.state.now)
            budget, ages = self.settings.budget.mean_usd_per_hour, self.world.cloud.ages()
            self.site_metrics.take(picture, self.books.queue, rates=rates, budget=budget, ages=ages)
        fractions = self.settings.alerts.at_fractions
        for key, sentence in due(decision.state, caps, fractions, figures=picture.figures):
            self._alert(key, sentence)
        for held in decision.plan.held:
            if held.code in ("loop", "no-effect"):
                self._alert(f"{held.code}:{held.what}:{int(decision.state.now // 3600)}", held.sentence)
            elif held.code in ("max-usd", "max-hours"):
                self._alert(f"{held.code}:{held.what}", held.sentence)
            elif held.code in ("user-day-cap", "team-day-cap", "team-month-cap") and held.what not in before:
                _LOG.info("%s", held.sentence)
        if decision.wake_at is not None:
            self.wake(max(decision.wake_at - self.world.clock.now(), 0.0))
        if decision.plan.launches or any(node.phase == "requested" for node in decision.state.nodes.values()):
            self.wake(AWAITED_SECONDS)

    def _write_history(self, rates: Mapping[str, float], *, now: float) -> None:
        """Write down this minute; a picture that lacks one is no reason to fail a tick."""
        if self.history is None:
            return
        try:
            self.history.take(rates, now=now)
        except (SQLAlchemyError, OSError, ValueError) as error:
            _LOG.warning("the history has no figures of this minute: %s", type(error).__name__)
        if now - self._trails_at >= KEEP_SECONDS:
            self._keep_trails()
            self._trails_at = now

    def _keep_trails(self) -> None:
        """Write down how jobs got on; a page that lacks some of it is no reason to fail."""
        if self._trails is None or self._spot_notes is None or self.standing.decision is None:
            return
        try:
            self._trails.write(self.work.progress.documents())
            self._spot_notes.write(self.spot.documents())
        except (SQLAlchemyError, OSError, LedElsewhere) as error:
            _LOG.warning("how jobs got on was not written down: %s", type(error).__name__)

    def _stumble(self, error: Exception) -> None:
        """A tick could not be done: say so, forget what memory believes, and keep the caps."""
        self.metrics.failed()
        is_deposed = isinstance(error, LedElsewhere)
        first = not self.standing.fault
        self.standing.fault = _fault(error)
        (_LOG.exception if first else _LOG.error)("a tick failed: %s", self.standing.fault)
        if isinstance(error, ActsFailed):
            self.standing.decision = error.decision
        if is_deposed:
            # Another one acts, or may: what we would do for the caps it does.
            return
        for do in (self._reload, lambda: self._say_fault(error), self._keep_caps):
            try:
                do()
            except Exception as trouble:
                _LOG.error("after a tick that failed: %s: %s", type(trouble).__name__, trouble)

    def _reload(self) -> None:
        """Read back what memory believes from disk."""
        if self.books is not None:
            self.books.store.reload()
            self.books.queue.reload()
            self.learning.learner.reload()

    def _say_fault(self, error: Exception) -> None:
        """Tell whoever is to be told what keeps ticks from being done: once an hour of each kind."""
        hour = int(self.world.clock.now() // 3600)
        self._alert(f"fault:{type(error).__name__}:{hour}", f"a tick failed: {self.standing.fault}")

    def _keep_caps(self) -> None:
        """Do without a plan what cannot wait: keep caps, obey cancels and `boa down`."""
        if self.books is None or self._is_observing:
            return
        last = self.standing.decision
        self.last_resort.act(
            self.planner.rules(),
            None if last is None else last.state,
            now=self.world.clock.now(),
            is_down=self.standing.is_down,
        )
        for trouble in self.last_resort.troubles:
            _LOG.error("in the last resort: %s", trouble)

    @property
    def trouble(self) -> str:
        """Why the daemon is not ready: ticks that fail, or do not come to their end; empty where it is."""
        standing, every = self.standing, self.settings.daemon.tick_seconds
        if standing.fault:
            return standing.fault
        silent = time.monotonic() - standing.done_at
        if self.books is not None and silent > LATE_TICKS * every + LATE_SECONDS:
            return f"no tick came to its end for {silent:.0f} s, and one is due every {every:.0f} s"
        return "" if standing.is_ready else "the first tick is not done"

    def _watch_ticks(self) -> None:
        """Say once, without the database or the lock that a tick may hold, that ticks do not end."""
        trouble = "" if self.standing.fault or not self.standing.is_ready else self.trouble
        if trouble and not self.standing.is_late:
            self.standing.is_late = True
            self.metrics.fault.set(1)
            self.alerts.shout(trouble)

    def controller(self) -> Controller:
        """Return the controller for the classes in use; a policy is built once and written down."""
        if self.books is None:
            raise BoaError("there is no database to work with")
        try:
            record = self._record(self.books)
            found = self._controllers.get(record.hash) or self._built(record, self.books)
        except PolicyError as error:
            if self._planned is None:
                raise
            self._keep_the_last_plan(error)
            return self._planned
        self.standing.plan_fault = ""
        self._controllers, self._planned = {record.hash: found}, found
        if self.books.store.policy_hash != record.hash:
            self.books.store.use_policy(record.hash, dumps(record.document))
        return found

    def _record(self, books: Storage) -> PolicyRecord:
        """Return the policy for the classes in use, as a best effort where the budget does not pay for it.

        Raises:
            PolicyError: when nothing can be planned.
        """
        in_use = {job.class_name for job in list(books.queue.active.values())}
        record = self.planner.record(in_use)
        last, now, before = self.standing.decision, self.world.clock.now(), self.watched.account
        if last is not None:
            record = replace(record, site=at_dearer_offers(record.site, last.state.offers))
        site = self.planner.paid.under(record.site, now)

        def spent() -> float:
            fixed = fixed_usd(self.planner.paid.fixed, books.store.books_opened_at(now), now)
            return spent_usd(books, now=now) + fixed

        account = self.watched.look(record.name, site, record.options, now=now, spent=spent)
        if account is None:
            record = replace(record, site=site, best_effort=None)
        else:
            # It spends what the books have: commitments are in them, and nothing is expected of them.
            record = replace(record, best_effort=replace(account, budget=record.site.budget.amount))
        if self.watched.account != before:
            self._say_how_far_the_budget_goes(books, before)
        tries = self.learning.tries.explorations
        if tries and record.best_effort is None:
            found = {job: (one.gpus, one.gpu_seconds, one.reason) for job, one in tries.items()}
            record = replace(record, tries=found)
        return _all_down(record) if self.standing.is_down else record

    def _built(self, record: PolicyRecord, books: Storage) -> Controller:
        """Return the controller of a record.

        Raises:
            PolicyError: when it cannot be planned.
        """
        classes = frozenset(one.name for one in record.site.problem.classes)
        ports = Ports(
            clock=self.world.clock,
            cloud=self.fleet,
            jobs=KnownJobs(source=self.work, classes=classes),
            engine=self.work,
            store=books.store,
            telemetry=Journal(),
            links=self.gate,
        )
        return record.controller(ports)

    def _keep_the_last_plan(self, error: PolicyError) -> None:
        """Say that no new plan can be made; the last one goes on, without jobs of classes that it lacks."""
        said = f"the last plan goes on, as no new one can be made: {type(error).__name__}: {error}"
        self.standing.plan_fault = said
        self._alert(f"plan:{int(self.world.clock.now() // DAY)}:{type(error).__name__}", said)

    def _say_how_far_the_budget_goes(self, books: Storage, before: Account | None) -> None:
        """Write down that a best effort begins or ends, and tell whoever is to be told."""
        short, now = self.watched.shortfall, int(self.world.clock.now())
        write_best_effort(books.store.database, self.watched.account)
        if short is not None:
            self._alert(f"best-effort:{now}", shortfall_sentence(short))
        elif before is not None:
            self._alert(f"best-effort-over:{now}", "the budget pays for the load again")

    def _learn(self) -> None:
        """Take in who has come, write down what was seen, and plan by it where that has changed."""
        if self.books is None:
            return
        learner, planner = self.learning.learner, self.planner
        present = self.books.queue.instances
        for record in list(present.values()):
            self._note_boot(record)
        self.boots.forget_others(present)
        self._look_at_spot()
        learner.take_arrivals(self.books.queue.arrivals_after(learner.arrived_through))
        figures, now = dict(planner.figures), self.world.clock.now()
        try:
            is_new = self.learning.follow(planner, self.work.done_by_class, now=now)
        except PolicyError as error:
            self._say_not_followed(error)
            return
        if is_new and self._can_be_planned(figures):
            write_figures(self.books.store.database, planner.kept_figures)
            if planner.rhythm is not None:
                days = ", ".join(f"{day:.2f}" for day in planner.rhythm.by_day)
                _LOG.info("planning by the rhythm of the week, Monday to Sunday over the mean: %s", days)
            for curve in planner.curves.values():
                _LOG.info("planning by what was measured: %s", explain_curve(curve))
            for belief in self.learning.beliefs.known.values():
                if belief.arrivals or belief.ended:
                    _LOG.info("planning by what was seen: %s", explain_belief(belief))

    def _look_at_spot(self) -> None:
        """Count what spot nodes did since the last look, and what the market asks."""
        if self.books is None or ("spot" not in self.settings.cloud.market and not self.planner.is_on_both):
            return
        prices = {machine.name: machine.usd_per_hour for machine in self.planner.machines.values()}
        nodes = [record.node for record in self.books.queue.instances.values()]
        self.spot.look(nodes, self.fleet.offers(), prices, now=self.world.clock.now())

    def _note_boot(self, record: InstanceRecord) -> None:
        """Note how long a node took to be ready."""
        node = record.node
        self.boots.take(
            node.id,
            off_market(node.instance_type.name),
            launched_at=node.launched_at,
            ready_at=record.ready_at,
        )

    def _can_be_planned(self, figures: Mapping[str, Planned]) -> bool:
        """Whether what was seen makes a plan, be it a best effort; where not, take earlier figures back."""
        active = [] if self.books is None else list(self.books.queue.active.values())
        try:
            self.planner.record({job.class_name for job in active}).build()
        except InfeasibleBudget:
            return True
        except PolicyError as error:
            self.planner.take_back(figures)
            self._say_not_followed(error)
            return False
        return True

    def _say_not_followed(self, error: PolicyError) -> None:
        """Say that what was seen makes no plan."""
        day = int(self.world.clock.now() // DAY)
        self._alert(f"unplannable:{day}", f"the plan keeps to old rates and sizes. With those seen: {error}")

    def _explore(self) -> None:
        """Let a few jobs try widths whose speed is worth more to know than the try costs."""
        last = self.standing.decision
        if last is None or not self.planner.explores:
            return
        worth, now = TryWorth.of(last.plan.node_prices, self.planner.machines), self.world.clock.now()
        for job, found in self.learning.explore(self.planner, self.work.jobs, worth=worth, now=now).items():
            _LOG.info("%s: %s", job, found.reason)

    def set_down(self, is_down: bool) -> None:
        """Let everything go (jobs checkpoint and wait), or take work up again; it outlives a restart."""
        # In memory first: where the disk is full, the order is obeyed all the same, until a restart.
        self.standing.is_down = is_down
        if self.books is not None:
            self.books.store.set_flag("is_down", is_down)
        self.wake(0.0)

    def cancel(self, name: JobId) -> JobRecord | None:
        """Cancel a job; None where it is over."""
        found = self.cancel_all([name])
        return found[0] if found else None

    def cancel_all(self, names: Sequence[JobId]) -> list[JobRecord]:
        """Cancel jobs, all or none; those that were not over are returned."""
        found = self.work.cancel(names)
        self.wake(0.0)
        return found

    def change(self, name: JobId, how: Callable[[JobRecord], JobRecord]) -> JobRecord | None:
        """Change a job between two ticks, and tick soon; None where it is over."""
        if self.books is None:
            return None
        with self._lock:
            job = self.books.queue.active.get(name)
            if job is not None:
                job = how(job)
                self.books.queue.save(job)
        self.wake(0.0)
        return job

    def rehearse_end(self, node: NodeId) -> float | None:
        """Have the cloud announce that a node is taken back; return when, None where it cannot."""
        with self._lock:
            at = self.world.cloud.rehearse_end(node)
        self.wake(0.0)
        return at

    def watch(self) -> None:
        """Look whether a job has ended, and tick early if so; cheap, and done between ticks."""
        self._watch_ticks()
        if not self.standing.is_started or not self._lock.acquire(blocking=False):
            return
        try:
            self.fleet.may_act()
            has_ended = self.work.look()
            if self.fleet.has_new_warnings() or has_ended:
                self.wake(0.0)
        except Exception as error:
            _LOG.warning("the engine could not be asked: %s: %s", type(error).__name__, error)
        finally:
            self._lock.release()

    def sweep(self) -> int:
        """Look for what bears our tag and nobody wants, end it and say so; return how much there was."""
        if not self._lock.acquire(timeout=SWEEP_PATIENCE_SECONDS):
            return 0
        try:
            if not self.standing.is_started:
                # What lived under an earlier process is no leak, and not known yet.
                return 0
            self._check_clock()
            leaks = self.world.cloud.sweep()
        except Exception as error:
            _LOG.warning("the sweep could not be done: %s", error)
            return 0
        finally:
            self._lock.release()
        for name, sentence in leaks.items():
            self._alert(f"leak:{name}", f"leak: {sentence}")
        return len(leaks)

    def close(self) -> None:
        """Wait for the tick in flight and let everything go; jobs and nodes stay as they are."""
        with self._lock:
            if self.gate is not None:
                self.gate.close()
            self.alerts.close()
            self.world.cloud.close()
            if self.books is not None:
                self._keep_trails()
                self.books.close()

    @property
    def status_line(self) -> str:
        """One line for systemd."""
        picture = self.standing.picture
        if self.standing.fault:
            return f"in trouble: {self.standing.fault}"
        if picture is None:
            return "starting"
        return (
            f"{picture.usd_per_hour:.2f} USD/hour, {counted(picture.nodes, 'node')}, "
            f"{counted(picture.running, 'job')} running, "
            f"{picture.waiting} waiting"
        )

    def _look(self) -> None:
        """Bring the books up to the engine, at the beginning of a listing."""
        self.work.look()

    def _elastic_class(self, content: Mapping[str, Any]) -> str:
        """Return the name of the class that a job is planned by once it is known to be elastic."""
        try:
            return self.planner.class_for({**content, "elastic": True}).name
        except InputError:
            return self.planner.class_for({**content, "elastic": True}, within_instances=False).name

    def _class_of(self, name: str) -> JobClass | None:
        return self.planner.class_of(name)

    def _spread_of(self, name: str) -> float:
        """Return how much the sizes of the jobs of a class differ."""
        return self.learning.beliefs.spread_of(name)

    def _user_caps(self) -> Mapping[str, float]:
        """Return the dollars per day (UTC) of users who have a cap."""
        users = self.settings.users.items()
        return {name: user.usd_per_day_cap for name, user in users if user.usd_per_day_cap is not None}

    def _teams(self, purses: Purses, now: float) -> Mapping[str, TeamMoney]:
        """Return the purses of teams; their shares are of the budget."""
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
        """Return how fast a class works; 0 where nobody knows."""
        return self.planner.speed(name, phase, width)

    def _alert(self, key: str, sentence: str) -> None:
        """Tell whoever is to be told, once."""
        self.alerts.say(key, sentence, at=self.world.clock.now())


def _fault(error: Exception) -> str:
    """Return what keeps a tick from being done, and what that means."""
    if isinstance(error, SQLAlchemyError):
        said = str(getattr(error, "orig", None) or error).splitlines()[0][:200]
        what = "Free some space on its disk" if "full" in said else "See to its disk or its server"
        return f"the database cannot be used: {said}. Nothing is started meanwhile. {what}"
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def _all_down(record: PolicyRecord) -> PolicyRecord:
    """Return the record under which nothing is held: no width for any job, no hold, no idle node."""
    rules = replace(record.rules, steady=None, idle_hold_seconds=0.0, warm_pool=None)
    return replace(record, name=DOWN, rules=rules)


def _tick_of(node: NodeState) -> int:
    """Return the number of the tick that asked for a node, 0 where its name does not say."""
    head = node.launched_by.partition("-")[0]
    return int(head[1:]) if head.startswith("t") and head[1:].isdigit() else 0
