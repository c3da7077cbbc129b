"""Forecasts for the jobs of a daemon: when each ends, and whether its due date can be met.

What depends on the last decision alone is computed once per decision. With many jobs that takes a good part
of a second: then it is prepared after the tick, by the thread that ticks, and requests meanwhile get the
forecast of the tick before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from math import inf
from typing import Any

from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.planner.dates import date_answer
from boa_daemon.daemon.service.finish_forecast import FinishForecast, JobEstimate, forecast_finishes
from boa_daemon.inputs.job_file import due_at
from boa_daemon.store.records import JobRecord
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.limits import day_of, month_of
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.room.deadline_advice import LEAST_PROBABILITY, boot_hours_of
from boa_daemon.tick.room.service_order import places_in_queue
from boa_daemon.units import format_instant
from policies.model import JobId
from policies.money_text import in_dollars

MOST_ANSWERS = 100
"""Largest number of dates to check in one submission; the first ones count."""


MOST_FINISHES = 100
"""Largest number of ends in the status, which is read all the time."""


MOST_AT_ONCE = 500
"""Largest number of jobs whose ends are computed for a request: a hundredth of a second."""


MOST_OF_TIME = 0.1
"""Largest part of the time in which ends of more jobs than that are computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forecast:
    """What was computed of a decision; `document` is the part of the status."""

    decision: Decision | None = None
    finishes: Mapping[JobId, FinishForecast] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict)


class JobForecasts:
    """Ends, places in the queue and dates of the jobs of one daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._last = _Forecast(document=_document_of({}))
        self._places: tuple[Decision | None, Mapping[JobId, int]] = (None, {})
        self._alone, self._is_prepared = threading.Lock(), False
        self._next_at = -inf

    def prepare(self) -> None:
        """Compute the forecast of the last decision; from the second time on, requests leave it to this.

        With many jobs it is computed again only once it has taken no more than a tenth of the time: while
        submissions bring ticks forward, it would take as long as they do.
        """
        decision = self._daemon.standing.decision
        if decision is None:
            return
        self._is_prepared = True
        began = time.monotonic()
        if len(decision.state.jobs) <= MOST_AT_ONCE or began >= self._next_at:
            with self._alone:
                self._compute(decision)
            took = time.monotonic() - began
            self._next_at = began + took / MOST_OF_TIME
        self.places()

    def finishes(self) -> Mapping[JobId, FinishForecast]:
        """Return when the jobs should end, by the last decision or, with many jobs, the one before."""
        return self._current().finishes

    def places(self) -> Mapping[JobId, int]:
        """Return the place in the queue of each job that waits for GPUs, by the last decision."""
        decision, found = self._daemon.standing.decision, self._places
        if decision is None:
            return {}
        if found[0] is not decision:
            self._places = found = decision, places_in_queue(decision.state, decision.plan)
        return found[1]

    def _current(self) -> _Forecast:
        """Return the newest forecast, computed now if that is quick or nobody else does it."""
        decision = self._daemon.standing.decision
        if decision is None or self._daemon.storage is None:
            return _Forecast(document=_document_of({}))
        if self._last.decision is decision:
            return self._last
        if self._is_prepared and len(decision.state.jobs) > MOST_AT_ONCE:
            return self._last
        with self._alone:
            return self._compute(decision)

    def _compute(self, decision: Decision) -> _Forecast:
        """Return the forecast of a decision, which becomes the newest."""
        if self._last.decision is decision or self._daemon.storage is None:
            return self._last
        active = self._daemon.storage.queue.active
        known = {
            name: found
            for name in decision.state.jobs
            if (record := active.get(name)) is not None and (found := self._known(record)) is not None
        }
        boot_hours = boot_hours_of(decision.plan.node_prices)
        ends = forecast_finishes(decision.state, decision.plan, known, boot_hours=boot_hours)
        self._last = _Forecast(decision=decision, finishes=ends, document=_document_of(ends))
        return self._last

    def _known(self, job: JobRecord) -> JobEstimate | None:
        """Return the class and size of a job; None when its class is unknown."""
        job_class = self._daemon.planner.class_of(job.class_name)
        if job_class is None:
            return None
        size = job_class.size_gpu_hours * float(job.content.get("scale", 1.0))
        return JobEstimate(
            job_class=job_class,
            size_gpu_hours=size,
            spread=self._daemon.learning.beliefs.spread_of(job.class_name),
        )

    def dates(self, jobs: Sequence[JobRecord]) -> dict[JobId, dict[str, Any]]:
        """Return for each job with a due date whether it can be met, along with the dates of other jobs."""
        dated = [job for job in jobs if due_at(job.content, arrived_at=job.arrived_at) is not None]
        if not dated:
            return {}
        decision, now = self._daemon.standing.decision, self._daemon.world.clock.now()
        state = ClusterState(now=now, tick=0, nodes={}, jobs={}) if decision is None else decision.state
        rules = self._daemon.planner.rules()
        boot_hours = boot_hours_of(None if decision is None else decision.plan.node_prices)
        present = dict(self._daemon.work.jobs())
        new = {job.id for job in dated}
        others = {name: job for name, job in present.items() if name not in new and job.terms.due}
        found = {}
        for job in dated[:MOST_ANSWERS]:
            if job.id in present:
                answer = date_answer(state, rules, present[job.id], others, boot_hours=boot_hours)
                if answer is not None:
                    found[job.id] = answer.document
                    if answer.verdict != "infeasible":
                        others[job.id] = present[job.id]
        return found

    def opens_at(self, name: JobId) -> float | None:
        """Return when a job that is in no queue may start at the earliest; None if unknown."""
        decision = self._daemon.standing.decision
        if decision is None or name not in decision.state.all_jobs:
            return None
        state, terms = decision.state, decision.state.all_jobs[name].terms
        match decision.plan.jobs.waiting.get(name):
            case "not-before":
                return terms.not_before
            case "resting":
                return terms.rests_until
            case "user-day-cap" | "team-day-cap":
                return day_of(state.now).ends_at
            case "team-month-cap":
                return month_of(state.now).ends_at
        return None

    def sentences(self, name: JobId) -> list[str]:
        """Return sentences on when a job should end and how likely its due date is."""
        decision, found = self._daemon.standing.decision, self.finishes().get(name)
        if decision is None:
            return []
        said = [] if found is None else [found.sentence(decision.state.now)]
        note = decision.plan.jobs.dates.get(name)
        if note is not None:
            asked = "nothing more than is planned" if note.width is None else str(note.width)
            if note.waits:
                asked = "to wait for spot"
            firm = ", on demand" if note.is_firm else ""
            then = f"what that asks for now: {asked}{firm}; about {in_dollars(note.usd)} from now on"
            if note.kept < LEAST_PROBABILITY:
                then = "too little to pay for, so it runs as cheaply as if it had no date"
            said.append(
                f"Its date is {format_instant(note.at)}, met with a probability of {note.kept:.1%}; {then}."
            )
        return said

    @property
    def document(self) -> dict[str, Any]:
        """The forecast ends and due dates, for the status."""
        decision = self._daemon.standing.decision
        notes = {} if decision is None else decision.plan.jobs.dates
        return {
            **self._current().document,
            "dates": {
                name: {"at": note.at, "probability": note.kept, "usd": note.usd, "is_firm": note.is_firm}
                | {"is_tried": note.kept >= LEAST_PROBABILITY}
                for name, note in notes.items()
            },
        }


def _document_of(ends: Mapping[JobId, FinishForecast]) -> dict[str, Any]:
    """Return the ends of jobs for the status: the next ones, and all in sum."""
    # Which end next; the forecast of each job is in its own answer.
    shown = ends if len(ends) <= MOST_FINISHES else nsmallest(MOST_FINISHES, ends, lambda job: ends[job].at)
    return {
        "finishes": {name: ends[name].document for name in shown},
        "ends": {
            "jobs": len(ends),
            "at": max((found.at for found in ends.values()), default=None),
            "high": max((found.high for found in ends.values()), default=None),
            "usd": sum(found.usd for found in ends.values()),
        },
    }
