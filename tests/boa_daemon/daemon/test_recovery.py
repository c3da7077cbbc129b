"""Recovery: with a new database beside an old engine, job numbers are not used again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content


class Shelf:
    """A runner with folders of earlier jobs, or whose folders cannot be listed."""

    def __init__(self, runner: Any, folders: list[str] | None) -> None:
        self._runner, self._folders = runner, folders

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def job_folders(self) -> list[str]:
        if self._folders is None:
            raise OSError("no answer")
        return self._folders


@pytest.mark.parametrize(("folders", "first"), [(["a-41", "=code", "a-9"], 42), ([], 1), (None, 1)])
def test_job_numbers_continue_after_the_folders_of_the_engine(
    tmp_path: Path, folders: list[str] | None, first: int
) -> None:
    """An engine that cannot list its folders stops neither submissions nor ticks."""
    play = DaemonInAFolder(tmp_path, ManualClock(1e9), wrap_runner=lambda runner: Shelf(runner, folders))
    (job,) = play.service.submit([job_content("a")], user="ann")["jobs"]

    assert job == f"a-{first}"
    assert play.daemon.tick() is not None
    play.close()
