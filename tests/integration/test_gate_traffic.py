"""The benchmark of the gate in short: real bytes where root and iproute2 are, else its one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from boa_daemon.gate.virtual_hosts import why_not

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.exhaustive
def test_the_benchmark_measures_or_says_why_not(tmp_path: Path) -> None:
    """Each policy finishes two jobs near what the simulator says; or one clear sentence."""
    script = str(ROOT / "benchmarks" / "gate.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    flags = ["--quick", "--part", "two", "--repetitions", "1", "--output", str(tmp_path / "gate.json")]
    done = subprocess.run(
        [sys.executable, script, *flags],
        capture_output=True,
        text=True,
        env=environment,
        timeout=900,
        check=True,
    )
    if done.stdout.startswith("skipped: "):
        assert "needs" in done.stdout or "cannot" in done.stdout
        assert not (tmp_path / "gate.json").exists()
        return
    (row,) = json.loads((tmp_path / "gate.json").read_text())["two"]["repetitions"]
    real, simulated = (sum(sum(times) for times in row[kind].values()) for kind in ("real", "simulated"))

    assert set(row["real"]) == {"no gate", "srsf-1", "srsf-2", "ada-srsf", "ada-srsf-buckets", "default"}
    always_on = row["counts"].keys() - {"no gate", "default"}
    assert all(row["counts"][policy].get("granted", 0) > 0 for policy in always_on)
    # Busy machines stretch a run this short; a broken one is off by far more.
    assert 0.7 < real / simulated < 2.5


def test_without_root_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence instead of a stack trace."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert why_not() == "needs root: hosts are network namespaces (try sudo)"
