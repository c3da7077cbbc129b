"""`engines/slurm.py` with a Slurm in memory; the suite of all engines runs it on a real one."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from engine_bench import until

from boa_daemon.engines.local_units import send_to_keeper
from boa_daemon.engines.slurm import SlurmEngine
from boa_daemon.job.keeper import start_apart
from boa_daemon.job.unit import is_kept, read_json
from boa_daemon.slurm.commands import SlurmJob, SlurmNode
from boa_daemon.testing.fake_slurm import FakeSlurm
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.ports import Accepted, JobSpec, Refused
from policies.model import GpuSlot, Width


class Submitting(FakeSlurm):
    """A Slurm that notes what is submitted, and queues it."""

    def __init__(self, nodes: Sequence[SlurmNode]) -> None:
        super().__init__(nodes)
        self.submitted: list[Sequence[str]] = []

    def submit(self, options: Sequence[str], script: str, *, environment: Mapping[str, str]) -> str:
        """Queue a job with its comment."""
        del script, environment
        self._answer()
        self.submitted.append(options)
        comment = next(one.partition("=")[2] for one in options if one.startswith("--comment="))
        number = str(len(self.submitted))
        self.queue.append(SlurmJob(id=number, state="PENDING", reason="Priority", comment=comment))
        return number


@pytest.fixture
def slurm() -> Submitting:
    """A Slurm with twelve nodes of four processors."""
    return Submitting([SlurmNode(name=f"n{n}", partition="own", state="idle", cpus=4) for n in range(1, 13)])


def a_spec(folder: Path, **changes: object) -> JobSpec:
    """Return a job that ends at once."""
    values: dict[str, object] = {
        "job": "a",
        "name": "a",
        "class_name": "c",
        "run": "true",
        "workdir": str(folder),
    }
    return JobSpec(**{**values, **changes})  # type: ignore[arg-type]


def start(nodes: int) -> StartJob:
    """Return the start of a generation on so many nodes."""
    slots = tuple(GpuSlot(node=f"n{n}", index=0) for n in range(1, nodes + 1))
    return StartJob(id="s", job="a", generation=1, width=Width("cpu", nodes), slots=slots, reason="")


@pytest.mark.parametrize("options", [("--priority=9",), ("--nice=-1",), ("--uid=0",)])
def test_a_user_raises_no_priority_through_the_daemon_of_root(
    tmp_path: Path, slurm: Submitting, options: tuple[str, ...]
) -> None:
    """Slurm asks whether root may."""
    engine = SlurmEngine(tmp_path / "root", slurm=slurm, own_user=True)
    said = engine.admit(a_spec(tmp_path, slurm_options=options))
    assert isinstance(said, Refused)
    assert said.kind == "bad-request"


def test_a_generation_is_submitted_once_with_all_of_its_nodes(tmp_path: Path, slurm: Submitting) -> None:
    """A daemon that died before it wrote the number down finds the job by its comment."""
    engine = SlurmEngine(tmp_path / "root", slurm=slurm)
    assert isinstance(engine.admit(a_spec(tmp_path, slurm_options=("--qos=a",))), Accepted)
    engine.start(start(12))
    (options,) = slurm.submitted
    assert f"--nodelist={','.join(f'n{n}' for n in range(1, 13))}" in options
    assert "--qos=a" in options
    generation = engine.layout.generation("a", 1)
    (generation / "slurm.json").unlink()
    engine._start_keeper(generation / "n0")
    assert len(slurm.submitted) == 1


@pytest.mark.parametrize("listed", ["PENDING", "CONFIGURING", "RUNNING", "COMPLETING"])
def test_the_end_that_slurm_gave_a_job_is_told_though_the_listing_is_of_before(
    tmp_path: Path, slurm: Submitting, listed: str
) -> None:
    """A listing is kept for a moment; a job may begin and be cancelled within it."""
    engine = SlurmEngine(tmp_path / "root", slurm=slurm)
    engine.admit(a_spec(tmp_path, run="sleep 600"))
    engine.start(start(1))
    slurm.queue[0] = replace(slurm.queue[0], state=listed)
    unit = engine.layout.unit("a", 1, 0)
    keeper = start_apart(unit, os.environ)
    until(lambda: engine.poll()["a"].phase == "running")
    send_to_keeper(unit, signal.SIGTERM)
    keeper.wait()
    until(lambda: not is_kept(read_json(unit / "keeper.json")))

    assert not engine.poll()["a"].is_over
    slurm.queue[0] = replace(slurm.queue[0], state="CANCELLED", reason="None")
    end = engine.poll()["a"]
    assert (end.phase, "Slurm ended its job 1 as CANCELLED" in end.evidence) == ("stopped", True), end


@pytest.mark.parametrize("is_restarted", [False, True], ids=["while it runs", "while no daemon runs"])
@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING", ""])
def test_a_job_without_a_folder_is_cancelled_and_ended_when_slurm_says_so(
    tmp_path: Path, slurm: Submitting, state: str, is_restarted: bool
) -> None:
    """Its comment finds it; a controller that does not answer leaves it unknown, and nothing starts anew."""
    cancelled: list[str] = []
    slurm.cancel = cancelled.append  # type: ignore[method-assign]
    engine = SlurmEngine(tmp_path / "root", slurm=slurm)
    engine.admit(a_spec(tmp_path, run="sleep 600"))
    engine.start(start(2))
    slurm.queue = [replace(job, state=state, reason="None") for job in slurm.queue if state]
    shutil.rmtree(engine.layout.job("a"))
    slurm.is_silent = True
    if is_restarted:
        engine = SlurmEngine(tmp_path / "root", slurm=slurm)
        engine.admit(a_spec(tmp_path, run="sleep 600"))
        engine.reattach()
        assert isinstance(engine.start(start(2)), Accepted)
    assert engine.poll()["a"].phase == "unknown"
    slurm.is_silent = False
    assert engine.poll()["a"].is_over == (not state)
    assert cancelled == (["1"] if state else [])
    slurm.queue.clear()
    end = engine.poll()["a"]
    assert (end.phase, end.cause) == ("failed", "agent-lost")
    assert "deleted" in end.evidence
    assert len(slurm.submitted) == 1
