"""Pruning: ended jobs and unused code are deleted after `keep_days`; lists of jobs come in pages."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from engine_bench import Bench
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampling import sampled

from boa_daemon.daemon.loop import pruning
from boa_daemon.daemon.loop.pruning import prune
from boa_daemon.engines.local import LocalEngine
from boa_daemon.errors import InputError
from boa_daemon.store.retention import jobs_over_before
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

DAY = 86_400.0


@pytest.fixture
def play(tmp_path: Path) -> DaemonInAFolder:
    return DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0))


class Shelf:
    """A runner that records the jobs whose files are discarded."""

    def __init__(self) -> None:
        self.gone: list[str] = []

    def discard(self, job: str) -> None:
        self.gone.append(job)


def test_code_is_deleted_when_no_stored_job_uses_it(play: DaemonInAFolder, tmp_path: Path) -> None:
    """Code of a stored job stays as long as the job; code younger than a day stays until its job comes."""
    engine, now = LocalEngine(tmp_path / "jobs"), play.clock.now()
    used, unused, fresh = ("a" * 64, "b" * 64, "c" * 64)
    for digest, hours in ((used, 99.0), (unused, 25.0), (fresh, 1.0)):
        engine.take_code(digest, b"archive")
        os.utime(engine.layout.code / f"{digest}.tar.gz", (now - hours * 3600.0,) * 2)
        (engine.layout.code / digest).mkdir()
    (name,) = ended(play, [41.0])
    job = play.storage.queue.job(name)
    assert job is not None
    code = {"folder": ".", "revision": None, "digest": used}
    play.storage.queue.save(replace(job, content={**job.content, "code": code}))

    def here() -> list[bool]:
        return [engine.has_code(digest) for digest in (used, unused, fresh)]

    prune(play.storage, engine, keep_days=None, now=now)
    assert here() == [True, False, True]
    assert sorted(file.name for file in engine.layout.code.iterdir() if file.is_dir()) == [used, fresh]
    prune(play.storage, engine, keep_days=40.0, now=now)
    prune(play.storage, engine, keep_days=40.0, now=now)
    assert here() == [False, False, True]
    play.close()


def ended(play: DaemonInAFolder, ages: list[float]) -> list[str]:
    """Submit one job per age, mark each as finished that many days ago, and return their ids."""
    queue, now = play.storage.queue, play.clock.now()
    names = play.service.submit([job_content(f"j{n}") for n in range(len(ages))], user="ann")["jobs"]
    for name, age in zip(names, ages, strict=True):
        queue.save(replace(queue.active[name], status="finished", ended_at=now - age * DAY))
    return [str(name) for name in names]


def test_jobs_that_ended_before_keep_days_are_deleted_with_their_files(play: DaemonInAFolder) -> None:
    """Younger jobs, waiting jobs and jobs that a waiting job names in `after` stay."""
    old, older, young, awaited = ended(play, [41.0, 90.0, 39.0, 80.0])
    (waiting,) = play.service.submit([job_content("w", after=[f"{awaited}:end"])], user="ann")["jobs"]
    shelf = Shelf()
    assert prune(play.storage, shelf, keep_days=None, now=play.clock.now()) == 0  # type: ignore[arg-type]
    assert prune(play.storage, shelf, keep_days=40.0, now=play.clock.now()) == 2  # type: ignore[arg-type]
    assert shelf.gone == [older, old]
    assert {row["id"] for row in play.service.jobs()["jobs"]} == {young, awaited, waiting}
    with pytest.raises(InputError, match="no job"):
        play.service.job(old)
    play.close()


def test_pruning_works_in_batches_until_all_old_jobs_are_deleted(play: DaemonInAFolder) -> None:
    """1203 jobs are more than one batch of 500; a second call finds none."""
    names = ended(play, [100.0] * 1203)
    assert jobs_over_before(play.storage.queue, play.clock.now() - 50 * DAY, limit=500) == names[:500]
    assert prune(play.storage, Shelf(), keep_days=50.0, now=play.clock.now()) == 1203  # type: ignore[arg-type]
    assert prune(play.storage, Shelf(), keep_days=50.0, now=play.clock.now()) == 0  # type: ignore[arg-type]
    play.close()


def test_an_interrupted_pruning_is_repeated(play: DaemonInAFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies between the files and the rows of a job leaves the rows, so the next one comes."""
    names = ended(play, [100.0] * 2)
    shelf = Shelf()

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(pruning, "drop_jobs", dies)
        with pytest.raises(KeyboardInterrupt):
            prune(play.storage, shelf, keep_days=50.0, now=play.clock.now())  # type: ignore[arg-type]
    assert shelf.gone == names
    assert prune(play.storage, shelf, keep_days=50.0, now=play.clock.now()) == 2  # type: ignore[arg-type]
    assert shelf.gone == [*names, *names]
    play.close()


def test_the_folder_of_a_local_job_is_deleted_only_after_forget(tmp_path: Path) -> None:
    """While the engine knows the job, its folder stays; folders of other jobs stay always."""
    bench = Bench(engine=LocalEngine(tmp_path / "root"), workdir=tmp_path)
    engine = bench.engine
    assert isinstance(engine, LocalEngine)
    bench.run_to_end("echo hello")
    folder = engine.layout.job("a")
    (tmp_path / "root" / "b").mkdir()
    engine.discard("a")
    assert folder.exists()
    engine.forget("a")
    engine.discard("a")
    engine.discard("a")
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["b"]


def test_a_job_with_very_many_folders_within_each_other_is_deleted_too(tmp_path: Path) -> None:
    """One such job would otherwise keep all jobs from being deleted, for ever."""
    engine = LocalEngine(tmp_path)
    folder = engine.layout.job("a")
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(sys.getrecursionlimit() + 100):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)

    engine.discard("a")
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []


@settings(
    max_examples=sampled(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), size=st.integers(min_value=1, max_value=9))
def test_the_pages_of_a_list_have_each_job_once(
    data: st.DataObject, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The newest job comes first, with every filter, even if jobs are submitted between two pages."""
    teams = {"red": {"members": ["ann"]}, "blue": {"members": ["bob"]}}
    clock = ManualClock(1_800_000_000.0)
    play = DaemonInAFolder(tmp_path_factory.mktemp("p"), clock, {"teams": teams})
    users = data.draw(st.lists(st.sampled_from(["ann", "bob"]), max_size=25))
    names = [play.service.submit([job_content()], user=user)["jobs"][0] for user in users]
    which = data.draw(st.sampled_from([{}, {"user": "ann"}, {"team": "blue"}, {"ended": False}]))
    found: list[str] = []
    before = None
    while True:
        page = play.service.jobs(limit=size, before=before, **which)
        found += [row["id"] for row in page["jobs"]]
        play.service.submit([job_content("late")], user="cyd")
        before = page["next"]
        if before is None:
            break
    wanted = {"ann": "ann", "blue": "bob"}.get(str(next(iter(which.values()), "")))
    assert found == [
        name for name, user in reversed(list(zip(names, users, strict=True))) if wanted in (None, user)
    ]
    play.close()
