"""Job files of a user without a role, on root's daemon: no file, process or answer but the job's own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_worlds import ssm_world
from job_fuzz import Fuzz, ready_nodes

from boa_daemon.job.leavings import remove_trees

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's daemon has rights that jobs lack")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that other users can pass; its stand-in of podman is the first container tool."""
    with tempfile.TemporaryDirectory(prefix="boa-fuzz-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{name}/tools:{os.environ['PATH']}")
        yield Path(name)
        remove_trees(*Path(name).iterdir())  # Folders of jobs are deeper than Python can remove.


@pytest.mark.parametrize("count", [12, pytest.param(300, marks=pytest.mark.exhaustive)])
def test_hostile_job_files_on_this_machine(place: Path, count: int) -> None:
    """The local engine, each job as its own user, some in a container, some with a waiting generation."""
    fuzz = Fuzz(place, seed=count)
    assert fuzz.run(count) == []
    assert fuzz.counts["ran"] > count / 4, fuzz.counts
    assert fuzz.counts["refused"] > count / 10, fuzz.counts
    fuzz.play.close()


@pytest.mark.parametrize("count", [4, pytest.param(60, marks=pytest.mark.exhaustive)])
def test_hostile_job_files_on_rented_nodes(place: Path, count: int) -> None:
    """The scripts of Run Command on a fake node, as root, with S3 and SQS of moto."""
    with ssm_world(place, own_user=True) as make:
        fuzz = Fuzz(place, seed=count + 1, make=make)
        ready_nodes(fuzz)
        assert fuzz.run(count, at_once=1) == []
        fuzz.play.close()
