"""docs/how-to/first-rented-instance.md: every step runs as written against the fake AWS over sockets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from boa_daemon.job.processes import kill_all_carrying
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_nodes import FakeNodes
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import FAKE_CREDENTIALS, FakeServer, node_environment

pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse")
"""moto says of the stack what it leaves out."""

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "first-rented-instance.md"
BLOCKS = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.exhaustive
def test_every_command_of_the_page_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    """The shell blocks run in order; their output matches the text blocks; no instance is left."""
    terms = Terms(
        boot_seconds=2.0,
        shutdown_seconds=2.0,
        vcpu_quotas={"L-DB2E81BA": 8, "L-3819A6DF": 8},
        enforces_cluster="lab",
        spot_fraction=0.4,
    )
    fake, output = FakeCloud(time.time, terms), ""
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
            "COLUMNS": "140",
            "HOME": str(tmp_path),
            # Ticks are half a minute apart by default, too slow for a test.
            "BOA_DAEMON_TICK_SECONDS": "1",
            "BOA_DAEMON_STATE_DIR": str(tmp_path / "state"),
        }
        # The page leaves its daemon running.
        stack.callback(kill_all_carrying, f"BOA_DAEMON_STATE_DIR={tmp_path / 'state'}")
        python = f'"{sys.executable}"'
        verbs = f'boa() {{ {python} -m boa_daemon "$@"; }}\npython() {{ {python} "$@"; }}\nset -e\n'
        for kind, body in BLOCKS.findall(PAGE.read_text()):
            if kind == "text":
                assert shows(body, output), output
                continue
            done = subprocess.run(
                ["bash", "-c", verbs + body],
                cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900, check=False,
            )  # fmt: skip
            output = done.stdout
            assert done.returncode == 0, f"{body}\n{done.stdout}{done.stderr}"
    assert [life.market for life in fake.history()] == ["spot"] * len(fake.history())
    assert len(fake.history()) >= 2
    assert fake.live() == []


def shows(recorded: str, output: str) -> bool:
    """Return whether the output is as the page shows it, ``...`` standing for anything."""
    wanted = "\n".join(line.strip() for line in recorded.strip().splitlines())
    pattern = re.escape(wanted).replace(r"\.\.\.", ".*").replace("\\ ", r"\s+")
    stripped = "\n".join(line.strip() for line in output.strip().splitlines())
    return re.fullmatch(pattern, stripped, re.DOTALL) is not None
