"""Forecasts are those of the last decision, computed once, and leave out what nobody reads."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from boa_daemon.daemon.loop.loop import Daemon
from boa_daemon.daemon.service import job_forecasts
from boa_daemon.daemon.service.finish_forecast import FinishForecast
from boa_daemon.daemon.service.job_forecasts import MOST_AT_ONCE, MOST_FINISHES, JobForecasts
from boa_daemon.testing import ManualClock, a_job, a_state
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.plan import DateNote, Plan, PlannedJobs
from boa_daemon.tick.facts.state import JobTerms
from policies.model import Width

NOW = 1_800_000_000.0


def a_decision(jobs: int = 1, terms: JobTerms | None = None, **plan: Any) -> Decision:
    """Return a decision about jobs."""
    state = a_state(*(a_job(f"j{number}") for number in range(jobs)), now=NOW)
    if terms is not None:
        state = replace(state, jobs={name: replace(job, terms=terms) for name, job in state.jobs.items()})
    return Decision(state=state, plan=Plan(jobs=PlannedJobs(**plan)), actions=())


class Stage:
    """Forecasts of a daemon, whose computation is counted: job number n ends n hours after the decision."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.computed: list[int] = []
        self.clock = ManualClock()
        self.standing = SimpleNamespace(decision=None)
        storage = SimpleNamespace(queue=SimpleNamespace(active={}))
        daemon: Any = SimpleNamespace(standing=self.standing, storage=storage)
        self.forecasts = JobForecasts(cast(Daemon, daemon))
        monkeypatch.setattr(job_forecasts, "forecast_finishes", self.forecast)
        monkeypatch.setattr(job_forecasts.time, "monotonic", self.clock.now)

    def forecast(self, state: Any, *_: object, **__: object) -> dict[str, FinishForecast]:
        """Take a second and return the ends."""
        self.computed.append(len(state.jobs))
        self.clock.instant += 1.0
        return {
            name: FinishForecast(
                at=NOW + n, low=NOW + n, high=NOW + 2 * n, usd=2.0, usd_low=1.0, usd_high=3.0
            )
            for n, name in enumerate(reversed(state.jobs))
        }


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_the_forecast_of_a_decision_is_computed_once(stage: Stage) -> None:
    """Before the first decision there is none."""
    assert stage.forecasts.finishes() == {}
    assert stage.forecasts.places() == {}
    stage.standing.decision = a_decision()
    for _ in range(3):
        assert list(stage.forecasts.finishes()) == ["j0"]
    assert stage.computed == [1]
    stage.standing.decision = a_decision(2)
    assert len(stage.forecasts.finishes()) == 2


def test_of_many_jobs_requests_get_the_forecast_before_until_the_tick_has_the_new_one(stage: Stage) -> None:
    """It is computed in a tenth of the time at most."""
    many = MOST_AT_ONCE + 1
    stage.standing.decision = a_decision(many)
    stage.forecasts.prepare()
    stage.standing.decision = a_decision(many + 1)
    assert len(stage.forecasts.finishes()) == many
    for waited, computed in ((8.9, [many]), (0.2, [many, many + 1])):
        stage.clock.instant += waited
        stage.forecasts.prepare()
        assert stage.computed == computed


def test_the_status_names_the_next_ends_and_sums_up_all(stage: Stage) -> None:
    """A hundred of them, the soonest."""
    jobs = MOST_FINISHES + 20
    stage.standing.decision = a_decision(jobs)
    document = stage.forecasts.document
    assert set(document["finishes"]) == {f"j{number}" for number in range(20, jobs)}
    last = jobs - 1
    assert document["ends"] == {"jobs": jobs, "at": NOW + last, "high": NOW + 2 * last, "usd": 2.0 * jobs}


@pytest.mark.parametrize(
    ("reason", "opens"),
    [
        ("not-before", NOW + 50.0),
        ("resting", NOW + 60.0),
        ("user-day-cap", 1_800_057_600.0),
        ("team-day-cap", 1_800_057_600.0),
        ("team-month-cap", 1_801_440_000.0),
        ("node-limit", None),
    ],
)
def test_when_a_job_outside_the_queue_may_start(stage: Stage, reason: Any, opens: float | None) -> None:
    """Caps open with the next day or month (UTC)."""
    terms = JobTerms(not_before=NOW + 50.0)
    stage.standing.decision = a_decision(terms=terms, waiting={"j0": reason})
    if reason == "resting":
        rests = SimpleNamespace(rests_until=NOW + 60.0, not_before=None)
        job = SimpleNamespace(terms=rests)
        state = SimpleNamespace(now=NOW, all_jobs={"j0": job})
        stage.standing.decision = SimpleNamespace(state=state, plan=stage.standing.decision.plan)
    assert stage.forecasts.opens_at("j0") == opens
    assert stage.forecasts.opens_at("nobody") is None


@pytest.mark.parametrize(
    ("note", "said", "is_tried"),
    [
        (
            DateNote(at=NOW, kept=0.9, usd=3.0, width=Width("gpu", 4), is_firm=True),
            "of 90.0%; what that asks for now: 4 x gpu, on demand; about $3.00 from now on",
            True,
        ),
        (DateNote(at=NOW, kept=0.9, usd=3.0, width=None), "nothing more than is planned", True),
        (DateNote(at=NOW, kept=0.9, usd=3.0, width=None, waits=True), "to wait for spot", True),
        (DateNote(at=NOW, kept=1e-6, usd=3.0, width=None), "too little to pay for", False),
    ],
)
def test_what_is_said_of_a_date(stage: Stage, note: DateNote, said: str, is_tried: bool) -> None:
    """How likely it is kept, and what that asks for."""
    stage.standing.decision = a_decision(dates={"j0": note})
    text = " ".join(stage.forecasts.sentences("j0"))
    assert "Its date is 2027-01-15" in text
    assert said in text
    assert stage.forecasts.document["dates"]["j0"]["is_tried"] is is_tried
