"""A short run of the gate's benchmark: real traffic with root and iproute2, one sentence without them."""

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
    """Real times, summed over policies, are near the simulated ones; without root the output says why not."""
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
    # The tolerance is wide because busy machines stretch such a short run; a broken run is off by far more.
    assert 0.7 < real / simulated < 2.5


def test_without_root_the_benchmark_says_that_it_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says that network namespaces need root."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert why_not() == "needs root: hosts are network namespaces (try sudo)"
