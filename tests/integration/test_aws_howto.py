"""docs/how-to/first-rented-instance.md: every step runs as written against the fake AWS over sockets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
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
Run = Callable[[str], "subprocess.CompletedProcess[str]"]
BLOCKS = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.exhaustive
def test_every_command_of_the_page_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    """The shell blocks run in order; their output matches the text blocks; no instance is left."""
    fake, _ = walk(tmp_path, terms())
    assert [life.market for life in fake.history()] == ["spot"] * len(fake.history())
    assert len(fake.history()) >= 2
    assert fake.live() == []


@pytest.mark.parametrize(
    ("output", "is_shown"),
    [
        ("a 1 b\nc\nx\ny\nd", True),
        ("a b\nc\nd", True),
        ("a  b\nd", False),
        ("a b\ncd", False),
        ("b\nc\nd", False),
        ("a b\nc\nd\ne", False),
    ],
)
def test_dots_stand_for_anything(output: str, is_shown: bool) -> None:
    """Dots within a line stand for any text, and on a line of their own for any number of lines."""
    assert shows("a ...b\nc\n...\nd\n", output) is is_shown


REGION = "sa-east-1"
SETTINGS = """
[cloud]
provider = "aws"
region = "sa-east-1"
instance_types = ["g5.xlarge"]
prices = "prices.toml"
tags = {CostCentre = "ML 42"}
[cloud.side_prices]
gp3_usd_per_gib_month = 0.152
gp3_usd_per_mb_month = 0.076
snapshot_usd_per_gb_month = 0.068
address_usd_per_hour = 0.005
nat_usd_per_hour = 0.093
nat_usd_per_gb = 0.093
s3_usd_per_gb_month = 0.0405
s3_usd_per_1000_writes = 0.007
sqs_usd_per_million = 0.6
as_of = "2026-11-01"
"""
PRICES = 'as_of = 2026-11-01\nregion = "sa-east-1"\ncurrency = "USD"\n[prices]\n"g5.xlarge" = 1.611\n'


@pytest.mark.exhaustive
def test_the_page_in_a_region_without_prices_under_an_organisations_policy(tmp_path: Path) -> None:
    """In sa-east-1 the Pricing API is denied, and a policy wants a tag on everything: two files mend both."""

    def before(run: Run, fake: FakeCloud) -> None:
        fake.faults.plan("GetProducts", "error:AccessDeniedException", times=10**6)
        up = f"boa up --region {REGION} --cluster lab --type g5.xlarge --market spot --usd-per-hour 2"
        refused = run(up)
        assert refused.returncode == 2
        assert f"boa prices --beside --region {REGION}" in refused.stderr
        denied = run(f"boa prices --beside --region {REGION}")
        assert denied.returncode == 1
        assert "[cloud.side_prices] by hand" in denied.stderr
        assert "Traceback" not in denied.stderr
        (tmp_path / "boa.toml").write_text(SETTINGS.replace('prices = "prices.toml"\n', ""))
        shown = run(up)
        assert shown.returncode == 0, shown.stderr
        assert "1.006" not in shown.stdout
        doctor = " ".join(run("boa doctor || true").stdout.split())
        assert f"not known in {REGION}, so it is not rented" in doctor
        (tmp_path / "prices.toml").write_text(PRICES)
        (tmp_path / "boa.toml").write_text(SETTINGS)

    def edited(text: str) -> str:
        return text.replace("us-east-1", REGION).replace(
            "$1.006/hour, and $0.0219", "$1.611/hour, and $0.0416"
        )

    fake, _ = walk(
        tmp_path, terms(required_tags=("CostCentre",)), region=REGION, before=before, edited=edited
    )
    assert len(fake.history()) >= 2
    assert {life.region for life in fake.history()} == {REGION}
    assert {life.tags["CostCentre"] for life in fake.history()} == {"ML 42"}
    assert all(float(life.tags["boa:usd-per-hour"]) == pytest.approx(0.4 * 1.006) for life in fake.history())
    assert fake.live() == []


def terms(**more: object) -> Terms:
    """Return the fake AWS of the page."""
    return Terms(
        boot_seconds=2.0,
        shutdown_seconds=2.0,
        vcpu_quotas={"L-DB2E81BA": 8, "L-3819A6DF": 8},
        enforces_cluster="lab",
        spot_fraction=0.4,
        **more,  # type: ignore[arg-type]
    )


def walk(
    tmp_path: Path,
    given: Terms,
    *,
    region: str = "us-east-1",
    before: Callable[[Run, FakeCloud], None] = lambda run, fake: None,
    edited: Callable[[str], str] = str,
) -> tuple[FakeCloud, str]:
    """Run the page's blocks in order, after `before`; compare each text block with the last output."""
    fake, output = FakeCloud(time.time, given), ""
    with ExitStack() as stack:
        url = stack.enter_context(FakeServer(fake))
        fake.nodes = FakeNodes(
            tmp_path / "nodes", environment=node_environment(url) | {"AWS_DEFAULT_REGION": region}
        )
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

        def run(body: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["bash", "-c", verbs + body],
                cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900, check=False,
            )  # fmt: skip

        before(run, fake)
        for kind, body in BLOCKS.findall(PAGE.read_text()):
            if kind == "text":
                assert shows(edited(body), output), output
                continue
            done = run(edited(body))
            output = done.stdout
            assert done.returncode == 0, f"{body}\n{done.stdout}{done.stderr}"
        fake.live()
    return fake, output


def shows(recorded: str, output: str) -> bool:
    """Return whether the output is as the page shows it.

    ``...`` stands for anything, on a line of its own for any number of lines, also none.
    """
    wanted = "\n".join(line.strip() for line in recorded.strip().splitlines())
    pattern = re.escape(wanted).replace("\\\n\\.\\.\\.\\\n", "\n(?:.*\n)?")
    pattern = pattern.replace(r"\.\.\.", ".*").replace("\\ ", r"\s+")
    stripped = "\n".join(line.strip() for line in output.strip().splitlines())
    return re.fullmatch(pattern, stripped, re.DOTALL) is not None
