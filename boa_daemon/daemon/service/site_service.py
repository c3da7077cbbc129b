"""API service for the whole site: status, nodes, costs, classes, plans, and going down."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from boa_daemon.daemon.money.cost_labels import CostBy, house_tags
from boa_daemon.daemon.money.costs import cost_rows, with_fixed_costs
from boa_daemon.daemon.service.service_base import NotReady, ServiceBase
from boa_daemon.daemon.settings.settings_reload import PendingChanges
from boa_daemon.daemon.settings.teams import unknown_team
from boa_daemon.daemon.watch.daemon_health import LATE_SECONDS, LATE_TICKS
from boa_daemon.daemon.watch.month_report import (
    MonthReport,
    instant_of_month,
    month_money,
    month_report,
    team_month_report,
)
from boa_daemon.daemon.watch.purse_alerts import purse_document
from boa_daemon.errors import InputError
from boa_daemon.inputs.message_validation import DROPPED_MESSAGES
from boa_daemon.learning.class_document import class_document
from boa_daemon.learning.kappa_document import kappa_document
from boa_daemon.learning.observed_rhythm import work_by_hour
from boa_daemon.planning.plan_documents import worth_document
from boa_daemon.planning.promises import promise_rows
from boa_daemon.store.decisions import EVERYTHING, About
from boa_daemon.store.order_log import MOST_ORDERS, lowest
from boa_daemon.store.sql import kind_and_target
from boa_daemon.tick.decide.decision import decide
from boa_daemon.tick.money.ledger import bill, bill_by_kind
from boa_daemon.tick.room.shortfall import shortfall_document, shortfall_sentence
from boa_daemon.units import SECONDS_PER_HOUR, dollars, format_hours
from policies.errors import PolicyError
from policies.model import NodeId
from policies.money_text import in_dollars
from policies.online.foretold import drawn_again
from policies.online.pacing import Pace


class SiteService(ServiceBase):
    """Answers requests about the site of one daemon."""

    def condition(self) -> dict[str, Any]:
        """Return of when the daemon's figures are, and what is wrong with it; this costs little."""
        return {
            "as_of": self._as_of(),
            "now": self.daemon.world.clock.now(),
            "fault": self.daemon.standing.fault,
            "is_down": self.daemon.standing.is_down,
            "notes": [*self._notes(), *self._late()],
        }

    def status(self) -> dict[str, Any]:
        """Return the daemon's status from memory, at once, whatever a tick is doing."""
        standing = self.daemon.standing
        picture = standing.picture
        document: dict[str, Any] = {
            **self.condition(),
            "is_observing": self.daemon.storage is None or self.daemon.settings.daemon.observe,
            "leader": self._leader(),
            "setting_warnings": list(standing.setting_warnings),
            "best_effort": self._best_effort(),
            "tick_seconds": standing.tick_seconds,
            "beside_usd_per_hour": self._beside(),
            "budget_usd_per_hour": self.daemon.settings.budget.mean_usd_per_hour,
            "reattached": {"jobs": standing.reattached[0], "instances": standing.reattached[1]},
            "idle_reserved_usd_per_hour": self.daemon.world.cloud.idle_usd_per_hour(),
            "fact_ages_seconds": dict(self.daemon.world.cloud.ages()),
            "refused_messages": DROPPED_MESSAGES.counts(),
            "boots": self.daemon.boots.document(),
            "gate": None if self.daemon.gate is None else dict(self.daemon.gate.status()),
            "why_no_gate": self.daemon.why_no_gate,
        }
        if picture is not None:
            document |= {
                "tick": picture.decision.state.tick,
                "usd_per_hour": picture.usd_per_hour,
                "nodes": picture.nodes,
                "stopped_nodes": picture.stopped,
                "max_instances": self.daemon.settings.budget.max_instances,
                "gpus": picture.gpus,
                "gpus_used": picture.gpus_used,
                "running": picture.running,
                "waiting": picture.waiting,
                "books": picture.figures,
                "pacing": _pacing(
                    standing.pace,
                    picture.decision.plan.memory,
                    self._promises(standing.pace),
                    self._worth(standing.pace),
                ),
                "purses": purse_document(standing.purses),
                "held": list(picture.held),
                **self.outlook.document,
            }
        if self.daemon.storage is not None:
            document["queued_since_then"] = len(self.daemon.storage.queue.active) - (
                0 if picture is None else len(picture.decision.state.jobs)
            )
        return document

    def _beside(self) -> float:
        """Return what the site costs per hour without a node: commitments, blocks, gateway, images."""
        caps = self.daemon.planner.rules().caps
        return 0.0 if caps is None else caps.beside_usd_per_hour(self.daemon.world.clock.now())

    def _promises(self, pace: Pace | None) -> list[dict[str, Any]]:
        """Return what promises about money cost on the weeks seen; computed once an hour."""
        if pace is None:
            return []
        now = self.daemon.world.clock.now()
        asked = pace, int(now // SECONDS_PER_HOUR)
        priced = self.daemon.standing.priced
        if priced is None or priced[0] != asked:
            sizes = {name: found.size_gpu_hours for name, found in self.daemon.planner.classes.items()}
            seen = work_by_hour(self.daemon.work.learner.rows.values(), sizes, now=now)
            loads = None if seen is None else drawn_again(seen[0], pace.period_hours)
            self.daemon.standing.priced = priced = asked, promise_rows(pace, loads), loads is not None
        return priced[1]

    def _worth(self, pace: Pace | None) -> dict[str, Any] | None:
        """Return what the last dollars of the budget buy by the plan; computed once an hour."""
        if pace is None:
            return None
        daemon = self.daemon
        asked = pace, int(daemon.world.clock.now() // SECONDS_PER_HOUR)
        if daemon.standing.worth is None or daemon.standing.worth[0] != asked:
            names = daemon.classes_in_use(self._storage())
            try:
                site = daemon.planner.record(names).site
                found = worth_document(site.problem, site.budget.amount)
            except PolicyError:
                found = None
            daemon.standing.worth = asked, found
        return daemon.standing.worth[1]

    def setting_changes(self) -> dict[str, Any]:
        """Return what the settings files would change of the settings in force.

        Raises:
            InputError: when the files cannot be read.
        """
        source = self.daemon.settings_source
        if source is None:
            return {"note": "", **PendingChanges().to_document()}
        return {"note": source.note, **source.pending().to_document()}

    def apply_settings(self, code: str) -> dict[str, Any]:
        """Read the settings again and use them; `code` consents to changes that loosen limits.

        Raises:
            BoaError: when they are wrong, or loosen limits and the code is of other changes.
        """
        pending = self.setting_changes()
        later = self.daemon.apply_settings(code)
        return {**pending, "note": "", "is_applied": True, "after_restart": later}

    def _leader(self) -> dict[str, Any] | None:
        """Return the leader of the database, if this daemon leads; else None."""
        storage = self.daemon.storage
        found = None if storage is None or storage.leadership is None else storage.leadership.leader
        return None if found is None else asdict(found)

    def _notes(self) -> list[str]:
        """Return notes for the daemon's administrator."""
        standing, short = self.daemon.standing, self.daemon.watched.shortfall
        notes = [
            *standing.notes,
            *self.daemon.world.cloud.notes(),
            standing.settings_note,
            standing.plan_fault,
            standing.clock_note,
            standing.gap_note,
            self._own_user_note(),
            "" if short is None else shortfall_sentence(short),
        ]
        return [note for note in (*notes, *self.daemon.nets.notes(), *self._troubles()) if note]

    def _own_user_note(self) -> str:
        """Return a warning when jobs run as the daemon's own user; empty otherwise."""
        is_open = self.daemon.settings.engine.shared_account
        if not is_open or not getattr(self.daemon.world.runner, "runs_jobs_as_daemon", False):
            return ""
        return "jobs run as the daemon's own user ([engine] shared_account): their users have its rights"

    def _best_effort(self) -> dict[str, object] | None:
        """Return how far the budget goes; None when it pays for the load."""
        return shortfall_document(self.daemon.watched.shortfall, self.daemon.watched.account)

    def _late(self) -> list[str]:
        """Return a note when no tick has completed for long."""
        every = self.daemon.settings.daemon.tick_seconds
        silent = self.daemon.world.clock.now() - self._as_of()
        if self.daemon.storage is None or silent < LATE_TICKS * every + LATE_SECONDS:
            return []
        since = format_hours(silent / SECONDS_PER_HOUR)
        return [f"no tick was done for {since}, and one is due every {every:.0f} s: see the daemon's log"]

    def decisions(
        self,
        *,
        limit: int = 20,
        acting: bool = False,
        job: str = "",
        user: str = "",
        node: str = "",
        kind: str = "",
    ) -> dict[str, Any]:
        """Return the newest decisions of ticks and orders of people, about all or what is named."""
        storage = self._storage()
        made = storage.queue.launch_of(NodeId(node)) if node else ""
        about = About(job=job, user=user, node=node, kind=kind, launched_by=made)
        found = storage.store.decisions(limit=limit, with_actions=acting, about=about)
        orders = about.orders(storage.orders.newest(limit if about == EVERYTHING else MOST_ORDERS))
        return {"as_of": self._as_of(), "decisions": found, "orders": orders[:limit]}

    def caps(self) -> dict[str, Any]:
        """Return the caps of a day and a month: in force, and what the settings allow."""
        budget, lower = self.daemon.settings.budget, self._storage().orders.lower_caps
        return {
            "as_of": self._as_of(),
            "caps": {
                window: {"usd": lowest(cap, lower.get(window)), "usd_in_settings": cap}
                for window, cap in (("day", budget.usd_per_day_cap), ("month", budget.usd_per_month_cap))
            },
        }

    def lower_cap(self, window: str, usd: float | None, *, user: str) -> dict[str, Any]:
        """Lower the cap of a day or a month; None sets it back to what the settings say.

        Raises:
            InputError: when the settings' cap is lower: `boa config apply` raises caps, with consent.
        """
        before = self.caps()["caps"][window]
        if usd is not None and before["usd_in_settings"] is not None and usd > before["usd_in_settings"]:
            raise InputError(
                f"the settings cap a {window} at "
                f"{in_dollars(before['usd_in_settings'])}, and {in_dollars(usd)} is more",
                hint="Change the settings file and run `boa config apply`",
            )
        after = lowest(before["usd_in_settings"], usd)

        def note() -> None:
            if after != before["usd"]:
                both = ("none" if one is None else in_dollars(one) for one in (before["usd"], after))
                said = f"the cap of a {window} was changed from {' to '.join(both)}"
                self.note_order(user, "cap", window, said)

        self._storage().orders.lower(window, usd, note)
        self.daemon.wake(0.0)
        return self.caps()

    def decision(self, tick: int) -> dict[str, Any]:
        """Return the record of one decision, for `boa replay`."""
        return self._storage().store.decision_record(tick)

    def instances(self, *, ended: bool = False, limit: int | None = None, after: str = "") -> dict[str, Any]:
        """Return the nodes by id, and on request those that ended within a day.

        With a `limit`, `next` is the `after` of the next page; None on the last page.
        """
        now = self.daemon.world.clock.now()
        queue = self._storage().queue
        records = queue.past_instances(now - 86_400.0) if ended else list(queue.instances.values())
        records = sorted((one for one in records if one.node.id > after), key=lambda one: one.node.id)
        following = None
        if limit is not None and len(records) > limit:
            records = records[:limit]
            following = records[-1].node.id
        held = queue.holders({record.node.id for record in records})
        notes = self.daemon.fleet.unusable()
        rows = [
            {
                "id": record.node.id,
                "instance_type": record.node.instance_type.name,
                "phase": record.node.phase,
                "zone": record.node.zone,
                "market": record.node.market,
                "gpus": record.node.instance_type.gpus,
                "jobs": sorted(set(held.get(record.node.id, {}).values())),
                "launched_at": record.node.launched_at,
                "ended_at": record.node.ended_at,
                "usd_per_hour": record.node.usd_per_hour,
                "usd": dollars(bill(record.node, until=record.node.ended_at or now)),
                "kinds": {
                    kind: dollars(amount)
                    for kind, amount in bill_by_kind(record.node, until=record.node.ended_at or now).items()
                },
                "launched_by": record.node.launched_by,
                "idle_since": record.idle_since,
                "tiers": list(record.node.tiers),
                "note": notes.get(record.node.id, ""),
            }
            for record in records
        ]
        return {"as_of": self._as_of(), "instances": rows, "next": following}

    def cost(self, *, by: CostBy = "job", since: float | None = None) -> dict[str, Any]:
        """Return what was spent since an instant, by default this month, grouped as `by` says.

        Raises:
            InputError: when `by` is a tag that nothing carries.
        """
        storage, now = self._storage(), self.daemon.world.clock.now()
        month = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        begin = month.timestamp() if since is None else since
        settings = self.daemon.settings
        tags = house_tags(settings)
        rows = cost_rows(storage.queue, by=by, since=begin, now=now, tags=tags)
        rows = with_fixed_costs(rows, self.daemon.planner.paid.fixed, by=by, since=begin, now=now)
        picture = self.daemon.standing.picture
        return {
            "as_of": now,
            "since": begin,
            "by": by,
            "rows": rows,
            "usd": sum(row["usd"] for row in rows),
            "books": None if picture is None else picture.figures,
        }

    def month(self, month: str, *, team: str = "") -> MonthReport:
        """Return the report of a month such as ``2026-11``, of the site or of a team.

        Raises:
            InputError: when it is no month, or has not begun, or there is no such team.
        """
        now, at = self.daemon.world.clock.now(), instant_of_month(month)
        if at > now:
            raise InputError(f"{month} has not begun", hint="Name a month that has")
        if team:
            teams = self.daemon.settings.teams
            if team not in teams:
                raise unknown_team(team, teams)
            cap = teams[team].usd_per_month_cap
            return team_month_report(self._storage(), at, team, cap, now=now)
        money = month_money(self.daemon.settings.budget, self.daemon.planner.paid.fixed)
        return month_report(self._storage(), at, money, now=now)

    def classes(self) -> dict[str, Any]:
        """Return the estimates for each class along with its configured values."""
        self._storage()
        planner, now = self.daemon.planner, self.daemon.world.clock.now()
        known, curves = dict(self.daemon.learning.beliefs.known), list(planner.curves.values())
        return {
            "as_of": self._as_of(),
            "machines": [
                {
                    "gpu_type": kind,
                    "instance_type": machine.name,
                    "gpus": machine.gpus,
                    "usd_per_hour": machine.usd_per_hour,
                }
                for kind, machine in planner.machines.items()
            ],
            "classes": [
                class_document(
                    stated,
                    known.get(name),
                    planner.figures.get(name),
                    curves,
                    is_rate_stated=name not in planner.unstated,
                    now=now,
                    link=planner.link_of(stated),
                    needs=planner.needs_of(name),
                )
                for name, stated in list(planner.stated.items())
            ],
            "kappa": kappa_document(
                list(planner.stated.values()),
                planner.machines,
                kappa=self.daemon.settings.workload.kappa,
            ),
        }

    def past(self, *, days: float) -> dict[str, Any]:
        """Return the jobs of the last days that are over, and their policy, for a replay."""
        from boa_daemon.daemon.service.backtest import past_document  # noqa: PLC0415 - brings the simulator with it

        return past_document(self.daemon, self._storage().queue, days=days)

    def plan(self) -> dict[str, Any]:
        """Return what a tick would do now, without starting or writing anything.

        Raises:
            NotReady: when there is no database, or no tick has completed yet.
        """
        if self.daemon.storage is None:
            raise NotReady(f"there is no plan: {self.daemon.standing.fault}")
        last = self.daemon.standing.decision
        if last is None:
            raise NotReady("the daemon has not completed its first tick; try again in a moment")
        controller = self.daemon.controller()
        state = last.state
        present = controller.ports.jobs.jobs()
        new = {name: job for name, job in present.items() if name not in state.jobs and not job.slots}
        decision = decide(
            replace(state, now=self.daemon.world.clock.now(), jobs={**state.jobs, **new}),
            allocator=controller.allocator,
            placer=controller.placer,
            rules=controller.rules,
        )
        return {
            "as_of": state.now,
            "actions": [
                {"kind": kind, "target": target, "reason": action.reason}
                for action in decision.actions
                for kind, target in (kind_and_target(action),)
            ],
            "waiting": dict(decision.plan.jobs.waiting),
            "held": [held.sentence for held in decision.plan.held],
            "usd_per_hour": state.usd_per_hour,
        }

    def down(self, *, is_down: bool) -> dict[str, Any]:
        """Release all nodes, or resume work."""
        self._storage()
        self.daemon.set_down(is_down)
        return {"as_of": self._as_of(), "is_down": is_down}

    def alerts(self, limit: int = 50) -> dict[str, Any]:
        """Return the newest alerts."""
        return {"as_of": self._as_of(), "alerts": self.daemon.alerts.latest(limit)}


def _pacing(
    pace: Pace | None,
    memory: tuple[float, ...] | None,
    promises: list[dict[str, Any]],
    worth: dict[str, Any] | None,
) -> dict[str, Any] | None:
    """Return the window, load correction and loss of a paced policy; None for other policies."""
    if pace is None or not memory:
        return None
    return {
        "period": pace.period if pace.is_calendar else None,
        "tolerance": pace.tolerance,
        "window_hours": pace.period_hours,
        "is_calendar_month": pace.is_calendar,
        "load_correction": memory[-1],
        "pacing_loss_fraction": promises[0]["pacing_loss_fraction"] if promises else None,
        "promises": promises,
        "worth": worth,
        "load_by_weekday": None if pace.rhythm is None else [round(day, 3) for day in pace.rhythm.by_day],
    }
