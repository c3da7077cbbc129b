"""Replay the site's own jobs of the last days in the simulator.

A job arrives when it could have started: submitted, its date reached, and the jobs that it waits for ended.
Its work is the hours of its generations at the speeds now believed of its class, minus lost work and
start-ups. Jobs that are not over, never started, or whose class is gone are left out and counted. The replay
has the site's commitments, but no hard caps, no limits of users and teams, no dates, and no jobs from before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from typing import Any, TypeAlias

import numpy as np

from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.money.cost_labels import UNUSED_ROW
from boa_daemon.daemon.money.costs import cost_rows
from boa_daemon.errors import InputError
from boa_daemon.learning.policy_record import PolicyRecord
from boa_daemon.sim.spot_market import mean_price_fraction
from boa_daemon.sim.wiring import SimulationSettings
from boa_daemon.sim.world_settings import Spot, WorldSettings
from boa_daemon.store.queue import JobQueue
from boa_daemon.store.records import GenerationRecord, JobRecord
from boa_daemon.tick.facts.codec import decode, encode
from boa_daemon.tick.facts.limits import DAY_SECONDS, fixed_usd
from boa_daemon.tick.money.commitments import SiteCommitments
from boa_daemon.traces.rates import with_rates
from boa_daemon.traces.reader import Trace, TraceJob
from boa_daemon.traces.workload import GpuSource, Workload
from boa_daemon.units import SECONDS_PER_HOUR, counted
from policies.kinds import kind_of
from policies.model import JobClass, Phase, Width

Stretch: TypeAlias = tuple[float, Width]
MOST_JOBS = 50_000
"""Largest number of jobs to replay; the newest ones count."""
_PAGE = 5000
_HALVINGS = 50
_LEAST, _MOST = 1e-6, 1e6
"""Search range for the scale of a job."""


def past_document(daemon: Daemon, queue: JobQueue, *, days: float) -> dict[str, Any]:
    """Return the jobs that arrived in the last `days` and are over, the policy, and the cost."""
    now = daemon.world.clock.now()
    since = now - days * DAY_SECONDS
    records = list(_arrived(queue, since))
    usages: dict[str, list[GenerationRecord]] = defaultdict(list)
    for usage in queue.usages(since):
        usages[usage.job].append(usage)
    ends = {record.id: record.ended_at for record in records if record.ended_at is not None}
    left_out: Counter[str] = Counter()
    jobs, classes = [], set()
    for record in records:
        job_class = _class_of(daemon, record)
        if record.is_active:
            left_out["not over"] += 1
        elif not usages[record.id] or job_class is None:
            left_out["of a class that is gone" if job_class is None else "never started"] += 1
        else:
            scale = scale_of(_stretches(record, usages[record.id], job_class), job_class)
            arrived = _could_start(record, ends)
            ended = record.ended_at or now
            jobs.append([record.id, arrived - since, job_class.name, scale, ended - since])
            classes.add(job_class.name)
    rows = cost_rows(queue, by="job", since=since, now=now)
    names = {job[0] for job in jobs} | {UNUSED_ROW}
    return {
        "as_of": now,
        "days": days,
        "jobs": sorted(jobs, key=lambda job: (job[1], job[0])),
        "left_out": dict(left_out),
        "usd": sum(row["usd"] for row in rows if row["name"] in names),
        "policy": encode(daemon.planner.record(classes, is_for_replay=True).document),
        "market": daemon.settings.cloud.market,
        "spot_price_fraction": _spot_price_fraction(queue, since),
        "commitments": daemon.planner.paid.later(-since).to_rows(),
    }


def past_simulation(document: Mapping[str, Any]) -> SimulationSettings:
    """Return the simulation that replays a `past_document`.

    Raises:
        InputError: when it has no jobs.
    """
    days, left_out = document["days"], document["left_out"]
    if not document["jobs"]:
        others = ", ".join(f"{counted(number, 'job')} {why}" for why, number in left_out.items())
        hint = f"Left out: {others}" if others else "Ask for more days"
        raise InputError(f"no job of the last {days:g} days is over", hint=hint)
    record = PolicyRecord.of(decode(document["policy"]))
    site, rules, market = record.site, record.rules, document["market"]
    on_demand = [machine for machine in site.instance_types.values() if not machine.kind.is_spot]
    trace = Trace(tuple(TraceJob(*job[:4]) for job in document["jobs"]))
    # In a simulation the cloud simulates boots, so a class's start-up excludes them.
    classes = tuple(
        replace(one, startup_hours=max(one.startup_hours - site.boot_hours, 0.0))
        for one in site.problem.classes
    )
    rated = with_rates(classes, trace)
    seen, pool = document["spot_price_fraction"], rules.warm_pool
    spot = Spot() if seen is None else Spot(price_fraction=seen)
    machines = {
        kind: replace(machine, usd_per_hour=machine.usd_per_hour * mean_price_fraction(spot))
        if machine.kind.is_spot
        else machine
        for kind, machine in site.instance_types.items()
    }
    found = SimulationSettings(
        trace=trace,
        problem=replace(
            site.problem,
            classes=rated,
            gpu_types=tuple(
                replace(gpu, usd_per_gpu_hour=machines[gpu.name].usd_per_gpu_hour)
                for gpu in site.problem.gpu_types
            ),
        ),
        instance_types=machines,
        budget=site.budget,
        policy=record.name,
        options=record.options,
        placer=record.placer,
        kappa=record.kappa,
        boot_seconds=site.boot_hours * SECONDS_PER_HOUR,
        idle_hold_seconds=rules.idle_hold_seconds,
        max_nodes=rules.max_nodes,
        sized_by_trace=frozenset(one.name for one in rated),
        commitments=SiteCommitments.of_rows(document["commitments"], on_demand),
        world=WorldSettings(spot=None if market == "on-demand" else spot, on_demand=market != "spot"),
    )
    if pool is None:
        return found
    return replace(found, warm_pool_nodes=pool.nodes, start_seconds=pool.start_seconds)


def past_workload(document: Mapping[str, Any]) -> Workload:
    """Return the jobs, classes and machines of a `past_document` as a workload that files can hold.

    Prices are on-demand prices. Market names are removed from machines, and a class's traffic between nodes
    is left out.

    Raises:
        InputError: when it has no jobs.
    """
    run = past_simulation(document)
    machines = {kind: one for kind, one in run.instance_types.items() if not one.kind.is_spot}
    if not machines:
        machines = {str(one.kind.on_demand): one for one in run.instance_types.values()}

    def off_markets(phase: Phase) -> Phase:
        # A class has the same speed on both markets of a machine.
        speedups = {str(kind_of(kind).on_demand): curve for kind, curve in phase.speedups.items()}
        return replace(phase, speedups={kind: curve for kind, curve in speedups.items() if kind in machines})

    classes = [
        replace(one, phases=tuple(off_markets(phase) for phase in one.phases)) for one in run.problem.classes
    ]
    return Workload(
        source=f"The last {document['days']:g} days of a site",
        trace=run.trace,
        classes=tuple(classes),
        gpu_types={
            kind: GpuSource(
                usd_per_gpu_hour=one.usd_per_gpu_hour,
                gpus_per_instance=one.gpus,
                link_gigabits_per_second=one.link_gigabits_per_second,
            )
            for kind, one in machines.items()
        },
        dropped={why: number for why, number in document["left_out"].items() if number},
    )


def compare_with_past(document: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded results of the same jobs, and the ratio of the replayed base to them."""
    hours = float(np.mean([(ended - at) / SECONDS_PER_HOUR for _, at, _, _, ended in document["jobs"]]))
    usd = float(document["usd"]) + _paid_anyway(document)
    return {
        "jobs": len(document["jobs"]),
        "left_out": document["left_out"],
        "mean_jct_hours": hours,
        "spend": usd,
        "replayed_over_seen_jct": _ratio(base["mean_jct_hours"], hours),
        "replayed_over_seen_spend": _ratio(base["spend"], usd),
    }


def scale_of(stretches: Sequence[Stretch], job_class: JobClass) -> float:
    """Return the scale at which a job of the class ends exactly at the end of its stretches."""
    if len(job_class.phases) == 1:
        work = sum(hours * _speed(job_class, 0, width) for hours, width in stretches)
        return min(max(work / job_class.size_gpu_hours, _LEAST), _MOST)
    low, high = log(_LEAST), log(_MOST)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _is_done(exp(middle), stretches, job_class) else (low, middle)
    return exp(low)


def _is_done(scale: float, stretches: Sequence[Stretch], job_class: JobClass) -> bool:
    """Whether a job of this scale ends within its stretches."""
    phase, left = 0, scale * job_class.phases[0].size_gpu_hours
    for worked, width in stretches:
        hours = worked
        while hours > 0.0:
            speed = _speed(job_class, phase, width)
            if hours * speed < left:
                left -= hours * speed
                break
            hours -= left / speed
            phase += 1
            if phase == len(job_class.phases):
                return True
            left = scale * job_class.phases[phase].size_gpu_hours
    return False


def _speed(job_class: JobClass, phase: int, width: Width) -> float:
    """Return the speed of a class in a phase at a width, clamped to the widths now allowed."""
    curve = job_class.phases[phase].speedups.get(str(width.kind.on_demand))
    if curve is None:
        return float(width.gpus)
    return float(curve.speed_at(min(max(width.gpus, curve.min_gpus), curve.max_gpus)))


def _stretches(record: JobRecord, usages: Sequence[GenerationRecord], job_class: JobClass) -> list[Stretch]:
    """Return a job's generations in order as worked hours and width, without start-ups and lost work."""
    held = sum(_hours(usage) * usage.width.gpus for usage in usages)
    kept = 1.0 - min(record.lost_gpu_hours / held, 1.0) if held > 0.0 else 1.0
    found = []
    for number, usage in enumerate(sorted(usages, key=lambda usage: usage.generation)):
        pause = job_class.rescale_hours if number else job_class.startup_hours
        found.append((max(_hours(usage) - pause, 0.0) * kept, usage.width))
    return found


def _hours(usage: GenerationRecord) -> float:
    """Return the hours that a generation held its GPUs."""
    return max((usage.ended_at or usage.started_at) - usage.started_at, 0.0) / SECONDS_PER_HOUR


def _could_start(record: JobRecord, ends: Mapping[str, float]) -> float:
    """Return the earliest instant at which a job could have started."""
    before = (ends.get(str(other).partition(":")[0], 0.0) for other in record.content.get("after") or ())
    latest = record.first_started_at if record.first_started_at is not None else record.arrived_at
    return min(max(record.arrived_at, record.not_before, *before), max(latest, record.arrived_at))


def _class_of(daemon: Daemon, record: JobRecord) -> JobClass | None:
    """Return the class that a job was planned by; None when the class is gone."""
    known = daemon.planner.class_of(record.class_name)
    if known is not None:
        return known
    try:
        return daemon.planner.class_for(record.content, within_instances=False)
    except InputError:
        return None


def _arrived(queue: JobQueue, since: float) -> Iterator[JobRecord]:
    """Yield the jobs that arrived since an instant, newest first."""
    before: int | None = None
    for _ in range(MOST_JOBS // _PAGE):
        page = queue.jobs(limit=_PAGE, before=before)
        for record in page:
            if record.arrived_at < since:
                return
            yield record
        if len(page) < _PAGE:
            return
        before = page[-1].seq


def _spot_price_fraction(queue: JobQueue, since: float) -> float | None:
    """Return the mean ratio of spot price to on-demand price; None without spot nodes."""
    nodes = [one.node for one in queue.past_instances(since) if one.node.market == "spot"]
    parts = [node.usd_per_hour / node.instance_type.usd_per_hour for node in nodes]
    return float(np.mean(parts)) if parts else None


def _paid_anyway(document: Mapping[str, Any]) -> float:
    """Return what commitments cost from the first arrival of these jobs to their last end."""
    begin = min(job[1] for job in document["jobs"])
    end = max(job[4] for job in document["jobs"])
    return fixed_usd(SiteCommitments.of_rows(document["commitments"], ()).fixed, begin, end)


def _ratio(replayed: float | None, seen: float) -> float | None:
    """Return the replayed figure over the recorded one."""
    return None if replayed is None or seen <= 0.0 else replayed / seen
