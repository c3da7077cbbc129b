"""Metrics that compare a tick with the previous one: money, GPUs, waiting, boots, failures.

Labels come from bounded lists: types, zones and markets of live nodes, classes of the settings, and the users
and teams with the highest cost (`minute_history.current_figures`). Counters and histograms start at zero with
each process, as `rate()` expects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client import Counter as Count

from boa_daemon.daemon.watch.decision_summary import DecisionSummary
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import JobRecord
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.units import SECONDS_PER_HOUR

WAIT_BUCKETS = (1, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400)
COMPLETION_BUCKETS = (60, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400, 259200, 604800)
BOOT_BUCKETS = (5, 15, 30, 60, 90, 120, 180, 240, 300, 420, 600, 900)
MOST_GAP_SECONDS = 600.0
"""Longest gap between ticks over which spending is attributed; after a longer one it is unknown."""


@dataclass(slots=True)
class _Before:
    """What the previous tick saw."""

    now: float
    rates: Mapping[str, float]
    jobs: Mapping[str, JobRecord]
    booting: frozenset[str] = frozenset()
    warned: frozenset[str] = frozenset()
    refusals: Mapping[str, int] = field(default_factory=dict)


class SiteMetrics:
    """Updates the metrics from each decision."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, words: str, *labels: str) -> Gauge:
            return Gauge(f"boa_{name}", words, labels, registry=registry)

        def count(name: str, words: str, *labels: str) -> Count:
            return Count(f"boa_{name}", words, labels, registry=registry)

        def times(name: str, words: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"boa_{name}_seconds", words, labels, buckets=buckets, registry=registry)

        self.gpus = gauge("gpus", "GPUs that are rented, by what they do.", "state")
        self.fleet = gauge(
            "fleet_nodes", "Nodes by type, zone and market.", "instance_type", "zone", "market"
        )
        self.fleet_burn = gauge(
            "fleet_dollars_per_hour", "Prices of these nodes, added up.", "instance_type", "zone", "market"
        )
        self.budget = gauge("budget_dollars_per_hour", "The long-run average that the plan aims at.")
        self.forecast = gauge("forecast_dollars", "Spent at the end of the window at this rate.", "window")
        self.spend = {
            kind: count(f"{kind}_spend_dollars", f"Dollars spent, by {words}.", kind)
            for kind, words in (
                ("state", "state: work, boot, idle, restart"),
                ("market", "market"),
                ("class", "class of the jobs"),
                ("user", "user of the jobs, the 12 with the highest cost"),
                ("team", "team of the jobs, the 12 with the highest cost"),
            )
        }
        self.wait = times("job_wait", "From arrival to the first start.", WAIT_BUCKETS, "class")
        self.completion = times(
            "job_completion", "From arrival to the end, of jobs that ended well.", COMPLETION_BUCKETS, "class"
        )
        self.boot = times("node_boot", "From launch to ready.", BOOT_BUCKETS, "instance_type")
        self.ended = count("jobs_ended", "Jobs that ended, by how.", "status")
        self.restarts = count("job_restarts", "Starts of jobs after their first.")
        self.lost = count("lost_gpu_hours", "GPU-hours of work that is in no checkpoint.")
        self.interruptions = count("interruptions", "Nodes whose interruption the cloud announced.", "market")
        self.refusals = count("refusals", "Launches that the cloud refused, by kind.", "kind")
        self.price_age = gauge("oldest_fact_age_seconds", "Age of the oldest price or quota in use.")
        self._before: _Before | None = None

    def take(
        self,
        picture: DecisionSummary,
        queue: JobQueue,
        *,
        rates: Mapping[str, float],
        budget: float,
        ages: Mapping[str, float | None],
    ) -> None:
        """Record a tick; `rates` are its `minute_history.current_figures`. O(jobs + GPUs)."""
        state = picture.decision.state
        jobs = dict(queue.active)
        self._fleet(state, rates)
        self.budget.set(budget)
        for window, figures in picture.figures.items():
            self.forecast.labels(window).set(figures["forecast_usd"] or 0.0)
        self.price_age.set(max((age for age in ages.values() if age is not None), default=0.0))
        before = self._before
        if before is not None:
            self._money(before, state.now)
            self._jobs(before, jobs, queue)
            self._nodes(before, state, queue)
        self._before = _Before(
            now=state.now,
            rates=rates,
            jobs=jobs,
            booting=frozenset(n.id for n in state.nodes.values() if n.phase == "requested"),
            warned=frozenset(n.id for n in state.nodes.values() if n.ends_by is not None),
            refusals={scope: one.times for scope, one in state.cooldowns.items()},
        )

    def _fleet(self, state: ClusterState, rates: Mapping[str, float]) -> None:
        """Set the gauges of nodes and GPUs."""
        places: Counter[tuple[str, str, str]] = Counter()
        prices: Counter[tuple[str, str, str]] = Counter()
        booting = 0
        for node in state.nodes.values():
            place = (node.instance_type.name, node.zone, str(node.market))
            places[place] += 1
            prices[place] += node.usd_per_hour  # type: ignore[assignment]
            booting += len(node.gpus) if node.phase == "requested" else 0
        for gauge, values in ((self.fleet, places), (self.fleet_burn, prices)):
            gauge.clear()
            for place, value in values.items():
                gauge.labels(*place).set(value)
        used = rates.get("gpus_used", 0.0)
        self.gpus.labels("used").set(used)
        self.gpus.labels("booting").set(booting)
        self.gpus.labels("idle").set(rates.get("gpus", 0.0) - used - booting)

    def _money(self, before: _Before, now: float) -> None:
        """Add the spending since the previous tick, at that tick's rates."""
        seconds = now - before.now
        if not 0.0 < seconds <= MOST_GAP_SECONDS:
            return
        for name, rate in before.rates.items():
            kind, colon, label = name.partition(":")
            if colon and kind in self.spend:
                self.spend[kind].labels(label).inc(rate * seconds / SECONDS_PER_HOUR)

    def _jobs(self, before: _Before, jobs: Mapping[str, JobRecord], queue: JobQueue) -> None:
        """Count starts, ends and losses."""
        for name, job in jobs.items():
            known = before.jobs.get(name)
            if known is job:
                continue
            generation = 0 if known is None else known.generation
            self._took(job, generation, 0.0 if known is None else known.lost_gpu_hours)
        for name in before.jobs.keys() - jobs.keys():
            ended = queue.job(name)
            if ended is None or ended.is_active:
                continue
            known = before.jobs[name]
            self._took(ended, known.generation, known.lost_gpu_hours)
            self.ended.labels(ended.status).inc()
            if ended.status == "finished" and ended.ended_at is not None:
                taken = ended.ended_at - ended.arrived_at
                self.completion.labels(_class(ended)).observe(max(taken, 0.0))

    def _took(self, job: JobRecord, generation: int, lost: float) -> None:
        """Count a job's starts and lost work since the previous tick."""
        if generation == 0 and job.generation > 0 and job.first_started_at is not None:
            self.wait.labels(_class(job)).observe(max(job.first_started_at - job.arrived_at, 0.0))
        if (restarts := job.generation - max(generation, 1)) > 0:
            self.restarts.inc(restarts)
        if (more := job.lost_gpu_hours - lost) > 0.0:
            self.lost.inc(more)

    def _nodes(self, before: _Before, state: ClusterState, queue: JobQueue) -> None:
        """Count completed boots, interruptions and refusals."""
        for name in before.booting:
            record = queue.instances.get(name)
            if record is not None and record.ready_at is not None:
                seconds = record.ready_at - record.node.launched_at
                self.boot.labels(record.node.instance_type.name).observe(max(seconds, 0.0))
        for node in state.nodes.values():
            if node.ends_by is not None and node.id not in before.warned:
                self.interruptions.labels(node.market).inc()
        for scope, one in state.cooldowns.items():
            self.refusals.labels(one.kind).inc(max(one.times - before.refusals.get(scope, 0), 0))


def _class(job: JobRecord) -> str:
    """Return the configured class of a job, without limits on width."""
    return job.class_name.partition("[")[0]
