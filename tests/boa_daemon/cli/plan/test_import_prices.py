"""`boa prices import`: from the lists of others to a plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import InputError

DATA = Path(__file__).parents[3] / "data" / "prices"
CLASSES = """
gpu_types: {a100: {instance_type: TYPE}}
classes: [{name: c, arrivals_per_hour: 1.0, phases: [{size_gpu_hours: 1.0, speedup: {table: {1: 1.0}}}]}]
"""

KINDS = {
    "skypilot": ("skypilot-aws.csv", ["--region", "us-east-1"], "p4d.24xlarge", 20.0),
    "skypilot in Ireland": ("skypilot-aws.csv", ["--region", "eu-west-1"], "p4d.24xlarge", 24.0),
    "skypilot on spot": (
        "skypilot-aws.csv",
        ["--region", "us-east-1", "--market", "spot"],
        "p4d.24xlarge",
        11.0,
    ),
    "skypilot of another cloud": ("skypilot-lambda.csv", [], "gpu_8x_a100", 16.0),
    "aws": ("aws-offers.csv", ["--region", "us-east-1"], "p4d.24xlarge", 22.0),
    "spot-history": ("spot-history.json", [], "p4d.24xlarge", 12.0),
}


@pytest.mark.parametrize(("name", "flags", "kind", "usd"), KINDS.values(), ids=KINDS)
def test_a_plan_pays_the_imported_price(
    name: str, flags: list[str], kind: str, usd: float, tmp_path: Path
) -> None:
    """An hour of one GPU of eight costs an eighth of the machine's price; plans say where a price is from."""
    source = {"sky": "skypilot", "aws": "aws", "spo": "spot-history"}[name[:3]]
    out, classes = tmp_path / "prices.csv", tmp_path / "classes.yaml"
    classes.write_text(CLASSES.replace("TYPE", kind))
    run = CliRunner()
    done = run.invoke(
        app, ["prices", "import", "--from", source, str(DATA / name), "--out", str(out), *flags, "-o", "json"]
    )
    assert done.exit_code == 0, done.exception
    answer = json.loads(done.stdout)
    assert {row["currency"] for row in answer["prices"]} == {"USD"}
    planned = run.invoke(
        app, ["plan", "--classes", str(classes), "--prices", str(out), "--budget", "50/h", "-o", "json"]
    )
    assert planned.exit_code == 0, planned.exception
    plan = json.loads(planned.stdout)
    assert plan["prices"][0]["usd_per_hour"] == usd
    assert plan["mean_spend"] == pytest.approx(usd / 8)
    is_spot = plan["prices"][0]["source"].startswith("spot: ")
    assert is_spot == (name == "spot-history.json" or "spot" in flags)
    assert ("counts no interruption" in planned.stderr.replace("\n", " ")) == is_spot


def test_two_imports_add_up(tmp_path: Path) -> None:
    """Prices on demand from one list, spot prices from another: the catalogue has both."""
    run = CliRunner()
    for source, name in (("aws", "aws-offers.csv"), ("spot-history", "spot-history.json")):
        flags = ["--from", source, "--region", "us-east-1", "--out", str(tmp_path / f"{source}.csv")]
        assert run.invoke(app, ["prices", "import", str(DATA / name), *flags]).exit_code == 0
    files = ["--prices", str(tmp_path / "spot-history.csv"), "--prices", str(tmp_path / "aws.csv")]
    shown = json.loads(run.invoke(app, ["catalog", *files, "-o", "json"]).stdout)["instance_types"]
    (p4d,) = [row for row in shown if row["instance_type"] == "p4d.24xlarge"]
    assert (p4d["usd_per_hour"], p4d["spot_usd_per_hour_min"], p4d["spot_usd_per_hour_max"]) == (
        22.0,
        9.5,
        12.0,
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--out", "p.toml"], "the price file is CSV"),
        (["--as-of", "yesterday"], "--as-of 'yesterday' is no day"),
        (["--region", "mars-1"], "no price in region 'mars-1'"),
    ],
)
def test_mistakes(flags: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        app, ["prices", "import", "--from", "skypilot", str(DATA / "skypilot-aws.csv"), *flags]
    )
    assert isinstance(done.exception, InputError)
    assert said in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_a_list_is_not_overwritten(tmp_path: Path) -> None:
    """By its own import."""
    source = tmp_path / "prices.csv"
    source.write_bytes((DATA / "skypilot-lambda.csv").read_bytes())
    done = CliRunner().invoke(
        app, ["prices", "import", "--from", "skypilot", str(source), "--out", str(source)]
    )
    assert isinstance(done.exception, InputError)
    assert source.read_bytes() == (DATA / "skypilot-lambda.csv").read_bytes()
