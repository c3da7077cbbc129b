"""Jobs that are over go when the settings say so, page by page they are found, and nothing else is lost."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from engine_bench import Bench
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampling import sampled

from boa_daemon.daemon.pruning import prune
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
    """A runner that notes whose files were to go."""

    def __init__(self) -> None:
        self.gone: list[str] = []

    def discard(self, job: str) -> None:
        self.gone.append(job)


def test_code_that_no_job_names_goes_and_other_code_stays(play: DaemonInAFolder, tmp_path: Path) -> None:
    """One that a job over for long names stays as long as the job does; a fresh one waits for its job."""
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
    """Submit jobs, and have them be over for so many days."""
    queue, now = play.storage.queue, play.clock.now()
    names = play.service.submit([job_content(f"j{n}") for n in range(len(ages))], user="ann")["jobs"]
    for name, age in zip(names, ages, strict=True):
        queue.save(replace(queue.active[name], status="finished", ended_at=now - age * DAY))
    return [str(name) for name in names]


def test_what_is_over_for_longer_than_kept_goes_with_its_files(play: DaemonInAFolder) -> None:
    """The oldest two; the young one, one that waits, and one that somebody waits for stay."""
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


def test_a_batch_after_the_other_until_nothing_is_left(play: DaemonInAFolder) -> None:
    """More than one transaction takes; who dies in between does it again."""
    names = ended(play, [100.0] * 1203)
    assert jobs_over_before(play.storage.queue, play.clock.now() - 50 * DAY, limit=500) == names[:500]
    assert prune(play.storage, Shelf(), keep_days=50.0, now=play.clock.now()) == 1203  # type: ignore[arg-type]
    assert prune(play.storage, Shelf(), keep_days=50.0, now=play.clock.now()) == 0  # type: ignore[arg-type]
    play.close()


def test_the_folder_of_a_local_job_goes_once_it_is_forgotten(tmp_path: Path) -> None:
    """Not while the engine knows it; its neighbour's stays."""
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


@settings(
    max_examples=sampled(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), size=st.integers(min_value=1, max_value=9))
def test_pages_together_are_the_list(
    data: st.DataObject, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each job once, the newest first, whatever comes in between; with every filter."""
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
