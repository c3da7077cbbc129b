"""The learner: what the daemon learns from reports, and how its plans follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_samples import MemorySamples

from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError
from boa_daemon.inputs.sqlite_urls import sqlite_url
from boa_daemon.learning.beliefs import (
    Beliefs,
    ClassBelief,
    EvidenceWeights,
    estimate_class,
    phase_at,
    work_until,
)
from boa_daemon.learning.learner import Learner
from boa_daemon.learning.samples import Sample, SampleStore, compact_samples
from boa_daemon.learning.speedups import SpeedSample
from boa_daemon.store.database import Database
from boa_daemon.store.database_setup import migrate, open_engine
from boa_daemon.store.samples import SqlSamples
from boa_daemon.testing import ManualClock, a_job
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.ports import RunReport
from policies.model import JobClass, Phase, Width
from policies.online.estimates import Belief
from policies.speedup import Amdahl

Opener = Callable[[], SampleStore]


@pytest.fixture(params=["memory", "sqlite"])
def new_samples(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Return a function that opens the samples; each call opens the same samples."""
    memory, opened = MemorySamples(), list[Database]()

    def open_them() -> SampleStore:
        if request.param == "memory":
            return memory
        engine = open_engine(sqlite_url(tmp_path / "boa.sqlite"), durable=False)
        migrate(engine)
        opened.append(Database(engine))
        return SqlSamples(opened[-1])

    yield open_them
    for database in opened:
        database.close()


def a_phase() -> Phase:
    """Return a phase of one GPU-hour on a V100."""
    return Phase(size_gpu_hours=1.0, speedups={"v100": Amdahl(parallel_fraction=0.95, max_gpus=64)})


def a_report(step: int, seconds: float, *, generation: int = 1) -> RunReport:
    """Return a report after `step` steps of 64 samples and `seconds` of work."""
    return RunReport(
        job="a", generation=generation, phase="running", step=step, samples=64.0 * step, seconds=seconds
    )


def taught(learner: Learner, speeds: dict[int, float], *, class_name: str = "default") -> None:
    """Let a learner see ten minutes of work at each width, with the given samples per second."""
    for generation, (gpus, speed) in enumerate(speeds.items(), 1):
        for seconds in (0.0, 600.0):
            report = a_report(int(speed * seconds / 64.0), seconds, generation=generation)
            learner.take(report, class_name=class_name, width=Width("v100", gpus), now=seconds)


def test_a_sample_is_the_work_between_two_reports() -> None:
    """The first report of a generation starts a sample, and short intervals are merged."""
    learner = Learner()
    for step, seconds in ((1, 0.0), (2, 1.0), (11, 10.0), (21, 20.0)):
        learner.take(a_report(step, seconds), class_name="c", width=Width("v100", 2), now=seconds)
    assert learner.has_news

    (sample,) = learner.samples
    assert (sample.gpus, sample.samples, sample.seconds) == (2, 20 * 64.0, 20.0)
    learner.take(a_report(1, 0.0, generation=2), class_name="c", width=Width("v100", 4), now=30.0)
    assert len(learner.samples) == 1, "a new generation begins anew"


def test_learned_rows_survive_a_restart(new_samples: Opener) -> None:
    """Speeds, arrivals and sizes are read back as saved, and no arrival counts twice."""
    learner = Learner(new_samples())
    taught(learner, {1: 100.0, 4: 300.0})
    learner.take_arrivals([(1, "default", 10.0), (2, "default[1-4]", 11.0), (3, "other", 12.0)])
    learner.ended("a-1", class_name="default", work_gpu_hours=2.0, at=600.0, is_whole=True)
    learner.save(600.0)
    learner.take_arrivals([(4, "default", 700.0)])

    again = Learner(new_samples())
    assert again.samples == learner.samples
    assert again.has_news
    assert again.arrived_through == 3
    again.take_arrivals([(3, "other", 12.0), (4, "default", 700.0)])
    assert again.rows == learner.rows
    assert [row.count for row in again.rows_of("default") if row.kind == "arrivals"] == [2.0]


def test_a_failed_save_is_written_with_the_next_one(tmp_path: Path) -> None:
    """After an error because of a full disk, no row is stored; the next save stores all of them."""

    class Full(MemorySamples):
        is_full = True

        def write(self, *arguments: Any, **changes: Any) -> None:
            if self.is_full:
                raise OSError("No space left on device")
            super().write(*arguments, **changes)

    store = Full()
    learner = Learner(store)
    taught(learner, {1: 100.0})
    learner.take_arrivals([(1, "default", 10.0)])
    with pytest.raises(OSError, match="No space"):
        learner.save(600.0)
    assert store.read().rows == ()
    store.is_full = False
    learner.save(601.0)
    assert {row.key for row in store.read().rows} == learner.rows.keys()
    assert store.read().arrived_through == 1


@pytest.mark.exhaustive
def test_a_year_of_samples_is_compacted_without_changing_the_estimates() -> None:
    """Fewer than 1000 rows are left, no second of work is lost, and rate and size are still right."""
    store = MemorySamples()
    learner = Learner(store)
    day = 86_400.0
    for hour in range(365 * 24):
        at = hour * 3600.0
        for gpus in (1, 4):
            learner.worked(
                SpeedSample(
                    class_name="c", gpu_type="v100", gpus=gpus, samples=100.0, seconds=60.0, at=at, batch=8.0,
                    gradient_noise=50.0,
                )
            )  # fmt: skip
        if hour % 24 == 0:
            learner.take_arrivals([(hour + 1, "c", at)])
            learner.ended(f"j-{hour}", class_name="c", work_gpu_hours=2.0, at=at, is_whole=hour % 48 == 0)
            learner.save(at)
    learner.save(365 * day)
    stored = Learner(store)

    assert stored.rows == learner.rows
    assert len(stored.rows) < 1000
    assert sum(one.seconds for one in stored.samples) == pytest.approx(2 * 60.0 * 365 * 24)
    sizes = [row for row in stored.rows.values() if row.kind == "size"]
    assert sum(row.count for row in sizes) == 183.0
    assert all(row.total == pytest.approx(2.0) for row in sizes)
    belief = estimate_class(
        JobClass(name="c", phases=(a_phase(),), arrivals_per_hour=1.0),
        stored.rows_of("c"),
        [],
        now=365 * day,
        weights=EvidenceWeights(),
    )
    assert belief.rate.low < 1.0 / 24.0 < belief.rate.high
    assert belief.size.mean == pytest.approx(2.0, rel=0.1)


@given(
    ages=st.lists(st.tuples(st.sampled_from(["speed", "size", "cut"]), st.floats(0.0, 400.0)), max_size=40)
)
def test_compacting_samples_twice_changes_nothing(ages: list[tuple[str, float]]) -> None:
    """Counts and seconds are preserved."""
    now, day = 500.0 * 86_400.0, 86_400.0
    rows = {
        f"r{number}": Sample(
            key=f"r{number}",
            kind=kind,  # type: ignore[arg-type]
            class_name="c",
            at=now - age * day,
            total=1.0 + number,
            seconds=10.0 if kind == "speed" else 0.0,
            gpus=1,
        )
        for number, (kind, age) in enumerate(ages)
    }
    merged, gone = compact_samples(rows, now=now)
    kept = {key: row for key, row in rows.items() if key not in gone} | {row.key: row for row in merged}
    again, more = compact_samples(kept, now=now)

    assert (again, more) == ([], [])
    for kind in ("speed", "size"):
        before = [row for row in rows.values() if row.kind == kind]
        after = [row for row in kept.values() if row.kind == kind]
        assert sum(row.count for row in after) == pytest.approx(sum(row.count for row in before))
        assert sum(row.seconds for row in after) == pytest.approx(sum(row.seconds for row in before))


def test_the_plan_uses_measured_speeds() -> None:
    """A class that hardly scales gets its measured speeds, and so do its variants, within their widths."""
    settings = Settings.model_validate(
        {
            "budget": {"usd_per_hour": 60.0},
            "cloud": {"provider": "simulated", "instance_types": ["p3.2xlarge"]},
        }
    )
    planner = Planner(settings)
    content = {"class": "default", "min_gpus": 3, "max_gpus": 6, "elastic": True}
    variant = planner.class_for(content)
    kind = next(iter(planner.machines))
    learner = Learner()
    taught(learner, {1: 100.0, 4: 120.0, 8: 130.0})
    curves = learner.curves(planner.stated.values(), now=600.0)
    before = planner.record([variant.name]).hash
    width = Width(kind, 4)
    stated = planner.speed("default", 0, width)

    assert kind == "v100"
    assert planner.learn(curves)
    assert stated == pytest.approx(3.48, abs=0.01)
    assert planner.speed("default", 0, width) == pytest.approx(1.2, rel=0.05)
    assert planner.record([variant.name]).hash != before
    measured = planner.class_of(variant.name)
    assert measured is not None
    curve = measured.phases[0].speedups[kind]
    assert [int(width) for width in curve.whole_widths()] == [3, 4, 5, 6]
    assert float(curve.speed_at(4)) == pytest.approx(1.2, rel=0.05)
    assert planner.class_for(content) == measured
    assert not planner.learn(curves), "the same once more changes nothing"


@pytest.mark.parametrize(
    ("least", "most", "widths"), [(1, 6, [1, 2, 4]), (3, 16, [4, 8, 16]), (None, 3, [1, 2])]
)
def test_widths_divide_the_batch_of_a_job(least: int | None, most: int, widths: list[int]) -> None:
    """A script that splits 64 samples evenly fails on 3 GPUs, so that width is never planned."""
    cloud = {"provider": "simulated", "instance_types": ["p3.2xlarge"]}
    planner = Planner(Settings.model_validate({"budget": {"usd_per_hour": 60.0}, "cloud": cloud}))
    content = {"class": "default", "min_gpus": least, "max_gpus": most, "batch": 64, "elastic": True}
    found = planner.class_for(content)
    learner = Learner()
    taught(learner, {1: 100.0, 3: 290.0, 4: 300.0, 8: 310.0})
    assert planner.learn(learner.curves(planner.stated.values(), now=600.0))
    measured = planner.class_of(found.name)
    assert measured is not None

    for job_class in (found, measured):
        (curve,) = job_class.phases[0].speedups.values()
        assert [int(width) for width in curve.whole_widths()] == widths
    with pytest.raises(InputError, match="divides its batch of 7"):
        planner.class_for({**content, "min_gpus": 2, "max_gpus": 6, "batch": 7})
    (narrow,) = planner.class_for({**content, "elastic": False}).phases[0].speedups.values()
    assert [int(width) for width in narrow.whole_widths()] == widths[:1], "a rigid job too"


def a_belief(rate: tuple[float, float, float], size: tuple[float, float, float]) -> ClassBelief:
    """Return a belief about the default class, as (low, mean, high); stated are 1 job/h of 1 GPU-hour."""
    return ClassBelief(
        name="default",
        rate=Belief(low=rate[0], mean=rate[1], high=rate[2], weight=9.0),
        size=Belief(low=size[0], mean=size[1], high=size[2], weight=9.0),
        stated_per_hour=1.0,
        stated_gpu_hours=1.0,
    )


def test_a_planned_figure_stays_while_it_is_within_the_learned_interval() -> None:
    """A stated figure outside of the interval is replaced, and the new one stays in turn."""
    planner = Planner(Settings())
    variant = planner.class_for({"class": "default", "min_gpus": 3, "max_gpus": 6})
    within, outside = a_belief((0.9, 2.0, 4.0), (0.5, 0.9, 1.5)), a_belief((2.0, 3.0, 4.0), (1.5, 2.0, 3.0))

    assert not planner.learn({}, {"default": within})
    assert planner.learn({}, {"default": outside})
    planned = planner.classes["default"]
    assert (planned.arrivals_per_hour, planned.size_gpu_hours) == (3.0, 2.0)
    found = planner.class_of(variant.name)
    assert found is not None
    assert found.size_gpu_hours == 2.0, "variants follow their class"
    assert not planner.learn({}, {"default": a_belief((2.9, 3.5, 4.0), (1.9, 2.4, 3.0))})
    off = Planner(Settings.model_validate({"learning": {"rates": False, "sizes": False}}))
    assert not off.learn({}, {"default": outside})


def test_a_learned_load_above_the_budget_leads_to_a_best_effort(tmp_path: Path) -> None:
    """An alert and the status say so, and no tick fails."""
    learning = {"workload": {"policy": "boa"}, "budget": {"usd_per_hour": 4.0}}
    site = Site(tmp_path, work=2.0, **learning)
    try:
        site.hours(8)
        daemon = site.play.daemon
        assert daemon.learning.beliefs.known["default"].rate.low > 1.0
        assert any("is below the load" in row["sentence"] for row in daemon.alerts.latest(20))
        planned = daemon.planner.classes["default"]
        assert planned.arrivals_per_hour * planned.size_gpu_hours * 1.006 > 4.0
        told = site.play.service.status()["best_effort"]
        assert told["least_spend"] > 4.0
        assert told["queue_growth_jobs_per_hour"] > 0.0
        assert not daemon.standing.fault
    finally:
        site.play.close()


def test_an_unlisted_class_starts_as_the_prior_class() -> None:
    """With `prior_class` it is planned like that class under its own name; without, it is unknown."""
    content = {"class": "new", "min_gpus": None, "max_gpus": None, "elastic": True}
    with pytest.raises(InputError, match="unknown class 'new'"):
        Planner(Settings()).class_for(content)
    planner = Planner(
        Settings.model_validate({"learning": {"prior_class": "default"}, "budget": {"max_instances": None}})
    )
    found = planner.class_for(content)

    assert found.name == "new"
    assert found.phases == planner.stated["default"].phases
    assert "new" in planner.unstated
    assert {c.name for c in planner.record(["new"]).site.problem.classes} == {"default", "new"}
    with pytest.raises(InputError, match="prior_class"):
        Planner(Settings.model_validate({"learning": {"prior_class": "defualt"}}))


def test_at_most_sixteen_classes_are_estimated_per_tick() -> None:
    """Each of forty classes is estimated once in three ticks; a class just estimated is not due."""
    beliefs, names = Beliefs(), [f"c{number:02d}" for number in range(40)]
    phase = a_phase()
    looked_at: list[str] = []
    for tick in range(3):
        due = beliefs.due(names, names, now=30.0 * tick)
        for name in due:
            beliefs.refresh(JobClass(name=name, phases=(phase,)), [], [], now=30.0 * tick)
        looked_at += due
    assert sorted(looked_at) == names
    assert beliefs.due(names, names, now=100.0) == []
    assert len(beliefs.due(names, names, now=150.0)) == 16


def test_a_class_is_estimated_again_only_on_evidence() -> None:
    """Four hundred jobs in four hundred hours: a tenth as many estimates, never far from the newest."""
    job_class = JobClass(name="c", phases=(a_phase(),), arrivals_per_hour=1.0)
    beliefs, learner, looks = Beliefs(late_seconds=math.inf), Learner(), 0
    for hour in range(400):
        now = 3600.0 * hour
        learner.arrived("c", now)
        learner.ended(f"j{hour}", class_name="c", work_gpu_hours=2.0, at=now, is_whole=True)
        if beliefs.due(["c"], learner.seen, events=learner.events, now=now + 300.0):
            looks += 1
            beliefs.refresh(job_class, learner.rows_of("c"), [], events=learner.events["c"], now=now + 300.0)
        newest = estimate_class(job_class, learner.rows_of("c"), [], now=now, weights=EvidenceWeights())
        found = beliefs.known["c"]
        assert newest.size.low < found.size.mean < newest.size.high
        assert newest.rate.low < found.rate.mean < newest.rate.high
    assert looks <= 40


def test_a_size_is_estimated_again_when_jobs_end_or_outrun_it() -> None:
    """As time passes only the rate changes; of running jobs it counts what they have done."""
    job_class = JobClass(name="c", phases=(a_phase(),), arrivals_per_hour=1.0)
    beliefs, learner = Beliefs(), Learner()
    learner.arrived("c", 0.0)
    sizes, rates = [], []
    for hour, running in ((1, [0.5]), (3, [0.6]), (5, [3.0])):
        beliefs.refresh(job_class, learner.rows_of("c"), running, now=3600.0 * hour)
        sizes.append(beliefs.known["c"].size)
        rates.append(beliefs.known["c"].rate)
    learner.ended("j", class_name="c", work_gpu_hours=3.0, at=3600.0 * 5, is_whole=True)
    beliefs.refresh(job_class, learner.rows_of("c"), [], now=3600.0 * 6)

    assert sizes[0] is sizes[1]
    assert sizes[2].mean > 1.2 * sizes[1].mean
    assert beliefs.known["c"].size is not sizes[2]
    assert rates[0].mean > rates[1].mean > rates[2].mean


def test_speeds_are_estimated_again_when_their_error_has_halved() -> None:
    """At a width that was never measured at once, and after a day of work at the latest."""
    learner = Learner()
    job_class = JobClass(name="c", phases=(a_phase(),), arrivals_per_hour=1.0)

    def looks_again(gpus: int, seconds: float, at: float) -> bool:
        before = learner.curves([job_class], now=at).get(("c", "v100"))
        learner.worked(
            SpeedSample(class_name="c", gpu_type="v100", gpus=gpus, samples=seconds, seconds=seconds, at=at)
        )
        return learner.curves([job_class], now=at).get(("c", "v100")) is not before

    assert looks_again(1, 60.0, 60.0)
    assert [looks_again(1, 60.0, 60.0 * n) for n in range(2, 6)] == [False, False, True, False]
    assert looks_again(2, 30.0, 400.0)
    assert looks_again(1, 100 * 3600.0, 500.0)
    assert not looks_again(1, 23 * 3600.0, 600.0)
    assert looks_again(1, 3600.0, 700.0)


@given(
    sizes=st.lists(st.floats(0.01, 10.0), min_size=1, max_size=12),
    part=st.floats(0.0, 1.0, exclude_min=True),
    size=st.floats(0.1, 20.0),
)
def test_the_phase_of_a_job_is_the_one_whose_end_is_next(
    sizes: list[float], part: float, size: float
) -> None:
    """By its work left; and the work until a later phase leaves exactly that phase and those behind it."""
    phases = tuple(Phase(size_gpu_hours=one, speedups=a_phase().speedups) for one in sizes)
    job_class = JobClass(name="c", phases=phases)
    left = part * size
    phase, scale = phase_at(job_class, left, size)

    after = [math.fsum(sizes[number:]) * scale for number in range(1, len(sizes) + 1)]
    assert scale == size / math.fsum(sizes)
    assert phase == next((number for number, one in enumerate(after) if left > one), len(sizes) - 1)

    job = a_job("j", class_name="c", remaining_gpu_hours=left)
    job = replace(job, scale=scale, phase=phase)
    for later in range(phase + 1, len(sizes) + 1):
        assert left - work_until(job_class, job, later) == pytest.approx(after[later - 1], abs=1e-9)


class Site:
    """A daemon whose jobs are `work` times as large as its class file states."""

    def __init__(self, folder: Path, *, work: float, **changes: dict[str, Any]) -> None:
        self.folder, self.clock, self.work = folder, ManualClock(1.8e9), work
        self.settings = {"budget": {"usd_per_hour": 20.0}} | changes
        self.open()
        self.count = 0

    def open(self) -> None:
        """Start the daemon on its folder."""
        self.play = DaemonInAFolder(self.folder, self.clock, self.settings)

    def restart(self) -> None:
        """Close the daemon and start it again."""
        self.play.close()
        self.open()

    def hours(self, number: int) -> None:
        """Let hours pass, with four new jobs in each."""
        for quarter in range(4 * number):
            self.count += 1
            content = job_content(f"j{self.count}", hours=1.0, max_gpus=4)
            content["environment"] = {"HOURS": repr(self.work * (0.8 + 0.1 * (quarter % 5)))}
            self.play.service.submit([content], user="ann")
            for _ in range(5):
                self.play.daemon.tick()
                assert not self.play.daemon.standing.fault
                self.clock.instant += 180.0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Yield a daemon whose jobs are twice as large as stated."""
    found = Site(tmp_path, work=2.0)
    yield found
    found.play.close()


@pytest.fixture(scope="module")
def half_a_day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, int, str]]:
    """Yield a site after twelve hours, with its starts and policy after eight; its tests run in order."""
    found = Site(tmp_path_factory.mktemp("half-a-day"), work=2.0)
    found.hours(8)
    before, policy = len(found.play.runner.started), found.play.storage.store.policy_hash
    found.hours(4)
    yield found, before, policy
    found.play.close()


@pytest.mark.exhaustive
def test_no_job_moves_once_the_load_is_learned(half_a_day: tuple[Site, int, str]) -> None:
    """In twelve hours of the same load the plan changes a few times, and not in the last four."""
    site, before, hash_before = half_a_day
    late = site.play.runner.started[before:]

    assert len({job for job, _ in late}) == len(late) > 10
    assert site.play.storage.store.policy_hash == hash_before
    assert len({row["policy"] for row in site.play.storage.store.decisions(limit=1000)}) <= 6


def test_the_daemon_learns_rates_and_sizes_and_plans_with_them(half_a_day: tuple[Site, int, str]) -> None:
    """Four jobs per hour of two GPU-hours are found instead of one of one, and survive a restart."""
    site = half_a_day[0]
    daemon = site.play.daemon
    belief = daemon.learning.beliefs.known["default"]

    assert belief.rate.low < 4.0 < belief.rate.high
    assert belief.size.low < 2.0 < belief.size.high
    assert belief.rate.mean == pytest.approx(4.0, rel=0.15)
    assert belief.size.mean == pytest.approx(2.0, rel=0.15)
    planned = daemon.planner.classes["default"]
    assert planned.arrivals_per_hour == pytest.approx(4.0, rel=0.3)
    assert planned.size_gpu_hours == pytest.approx(2.0, rel=0.3)

    ended = sum(row.kind == "size" for row in daemon.work.learner.rows.values())
    site.restart()
    after = site.play.daemon.planner.classes["default"]
    assert (after.arrivals_per_hour, after.size_gpu_hours) == (
        planned.arrivals_per_hour,
        planned.size_gpu_hours,
    ), "a restart changes no plan"
    site.clock.instant -= 180.0  # Back to the time of the last tick: no job has ended since.
    site.play.daemon.tick()
    again = site.play.daemon.learning.beliefs.known["default"]
    assert again.arrivals == belief.arrivals == 48
    assert again.ended == ended >= belief.ended
    assert again.rate.mean == pytest.approx(belief.rate.mean, rel=0.02)


def test_the_remaining_work_of_a_job_follows_the_learned_size_of_its_class(
    half_a_day: tuple[Site, int, str],
) -> None:
    """A job submitted with one hour has about two, once its class is believed to need two."""
    site = half_a_day[0]
    jobs = site.play.daemon.work.jobs()
    factor = site.play.daemon.planner.classes["default"].size_gpu_hours
    waiting = [job.job.remaining_gpu_hours for job in jobs.values() if not job.slots and not job.generation]
    site.play.service.submit([job_content("new", hours=1.0)], user="ann")
    fresh = max(site.play.daemon.work.jobs().values(), key=lambda job: job.job.arrived_at)

    assert factor > 1.5
    assert fresh.job.remaining_gpu_hours == pytest.approx(factor)
    assert fresh.job.scale == pytest.approx(1.0)
    assert all(left == pytest.approx(factor) for left in waiting)


def test_killing_the_daemon_neither_loses_nor_repeats_arrivals_and_ends(site: Site) -> None:
    """The process is killed every hour; learned arrivals and sizes equal those of the job table."""
    for _ in range(4):
        site.hours(1)
        # The new process has what was committed and loses what was only in memory.
        site.play.daemon.work.learner.arrived("default", site.clock.instant)
        site.open()
    site.hours(1)
    site.play.daemon.tick()
    rows = site.play.daemon.work.learner.rows.values()
    finished = sum(row["status"] == "finished" for row in site.play.service.jobs()["jobs"])

    assert sum(row.count for row in rows if row.kind in ("seen", "arrivals")) == 20
    assert sum(row.kind == "size" for row in rows) == finished > 0


def test_a_cancelled_job_is_a_lower_bound_on_the_size(tmp_path: Path) -> None:
    """The job gives one "cut" row with the work it did, and no size."""
    site = Site(tmp_path, work=10.0)
    try:
        site.play.service.submit([job_content("long", hours=10.0)], user="ann")
        for minute in range(40):
            if minute == 35:
                site.play.daemon.cancel("long-1")
            site.play.daemon.tick()
            site.clock.instant += 60.0
        (row,) = [row for row in site.play.daemon.work.learner.rows.values() if row.kind in ("size", "cut")]
        assert row.kind == "cut"
        assert row.total == pytest.approx(0.05, rel=0.25), "half an hour of ten, over a scale of ten"
    finally:
        site.play.close()
