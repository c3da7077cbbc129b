"""The best fixed widths of each class on a fleet under shortest remaining service first.

With the site's rates and speed-ups a fleet can do better than with one limit on all widths. Three kinds of
plans are candidates for each class: one width for life; the fastest width within a limit in each phase; and
in each phase the width of least T + mu k T at a price of mu hours of waiting per GPU-hour. At a common price,
each class takes the plan with the least

    T + mu H

and the price determines how many GPUs all classes hold on average. A low price fills the fleet and jobs
queue, a high price leaves GPUs idle. No formula gives the queue of jobs of different widths. So arrivals are
drawn once from the site's rates (Poisson, each job of its class's size) and simulated on the fleet for every
set of plans that a price can give, or for `TRIALS` of them, evenly spaced.

    symbol   here        meaning
    T        hours       completion time of a job of a plan, overheads included
    H        gpu_hours   GPU-hours of a job of a plan
    G        gpus        GPUs of the fleet

Cost: O(trials x jobs drawn x jobs present), a few tenths of a second, once per fleet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from policies.model import Width
from policies.rivals.baselines import StaticSrsf
from policies.rivals.ladder import Widths, job_hours
from policies.rivals.width_menu import WidthMenu, fleet_of, menu_of
from policies.site import BuiltPolicy, PolicyEntry, PolicyOptions, Site

TRIALS = 32
JOBS = 1500
"""Simulated jobs."""
FULLEST = 1.0
"""Plans that would hold more than this share of the fleet on average are not tried: the queue would grow."""
PRICES = tuple(float(price) for price in np.geomspace(0.02, 2.0, 12))
"""Hours of waiting per GPU-hour at which the widths of single phases are chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthPlan:
    """Widths of a class, phase by phase, and the hours and GPU-hours of a job with them."""

    widths: Widths
    hours: float
    gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A simulated job: its arrival, its hours, and its mean width."""

    hour: float
    hours: float
    gpus: float


def best_fixed_widths(menu: WidthMenu, *, gpus: int) -> Mapping[str, Widths]:
    """Return the widths of each class with the least mean response time on `gpus` GPUs, by simulation."""
    rates = {name: job_class.arrivals_per_hour for name, job_class in menu.classes.items()}
    choices = _choices({name: _hull(_plans(menu, name, gpus)) for name in menu.classes})
    held = np.array([sum(rates[name] * plan.gpu_hours for name, plan in by.items()) for by in choices])
    usable = np.flatnonzero(held <= FULLEST * gpus)
    if len(usable) == 0:
        usable = np.array([int(np.argmin(held))])
    tried = usable[np.unique(np.linspace(0, len(usable) - 1, TRIALS).round().astype(int))]
    waits = [mean_response_hours(_draw(rates, choices[int(n)]), gpus=gpus) for n in tried]
    best = choices[int(tried[int(np.argmin(waits))])]
    return {name: plan.widths for name, plan in best.items()}


def _plans(menu: WidthMenu, name: str, gpus: int) -> list[WidthPlan]:
    """Return the plans of a class that fit on `gpus` GPUs, or the narrowest if none fits."""
    job_class = menu.classes[name]
    ladder = menu.ladders[name]
    found = dict.fromkeys(ladder.widths)
    found |= dict.fromkeys(menu.widths_within(name, limit) for limit in menu.limits if limit <= gpus)
    curves = [phase.speedups[menu.gpu_type] for phase in job_class.phases]
    allowed = [curve.whole_widths() for curve in curves]
    fitting = [widths[widths <= gpus] if widths[0] <= gpus else widths[:1] for widths in allowed]
    # Hours per hour of work at each width, by phase.
    slowness = [1.0 / curve.speed_at(widths) for curve, widths in zip(curves, fitting, strict=True)]
    for price in PRICES:
        best = [
            int(np.argmin(hours * (1.0 + price * widths)))
            for hours, widths in zip(slowness, fitting, strict=True)
        ]
        chosen = zip(fitting, best, strict=True)
        found[tuple(Width(menu.gpu_type, int(widths[n])) for widths, n in chosen)] = None
    fits = [widths for widths in found if max(width.gpus for width in widths) <= gpus]
    plans = []
    for widths in fits or [menu.widths_within(name, 1)]:
        hours, gpu_hours = job_hours(job_class, widths)
        plans.append(WidthPlan(widths=widths, hours=hours, gpu_hours=gpu_hours))
    return plans


def _hull(plans: Sequence[WidthPlan]) -> list[WidthPlan]:
    """Return the plans that are best at some price, the cheapest first: the hull of hours over GPU-hours."""
    hull: list[WidthPlan] = []
    for plan in sorted(plans, key=lambda plan: (plan.gpu_hours, plan.hours)):
        if hull and plan.hours >= hull[-1].hours:
            continue
        while len(hull) > 1 and _saved(hull[-2], hull[-1]) <= _saved(hull[-1], plan):
            hull.pop()
        hull.append(plan)
    return hull


def _saved(low: WidthPlan, high: WidthPlan) -> float:
    """Return the hours that the second plan saves per additional GPU-hour."""
    return (low.hours - high.hours) / (high.gpu_hours - low.gpu_hours)


def _choices(hulls: Mapping[str, Sequence[WidthPlan]]) -> list[dict[str, WidthPlan]]:
    """Return every choice of one plan per class that some price gives, from the cheapest to the fastest."""
    steps = [(_saved(low, high), name, high) for name, hull in hulls.items() for low, high in pairwise(hull)]
    by_class = {name: hull[0] for name, hull in hulls.items()}
    found = [dict(by_class)]
    for _, name, plan in sorted(steps, key=lambda step: -step[0]):
        by_class[name] = plan
        found.append(dict(by_class))
    return found


def _draw(rates: Mapping[str, float], by_class: Mapping[str, WidthPlan]) -> list[Arrival]:
    """Draw the arrivals, at the same instants and of the same classes for every choice of plans."""
    dice = np.random.default_rng(0)
    names, weights = list(rates), np.array(list(rates.values()))
    at = np.cumsum(dice.exponential(1.0 / weights.sum(), JOBS))
    plans = [by_class[names[kind]] for kind in dice.choice(len(names), size=JOBS, p=weights / weights.sum())]
    return [
        Arrival(hour=hour, hours=plan.hours, gpus=plan.gpu_hours / plan.hours)
        for hour, plan in zip(at.tolist(), plans, strict=True)
    ]


def mean_response_hours(arrivals: Sequence[Arrival], *, gpus: int) -> float:
    """Simulate shortest remaining service first; return the mean hours from arrival to end.

    Jobs are stopped and resumed at no cost; a job that does not fit is skipped.
    """
    width_of = [min(job.gpus, gpus) for job in arrivals]
    waited, now, coming = 0.0, 0.0, 0
    present: list[tuple[float, int]] = []  # service left in GPU-hours, and the job's number
    while coming < len(arrivals) or present:
        if not present:
            now = max(now, arrivals[coming].hour)
        while coming < len(arrivals) and arrivals[coming].hour <= now:
            present.append((arrivals[coming].hours * width_of[coming], coming))
            coming += 1
        running: list[tuple[float, int]] = []
        waiting: list[tuple[float, int]] = []
        left = gpus + 1e-9
        for service, number in sorted(present):
            if width_of[number] <= left:
                left -= width_of[number]
                running.append((service, number))
            else:
                waiting.append((service, number))
        step = min(service / width_of[number] for service, number in running)
        if coming < len(arrivals):
            step = min(step, arrivals[coming].hour - now)
        now += step
        present = waiting
        for service, number in running:
            rest = service - step * width_of[number]
            if rest > 1e-9 * width_of[number]:
                present.append((rest, number))
            else:
                waited += now - arrivals[number].hour
    return waited / len(arrivals)


def best_srsf(site: Site, options: PolicyOptions) -> StaticSrsf:
    """Build shortest remaining service first on the fleet, at the widths with the least response time there.

    No job waits for a boot on a fixed fleet, so boots are subtracted from the start-up hours.
    """
    menu = menu_of(site, options)
    fleet = fleet_of(site, options, menu.gpu_type)
    at_once = {
        name: replace(job_class, startup_hours=max(0.0, job_class.startup_hours - site.boot_hours))
        for name, job_class in menu.classes.items()
    }
    plans = best_fixed_widths(WidthMenu(classes=at_once, gpu_type=menu.gpu_type), gpus=fleet.gpus)
    return StaticSrsf(menu=menu, fleet=fleet, plans=plans)


def srpt(site: Site, options: PolicyOptions) -> BuiltPolicy:
    """Build shortest remaining service first with the best fixed width of each class."""
    return BuiltPolicy(allocator=best_srsf(site, options))


SRPT = PolicyEntry(
    name="srpt",
    kind="fleet",
    summary="a fixed fleet, shortest remaining service first, the best fixed width of each class",
    build=srpt,
    options=frozenset({"gpu_type", "nodes"}),
    reads_progress=True,
)
