"""A budget below the load: ticks go on as a best effort within the budget, and the shortfall is reported."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.service.replay import replay
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError
from boa_daemon.learning.budget_watch import MARGIN, BudgetWatch, at_dearer_offers
from boa_daemon.learning.policy_record import PolicyRecord
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.offers import Offer
from policies.errors import InfeasibleBudget, InvalidProblem
from policies.registry import build_policy, shortfall_of_site

START = 1_800_000_000.0 - 1_800_000_000.0 % 86_400.0
LEAST = 1.00600
"""What an hour on one GPU costs: the default class has one job of that an hour."""
TICK = 300.0


class Stage:
    """A daemon whose class file states one job of one GPU-hour per hour; counts failed ticks."""

    def __init__(self, folder: Path, **changes: dict[str, Any]) -> None:
        common: dict[str, dict[str, Any]] = {
            "budget": {"usd_per_hour": 10.0, "usd_per_day_cap": None},
            "cloud": {"boot_seconds": 30.0},
            "learning": {"rates": False, "sizes": False},
            "daemon": {"tick_seconds": TICK, "idle_hold_seconds": 60.0},
        }
        self.folder, self.clock, self.failed = folder, ManualClock(START), 0
        self.settings = {name: common.get(name, {}) | changes.get(name, {}) for name in common | changes}
        self.open()

    def open(self) -> None:
        self.play = DaemonInAFolder(self.folder, self.clock, self.settings)

    def restart(self, **budget: Any) -> None:
        self.play.close()
        self.settings["budget"] |= budget
        self.open()

    def reload(self, **budget: Any) -> None:
        daemon = self.play.daemon
        changed = daemon.settings.budget.model_copy(update=budget)
        daemon.use(daemon.settings.model_copy(update={"budget": changed}))

    def hours(self, hours: float, each_hour: Callable[[int], None] = lambda _hour: None) -> None:
        for hour in range(int(hours)):
            each_hour(hour)
            for _ in range(int(3600.0 / TICK)):
                self.failed += self.play.daemon.tick() is None
                self.clock.instant += TICK

    def submit(self, count: int, **changes: Any) -> list[str]:
        contents = [job_content(f"j{n}", **changes) for n in range(count)]
        jobs: list[str] = self.play.service.submit(contents, user="ann")["jobs"]
        return jobs

    def ended(self) -> int:
        rows = self.play.service.jobs(limit=10_000)["jobs"]
        return sum(row["status"] == "finished" for row in rows)

    @property
    def spent(self) -> float:
        return self.play.cloud.bill_micro_dollars() / 1e6

    @property
    def told(self) -> dict[str, Any]:
        found = self.play.service.status()["best_effort"]
        assert isinstance(found, dict)
        return found


@contextmanager
def a_stage(folder: Path, **changes: dict[str, Any]) -> Iterator[Stage]:
    """Yield a stage and close it."""
    stage = Stage(folder, **changes)
    try:
        yield stage
    finally:
        stage.play.close()


@pytest.mark.parametrize(
    "policy",
    [
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("boa", "boa-paced", "static-fifo")),
        "equal-width",
    ],
)
def test_a_reload_with_a_budget_below_the_load_fails_no_tick(tmp_path: Path, policy: str) -> None:
    """After the reload to 0.3 USD/hour nodes are given back, and spend and jobs follow the new budget."""
    with a_stage(tmp_path, workload={"policy": policy}) as stage:
        stage.submit(20, hours=2.0)
        stage.hours(1)
        before = stage.spent
        assert before > 5.0
        stage.reload(usd_per_hour=0.3)
        stage.hours(1)
        assert stage.play.service.status()["nodes"] == 0
        stage.hours(35)
        assert stage.failed == 0
        assert stage.spent - before == pytest.approx(36 * 0.3, abs=1.5)
        assert stage.ended() >= 2


def test_a_best_effort_is_reported_everywhere(tmp_path: Path) -> None:
    """Status, explanation, alert and metrics name the least budget or the growth of the queue."""
    with a_stage(tmp_path, budget={"usd_per_hour": 0.5}) as stage:
        jobs = stage.submit(3, hours=1.0)
        stage.hours(3)
        told = stage.told
        growth = 1.0 - 0.5 / told["least_spend"]
        assert told["least_spend"] == pytest.approx(LEAST, rel=0.02)
        assert told["queue_growth_jobs_per_hour"] == pytest.approx(growth)
        assert told["queue_growth_gpu_hours_per_hour"] == pytest.approx(growth)
        assert told["since"] == START
        assert told["message"] in stage.play.service.status()["notes"]
        (alert,) = stage.play.service.alerts()["alerts"]
        assert alert["sentence"] == told["message"]
        waits = stage.play.service.explain(jobs[-1])
        assert waits["reason"] == "budget"
        assert "is below the load" in waits["text"]
        assert "would stop that" in waits["text"]
        text = stage.play.daemon.metrics.text().decode()
        assert "boa_best_effort 1.0" in text
        (said,) = re.findall(r'boa_queue_growth_per_hour\{of="jobs"\} (\S+)', text)
        assert float(said) == pytest.approx(growth)


@pytest.mark.exhaustive
def test_the_account_of_a_best_effort_survives_restarts(tmp_path: Path) -> None:
    """The daemon is restarted every hour for a day and spends 0.4 USD/hour, not more."""
    with a_stage(tmp_path, budget={"usd_per_hour": 0.4}, workload={"policy": "boa"}) as stage:
        stage.submit(20, hours=1.0)
        stage.hours(24, each_hour=lambda _hour: stage.restart())
        assert stage.failed == 0
        assert stage.told["since"] == START
        assert stage.spent == pytest.approx(24 * 0.4, abs=1.2)
        assert stage.ended() >= 5


def test_every_decision_of_a_best_effort_replays(tmp_path: Path) -> None:
    """The account is part of the record."""
    with a_stage(tmp_path, budget={"usd_per_hour": 0.5}) as stage:
        stage.submit(5, hours=1.0)
        stage.hours(6)
        rows = stage.play.service.decisions(limit=100, acting=True)["decisions"]
        assert len(rows) > 4
        assert all(replay(stage.play.service.decision(row["tick"])).is_same for row in rows)


def test_a_sufficient_budget_ends_the_best_effort(tmp_path: Path) -> None:
    """The best effort ends with the first tick after the reload, with an alert."""
    with a_stage(tmp_path, budget={"usd_per_hour": 0.3}) as stage:
        stage.submit(4, hours=1.0)
        stage.hours(2)
        stage.reload(usd_per_hour=LEAST * 1.04)
        stage.play.daemon.tick()
        assert stage.play.service.status()["best_effort"] is None
        assert "the budget pays for the load again" in {
            row["sentence"] for row in stage.play.service.alerts()["alerts"]
        }
        stage.reload(usd_per_hour=10.0)
        stage.hours(4)
        assert stage.ended() == 4
        assert stage.failed == 0


def a_record(work: float, *, usd_per_hour: float = 10.0) -> PolicyRecord:
    """Return the policy for a load of `work` dollars an hour."""
    planner = Planner(Settings.model_validate({"budget": {"usd_per_hour": usd_per_hour}}))
    record = planner.record(())
    classes = tuple(
        replace(c, arrivals_per_hour=work, startup_hours=0.0, rescale_hours=0.0)
        for c in record.site.problem.classes
    )
    problem = replace(
        record.site.problem,
        classes=classes,
        gpu_types=tuple(replace(gpu, usd_per_gpu_hour=1.0) for gpu in record.site.problem.gpu_types),
    )
    return replace(record, site=replace(record.site, problem=problem))


def test_a_load_that_varies_around_the_budget_changes_the_plan_once() -> None:
    """A best effort begins above the budget and ends 5 % below it, not in between."""
    watch = BudgetWatch()

    def is_best_effort(work: float, **changes: float) -> bool:
        record = a_record(work, **changes)
        found = watch.look(record.name, record.site, record.options, now=0.0, spent=lambda: 7.0)
        return found is not None

    assert not is_best_effort(9.9)
    assert [is_best_effort(load) for load in (10.1, 9.9, 10.1, 9.6, 9.9)] == [True] * 5
    assert watch.shortfall is not None
    assert not watch.shortfall.is_short
    assert not is_best_effort(10.0 / MARGIN - 0.01)
    assert not is_best_effort(9.9)
    assert is_best_effort(10.1)
    assert watch.account is not None
    assert watch.account.spent_before == 7.0
    assert not is_best_effort(9.9, usd_per_hour=9.95), "another budget is judged anew"


def test_a_burst_begins_no_best_effort_while_the_promise_can_be_kept() -> None:
    """The learnt load is twice the stated one and above the budget; the law believes in a tenth more.

    A quarter has 2,160 hours. The narrowest widths take 1.1 x 6 of 10 dollars an hour, so after 15 days a
    debt of 216 + 0.34 x 1,800 hours is the most.
    """
    record = a_record(12.0)
    site, now = replace(record.site, load_over_stated=2.0), 360.0 * 3600.0

    def is_best_effort(watch: BudgetWatch, owed_hours: float, law: float = 1.1) -> bool:
        spent = 10.0 * (360.0 + owed_hours)
        found = watch.look(
            record.name,
            site,
            record.options,
            now=now,
            spent=lambda: spent,
            memory=(0.0, law),
            opened_at=0.0,
        )
        return found is not None

    assert not is_best_effort(BudgetWatch(), 200.0)
    assert not is_best_effort(BudgetWatch(), 820.0)
    assert is_best_effort(BudgetWatch(), 840.0), "not even the narrowest widths end the quarter in time"
    assert is_best_effort(BudgetWatch(), 0.0, law=1.7), "the law believes in that load, too"
    watch = BudgetWatch()
    assert [is_best_effort(watch, owed) for owed in (840.0, 500.0, 400.0, 820.0)] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("policy", ["boa", "greedy-marginal", "equal-width"])
def test_the_memory_of_the_policy_before_keeps_no_best_effort_from_a_policy_without_a_pace(
    policy: str,
) -> None:
    """Such a policy has no plan below its need, whatever a law believed that was in use until then."""
    record = a_record(12.0)
    with pytest.raises(InfeasibleBudget):
        build_policy(policy, record.site, record.options)
    for memory in ((), (0.0,), (0.0, 0.5)):
        watch = BudgetWatch()
        account = watch.look(
            policy, record.site, record.options, now=0.0, spent=lambda: 0.0, memory=memory, opened_at=0.0
        )
        assert account is not None, memory


def test_a_higher_price_can_make_the_budget_too_small() -> None:
    """A price of 1.3 times the planned one counts as 1.34, in steps of 5 %; a lower price does not count."""
    site = a_record(8.0).site
    machine = site.instance_types["a10g"]
    dearer = at_dearer_offers(
        site, [Offer(instance_type=machine.name, usd_per_hour=machine.usd_per_hour * 1.3)]
    )

    assert not shortfall_of_site(site).is_short
    assert shortfall_of_site(dearer).is_short
    assert dearer.instance_types["a10g"].usd_per_hour == pytest.approx(machine.usd_per_hour * 1.05**6)
    cheaper = at_dearer_offers(site, [Offer(instance_type=machine.name, usd_per_hour=0.1)])
    assert cheaper is site


def test_the_last_plan_continues_when_no_new_one_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ticks go on, jobs end, nodes are given back, and the status has a note until a plan works again."""
    with a_stage(tmp_path) as stage:
        stage.submit(2, hours=1.5)
        stage.hours(1)

        def refuses(*_: object, **__: object) -> None:
            raise InvalidProblem("a curve that no problem can have")

        monkeypatch.setattr("boa_daemon.learning.policy_record.build_policy", refuses)
        stage.reload(usd_per_hour=9.0)
        stage.hours(2)
        assert stage.failed == 0
        assert stage.ended() == 2
        assert any("no new one is possible" in note for note in stage.play.service.status()["notes"])
        monkeypatch.undo()
        stage.reload(usd_per_hour=8.0)
        stage.hours(1)
        assert stage.play.service.status()["notes"] == []
        assert stage.play.service.instances()["instances"] == []


def test_invalid_learned_figures_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When learning raises, the tick uses the old figures."""
    with a_stage(tmp_path, learning={"rates": True, "sizes": True}) as stage:
        stage.submit(2, hours=1.0)

        def refuses(*_: object, **__: object) -> None:
            raise InvalidProblem("a size that no job can have")

        monkeypatch.setattr("boa_daemon.learning.learning_step.measured_class", refuses)
        stage.hours(3)
        assert stage.failed == 0
        assert stage.ended() == 2


@pytest.mark.parametrize("starts_anew", [False, True])
def test_a_job_wider_than_the_instance_cap_does_not_block_others(tmp_path: Path, starts_anew: bool) -> None:
    """The wide job waits with the reason `cap-instances`; a new job of that width is refused."""
    with a_stage(tmp_path, budget={"max_instances": 8}) as stage:
        (wide,) = stage.submit(1, min_gpus=6, max_gpus=8, hours=6.0)
        (free,) = stage.submit(1, max_gpus=None, hours=1.0)
        if starts_anew:
            stage.restart(max_instances=4)
        else:
            stage.reload(max_instances=4)
        (narrow,) = stage.submit(1, hours=1.0)
        stage.hours(3)
        assert stage.failed == 0
        rows = {row["id"]: row["status"] for row in stage.play.service.jobs()["jobs"]}
        assert rows == {wide: "queued", narrow: "finished", free: "finished"}
        said = stage.play.service.explain(wide)
        assert said["reason"] == "cap-instances"
        assert "narrowest width takes more nodes than that cap" in said["text"]
        assert stage.play.service.instances()["instances"] == []
        with pytest.raises(InputError, match="no width from 6"):
            stage.submit(1, min_gpus=6, max_gpus=8)


def test_a_job_above_the_hourly_ceiling_does_not_block_others(tmp_path: Path) -> None:
    """Six nodes cost 6.04 USD/hour and the ceiling is 4: the wide job waits, the others finish."""
    with a_stage(tmp_path, budget={"usd_per_hour_ceiling": 4.0}) as stage:
        (wide,) = stage.submit(1, min_gpus=6, max_gpus=8, hours=6.0)
        stage.submit(3, hours=1.0)
        stage.hours(3)
        assert stage.ended() == 3
        assert stage.play.service.explain(wide)["reason"] == "cap-hour"
        assert stage.play.service.instances()["instances"] == []
