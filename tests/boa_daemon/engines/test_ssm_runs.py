"""`engines/ssm_runs.py`: what is known of a generation on rented nodes, and what a restart still knows."""

from __future__ import annotations

import json
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.engines.run_reports import Generation, report_of
from boa_daemon.engines.ssm_runs import (
    BEGIN_SECONDS,
    SsmJob,
    SsmRun,
    lost,
    read_ssm_jobs,
    starting,
    write_ssm_jobs,
)
from boa_daemon.tick.facts.job_spec import JobSpec
from boa_daemon.tick.facts.ports import Manifest, Refused

SPEC = JobSpec(job="a", name="a", class_name="c", run="true", environment={"X": "1"})
STANDS = {"generation": 2, "step": 30, "sha256": "ab", "path": "g2/30"}


def a_run(*, order: Refused | Exception | str | None = None, **changes: Any) -> SsmRun:
    """Return a run on two nodes; `order` is how its start ended, "done" if well and "open" if it has not."""
    run = SsmRun(generation=Generation(job="a", number=3, gpus=8), nodes=("n1", "n2"), **changes)
    if order is not None:
        run.order = Future()
        if isinstance(order, Exception):
            run.order.set_exception(order)
        elif order != "open":
            run.order.set_result(order if isinstance(order, Refused) else None)
    return run


def test_units_can_be_told_once_all_have_reported_or_had_time_to_begin() -> None:
    """An earlier order would find no unit, and would be lost."""
    one, both = {0: starting(0)}, {0: starting(0), 1: starting(1)}
    told = [
        a_run(heard=heard, started_at=100.0).can_hear(now)
        for heard, now in (
            (one, 100.0),
            (both, 100.0),
            (one, 99.9 + BEGIN_SECONDS),
            (one, 100.0 + BEGIN_SECONDS),
        )
    ]
    assert told == [False, True, False, True]
    for unready in (a_run(order="open", heard=both), a_run(refused="no", heard=both)):
        assert not unready.can_hear(1e9)


def test_a_start_is_recorded_once_its_outcome_is_known() -> None:
    """Time to begin counts from then on; an open order changes nothing."""
    run = a_run(order="open")
    assert (run.harvest(5.0), run.is_started, run.started_at) == (False, False, 0.0)
    done = a_run(order="done", then="stop")
    assert (done.harvest(5.0), done.is_started, done.started_at, done.then) == (True, True, 5.0, "stop")
    assert not done.harvest(6.0)
    assert done.started_at == 5.0


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (Refused(reason="n1 is full"), "n1 is full"),
        (OSError("no disk"), "the start could not be ordered: OSError: no disk"),
        (KeyError("x"), "the start could not be ordered: KeyError: 'x'"),
    ],
)
def test_a_start_that_failed_is_stopped_without_any_work(order: Refused | Exception, why: str) -> None:
    """Nothing is left to stop; the checkpoint from before stays that of the job."""
    run = a_run(order=order, then="kill")
    assert (run.harvest(5.0), run.is_started, run.refused, run.then) == (True, False, why, None)
    report = run.never_started(STANDS)
    assert (report.phase, report.was_refused, report.evidence, report.seconds) == ("stopped", True, why, 0.0)
    assert (report.manifest, report.generation, report.gpus) == (Manifest(**STANDS), 3, 8)
    assert run.never_started(None).manifest is None


@pytest.mark.parametrize(
    ("generation", "step", "is_newer"),
    [(2, 31, True), (3, 0, True), (3, 31, True), (2, 30, False), (2, 29, False), (1, 99, False)],
)
def test_a_checkpoint_is_newer_by_its_generation_and_then_by_its_step(
    generation: int, step: int, is_newer: bool
) -> None:
    """A late word of an older generation takes nothing back."""
    job = SsmJob(spec=SPEC, stands=dict(STANDS))
    found = {"generation": generation, "step": step, "sha256": "cd", "path": "p"}
    job.keep(found | {"is_whole": True})
    assert job.stands == (found if is_newer else STANDS)


def test_the_first_checkpoint_is_newer_than_none() -> None:
    """Also at step 0 of generation 0."""
    job = SsmJob(spec=SPEC)
    job.keep({"generation": 0, "step": 0, "sha256": "", "path": ""})
    assert job.stands is not None


def test_a_unit_that_was_ordered_is_starting_and_a_lost_one_has_ended() -> None:
    """What it last said stays; whether its stop was asked for decides what its end means."""
    run = a_run()
    assert report_of(run.generation, [starting(0), starting(1)]).phase == "starting"
    last = starting(1) | {"progress": {"step": 5}, "is_kept": True}
    run.heard[1] = last
    found = lost(run, 1)
    assert (found["progress"], found["is_kept"], found["was_kept"]) == ({"step": 5}, False, True)
    assert found["exit"]["agent_lost"]
    assert (lost(run, 0)["rank"], found["exit"]["stop_asked"]) == (0, False)
    run.generation = replace(run.generation, is_stop_ordered=True)
    assert lost(run, 1)["exit"]["stop_asked"]


def reread(file: Path) -> dict[str, SsmJob]:
    """Return the jobs of a file, with the specification as its document: sequences are lists in a file."""
    found = read_ssm_jobs(file)
    for job, row in found.items():
        own = replace(SPEC, job=job)
        assert json.dumps(row.spec.to_document()) == json.dumps(own.to_document())
        row.spec = own
    return found


def test_a_restart_knows_what_the_file_says(tmp_path: Path) -> None:
    """Ranks are numbers again, slots and nodes tuples; the folder is made."""
    heard, slots = {0: starting(0), 1: starting(1)}, (("n1", 0), ("n2", 1))
    run = a_run(heard=heard, heard_at={0: 1.0, 1: 2.0}, started_at=9.0, key="k", slots=slots)
    jobs = {"a": SsmJob(spec=SPEC, run=run, stands=STANDS), "b": SsmJob(spec=replace(SPEC, job="b"))}
    file = tmp_path / "new" / "jobs.json"
    assert read_ssm_jobs(file) == {}
    write_ssm_jobs(file, jobs)
    assert reread(file) == jobs


def test_an_open_or_refused_start_is_ordered_again_after_a_restart(tmp_path: Path) -> None:
    """The file has only what the nodes were told."""
    file = tmp_path / "jobs.json"
    for run in (a_run(order="open"), a_run(refused="no")):
        write_ssm_jobs(file, {"a": SsmJob(spec=SPEC, run=run, stands=STANDS)})
        assert reread(file) == {"a": SsmJob(spec=SPEC, stands=STANDS)}


def test_a_file_of_an_earlier_version_has_no_keys_and_no_slots(tmp_path: Path) -> None:
    """Its jobs run on."""
    file = tmp_path / "jobs.json"
    write_ssm_jobs(file, {"a": SsmJob(spec=SPEC, run=a_run(key="k", slots=(("n1", 0),)))})
    file.write_text(file.read_text().replace('"key": "k", ', "").replace(', "slots": [["n1", 0]]', ""))
    run = read_ssm_jobs(file)["a"].run
    assert run is not None
    assert (run.key, run.slots) == ("", ())


def test_a_file_that_cannot_be_read_now_is_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without descriptors a daemon would else forget its jobs, and start them twice."""

    def refuse(*_: object, **__: object) -> bytes:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("boa_daemon.job.unit.read_regular", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        read_ssm_jobs(tmp_path / "jobs.json")
