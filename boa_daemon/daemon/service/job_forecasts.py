"""Forecasts for the jobs of a daemon: when each ends, and whether its due date can be met."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from typing import Any

from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.planner.dates import date_answer
from boa_daemon.daemon.service.finish_forecast import FinishForecast, JobEstimate, forecast_finishes
from boa_daemon.inputs.job_file import due_at
from boa_daemon.store.records import JobRecord
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.room.deadline_advice import LEAST_PROBABILITY, boot_hours_of
from boa_daemon.units import format_instant
from policies.model import JobId

MOST_ANSWERS = 100
"""Largest number of dates to check in one submission; the first ones count."""


MOST_FINISHES = 500
"""Largest number of ends in the status, which is read all the time."""


class JobForecasts:
    """Ends and dates of the jobs of one daemon; ends are computed once per decision."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._last: tuple[Decision | None, dict[JobId, FinishForecast]] = (None, {})

    def finishes(self) -> dict[JobId, FinishForecast]:
        """Return when the jobs of the last decision should end."""
        decision = self._daemon.standing.decision
        if decision is None or self._daemon.storage is None:
            return {}
        if self._last[0] is not decision:
            known = {
                name: found
                for name in decision.state.jobs
                if (record := self._daemon.storage.queue.active.get(name)) is not None
                and (found := self._known(record)) is not None
            }
            boot_hours = boot_hours_of(decision.plan.node_prices)
            self._last = (
                decision,
                forecast_finishes(decision.state, decision.plan, known, boot_hours=boot_hours),
            )
        return self._last[1]

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

    def sentences(self, name: JobId) -> list[str]:
        """Return sentences on when a job should end and how likely its due date is."""
        decision, found = self._daemon.standing.decision, self.finishes().get(name)
        if decision is None:
            return []
        said = [] if found is None else [found.sentence(decision.state.now)]
        note = decision.plan.dates.get(name)
        if note is not None:
            asked = "nothing more than is planned" if note.width is None else str(note.width)
            if note.waits:
                asked = "to wait for spot"
            firm = ", on demand" if note.is_firm else ""
            then = f"what that asks for now: {asked}{firm}; about ${note.usd:,.2f} from now on"
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
        notes = {} if decision is None else decision.plan.dates
        ends = self.finishes()
        # Which end next; the forecast of each job is in its own answer.
        shown = (
            ends if len(ends) <= MOST_FINISHES else nsmallest(MOST_FINISHES, ends, lambda job: ends[job].at)
        )
        return {
            "finishes": {name: ends[name].document for name in shown},
            "ends": {
                "jobs": len(ends),
                "at": max((found.at for found in ends.values()), default=None),
                "high": max((found.high for found in ends.values()), default=None),
                "usd": sum(found.usd for found in ends.values()),
            },
            "dates": {
                name: {"at": note.at, "probability": note.kept, "usd": note.usd, "is_firm": note.is_firm}
                | {"is_tried": note.kept >= LEAST_PROBABILITY}
                for name, note in notes.items()
            },
        }
