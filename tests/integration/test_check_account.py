"""examples/check_account.py on the fake AWS: its report lists each step, and no instance is left."""

from __future__ import annotations

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

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse")
"""moto says of the stack what it leaves out."""


@pytest.mark.exhaustive
@pytest.mark.parametrize(("quota", "stopped_at", "more"), [(8, "", ("--image",)), (0, "the doctor", ())])
def test_check_account_reports_each_step_and_leaves_no_instance(
    tmp_path: Path, quota: int, stopped_at: str, more: tuple[str, ...]
) -> None:
    """A good account passes; one without a quota stops at the doctor. No instance is left either way."""
    fake = FakeCloud(time.time, Terms(boot_seconds=1.0, vcpu_quotas={"L-DB2E81BA": quota}))
    with ExitStack() as stack:
        url = stack.enter_context(FakeServer(fake))
        fake.nodes = FakeNodes(tmp_path / "nodes", environment=node_environment(url), agent_seconds=0.5)
        stack.callback(fake.nodes.close)
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "check_account.py"), "--patience", "300", *more],
            cwd=tmp_path,
            env={
                **{key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "COV_"))},
                **FAKE_CREDENTIALS,
                "AWS_ENDPOINT_URL": url,
                "AWS_EC2_METADATA_DISABLED": "true",
                "BOA_DAEMON_TICK_SECONDS": "1",
                "HOME": str(tmp_path),
                "PYTHONPATH": str(ROOT),
            },
            capture_output=True, text=True, timeout=1200, check=False,
        )  # fmt: skip
        report = (tmp_path / "report.md").read_text()
        assert (done.returncode == 0) == (not stopped_at), done.stdout + done.stderr + report
        assert f"stopped at: {stopped_at}" in done.stdout or not stopped_at
        assert ("| build an image |" in report) == bool(more)
        assert "| nothing is left |" in report
        assert ("its GPUs are fit and the job runs" in report) == (not stopped_at)
        assert fake.live() == []
