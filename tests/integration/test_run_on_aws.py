"""`boa run` on a fake AWS over sockets: a GPU that fails under a job counts as a fault of its node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_nodes import FakeNodes
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import FAKE_CREDENTIALS, FakeServer, node_environment

pytestmark = [
    pytest.mark.filterwarnings("ignore:Tried to parse"),
    pytest.mark.exhaustive,
]
"""moto says of the stack what it leaves out."""

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 120.0
JOB = """
name: sick
class: default
max_gpus: 1
retries: 0
elastic: true
run: |
  if [ "$BOA_GENERATION" = 1 ]; then
    echo "on the first node"
    while [ ! -e "$HOME/dmesg" ]; do sleep 0.2; done
    exit 1
  fi
  echo "on another node"
"""


def test_a_job_whose_gpu_falls_off_the_bus_runs_again_on_another_node(tmp_path: Path) -> None:
    """The job finishes though it allows no retry, and no node is left."""
    fake = FakeCloud(time.time, Terms(boot_seconds=1.0, shutdown_seconds=1.0, enforces_cluster="lab"))
    with ExitStack() as stack:
        url = stack.enter_context(FakeServer(fake))
        fake.nodes = FakeNodes(tmp_path / "nodes", environment=node_environment(url))
        stack.callback(fake.nodes.close)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "COV_"))},
            **FAKE_CREDENTIALS,
            "AWS_ENDPOINT_URL": url,
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYTHONPATH": str(ROOT),
            "BOA_DAEMON_TICK_SECONDS": "1",
            "BOA_DAEMON_STATE_DIR": str(tmp_path / "state"),
        }

        def boa(*words: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                [sys.executable, "-m", "boa_daemon", *words],
                cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip

        made = boa("up", "--cluster", "lab", "--type", "g5.xlarge", "--usd-per-hour", "2", "--yes")
        said, error = made.communicate(timeout=PATIENCE_SECONDS)
        assert made.returncode == 0, said + error
        (tmp_path / "job.yaml").write_text(JOB)
        run = boa("run", "job.yaml", "--max-usd", "2", "--json")
        try:
            home = until_it_prints(tmp_path / "nodes")
            (home / "dmesg").write_text("[9.1] NVRM: Xid (PCI:0000:00:1e): 79, pid=1, GPU has fallen off\n")
            said, error = run.communicate(timeout=PATIENCE_SECONDS)
        finally:
            if run.poll() is None:
                run.terminate()
                run.communicate(timeout=PATIENCE_SECONDS)
        receipt = json.loads(said)

        assert (run.returncode, receipt["status"], receipt["generations"]) == (0, "finished", 2), said + error
        assert len(receipt["nodes"]) == 2
        assert receipt["left"] == {"instance": 0, "volume": 0, "network-interface": 0, "spot-request": 0}
        assert sum(row["usd"] for row in receipt["nodes"]) == pytest.approx(receipt["usd"], abs=1e-5)
        assert "is unfit and goes back: Xid 79" in (tmp_path / "state" / "run.log").read_text()
        assert fake.live() == []


def until_it_prints(nodes: Path) -> Path:
    """Wait until the job has printed on a node, and return the node's home."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        for log in nodes.rglob("out-*.log"):
            if "on the first node" in log.read_text():
                return nodes / log.relative_to(nodes).parts[0]
        time.sleep(0.2)
    raise AssertionError("no job printed anything")
