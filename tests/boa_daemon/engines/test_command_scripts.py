"""The shell script around a job's command."""

from __future__ import annotations

import subprocess
from pathlib import Path

from boa_daemon.engines.command_scripts import with_setup
from boa_daemon.tick.facts.ports import JobSpec


def test_setup_runs_once_until_its_text_changes(tmp_path: Path) -> None:
    """The script creates the missing home folder; a changed setup text runs again."""
    spec = JobSpec(job="a", name="a", class_name="c", run="echo runs", setup="echo sets up")
    other = JobSpec(job="a", name="a", class_name="c", run="echo runs", setup="echo sets up anew")
    scripts = [with_setup(each, tmp_path / "a home") for each in (spec, spec, other)]
    said = [
        subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=True)
        for script in scripts
    ]

    assert [done.stdout.splitlines() for done in said] == [
        ["sets up", "runs"], ["runs"], ["sets up anew", "runs"],
    ]  # fmt: skip
    assert [done.stderr for done in said] == [""] * 3
