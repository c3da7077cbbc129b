"""`.ci/try-slurm`: it names the tests that it leaves out, and fails nothing, where no Slurm can be run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from slurm_cluster import PATH, PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = "tests/integration/test_slurm_customer.py::test_power_saving_end_to_end_leaves_nothing_behind"
FAILS, SLEEPS = "echo no rights >&2; exit 1", "exec sleep 600"

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(shutil.which("timeout") is None, reason="GNU's timeout is not there"),
    pytest.mark.skipif(not (ROOT / ".venv" / "bin" / "pytest").exists(), reason="run by another environment"),
]


def try_slurm(folder: Path, programs: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run it where Slurm's programs are these scripts, and `unshare` runs its command."""
    own = dict.fromkeys(PROGRAMS, "true") | {"unshare": 'shift; exec "$@"'}
    for name, text in (own | dict(programs)).items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return subprocess.run(
        ["bash", str(ROOT / ".ci" / "try-slurm"), "24"],
        env={**os.environ, "PATH": f"{folder}:{PATH}"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("programs", "said"),
    [
        ({"unshare": "exit 1"}, "this container forbids `unshare -u`"),
        ({"munged": FAILS}, "munged does not listen: munged ended"),
        ({"munged": SLEEPS}, "no Slurm started in time"),
    ],
    ids=["no name spaces", "no munge", "a munge that says nothing"],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="without root it does not ask further")
def test_where_no_slurm_runs_its_tests_are_named(tmp_path: Path, programs: dict[str, str], said: str) -> None:
    """It ends well, and says why."""
    done = try_slurm(tmp_path, programs)
    assert done.returncode == 0, done.stdout + done.stderr
    assert said in done.stdout.partition("tests/")[0]
    assert LEFT_OUT in done.stdout.splitlines()
