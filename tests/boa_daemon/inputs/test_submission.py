"""Folders in a job file must exist, or the file is refused with the line that names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.submission import read_submission


@pytest.mark.parametrize("folder", ["gone", "round/x", '"a\\0b"', "x" * 5000, "job.yaml"])
@pytest.mark.parametrize("key", ["workdir", "code", "data"])
def test_a_path_that_is_no_folder_is_refused(tmp_path: Path, key: str, folder: str) -> None:
    """Missing and malformed paths, circular links and files are input errors."""
    (tmp_path / "round").symlink_to(tmp_path / "round")
    file = tmp_path / "job.yaml"
    file.write_text(f"name: a\nclass: c\nrun: python t.py\n{key}: {folder}\n")
    with pytest.raises(InputError) as found:
        read_submission(file)
    assert found.value.line == 4


def test_a_job_file_that_is_a_circular_link_is_refused(tmp_path: Path) -> None:
    """The error is the same as for other unreadable files."""
    (tmp_path / "round").symlink_to(tmp_path / "round")
    with pytest.raises(InputError, match="cannot be read: Too many levels"):
        read_submission(tmp_path / "round")
