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


@pytest.mark.first_set(4)
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


# The columns that these clouds print, and dollars per hour of one of their A100.
SHAPES = {
    "vast": (
        "id,machine_id,gpu_name,num_gpus,gpu_ram,dph_total,min_bid,geolocation,cpu_cores,cpu_ram\n"
        '2,12,A100_SXM4,8,81920,9.6,5.0,"Texas, US",128,1024000\n',
        1.2,
    ),
    "coreweave": (
        "GPU Model,GPU Count,VRAM (GB),vCPUs,System RAM (GB),Local Storage (TB),Instance Price (Per Hour)\n"
        "NVIDIA A100,8,80,128,2048,7.68,$21.60\n",
        2.7,
    ),
    "oci": (
        "Shape,GPU,GPUs,GPU memory (GB),OCPUs,Price per GPU hour,Region\n"
        "BM.GPU4.8,A100,8,40,64,3.05,us-ashburn-1\n",
        3.05,
    ),
    "lambda": (
        "Instance,GPU,GPUs,VRAM/GPU,vCPUs,RAM,PRICE/GPU/HR*\n"
        "8x A100,NVIDIA A100 SXM,8,40 GB,124,1800 GiB,$1.29\n",
        1.29,
    ),
    "runpod": ("displayName,memoryInGb,securePrice,communityPrice\nA100 SXM,80,1.89,1.39\n", 1.89),
}


def test_clouds_are_compared_from_tables_as_they_print_them(tmp_path: Path) -> None:
    """Two jobs an hour of four GPU-hours: at 16 GPUs a job is 16 / (1 + 15 x 0.03) times as fast.

    So they take 2 x 4 x (1 + 15 x 0.03) = 11.6 GPUs, at the price of one each; where that is more than the
    budget they are narrower.
    """
    (tmp_path / "c.yaml").write_text(
        "gpu_types: {a100: {instance_type: p4d.24xlarge}}\n"
        "classes: [{name: c, arrivals_per_hour: 2.0, phases: [{size_gpu_hours: 4.0, "
        "speedup: {amdahl: {parallel_fraction: 0.97, max_gpus: 16}}}]}]\n"
    )
    command = [
        "plan",
        "--classes",
        str(tmp_path / "c.yaml"),
        "--budget",
        "28/h",
        "--cloud",
        ",".join(SHAPES),
        "-o",
        "json",
    ]
    for cloud, (text, _) in SHAPES.items():
        (tmp_path / f"{cloud}.txt").write_text(text)
        out = str(tmp_path / f"{cloud}.csv")
        flags = ["--cloud", cloud, "--as-of", "2026-11-20", "--out", out]
        done = CliRunner().invoke(
            app, ["prices", "import", "--from", "table", str(tmp_path / f"{cloud}.txt"), *flags]
        )
        assert done.exit_code == 0, done.output
        command += ["--prices", out]
    answer = json.loads(CliRunner().invoke(app, command).stdout)
    spent = {row["cloud"]: row["spend_usd_per_hour"] for row in answer["places"]}
    load = 2 * 4.0 * (1 + 15 * 0.03)
    assert spent == pytest.approx(
        {cloud: min(28.0, usd * load) for cloud, (_, usd) in SHAPES.items()}, rel=1e-6
    )
