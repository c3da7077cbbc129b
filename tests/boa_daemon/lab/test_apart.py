"""The program without its laboratory: it starts, lists its verbs, plans and simulates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
WITHOUT = """
import sys
sys.modules["boa_daemon.lab"] = None
import boa_daemon.serve, boa_daemon.daemon.service.service, boa_daemon.library.functions
from boa_daemon.cli import app
sys.argv = ["boa", *sys.argv[1:]]
app()
"""


def without_laboratory(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a Python that cannot import the laboratory."""
    command = [sys.executable, "-c", WITHOUT, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_program_starts_and_plans_without_the_laboratory() -> None:
    """Help lists every verb, also those of the laboratory; a plan is made."""
    listed = without_laboratory("--help")
    planned = without_laboratory("solve", "examples/two-gpu-types.yaml", "--json")

    assert listed.returncode == 0, listed.stderr
    assert "compare" in listed.stdout
    assert planned.returncode == 0, planned.stderr
    assert "mean_jct_hours" in planned.stdout


def test_the_default_policy_is_found_without_the_rivals() -> None:
    """BOA's own policies need no module of `policies/rivals/`."""
    code = "import sys; import policies.registry as r; r.find_policy('boa-paced'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert not [name for name in done.stdout.split() if name.startswith("policies.rivals")]
