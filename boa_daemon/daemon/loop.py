"""The daemon: one tick after the other for months, whatever happens to it or around it.

A tick that fails is tried again at the next; what memory believes is read back from disk first. While the
database cannot be written nothing is started, because an intent that is not on disk is a leak in waiting;
only what would break a cap is given back. While it cannot be read at all, the daemon only looks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from boa_daemon.daemon import systemd
from boa_daemon.daemon.alerts import Alerts, due
from boa_daemon.daemon.budget_watch import BudgetWatch, at_dearer_offers
from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.costs import spent_today, spent_usd
from boa_daemon.daemon.job_view import Work
from boa_daemon.daemon.journal import Journal
from boa_daemon.daemon.known_jobs import KnownJobs
from boa_daemon.daemon.liveness import Liveness
from boa_daemon.daemon.metrics import Metrics
from boa_daemon.daemon.node_view import Fleet
from boa_daemon.daemon.planner import DOWN, Planner, PolicyRecord
from boa_daemon.daemon.summary import DecisionSummary
from boa_daemon.errors import BoaError, InputError
from boa_daemon.gate.supervisor import GateSupervisor
from boa_daemon.learning.beliefs import Beliefs, Planned, Weights, explain_belief
from boa_daemon.learning.exploring import Worth
from boa_daemon.learning.learner import Learner, import_speeds
from boa_daemon.learning.samples import DAY
from boa_daemon.learning.speedups import explain_curve
from boa_daemon.learning.step import LearningStep
from boa_daemon.store.best_effort import read_best_effort, write_best_effort
from boa_daemon.store.database import Database
from boa_daemon.store.records import JobRecord
from boa_daemon.store.samples import SqlSamples, read_figures, write_figures
from boa_daemon.store.storage import Storage
from boa_daemon.tick.actions import StopJob, TerminateNode
from boa_daemon.tick.caps import within_caps
from boa_daemon.tick.codec import dumps
from boa_daemon.tick.controller import Controller, Ports
from boa_daemon.tick.decision import Decision, decide
from boa_daemon.tick.ports import Clock, Provider, Runner
from boa_daemon.tick.shortfall import shortfall_sentence
from boa_daemon.tick.state import NodeState, Plan
from policies.errors import InfeasibleBudget, PolicyError
from policies.model import JobClass, JobId, Width
from policies.online.best_effort import Account
from policies.online.pacing import Pace

_LOG = logging.getLogger("boa.daemon")
_TROUBLE = (SQLAlchemyError, OSError, BoaError, PolicyError)


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
    ) -> None:
        self.world, self.books, self.gate = world, books, gate
        self.metrics = Metrics()
        self.standing = Standing(fault=fault, started_at=world.clock.now())
        self.wake: Callable[[float], None] = lambda _seconds: None
        self._lock = threading.Lock()
        database = None if books is None else books.store.database
        self.alerts = Alerts(database, settings.alerts)
        self.liveness = Liveness()
        self.learning = LearningStep(learner=Learner(None if database is None else _samples(database)))
        self.watched = BudgetWatch(None if database is None else read_best_effort(database))
        self._planned: Controller | None = None
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
                alert=self._alert,
                learner=self.learning.learner,
                liveness=self.liveness,
            )
            self.fleet = Fleet(world.cloud, world.runner, books.queue, world.clock, look=self._look)

    def use(self, settings: Settings) -> None:
        """Take settings; nothing changes where they are wrong.

        Raises:
            InputError: when classes or machines are wrong.
        """
        planner = Planner(settings, boot_seconds=self.world.cloud.boot_seconds)
        if self.books is not None:
            planner.take_up(read_figures(self.books.store.database))
            for job in list(self.books.queue.active.values()):
                planner.take_active(job.class_name, {**job.content, "elastic": not job.is_rigid})
            self.books.store.prices = {
                name: machine.usd_per_gpu_hour for name, machine in planner.machines.items()
            }
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
        self.world.cloud.remember(known)
        self.world.cloud.listen(lambda: self.wake(0.0))
        nodes = self.world.cloud.nodes()
        self.books.store.never_below(max((_tick_of(node) for node in nodes), default=0))
        live = sum(node.ended_at is None for node in nodes)
        self.standing.reattached = (self.work.reattach(), live)
        self.standing.is_down = self.books.store.flag("is_down")
        self.standing.is_started = True
        jobs, count = self.standing.reattached
        _LOG.info("re-attached to %d jobs and %d instances", jobs, count)

    def tick(self) -> Decision | None:
        """Do one tick; return what was decided, None where it could not be done."""
        with self._lock:
            began = time.perf_counter()
            try:
                self.start()
                decision = self._observe_only() if self._is_observing else self._run_once()
            except _TROUBLE as error:
                self._stumble(error)
                decision = None
            self.standing.tick_seconds = time.perf_counter() - began
            if decision is not None:
                self._succeed(decision)
            systemd.alive(self.status_line)
            return decision

    @property
    def _is_observing(self) -> bool:
        """Whether nothing may be touched."""
        return self.books is None or self.settings.daemon.observe

    def _run_once(self) -> Decision:
        """Observe, decide, act."""
        self._learn()
        self._explore()
        controller = self.controller()
        self.standing.pace = controller.rules.pace
        return controller.run_once()

    def _observe_only(self) -> Decision | None:
        """Observe and decide; record where there is a database, and touch nothing."""
        if self.books is None:
            count = sum(node.ended_at is None for node in self.world.cloud.nodes())
            self.standing.notes = [f"{count} instances are listed; nothing is touched"]
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
        picture = DecisionSummary.of(decision, caps)
        standing.decision, standing.picture, standing.fault = decision, picture, ""
        standing.is_ready = True
        self.metrics.ticked(picture, standing.tick_seconds)
        self.metrics.goes_so_far(self.watched.shortfall)
        if self.gate is not None:
            self.gate.tell(decision.state)
        fractions = self.settings.alerts.at_fractions
        for key, sentence in due(decision.state, caps, fractions, figures=picture.figures):
            self._alert(key, sentence)
        for held in decision.plan.held:
            if held.code in ("loop", "no-effect"):
                self._alert(f"{held.code}:{held.what}:{int(decision.state.now // 3600)}", held.sentence)
        wakes = [decision.wake_at, None if self.books is None else self.work.next_rest_ends_at()]
        if due_at := [at for at in wakes if at is not None]:
            self.wake(max(min(due_at) - self.world.clock.now(), 0.0))

    def _stumble(self, error: Exception) -> None:
        """A tick could not be done: say so, forget what memory believes, and keep the caps."""
        self.metrics.failed()
        first = not self.standing.fault
        self.standing.fault = _fault(error)
        (_LOG.exception if first else _LOG.error)("a tick failed: %s", self.standing.fault)
        try:
            if self.books is not None:
                self.books.store.reload()
                self.books.queue.reload()
                self.learning.learner.reload()
        except _TROUBLE:
            pass
        try:
            self._keep_caps()
        except _TROUBLE as trouble:
            _LOG.error("the caps could not be looked after: %s", trouble)

    def _keep_caps(self) -> None:
        """Give back, without a record, what would break a cap: money is spent whether written down or not."""
        last = self.standing.decision
        if last is None or self.books is None:
            return
        held = self.books.queue.holders()
        nodes = {
            node.id: replace(
                node,
                gpus=tuple(held.get(node.id, {}).get(index) for index in range(node.instance_type.gpus)),
            )
            for node in self.world.cloud.nodes()
            if node.ended_at is None
        }
        state = replace(last.state, now=self.world.clock.now(), nodes=nodes, jobs=self.work.jobs())
        plan = within_caps(state, Plan(widths={}, slots={}), self.planner.rules())
        for name in plan.stops:
            generation = state.jobs[name].generation
            self.world.runner.stop(
                StopJob(id=f"cap-{name}", job=name, generation=generation, reason="a cap would be broken")
            )
        orders = [
            TerminateNode(id=f"cap-{name}", node=name, reason="a cap would be broken")
            for name in (*plan.releases, *plan.forced)
        ]
        if orders:
            self.world.cloud.terminate(orders)

    def controller(self) -> Controller:
        """Return the controller for the classes in use; a policy is built once and written down."""
        if self.books is None:
            raise BoaError("there is no database to work with")
        self._hold_users()
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
        record = self.watched.look(record, now=now, spent_usd=lambda: spent_usd(books, now=now))
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
        allocator, placer, rules = record.build()
        return Controller(
            allocator=allocator,
            placer=placer,
            rules=rules,
            ports=Ports(
                clock=self.world.clock,
                cloud=self.fleet,
                jobs=KnownJobs(
                    source=self.work,
                    classes=frozenset(one.name for one in record.site.problem.classes),
                ),
                engine=self.work,
                store=books.store,
                telemetry=Journal(),
            ),
        )

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

    def _hold_users(self) -> None:
        """Hold back the waiting jobs of users who have spent what they may spend today (UTC)."""
        capped = {
            name: user.usd_per_day_cap
            for name, user in self.settings.users.items()
            if user.usd_per_day_cap is not None
        }
        held: frozenset[str] = frozenset()
        if capped and self.books is not None:
            spent = spent_today(self.books, now=self.world.clock.now())
            held = frozenset(name for name, cap in capped.items() if spent.get(name, 0.0) >= cap)
        for name in sorted(held - self.work.held_users):
            _LOG.info("user %s has reached %.2f USD today: jobs that wait are held back", name, capped[name])
        self.work.held_users = held

    def _learn(self) -> None:
        """Take in who has come, write down what was seen, and plan by it where that has changed."""
        if self.books is None:
            return
        learner, planner = self.learning.learner, self.planner
        learner.take_arrivals(self.books.queue.arrivals_after(learner.arrived_through))
        figures, now = dict(planner.figures), self.world.clock.now()
        try:
            is_new = self.learning.follow(planner, self.work.done_by_class, now=now)
        except PolicyError as error:
            self._say_not_followed(error)
            return
        if is_new and self._can_be_planned(figures):
            write_figures(self.books.store.database, planner.kept_figures)
            for curve in planner.curves.values():
                _LOG.info("planning by what was measured: %s", explain_curve(curve))
            for belief in self.learning.beliefs.known.values():
                if belief.arrivals or belief.ended:
                    _LOG.info("planning by what was seen: %s", explain_belief(belief))

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
        worth, now = Worth.of(last.plan.node_prices, self.planner.machines), self.world.clock.now()
        for job, found in self.learning.explore(self.planner, self.work.jobs, worth=worth, now=now).items():
            _LOG.info("%s: %s", job, found.reason)

    def set_down(self, is_down: bool) -> None:
        """Let everything go (jobs checkpoint and wait), or take work up again; it outlives a restart."""
        if self.books is not None:
            self.books.store.set_flag("is_down", is_down)
        self.standing.is_down = is_down
        self.wake(0.0)

    def cancel(self, name: JobId) -> JobRecord | None:
        """Cancel a job; None where it is over."""
        job = self.work.cancel(name)
        self.wake(0.0)
        return job

    def watch(self) -> None:
        """Look whether a job has ended, and tick early if so; cheap, and done between ticks."""
        if not self.standing.is_started or not self._lock.acquire(blocking=False):
            return
        try:
            has_ended = self.work.look()
            if self.fleet.has_new_warnings() or has_ended:
                self.wake(0.0)
        except _TROUBLE as error:
            _LOG.warning("the engine could not be asked: %s", error)
        finally:
            self._lock.release()

    def sweep(self) -> int:
        """Look for what bears our tag and nobody wants, end it and say so; return how much there was."""
        if not self._lock.acquire(timeout=SWEEP_PATIENCE_SECONDS):
            return 0
        try:
            leaks = self.world.cloud.sweep()
        except BoaError as error:
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
                self.books.store.database.close()

    @property
    def status_line(self) -> str:
        """One line for systemd."""
        picture = self.standing.picture
        if self.standing.fault:
            return f"in trouble: {self.standing.fault}"
        if picture is None:
            return "starting"
        return (
            f"{picture.usd_per_hour:.2f} USD/hour, {picture.nodes} nodes, {picture.running} jobs running, "
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
        """Return the class that a job is planned by."""
        return self.planner.class_of(name)

    def _spread_of(self, name: str) -> float:
        """Return how much the sizes of the jobs of a class differ."""
        return self.learning.beliefs.spread_of(name)

    def _speed(self, name: str, phase: int, width: Width) -> float:
        """Return how fast a class works; 0 where nobody knows."""
        return self.planner.speed(name, phase, width)

    def _alert(self, key: str, sentence: str) -> None:
        """Tell whoever is to be told, once."""
        self.alerts.say(key, sentence, at=self.world.clock.now())


def _samples(database: Database) -> SqlSamples:
    """Return the samples of a database, with what an earlier version kept in a file beside it."""
    samples, path = SqlSamples(database), database.engine.url.database
    if database.engine.dialect.name == "sqlite" and path and path != ":memory:":
        try:
            count = import_speeds(Path(path).with_name("speeds.json"), samples)
        except OSError as error:
            _LOG.warning("speeds.json was read and cannot be put aside: %s", error)
            return samples
        if count:
            _LOG.info("%d measured speeds were taken over from speeds.json", count)
    return samples


def _fault(error: Exception) -> str:
    """Return what keeps a tick from being done, and what that means."""
    if isinstance(error, SQLAlchemyError):
        said = str(getattr(error, "orig", None) or error).splitlines()[0][:200]
        what = "Free some space on its disk" if "full" in said else "See to its disk or its server"
        return f"the database cannot be used: {said}. Nothing is started meanwhile. {what}"
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def _all_down(record: PolicyRecord) -> PolicyRecord:
    """Return the record under which nothing is held: no width for any job, no hold, no idle node."""
    rules = replace(record.rules, steady=None, idle_hold_seconds=0.0)
    return replace(record, name=DOWN, rules=rules)


def _tick_of(node: NodeState) -> int:
    """Return the number of the tick that asked for a node, 0 where its name does not say."""
    head = node.launched_by.partition("-")[0]
    return int(head[1:]) if head.startswith("t") and head[1:].isdigit() else 0
