"""The program through troubles that pass: at its start and while it runs, with a real job that goes on."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from daemon_site import SETTINGS, Site, wait_for
from small_disk import SmallDisk, a_small_disk

from boa_daemon.api.client import Client
from boa_daemon.api.connection import RefusedByDaemon
from boa_daemon.errors import BoaError
from boa_daemon.testing.daemon_in_a_folder import job_content

ANSWER_SECONDS = 2.0


@contextmanager
def a_site_on(disk: SmallDisk) -> Iterator[Site]:
    """Yield a daemon's site whose state is on the disk and whose log is not."""
    log = disk.folder.with_name(f"{disk.folder.name}.log")
    site = Site(disk.folder, SETTINGS.format(usd=10.0))
    begin = site.start

    def start(*options: str, log_file: str = "log") -> object:
        del log_file
        return begin(*options, log_file=str(log))

    site.start = start  # type: ignore[method-assign,assignment]
    try:
        yield site
    finally:
        if site.process is not None and site.process.poll() is None:
            site.end(signal.SIGKILL)
        log.unlink(missing_ok=True)


def starts(site: Site) -> str:
    """Submit a job that goes on, and wait until its start was ordered."""
    with Client(site.socket) as boa:
        (job,) = boa.submit({**job_content("a"), "run": "sleep 600"})
    wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "running", site)
    return str(job)


def runs(site: Site) -> str:
    """Submit a job that goes on, and wait until it runs and a tick has recorded that."""
    job = starts(site)
    wait_for((site.folder / "state" / "last_state").exists, site)
    courses = (site.folder / "state" / "jobs").glob
    wait_for(
        lambda: any('"child": 0' not in file.read_text() for file in courses("*/g1/n0/course.json")), site
    )
    return job


def is_refused(site: Site) -> None:
    """A submission is refused with a sentence, in time."""
    began = time.monotonic()
    with pytest.raises(RefusedByDaemon) as refusal, Client(site.socket) as boa:
        boa.submit(job_content("b"))
    assert time.monotonic() - began < ANSWER_SECONDS
    assert "recover" not in str(refusal.value)
    assert "Traceback" not in str(refusal.value)


def works_again(site: Site, job: str) -> None:
    """The daemon ticks without a fault, the job is in its first generation, and a new job is accepted."""
    wait_for(lambda: site.get("/status").get("fault") == "" and site.get("/status").get("tick", 0) > 0, site)
    answer = site.get(f"/jobs/{job}")
    assert (answer["status"], answer["generation"]) == ("running", 1)
    with Client(site.socket) as boa:
        assert boa.submit(job_content("c"))
        boa.cancel(job)
    wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "cancelled", site)


@pytest.mark.exhaustive  # starts the program
@pytest.mark.parametrize("when", ["running", "at the start"])
def test_a_full_disk_passes(when: str) -> None:
    """Requests are refused within two seconds, the job goes on, and the daemon with it."""
    with a_small_disk() as disk:
        if disk is None:
            return
        with a_site_on(disk) as site:
            site.up()
            job = runs(site)
            if when == "at the start":
                site.end(signal.SIGKILL)
            disk.fill()
            if when == "at the start":
                site.process = site.start()
            wait_for(lambda: "full" in site.get("/status").get("fault", ""), site)
            assert "recover" not in site.get("/status")["fault"]
            is_refused(site)
            time.sleep(3.0)
            disk.clear()
            works_again(site, job)


@contextmanager
def a_lock(state: Path) -> Iterator[None]:
    """Lock the database as another program does."""
    with closing(sqlite3.connect(state / "boa.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def no_rights(state: Path) -> Iterator[None]:
    """Put a folder where the database's log has to be."""
    for name in ("boa.sqlite-wal", "boa.sqlite-shm"):
        (state / name).unlink(missing_ok=True)
    (state / "boa.sqlite-wal").mkdir()
    try:
        yield
    finally:
        (state / "boa.sqlite-wal").rmdir()


@contextmanager
def away(state: Path) -> Iterator[None]:
    """Move the database away, as an unmounted disk does, leaving something that cannot be opened."""
    database = state / "boa.sqlite"
    aside = state / "aside"
    database.rename(aside)
    database.mkdir()
    try:
        yield
    finally:
        database.rmdir()
        aside.rename(database)


AT_THE_START = {"locked": a_lock, "no log": no_rights, "away": away}


@pytest.mark.exhaustive  # starts the program
@pytest.mark.parametrize("trouble", AT_THE_START.values(), ids=AT_THE_START)
def test_trouble_of_the_file_at_the_start_passes(
    tmp_path: Path, trouble: Callable[[Path], contextmanager[None]]
) -> None:
    """The daemon keeps the caps and the leases, and goes on by itself once the trouble is over."""
    site = Site(tmp_path)
    try:
        site.up()
        job = runs(site)
        site.end(signal.SIGTERM)
        with trouble(tmp_path / "state"):
            site.process = site.start()
            wait_for(lambda: "goes on by itself" in site.get("/status").get("fault", ""), site)
            assert "recover" not in site.get("/status")["fault"]
            wait_for(lambda: "caps and the leases" in " ".join(site.get("/status").get("notes", [])), site)
            is_refused(site)
        works_again(site, job)
    finally:
        if site.process is not None and site.process.poll() is None:
            site.end(signal.SIGKILL)


@pytest.mark.exhaustive  # starts the program
def test_a_lock_of_another_program_passes_while_the_daemon_runs(tmp_path: Path) -> None:
    """A submission is refused within two seconds, and nothing is stored."""
    site = Site(tmp_path)
    try:
        site.up()
        job = runs(site)
        with a_lock(tmp_path / "state"):
            is_refused(site)
            is_refused(site)
        works_again(site, job)
    finally:
        if site.process is not None and site.process.poll() is None:
            site.end(signal.SIGKILL)


@pytest.mark.exhaustive  # starts the program
def test_a_lack_of_descriptors_passes(tmp_path: Path) -> None:
    """Requests are answered although no descriptor is left, and the job goes on."""
    site = Site(tmp_path)
    try:
        site.up()
        job = runs(site)
        assert site.process is not None
        pid = site.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, before[1]))
        time.sleep(3.0)
        began = time.monotonic()
        with suppress(BoaError), Client(site.socket) as boa:
            boa.get("/jobs")
        assert time.monotonic() - began < ANSWER_SECONDS + 1.0
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        works_again(site, job)
    finally:
        if site.process is not None and site.process.poll() is None:
            site.end(signal.SIGKILL)


@pytest.mark.exhaustive  # starts the program
@pytest.mark.parametrize("pause_seconds", [0.0, 0.2, 0.5])
def test_a_job_that_starts_on_a_full_disk_is_tried_again(pause_seconds: float) -> None:
    """Nothing is known of a command that the keeper had no room to start: the job has not failed for good."""
    with a_small_disk() as disk:
        if disk is None:
            return
        with a_site_on(disk) as site:
            site.up()
            job = starts(site)
            time.sleep(pause_seconds)
            disk.fill()
            time.sleep(5.0)
            disk.clear()
            wait_for(lambda: site.get("/status").get("fault") == "", site)
            wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "running", site)
