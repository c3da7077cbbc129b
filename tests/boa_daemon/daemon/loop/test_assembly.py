"""Wiring: the backend, engine and region that the settings name are opened, or refused with a clear error."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.backends.simulated import FileCloud
from boa_daemon.daemon.loop.assembly import open_daemon, open_world, try_database
from boa_daemon.daemon.loop.last_state import LastStateFile
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.engines.run_reports import Generation
from boa_daemon.engines.ssm import SsmEngine
from boa_daemon.engines.ssm_runs import SsmRun
from boa_daemon.errors import InputError
from boa_daemon.store.database_setup import RECOVERED
from boa_daemon.store.storage import Storage
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.ports import JobSpec, WayIn


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            {"cloud": {"provider": "locla"}},
            r"\[cloud\] provider: 'locla' is not known\. Did you mean",
        ),
        ({"engine": {"name": "pbs"}}, r"\[engine\] name: 'pbs' is not known\. Known: local, ray, slurm, ssm"),
        ({"engine": {"name": "slurm"}}, "shared_dir, a folder that the daemon and all nodes share"),
        ({"engine": {"name": "slurm", "shared_dir": "/x"}}, "does not go with the provider 'simulated'"),
        ({"cloud": {"provider": "slurm"}}, "needs partitions whose nodes it may use"),
        (
            {"cloud": {"provider": "slurm", "partitions": {"gpu": {"gpu": "a100", "gpus": 4}}}},
            "the local engine runs jobs here, not on the nodes of Slurm",
        ),
        ({"engine": {"name": "ray"}}, "shared_dir, a folder that all nodes share"),
        ({"engine": {"name": "ssm"}}, "does not go with the provider 'simulated'"),
    ],
)
def test_an_unknown_or_unsuitable_provider_or_engine_is_refused(
    words: dict[str, dict[str, str]], said: str, tmp_path: Path
) -> None:
    """The error names the setting and the values that it accepts, or the setting that is missing."""
    with pytest.raises(InputError, match=said):
        open_world(Settings.model_validate(words), tmp_path, ManualClock(0.0))


@pytest.mark.parametrize(
    "words",
    [
        {"engine": {"name": "pbs"}},
        {"engine": {"name": "ssm"}},
        {"cloud": {"instance_types": ["x9.huge"]}},
    ],
)
def test_refused_settings_leave_no_file_or_database_open(
    words: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error in the settings, the cloud file and the storage are closed again."""
    left: list[str] = []
    for part in (FileCloud, Storage):
        opened, closed = part.__init__, part.close

        def opens(self: Any, *given: Any, opened: Any = opened, **named: Any) -> None:
            opened(self, *given, **named)
            left.append(type(self).__name__)

        def closes(self: Any, closed: Any = closed) -> None:
            closed(self)
            left.remove(type(self).__name__)

        monkeypatch.setattr(part, "__init__", opens)
        monkeypatch.setattr(part, "close", closes)
    settings = Settings.model_validate({**words, "daemon": {"state_dir": str(tmp_path)}})
    with pytest.raises(InputError):
        open_daemon(settings, clock=ManualClock(0.0))
    assert left == []


def test_boa_shell_uses_the_region_of_the_nodes(tmp_path: Path) -> None:
    """The way into a job names the region of the settings."""
    cloud = {"provider": "aws", "region": "eu-west-1", "instance_profile": "boa-node"}
    engine = {"name": "ssm", "queue_url": "q", "uri": "s3://boa/jobs"}
    settings = Settings.model_validate({"cloud": cloud, "engine": engine})
    runner = open_world(settings, tmp_path, ManualClock(0.0)).runner
    assert isinstance(runner, SsmEngine)
    runner.admit(JobSpec(job="a", name="a", class_name="c", run="true"))
    run = Generation(job="a", number=1, gpus=1)
    runner._jobs["a"].run = SsmRun(generation=run, nodes=("i-1",), started_at=time.time())

    way = runner.inside.way("a", 0)
    assert isinstance(way, WayIn)
    assert (way.node, way.region) == ("i-1", "eu-west-1")


def _ran_in(folder: Path, *, jobs: int = 1) -> DaemonInAFolder:
    """Return a daemon of a state folder that had jobs and ticked."""
    folder.mkdir()
    made = DaemonInAFolder(folder, ManualClock(1_800_000_000.0))
    made.storage.queue.mark_in(folder / "next_job")
    made.daemon.last_state_file = LastStateFile(folder / "last_state")
    if jobs:
        made.service.submit([job_content()] * jobs, user="ann")
    assert made.daemon.tick() is not None
    return made


DATABASES: dict[str, tuple[str, str]] = {
    "its own": ("ours", ""),
    "its own, moved": ("moved", ""),
    "another daemon's": ("theirs", "another daemon's: the last tick of .*ours was recorded in "),
    "another daemon's that was recovered": ("recovered", ""),
    "another daemon's, who had no job": ("no jobs", "the database is empty, and there was one before"),
    "a new one": ("new", "the database is empty, and there was one before"),
}
"""Which database the settings name for a state folder with a past, and what is said."""


@pytest.mark.parametrize(("which", "said"), DATABASES.values(), ids=DATABASES)
def test_the_database_of_another_daemon_is_not_taken_for_its_own(
    tmp_path: Path, which: str, said: str
) -> None:
    """Its jobs would be started here a second time, and what was spent here would be forgotten."""
    _ran_in(tmp_path / "ours").close()
    theirs = _ran_in(tmp_path / "theirs", jobs=0 if which == "no jobs" else 2)
    if which == "recovered":
        theirs.storage.store.set_flag(RECOVERED, True)
    theirs.close()
    file = tmp_path / {"ours": "ours", "new": "new", "moved": "moved"}.get(which, "theirs") / "boa.sqlite"
    if which == "moved":
        file.parent.mkdir()
        (tmp_path / "ours" / "boa.sqlite").rename(file)
    elif which == "new":
        file.parent.mkdir()
    daemon = {"state_dir": str(tmp_path / "ours"), "database": f"sqlite:///{file}"}
    storage, fault, again = try_database(Settings.model_validate({"daemon": daemon}))
    assert (storage is None) is bool(said)
    assert re.search(said, fault)
    if storage is None:
        assert again is not None
        assert "keeps the caps and the leases" in fault
        # No table is made in what was named by mistake.
        assert which != "new" or not file.exists()
    else:
        storage.close()


def test_a_new_machine_takes_the_database_that_the_old_one_left(tmp_path: Path) -> None:
    """A state folder without a past says nothing about whose database it is."""
    _ran_in(tmp_path / "theirs").close()
    daemon = {"state_dir": str(tmp_path), "database": f"sqlite:///{tmp_path}/theirs/boa.sqlite"}
    storage, fault, _ = try_database(Settings.model_validate({"daemon": daemon}))
    assert (storage is not None, fault) == (True, "")
    assert storage is not None
    storage.close()


def test_a_recovered_database_is_an_ordinary_one_after_its_first_jobs(tmp_path: Path) -> None:
    """Its mark would let it pass for any daemon's for ever: it is kept until a tick and a job are there."""
    theirs = _ran_in(tmp_path / "theirs")
    theirs.storage.store.set_flag(RECOVERED, True)
    theirs.close()
    file = tmp_path / "theirs" / "boa.sqlite"
    _ran_in(tmp_path / "ours").close()

    def opened_in(folder: str) -> str:
        daemon = {"state_dir": str(tmp_path / folder), "database": f"sqlite:///{file}"}
        storage, fault, _ = try_database(Settings.model_validate({"daemon": daemon}))
        if storage is not None:
            storage.close()
        return fault

    # Another folder may use it as long as it is recovered, and the mark stays: no tick of it is there.
    assert opened_in("ours") == ""
    assert opened_in("ours") == ""
    assert opened_in("theirs") == ""
    assert "another daemon's" in opened_in("ours")
