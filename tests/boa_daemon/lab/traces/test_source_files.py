"""The right workload file is found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.source_files import pick_file

Write = Callable[[str, str], Path]


def test_the_only_workload_is_taken_and_several_are_listed(written: Write, tmp_path: Path) -> None:
    """Of several, one is picked by its path from the source or from the working directory."""
    one = written("workloads/workload-1.csv", "a\n1\n")
    patterns = ("workloads*/workload-*.csv",)

    assert pick_file(tmp_path, patterns, None) == one
    assert pick_file(one, patterns, None) == one
    two = written("workloads/workload-2.csv", "a\n1\n")
    with pytest.raises(
        InputError, match=r"2 workloads, and none picked.*workload-1\.csv, workloads.workload-2"
    ):
        pick_file(tmp_path, patterns, None)
    assert pick_file(tmp_path, patterns, "workloads/workload-2.csv") == two
    assert pick_file(tmp_path, patterns, str(two)) == two
    with pytest.raises(InputError, match=r"--workload 'workload-9.csv' is no file.*Pick one"):
        pick_file(tmp_path, patterns, "workload-9.csv")


def test_an_empty_or_missing_directory_is_refused(tmp_path: Path) -> None:
    """The error says what was looked for."""
    with pytest.raises(InputError, match=r"no \*\.csv in this directory"):
        pick_file(tmp_path, ("*.csv",), None)
    with pytest.raises(InputError, match="no such file or directory"):
        pick_file(tmp_path / "none", ("*.csv",), None)
