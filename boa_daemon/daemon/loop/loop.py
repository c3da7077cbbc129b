"""The daemon's loop: one tick after another for months, through any failure.

When a tick fails, the state in memory is read back from the database and the next tick tries again. Meanwhile
`fallback_tick.py` keeps the caps. While the database cannot be written nothing is started, because a launch
without a recorded intent could leak a node. A daemon that could not open its database at the start keeps the
caps and the leases from the file with the state of the last tick; `serve.py` opens the database again and
again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from math import isfinite

from boa_daemon.clock import SteadyClock
from boa_daemon.daemon.loop import systemd
from boa_daemon.daemon.loop.adaptive_daemon import AdaptiveDaemon
from boa_daemon.daemon.money.group_money import usd_per_hour_of
from boa_daemon.daemon.money.job_cost import cost_of
from boa_daemon.daemon.money.older_copy import charge_what_a_copy_lacks
from boa_daemon.daemon.money.standing_costs import StandingCosts
from boa_daemon.daemon.planner.planned_markets import listed_node
from boa_daemon.daemon.settings.config import TeamSettings, UserSettings
from boa_daemon.daemon.watch.alerts import due_alerts
from boa_daemon.daemon.watch.daemon_health import clock_note, fault_of, pending_end_sentence
from boa_daemon.daemon.watch.decision_summary import DecisionSummary
from boa_daemon.daemon.watch.minute_history import current_figures
from boa_daemon.daemon.watch.purse_alerts import (
    JobMoney,
    Purse,
    commitment_purses,
    due_purse_alerts,
    job_purses,
    team_and_user_purses,
)
from boa_daemon.daemon.watch.tick_gaps import gap_note
from boa_daemon.errors import BoaError
from boa_daemon.learning.samples import DAY
from boa_daemon.store.database import held_in_time
from boa_daemon.store.database_setup import RECOVERED, StoreOfOthers, StoreWentBack
from boa_daemon.store.database_troubles import PASSING, trouble_of
from boa_daemon.store.leader import LeadInDoubt, LedElsewhere
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import JobRecord
from boa_daemon.tick.decide.controller import ActsFailed, Controller
from boa_daemon.tick.decide.decision import Decision, decide
from boa_daemon.tick.facts.actions import TerminateNode
from boa_daemon.tick.facts.limits import Caps
from boa_daemon.tick.facts.ports import JobFolderStore, NetSource, PersistableRunner
from boa_daemon.tick.facts.state import ClusterState, JobState, NodeState
from boa_daemon.tick.money.ledger import charge_for
from boa_daemon.units import counted, dollars
from policies.model import JobId, NodeId
from policies.money_text import in_dollars

_LOG = logging.getLogger("boa.daemon")
REFUSED_SECONDS = 1.0
"""Seconds from a tick with a refused launch to the next, which tries the offers that are still open."""
AWAITED_SECONDS = 3.0
"""Seconds between ticks while nodes boot: a ready node that waits for a tick is lost time for its jobs."""

REPEAT_SECONDS = 60.0
"""Seconds between log lines about a fault that lasts: a full disk must not be filled by its own reports."""
SWEEP_PATIENCE_SECONDS = 5.0
"""Longest time that a sweep waits for a running tick; after that it is skipped."""


class ClockInDoubt(BoaError):
    """The cloud's clock and the daemon's disagree."""


class NotOurs(BoaError):
    """Another daemon owns the cluster; this one only observes."""


class Daemon(AdaptiveDaemon):
    """The daemon; it only observes when `storage` is None, because it has no database that it may write."""

    _is_reattached = False
    _logged_fault = ("", float("-inf"))
    _newer_state: ClusterState | None = None
    """The last state of this process, when an older copy took the place of its database."""

    def start(self) -> None:
        """Find the nodes and running jobs that an earlier process left, and continue its tick numbers.

        No tick runs before this succeeds; when the cloud does not answer, the next tick tries again.
        """
        if self.storage is None or self.standing.is_started:
            return
        if self.late_prices is not None:
            self.late_prices.restore()
        known = [record.node for record in self.storage.queue.instances.values()]
        self.world.cloud.remember(self._as_listed(known))
        self.world.cloud.listen(lambda: self.wake(0.0))
        nodes = self.world.cloud.nodes()
        self._charge_what_has_ended()
        self._charge_what_was_forgotten(nodes)
        self.storage.store.never_below(max((_tick_of(node) for node in nodes), default=0))
        live = sum(node.ended_at is None for node in nodes)
        self.work.listed = self.fleet.planned(nodes)
        self.standing.reattached = (self.work.reattach(), live)
        self.work.listed = {}
        if self.kept is not None:
            self.kept.restore(self.work.progress)
        self.standing.is_down = self.storage.store.flag("is_down")
        self.standing.is_started = True
        self._number_jobs(self.storage.queue)
        jobs, count = self.standing.reattached
        _LOG.info("re-attached to %s and %s", counted(jobs, "job"), counted(count, "instance"))

    def _charge_what_has_ended(self) -> None:
        """Charge nodes whose end is recorded and whose bill is not, because a process died in between.

        The cloud lists an ended node for an hour or so, and nobody would charge it later.
        """
        if self.storage is not None and not self._is_observing:
            for record in self.storage.queue.ended_without_bill():
                self.storage.store.record_charge(charge_for(record.node))

    def _as_listed(self, nodes: Iterable[NodeState]) -> list[NodeState]:
        """Return recorded nodes as the cloud lists them: without the part that commitments cover."""
        if not self.planner.paid.levels:
            return [listed_node(node) for node in nodes]
        plain = ("requested", "ready", "terminating")
        return [
            listed_node(
                replace(node, prices=node.list_prices)
                if node.market == "on-demand" and node.phase in plain
                else node
            )
            for node in nodes
        ]

    def _charge_what_was_forgotten(self, nodes: Sequence[NodeState]) -> None:
        """Charge what was spent after the copy was made from which the database was restored."""
        assert self.storage is not None
        store, last = self.storage.store, self._newer_state
        if last is None and self.last_state_file is not None:
            found = self.last_state_file.read()
            # A recovered database may have another name than the lost one, whose ticks were of this cluster.
            is_of_this = found and (found.ledger_id == store.known_name or store.flag(RECOVERED))
            last = found.state if found and is_of_this and found.state.tick > store.tick else None
        if last is None or self._is_observing:
            return
        now, recorded = self.world.clock.now(), self.storage.queue.instances.values()
        # The hours since the copy are charged again as what they were.
        self.standing_costs = StandingCosts(store)
        self.standing_costs.charge(self.planner.standing(), now=last.now)
        priced = self.planner.paid.priced(nodes, last.nodes, now)
        amount = charge_what_a_copy_lacks(store, last, priced.values(), recorded)
        store.never_below(last.tick)
        self._newer_state = None
        if amount:
            said = (
                "the database was restored from an older copy, which lacks "
                f"{in_dollars(dollars(amount))} that were "
                "spent since: they are charged, so that the caps hold"
            )
            self._alert(f"restored:{last.tick}", said)

    def _number_jobs(self, queue: JobQueue) -> None:
        """In a database that never had jobs, number new jobs above those that the engine keeps files of."""
        runner = self.world.runner
        if queue.has_had_jobs or not isinstance(runner, JobFolderStore):
            return
        try:
            queue.begin_after(runner.job_folders())
        except Exception as error:
            # A failure here must not keep the daemon from managing nodes of an earlier process.
            _LOG.warning("the engine did not say whether it keeps files of earlier jobs: %s", error)

    def tick(self) -> Decision | None:
        """Run one tick; return its decision, None when it failed or there is no database."""
        with self._lock:
            began, began_at = time.perf_counter(), self.world.clock.now()
            try:
                if self.storage is not None:
                    self.storage.check_leads()
                self.start()
                decision = self._observe_only() if self._is_observing else self._run_once()
            except Exception as error:
                # Catch everything: nodes continue to cost money, so no error may stop the caps.
                self._stumble(error)
                decision = None
            self.standing.tick_seconds = time.perf_counter() - began
            for key, sentence in self.world.cloud.news():
                self._alert(f"cloud:{key}", sentence)
            if decision is not None:
                try:
                    self._succeed(decision)
                except Exception as error:
                    self._stumble(error)
            else:
                self._end_again(began_at)
            self._note_gap(began_at)
            self._tell_of_pending_ends()
            systemd.notify_alive(self.status_line)
            return decision

    def _end_again(self, began_at: float) -> None:
        """After a failed tick, request another one soon if the cloud did not end a node as told."""
        nodes = {} if self._last_observed is None else self._last_observed.nodes
        now = self.world.clock.now()
        again = self.ends.again_at(nodes, since=began_at, now=now)
        if again is not None:
            self.wake(max(again - now, REFUSED_SECONDS))

    def _note_gap(self, began_at: float) -> None:
        """Measure how far apart ticks come; alert once a day when later than every site allows for."""
        self.tick_gaps.note(began=began_at, ended=self.world.clock.now())
        said = gap_note(self.tick_gaps.longest(), self.settings.daemon.tick_seconds)
        if said and not self.standing.gap_note:
            self._alert(f"late ticks:{int(began_at // DAY)}", said)
        self.standing.gap_note = said

    def _tell_of_pending_ends(self) -> None:
        """Alert about each node that the cloud does not end, with what it costs; once an hour."""
        now, state = self.world.clock.now(), self._last_observed
        for name, end in self.ends.lasting(now).items():
            node = None if state is None else state.nodes.get(name)
            sentence = pending_end_sentence(name, end, None if node is None else node.usd_per_hour, now=now)
            self._alert(f"not ended:{name}:{int(now // 3600)}", sentence)

    @property
    def _is_observing(self) -> bool:
        """Whether the daemon may change nothing."""
        return self.storage is None or self.settings.daemon.observe

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
        self._expect_checkpoints()
        controller = self._controller_at_list_prices()
        decision = controller.run_once()
        self._look_at_prices(decision.state.now)
        going = {action.node for action in decision.actions if isinstance(action, TerminateNode)}
        self.world.cloud.renew([name for name in decision.state.nodes if name not in going])
        return decision

    def _look_at_prices(self, now: float) -> None:
        """Store what is known of prices, and tell if bills of ended nodes were corrected by it."""
        if self.late_prices is not None:
            said = self.late_prices.look(now=now, has_commitments=bool(self.planner.paid.levels))
            if said:
                self._alert(f"late prices:{int(now)}", said)

    def _expect_checkpoints(self) -> None:
        """Tell the cloud the largest checkpoint of the jobs that are present, for prices of far machines."""
        if self.storage is not None:
            jobs = list(self.storage.queue.active.values())
            most = max((job.checkpoint_bytes or 0 for job in jobs), default=0)
            hours = self.settings.learning.save_minutes / 60.0
            self.world.cloud.expect_checkpoints(most / 1e9, every_hours=hours)

    def _controller_at_list_prices(self) -> Controller:
        """Return the controller of this tick, after planning anew if list prices have changed."""
        if self.planner.is_priced_otherwise(self.world.cloud.list_prices()):
            _LOG.info("list prices have changed: planning anew")
            self.use(self.settings)
        controller = self.controller()
        self.standing.pace = controller.rules.pace
        return controller

    def _check_clock(self) -> None:
        """Alert when the machine's clock jumped; refuse to act while the time is in doubt.

        Raises:
            ClockInDoubt: while the cloud's clock and the daemon's disagree.
        """
        clock = self.world.clock
        if not isinstance(clock, SteadyClock):
            return
        if clock.doubt:
            self.world.cloud.nodes()
        if doubt := clock.doubt:
            raise ClockInDoubt(doubt)
        self.standing.clock_note = clock_note(clock.jump_seconds)
        if self.standing.clock_note:
            self._alert(f"clock:{int(clock.now() // DAY)}", self.standing.clock_note)

    def _observe_only(self) -> Decision | None:
        """Observe and decide without acting; record the decision if there is a database."""
        if self.storage is None:
            self._keep_without_database()
            return None
        self._learn()
        controller = self._controller_at_list_prices()
        state = controller.observe()
        decision = decide(
            state, allocator=controller.allocator, placer=controller.placer, rules=controller.rules
        )
        self.storage.store.record_decision(state, decision.actions, decision.plan)
        return decision

    def _keep_without_database(self) -> None:
        """Keep the caps and the leases as the last tick of an earlier process left them."""
        count = sum(node.ended_at is None for node in self.world.cloud.nodes())
        last = self.last_state
        if last is None or self.settings.daemon.observe:
            self.standing.notes = [f"{counted(count, 'instance')} listed; nothing is touched"]
            return
        if not self._is_reattached:
            # The engine must know its jobs, or none of them could be stopped for a cap.
            self.world.cloud.remember(self._as_listed(last.state.nodes.values()))
            if not isinstance(self.world.runner, PersistableRunner):
                # Such an engine's memory is in the database, and its inbox must keep what nobody can store.
                self.world.runner.reattach()
            self._is_reattached = True
        self.without_database.act(self.planner.rules(), last.state, now=self.world.clock.now())
        said = "; ".join(self.without_database.troubles)
        if said and said != self._logged_fault[0]:
            self._logged_fault = (said, time.monotonic())
            _LOG.error("without the database: %s", said)
        self.standing.notes = [
            f"{counted(count, 'instance')} listed; the jobs on them go on, and only the caps and the leases "
            "are kept until the database can be used"
        ]

    def _succeed(self, decision: Decision) -> None:
        """Process a decision: update figures, send messages, and schedule the next tick."""
        standing = self.standing
        if standing.fault:
            _LOG.info("working again after: %s", standing.fault)
        caps = self.planner.rules().caps
        last = standing.decision
        before = set() if last is None else {held.what for held in last.plan.held}
        picture = DecisionSummary.of(decision, caps)
        standing.decision, standing.picture, standing.fault = decision, picture, ""
        standing.is_ready, standing.is_late, standing.done_at = True, False, time.monotonic()
        self._write_last_state()
        self.metrics.ticked(picture, standing.tick_seconds)
        self.metrics.goes_so_far(self.watched.shortfall)
        self.news.look(decision.state.now)
        if self.storage is not None:
            self.storage.store.look_at_launches(decision.state.now)
            rates = current_figures(decision.state, dict(self.storage.queue.active))
            if self.kept is not None:
                self.kept.take(rates, self.work.progress, self.spot, now=decision.state.now)
            budget, ages = self.settings.budget.mean_usd_per_hour, self.world.cloud.ages()
            self.site_metrics.take(picture, self.storage.queue, rates=rates, budget=budget, ages=ages)
        fractions = self.settings.alerts.at_fractions
        for key, sentence in due_alerts(decision.state, caps, fractions, figures=picture.figures):
            self._alert(key, sentence)
        self._look_at_purses(decision.state, caps)
        for held in decision.plan.held:
            if held.code in ("loop", "no-effect"):
                self._alert(f"{held.code}:{held.what}:{int(decision.state.now // 3600)}", held.sentence)
            elif held.code in ("max-usd", "max-hours"):
                self._alert(f"{held.code}:{held.what}", held.sentence)
            elif held.code in ("user-day-cap", "team-day-cap", "team-month-cap") and held.what not in before:
                _LOG.info("%s", held.sentence)
        if decision.wake_at is not None:
            self.wake(max(decision.wake_at - self.world.clock.now(), 0.0))
        if decision.plan.launches and self._has_new_rests(decision):
            self.wake(REFUSED_SECONDS)
        if decision.plan.launches or any(node.phase == "requested" for node in decision.state.nodes.values()):
            self.wake(AWAITED_SECONDS)
        self.after_tick()

    def _write_last_state(self) -> None:
        """Write what a start without a database needs to keep the caps."""
        if self.storage is not None and self.last_state_file is not None and not self.settings.daemon.observe:
            store = self.storage.store
            self.last_state_file.write(store.last_text, ledger_id=store.known_name)

    def _has_new_rests(self, decision: Decision) -> bool:
        """Return whether launches of a tick were refused, so that the next may try other offers."""
        if self.storage is None:
            return False
        return self.storage.store.cooldowns(decision.state.now).keys() != decision.state.cooldowns.keys()

    def _look_at_purses(self, state: ClusterState, caps: Caps | None) -> None:
        """Update the money of teams, users, jobs and commitments, and alert whom it belongs to."""
        reserve = 0.0 if caps is None else caps.start_seconds
        purses = team_and_user_purses(state, reserve_seconds=reserve)
        purses += job_purses(self._job_money(state))
        purses += commitment_purses(() if caps is None else caps.fixed, state.now)
        self.standing.purses = tuple(purses)
        self.metrics.purses(purses)
        said: set[str] = set()
        for purse, key, sentence in due_purse_alerts(purses, self.settings.alerts.at_fractions):
            if not key.endswith(":forecast"):
                if purse.key in said:
                    self.alerts.once(key, sentence, at=state.now)  # A higher fraction says it already.
                    continue
                said.add(purse.key)
            owners = self._owners_of(purse)
            is_site = purse.kind != "job"
            self.alerts.tell_owners(key, sentence, owners, at=state.now, is_site=is_site)

    def _owners_of(self, purse: Purse) -> list[UserSettings | TeamSettings]:
        """Return whom a purse belongs to, as far as they have settings: a team, else its members; a user."""
        users = self.settings.users
        if purse.kind == "team":
            team = self.settings.teams.get(purse.name)
            if team is None or team.webhook or team.apprise:
                return [] if team is None else [team]
            return [users[name] for name in team.members if name in users]
        name = purse.owner or purse.name
        return [users[name]] if purse.kind in ("user", "job") and name in users else []

    def _job_money(self, state: ClusterState) -> Iterator[JobMoney]:
        """Yield the money of each running job with `max_usd`; of a group once, under the group's name."""
        if self.storage is None:
            return
        queue, groups = self.storage.queue, self.work.facts.group_money
        seen: set[str] = set()
        for name, present in state.all_jobs.items():
            job = queue.active.get(name)
            if job is None or not job.slots:
                continue
            most = job.content.get("max_usd")
            if most is None or (job.group and job.group in seen):
                continue
            rate, hours = usd_per_hour_of(job, queue), None
            if job.group:
                seen.add(job.group)
                spent = groups.spent_usd(job, state.now)
            else:
                spent = dollars(job.micro_dollars + cost_of(job, queue.instances, until=state.now))
                hours = self._hours_left(present)
            yield JobMoney(
                name=job.group or job.id,
                user=job.user,
                spent_usd=spent,
                max_usd=float(most),
                usd_per_hour=rate,
                hours_left=hours,
            )

    def _hours_left(self, present: JobState) -> float | None:
        """Return the hours that a running job has left by what is known of its class; None if unknown."""
        job = present.job
        if job.width is None or not isfinite(job.remaining_gpu_hours):
            return None
        speed = self._speed(job.class_name, job.phase, job.width)
        return job.remaining_gpu_hours / speed if speed > 0.0 else None

    def _stumble(self, error: Exception) -> None:
        """Handle a failed tick: report it, reload the state from the database, and keep the caps."""
        self.metrics.failed()
        if self.storage is None:
            # The fault stays what it is: the database.
            _LOG.error("a look without the database failed: %s", fault_of(error))
            return
        is_in_doubt = isinstance(error, LeadInDoubt)
        is_deposed = isinstance(error, LedElsewhere) and not is_in_doubt
        fault = fault_of(error)
        is_known = trouble_of(error) is not None or isinstance(
            error, StoreWentBack | StoreOfOthers | LedElsewhere
        )
        self._log_fault(fault, is_new=not self.standing.fault, is_known=is_known)
        self.standing.fault = fault
        if isinstance(error, ActsFailed):
            self.standing.decision = error.decision
        if is_deposed:
            # Another daemon leads: it keeps the caps.
            return
        if is_in_doubt:
            # The database does not answer, so nobody else may know of it either. What a cap ends, every
            # leader would end, and a lease that is renewed twice harms nobody.
            self._keep_only_caps()
            return
        if isinstance(error, StoreOfOthers):
            # What is in memory is this daemon's: in the other's database it would take nodes for ended that
            # another cloud lists.
            self._say_fault(error)
            self._keep_only_caps()
            return
        if isinstance(error, StoreWentBack):
            # The next tick starts as after a restart: it takes back what the copy does not know.
            self._newer_state, self.standing.is_started = self._last_observed, False
        for do in (self._reload, lambda: self._say_fault(error), self._keep_caps):
            try:
                do()
            except Exception as trouble:
                _LOG.error("after a tick that failed: %s: %s", type(trouble).__name__, trouble)

    def _log_fault(self, fault: str, *, is_new: bool, is_known: bool) -> None:
        """Log a fault: with its trace when it is new and not explained, and once a minute while it lasts."""
        now = time.monotonic()
        if is_new and not is_known:
            _LOG.exception("a tick failed: %s", fault)
        elif is_new or fault != self._logged_fault[0] or now - self._logged_fault[1] >= REPEAT_SECONDS:
            _LOG.error("a tick failed: %s", fault)
        else:
            return
        self._logged_fault = (fault, now)

    def _reload(self) -> None:
        """Reload the state in memory from the database."""
        if self.storage is not None:
            self.storage.store.reload()
            self.storage.queue.reload()
            self.learning.learner.reload()

    def _say_fault(self, error: Exception) -> None:
        """Alert about a failed tick, once an hour for each type of error."""
        hour = int(self.world.clock.now() // 3600)
        self._alert(f"fault:{type(error).__name__}:{hour}", f"a tick failed: {self.standing.fault}")

    def _keep_caps(self) -> None:
        """Do what cannot wait, without a plan: keep caps, obey cancels and `boa down`."""
        if self.storage is None or self._is_observing:
            return
        self.last_resort.act(
            self.planner.rules(),
            self._last_observed,
            now=self.world.clock.now(),
            is_down=self.standing.is_down,
        )
        for trouble in self.last_resort.troubles:
            _LOG.error("in the fallback tick: %s", trouble)

    def _keep_only_caps(self) -> None:
        """Keep the caps and the leases while the database does not confirm that this daemon leads."""
        if self.storage is None or self._is_observing:
            return
        try:
            self.last_resort.keep(self.planner.rules(), self._last_observed, now=self.world.clock.now())
        except Exception as trouble:
            _LOG.error("without the database: %s: %s", type(trouble).__name__, trouble)

    @property
    def _last_observed(self) -> ClusterState | None:
        """The state of this process's last decision; None before the first."""
        return None if self.standing.decision is None else self.standing.decision.state

    def _watch_ticks(self) -> None:
        """Alert once that ticks do not complete, without the database or the lock, which a tick may hold."""
        trouble = "" if self.standing.fault or not self.standing.is_ready else self.trouble
        if trouble and not self.standing.is_late:
            self.standing.is_late = True
            self.metrics.fault.set(1)
            self.alerts.shout(trouble)

    def set_down(self, is_down: bool) -> None:
        """Release all nodes (jobs checkpoint and wait), or resume work; the order survives a restart."""
        # Set it in memory first: on a full disk the order is still obeyed, until a restart.
        self.standing.is_down = is_down
        if self.storage is not None:
            self.storage.store.set_flag("is_down", is_down)
        self.wake(0.0)

    def cancel(
        self, name: JobId, note: Callable[[Sequence[JobRecord]], None] = lambda _found: None
    ) -> JobRecord | None:
        """Cancel a job; return None when it is over."""
        found = self.cancel_all([name], note)
        return found[0] if found else None

    def cancel_all(
        self, names: Sequence[JobId], note: Callable[[Sequence[JobRecord]], None] = lambda _found: None
    ) -> list[JobRecord]:
        """Cancel jobs, all or none; return those that were active, if any with `note` in one transaction."""
        found = self.work.cancel(names, note)
        self.wake(0.0)
        return found

    def _between_ticks(self) -> AbstractContextManager[None]:
        """Keep ticks from running, after a running one.

        Raises:
            DatabaseBusy: when the caller's `DEADLINE` passes first.
        """
        return held_in_time(self._lock, "a tick takes long, and nothing was changed: try again")

    def change(
        self,
        name: JobId,
        how: Callable[[JobRecord], JobRecord],
        note: Callable[[JobRecord], None] = lambda _job: None,
    ) -> JobRecord | None:
        """Change a job between two ticks, and tick soon; return None when it is over.

        `note` is called with the changed job in the same transaction.
        """
        if self.storage is None:
            return None
        with self._between_ticks():
            job = self.storage.queue.active.get(name)
            if job is not None:
                job = how(job)
                with self.storage.queue.database.write():
                    note(job)
                    self.storage.queue.save(job)
        self.wake(0.0)
        return job

    def rehearse_end(self, node: NodeId) -> float | None:
        """Rehearse a spot interruption of a node; return its instant, None when the cloud cannot."""
        with self._between_ticks():
            at = self.world.cloud.rehearse_end(node)
        self.wake(0.0)
        return at

    def watch(self) -> None:
        """Look between ticks, cheaply, whether a job ended or a node gets interrupted; if so, tick early."""
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
        """End tagged resources that nothing needs, and alert about each; return how many there were."""
        if not self._lock.acquire(timeout=SWEEP_PATIENCE_SECONDS):
            return 0
        try:
            if not self.standing.is_started:
                # Resources of an earlier process are not known yet, and are no leak.
                return 0
            self._check_clock()
            leaks = self.world.cloud.sweep()
            self._sweep_fault = ""
        except Exception as error:
            self._sweep_fault = f"nobody looks for leaked instances and disks: {error}"
            _LOG.warning("the sweep could not be done: %s", error)
            return 0
        finally:
            self._lock.release()
        for name, sentence in leaks.items():
            self._alert(f"leak:{name}", f"leak: {sentence}")
        return len(leaks)

    def look_at_nets(self) -> None:
        """Look which safety nets and facts from outside are lost, without the lock that a tick may hold.

        Alerts that a channel did not take are sent again.
        """
        self.alerts.send_again()
        runner = self.world.runner
        nets = dict(self.world.cloud.nets())
        if isinstance(runner, NetSource):
            nets |= runner.nets()
        self.nets.look_at(nets | self.own_faults, now=self.world.clock.now())

    def ask_anew(self) -> None:
        """Ask for every fact from outside again, and end the rests whose cause a person may have mended.

        A trouble that passes is logged: this is called between ticks, where an error would end the daemon.
        """
        try:
            self.world.cloud.ask_anew()
            if self.storage is not None:
                with self._lock:
                    self.storage.store.open_mended(self.world.clock.now())
        except (BoaError, *PASSING) as error:
            _LOG.error("what people changed outside could not be asked for anew: %s", fault_of(error))

    def close(self) -> None:
        """Wait for the running tick and close all components; jobs and nodes continue."""
        with self._lock:
            if self.gate is not None:
                self.gate.close()
            self.alerts.close()
            self.world.cloud.close()
            if self.storage is not None:
                try:
                    if self.kept is not None and self.standing.decision is not None:
                        self.kept.keep(self.work.progress, self.spot)
                except (BoaError, *PASSING) as error:
                    _LOG.error("the last minutes of the history are lost: %s", fault_of(error))
                self.storage.close()

    @property
    def trouble(self) -> str:
        """Why the daemon is not ready: ticks fail or do not complete; empty when it is ready."""
        every = None if self.storage is None else self.settings.daemon.tick_seconds
        return self.standing.trouble(every)

    @property
    def status_line(self) -> str:
        """One line for systemd."""
        return self.standing.line


def _tick_of(node: NodeState) -> int:
    """Return the number of the tick that launched a node; 0 when the launch's name has none."""
    head = node.launched_by.partition("-")[0]
    return int(head[1:]) if head.startswith("t") and head[1:].isdigit() else 0
