"""The environment in which DDP asks the gate by itself, and its effect on a job's Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from boa_daemon.job.inject import FOLDER, PACKAGE_ROOT, hooked

BARE = """
import os, sys
sys.path[:] = [p for p in sys.path if os.environ.get("KEPT") == p or not os.path.isdir(f"{p}/boa_daemon")]
"""


def run(script: str, folder: Path, **environment: str) -> str:
    """Run a script in a hooked environment, outside of this repository."""
    given = {"PATH": os.environ["PATH"], **environment}
    done = subprocess.run(
        [sys.executable, "-c", BARE + script],
        env=hooked(given),
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_a_python_without_boa_finds_only_the_package_boa_daemon(tmp_path: Path) -> None:
    """`boa_daemon.job` can be imported; `policies` in the same folder cannot."""
    found = run("import boa_daemon.job.gate.client as c; print(c.__file__)", tmp_path)
    assert found == str(PACKAGE_ROOT / "boa_daemon/job/gate/client.py")
    assert "No module named 'policies'" in run("import policies", tmp_path)


def test_the_jobs_own_boa_daemon_takes_precedence(tmp_path: Path) -> None:
    """A version on the job's own path is imported."""
    (tmp_path / "boa_daemon").mkdir()
    (tmp_path / "boa_daemon" / "__init__.py").write_text("mine = True")
    assert (
        run(
            "import boa_daemon; print(boa_daemon.mine)",
            tmp_path,
            PYTHONPATH=str(tmp_path),
            KEPT=str(tmp_path),
        )
        == "True"
    )


@pytest.mark.parametrize(("nodes", "waits"), [("1", False), ("2", True)])
def test_only_jobs_over_several_nodes_are_hooked(tmp_path: Path, nodes: str, waits: bool) -> None:
    """A job on one node sends no messages to other nodes."""
    script = "print(any(type(f).__name__ == '_Finder' for f in sys.meta_path))"
    assert run(script, tmp_path, BOA_GATE="/g", BOA_NODES=nodes) == str(waits)


def test_another_sitecustomize_still_runs(tmp_path: Path) -> None:
    """The site's own `sitecustomize` is executed."""
    (tmp_path / "sitecustomize.py").write_text("print('ours')")
    assert run("", tmp_path, PYTHONPATH=str(tmp_path)) == "ours"
    assert Path(FOLDER, "sitecustomize.py").is_file()
