"""Prometheus metrics, in the daemon's own registry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client import Counter as Count

from boa_daemon.daemon.watch.decision_summary import DecisionSummary
from boa_daemon.daemon.watch.purse_alerts import Purse
from boa_daemon.inputs.message_validation import DROPPED_MESSAGES
from boa_daemon.store.sql import kind_and_target
from policies.online.best_effort import Shortfall

TICK_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Metrics:
    """The daemon's metrics; labels come from closed lists, so that the number of series is bounded."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self.registry = registry
        self.ticks = Count("boa_ticks", "Ticks by how they ended.", ["outcome"], registry=registry)
        self.tick_seconds = Histogram(
            "boa_tick_duration_seconds", "How long a tick took.", buckets=TICK_BUCKETS, registry=registry
        )
        self.actions = Count("boa_actions", "Actions decided, by kind.", ["kind"], registry=registry)
        self.held = Count("boa_held", "Actions that rules held back, by code.", ["code"], registry=registry)
        self.jobs = Gauge("boa_jobs", "Jobs that wait or run.", ["state"], registry=registry)
        self.waiting = Gauge("boa_jobs_waiting", "Jobs that wait, by reason.", ["reason"], registry=registry)
        self.nodes = Gauge("boa_nodes", "Nodes by phase.", ["phase"], registry=registry)
        self.burn = Gauge("boa_price_dollars_per_hour", "What the nodes cost now.", registry=registry)
        self.spent = Gauge("boa_spent_dollars", "Spent in the window so far.", ["window"], registry=registry)
        self.cap = Gauge("boa_cap_dollars", "The hard cap of the window.", ["window"], registry=registry)
        of_purse = ["kind", "name", "window"]
        self.purse_spent = Gauge(
            "boa_purse_spent_dollars", "Spent by a team or user in the window.", of_purse, registry=registry
        )
        self.purse_reserved = Gauge(
            "boa_purse_reserved_dollars", "Reserved for its running jobs.", of_purse, registry=registry
        )
        self.purse_cap = Gauge(
            "boa_purse_cap_dollars", "The hard cap of a team or user.", of_purse, registry=registry
        )
        self.best_effort = Gauge(
            "boa_best_effort", "1 while the budget is below the load.", registry=registry
        )
        self.least_budget = Gauge(
            "boa_least_budget_dollars_per_hour",
            "The least budget that would run every job.",
            registry=registry,
        )
        self.growth = Gauge(
            "boa_queue_growth_per_hour",
            "By how much the queue grows by the plan while the budget is below the load.",
            ["of"],
            registry=registry,
        )
        self.last_tick = Gauge("boa_last_tick_timestamp_seconds", "The last tick.", registry=registry)
        self.refused = Gauge(
            "boa_refused_messages", "Messages from outside that were dropped.", ["source"], registry=registry
        )
        self.nets = Gauge(
            "boa_safety_net_lost",
            "1 while a safety net or a fact from outside is lost.",
            ["net"],
            registry=registry,
        )
        self.fault = Gauge("boa_fault", "1 while the daemon cannot do its work.", registry=registry)

    def purses(self, purses: Iterable[Purse]) -> None:
        """Set the money of teams and users; their names come from the settings, so the series are bounded."""
        gauges = (self.purse_spent, self.purse_reserved, self.purse_cap)
        for gauge in gauges:
            gauge.clear()
        for purse in purses:
            if purse.kind in ("team", "user"):
                labels = (purse.kind, purse.name, purse.window.partition(" ")[0])
                for gauge, usd in zip(
                    gauges, (purse.spent_usd, purse.reserved_usd, purse.cap_usd), strict=True
                ):
                    gauge.labels(*labels).set(usd)

    def ticked(self, picture: DecisionSummary, seconds: float) -> None:
        """Record a completed tick."""
        decision = picture.decision
        state, plan = decision.state, decision.plan
        self.ticks.labels("done").inc()
        self.tick_seconds.observe(seconds)
        for action in decision.actions:
            self.actions.labels(kind_and_target(action)[0]).inc()
        for held in plan.held:
            self.held.labels(held.code).inc()
        self.jobs.labels("running").set(picture.running)
        self.jobs.labels("waiting").set(picture.waiting)
        self.waiting.clear()
        for reason, count in Counter(plan.jobs.waiting.values()).items():
            self.waiting.labels(reason).set(count)
        self.nodes.clear()
        for phase, count in Counter(node.phase for node in state.nodes.values()).items():
            self.nodes.labels(phase).set(count)
        self.burn.set(picture.usd_per_hour)
        for window, figures in picture.figures.items():
            self.spent.labels(window).set(figures["spent_usd"] or 0.0)
            if figures["cap_usd"] is not None:
                self.cap.labels(window).set(figures["cap_usd"])
        self.last_tick.set(state.now)
        self.fault.set(0)

    def goes_so_far(self, shortfall: Shortfall | None) -> None:
        """Record the shortfall of the budget; None when the budget pays for the load."""
        self.best_effort.set(shortfall is not None)
        self.least_budget.set(0.0 if shortfall is None else shortfall.least_spend)
        self.growth.labels("jobs").set(0.0 if shortfall is None else shortfall.jobs_per_hour)
        self.growth.labels("gpu_hours").set(0.0 if shortfall is None else shortfall.gpu_hours_per_hour)

    def net_is_lost(self, name: str, is_lost: bool) -> None:
        """Record whether a safety net is lost."""
        self.nets.labels(name).set(is_lost)

    def failed(self) -> None:
        """Record a failed tick."""
        self.ticks.labels("failed").inc()
        self.fault.set(1)

    def text(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        for source, count in DROPPED_MESSAGES.counts().items():
            self.refused.labels(source).set(count)
        return generate_latest(self.registry)
