"""What a budget buys in each place: prices in proportion, and reasons where nothing can run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from boa_daemon.planning.cloud_comparison import base_card

CLASSES = """
gpu_types: {a100: {instance_type: p4d.24xlarge}}
classes:
  - name: c
    arrivals_per_hour: 1.0
    phases: [{size_gpu_hours: 4.0, speedup: {table: {1: 1.0, 2: 1.8, 4: 3.0}}}]
"""
PRICES = """instance_type,gpus,gpu_model,cloud,region,market,currency,as_of,usd_per_hour
p4d.24xlarge,,,aws,us-east-1,on-demand,USD,2026-11-01,24
p4d.24xlarge,,,aws,eu-west-1,on-demand,USD,2026-11-01,28
gpu_8x_a100,8,NVIDIA A100 SXM4,lambda,us-west-2,on-demand,USD,2026-11-01,16
gpu_1x_a100,1,NVIDIA A100 SXM4,lambda,us-west-2,on-demand,USD,2026-11-01,1.5
t4-box,1,NVIDIA T4,other,x,on-demand,USD,2026-11-01,0.5
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A class file and a price file of three clouds."""
    (tmp_path / "classes.yaml").write_text(CLASSES)
    (tmp_path / "prices.csv").write_text(PRICES)
    return ["--classes", str(tmp_path / "classes.yaml"), "--prices", str(tmp_path / "prices.csv")]


def test_the_cheapest_place_comes_first_where_the_money_is_short(files: list[str]) -> None:
    """Widths cost 4, 4.44 and 5.33 GPU-hours a job; 12 USD/h buy 4 GPU-hours at 3, 6 at 2, 3.43 at 3.50."""
    done = CliRunner().invoke(app, ["plan", *files, "--budget", "12/h", "--cloud", "all", "-o", "json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["places"]
    by = {(row["cloud"], row["region"]): row for row in rows}
    assert by["lambda", "us-west-2"]["mean_jct_hours"] == pytest.approx(4 / 3.0)
    assert by["lambda", "us-west-2"]["machines"]["a100"]["instance_type"] == "gpu_8x_a100"
    assert by["aws", "us-east-1"]["mean_jct_hours"] == pytest.approx(4.0)
    assert by["aws", "eu-west-1"]["cheapest_feasible_spend"] == pytest.approx(4 * 3.5)
    assert by["aws", "eu-west-1"]["why_not"] == "needs at least $14.00/hour"
    assert by["other", "x"]["why_not"] == "has no a100 for class c"
    assert (rows[0]["cloud"], rows[0]["region"]) == ("lambda", "us-west-2")


def test_clouds_and_regions_are_chosen(files: list[str]) -> None:
    """A list of clouds, and a region."""
    flags = ["--budget", "30/h", "--cloud", "aws,lambda", "--region", "us-west-2", "--region", "eu-west-1"]
    done = CliRunner().invoke(app, ["plan", *files, *flags, "-o", "json"])
    places = {(row["cloud"], row["region"]) for row in json.loads(done.stdout)["places"]}
    assert places == {("lambda", "us-west-2"), ("aws", "eu-west-1")}


def test_nothing_that_runs_is_infeasible(files: list[str]) -> None:
    """Exit code 3, as for a plan."""
    done = CliRunner().invoke(app, ["plan", *files, "--budget", "1/h", "--cloud", "all"])
    assert done.exit_code == 3


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["--cloud", "lamda"],
            "no on-demand price of cloud 'lamda' in the price files. Did you mean 'lambda'",
        ),
        (["--cloud", "aws", "--region", "mars"], "no on-demand price of region 'mars'"),
        (["--region", "us-east-1"], "--region needs --cloud"),
        (["--cloud", "lambda", "--market", "spot"], "no spot price of cloud 'lambda'"),
    ],
)
def test_refused(files: list[str], flags: list[str], said: str) -> None:
    """Names that the files do not have."""
    done = CliRunner().invoke(app, ["plan", *files, "--budget", "12/h", *flags])
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)


@pytest.mark.parametrize(
    ("model", "card"),
    [
        ("NVIDIA A100", "a100"),
        ("A100-80GB", "a100"),
        ("NVIDIA A100 (40 GB SXM4)", "a100"),
        ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA RTX 4090", "rtx-4090"),
        ("rtx-6000", "rtx-6000"),
        ("AMD MI300X", "mi300x"),
        ("NVIDIA A10G", "a10g"),
    ],
)
def test_base_card(model: str, card: str) -> None:
    """The card without maker, memory and form."""
    assert base_card(model) == card
