"""Update the plan from measurements: arrivals, sizes, speeds, boots, spot, and how far the budget goes.

A policy is built and recorded once for each set of classes in use. When the measurements allow no plan, the
daemon keeps the last plan.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from boa_daemon.daemon.loop.components import DaemonComponents
from boa_daemon.daemon.loop.journal import Journal
from boa_daemon.daemon.money.costs import spent_usd
from boa_daemon.daemon.planner.slurm_classes import is_node_class
from boa_daemon.errors import BoaError
from boa_daemon.learning.beliefs import PlannedFigures, explain_belief
from boa_daemon.learning.budget_watch import at_dearer_offers
from boa_daemon.learning.policy_record import DOWN_POLICY, PolicyRecord
from boa_daemon.learning.samples import DAY
from boa_daemon.learning.speedups import explain_curve
from boa_daemon.learning.width_trials import GpuHourWorth
from boa_daemon.store.best_effort import write_best_effort
from boa_daemon.store.samples import write_figures
from boa_daemon.store.storage import Storage
from boa_daemon.tick.decide.controller import Controller, Ports
from boa_daemon.tick.facts.codec import dumps
from boa_daemon.tick.facts.limits import fixed_usd
from boa_daemon.tick.room.shortfall import shortfall_sentence
from policies.errors import InfeasibleBudget, PolicyError
from policies.online.best_effort import Account

_LOG = logging.getLogger("boa.daemon")


class AdaptiveDaemon(DaemonComponents):
    """A daemon that plans by what it has measured."""

    def controller(self) -> Controller:
        """Return the controller for the classes in use; build and record its policy when it is new.

        When no new plan is possible, return the last controller.

        Raises:
            BoaError: when there is no database.
            PolicyError: when no plan is possible and there is no last one.
        """
        if self.storage is None:
            raise BoaError("there is no database to work with")
        try:
            record = self._record(self.storage)
            found = self._controllers.get(record.hash) or self._built(record, self.storage)
        except PolicyError as error:
            if self._planned is None:
                raise
            self._keep_the_last_plan(error)
            return self._planned
        self.standing.plan_fault = ""
        self._controllers, self._planned = {record.hash: found}, found
        if self.storage.store.policy_hash != record.hash:
            self.storage.store.use_policy(record.hash, dumps(record.document))
        return found

    def _record(self, storage: Storage) -> PolicyRecord:
        """Return the policy for the classes in use; a best effort when the budget does not cover the load.

        Raises:
            PolicyError: when nothing can be planned.
        """
        record = self.planner.record(self.classes_in_use(storage))
        last, now, before = self.standing.decision, self.world.clock.now(), self.watched.account
        if last is not None:
            record = replace(record, site=at_dearer_offers(record.site, last.state.offers))
        site = self.planner.paid.under(record.site, now)

        def spent() -> float:
            fixed = fixed_usd(self.planner.paid.fixed, storage.store.books_opened_at(now), now)
            return spent_usd(storage, now=now) + fixed

        known = storage.store.memory()
        account = self.watched.look(
            record.name,
            site,
            record.options,
            now=now,
            spent=spent,
            memory=() if known is None else known[0],
            opened_at=storage.store.books_opened_at(now),
        )
        if account is None:
            record = replace(record, site=site, best_effort=None)
        else:
            # The recorded spending includes the commitments, so a best effort uses the full budget.
            record = replace(record, best_effort=replace(account, budget=record.site.budget.amount))
        if self.watched.account != before:
            self._say_how_far_the_budget_goes(storage, before)
        tries = self.learning.tries.explorations
        if tries and record.best_effort is None:
            found = {job: (one.gpus, one.gpu_seconds, one.reason) for job, one in tries.items()}
            record = replace(record, tries=found)
        return _all_down(record) if self.standing.is_down else record

    def _built(self, record: PolicyRecord, storage: Storage) -> Controller:
        """Return the controller of a policy record.

        Raises:
            PolicyError: when the policy finds no plan.
        """
        classes = frozenset(one.name for one in record.site.problem.classes)
        ports = Ports(
            clock=self.world.clock,
            cloud=self.fleet,
            jobs=self.work,
            engine=self.work,
            store=storage.store,
            telemetry=Journal(),
            links=self.gate,
            ends=self.ends,
        )
        return replace(record.controller(ports), classes=classes)

    def _keep_the_last_plan(self, error: PolicyError) -> None:
        """Alert that the last plan continues, without jobs of other classes, as no new plan is possible."""
        said = f"the last plan stays in use, because no new one is possible: {type(error).__name__}: {error}"
        self.standing.plan_fault = said
        self._alert(f"plan:{int(self.world.clock.now() // DAY)}:{type(error).__name__}", said)

    def _say_how_far_the_budget_goes(self, storage: Storage, before: Account | None) -> None:
        """Store and alert that a best effort begins or ends."""
        short, now = self.watched.shortfall, int(self.world.clock.now())
        write_best_effort(storage.store.database, self.watched.account)
        if short is not None:
            self._alert(f"best-effort:{now}", shortfall_sentence(short))
        elif before is not None:
            self._alert(f"best-effort-over:{now}", "the budget pays for the load again")

    def _learn(self) -> None:
        """Learn from new arrivals and nodes; when the figures changed, store them and plan by them."""
        if self.storage is None:
            return
        learner, planner = self.learning.learner, self.planner
        present = self.storage.queue.instances
        for record in list(present.values()):
            self._note_boot(record)
        self.boots.forget_others(present)
        self._look_at_spot()
        arrivals = self.storage.queue.arrivals_after(learner.arrived_through)
        learner.take_arrivals(arrivals, is_left_out=is_node_class)
        figures, now = dict(planner.figures), self.world.clock.now()
        try:
            is_new = self.learning.follow(planner, self.work.done_by_class, now=now)
        except PolicyError as error:
            self._say_not_followed(error)
            return
        if is_new and self._can_be_planned(figures):
            write_figures(self.storage.store.database, planner.kept_figures)
            if planner.rhythm is not None:
                days = ", ".join(f"{day:.2f}" for day in planner.rhythm.by_day)
                _LOG.info("planning by the rhythm of the week, Monday to Sunday over the mean: %s", days)
            for curve in planner.curves.values():
                _LOG.info("planning by what was measured: %s", explain_curve(curve))
            for belief in self.learning.beliefs.known.values():
                if belief.arrivals or belief.ended:
                    _LOG.info("planning by what was seen: %s", explain_belief(belief))

    def _look_at_spot(self) -> None:
        """Record the spot nodes' interruptions since the last look, and the market's prices."""
        if self.storage is None or ("spot" not in self.settings.cloud.market and not self.planner.is_on_both):
            return
        prices = {machine.name: machine.usd_per_hour for machine in self.planner.machines.values()}
        nodes = [record.node for record in self.storage.queue.instances.values()]
        self.spot.look(nodes, self.fleet.offers(), prices, now=self.world.clock.now())

    def _can_be_planned(self, figures: Mapping[str, PlannedFigures]) -> bool:
        """Whether the new figures allow a plan, if only a best effort; if not, restore `figures`."""
        active = [] if self.storage is None else list(self.storage.queue.active.values())
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
        """Alert, once a day, that the measured figures allow no plan."""
        day = int(self.world.clock.now() // DAY)
        self._alert(
            f"unplannable:{day}",
            f"the plan keeps its earlier rates and sizes, because the measured ones allow no plan: {error}",
        )

    def _explore(self) -> None:
        """Let a few jobs try a new width when learning its speed is worth more than the trial costs."""
        last = self.standing.decision
        if last is None or not self.planner.explores:
            return
        worth, now = GpuHourWorth.of(last.plan.node_prices, self.planner.machines), self.world.clock.now()
        for job, found in self.learning.explore(self.planner, self.work.jobs, worth=worth, now=now).items():
            _LOG.info("%s: %s", job, found.reason)


def _all_down(record: PolicyRecord) -> PolicyRecord:
    """Return the record that releases everything: no width for any job, no idle node."""
    rules = replace(record.rules, steady=None, idle_hold_seconds=0.0, warm_pool=None)
    return replace(record, name=DOWN_POLICY, rules=rules)
