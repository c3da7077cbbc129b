"""`boa commit`, and commitments in `boa plan` and `boa simulate`."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from boa_daemon.cli import app
from boa_daemon.daemon.settings.config import WorkloadSettings
from boa_daemon.errors import InputError
from policies.errors import InfeasibleBudget

CLASSES = """
gpu_types: {a100: {instance_type: p4d.24xlarge}}
classes:
- name: c
  arrivals_per_hour: 2.0
  phases: [{size_gpu_hours: 2.0, speedup: {a100: {table: {1: 1.0, 2: 1.9, 4: 3.4, 8: 5.5}}}}]
"""
OFFERS = """
as_of = 2026-11-01
source = "us"
[[offers]]
name = "year"
kind = "family"
family = "p4d"
discount = 0.4
[[commitments]]
name = "ours"
kind = "family"
family = "p4d"
discount = 0.4
usd_per_hour = 4.0
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with classes, offers, and a trace of five days."""
    (tmp_path / "classes.yaml").write_text(CLASSES)
    (tmp_path / "offers.toml").write_text(OFFERS)
    rng, at, rows = Random(5), 0.0, []
    while at < 5 * 86400.0:
        rows.append(f"j{len(rows)},{at:.0f},c\n")
        at += rng.expovariate(2.0 / 3600.0)
    (tmp_path / "trace.csv").write_text("job_id,arrived_at_seconds,class_name\n" + "".join(rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def boa(*arguments: str) -> Result:
    """Run the command line; an error stays an exception."""
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "100"})


def document(*arguments: str) -> Any:
    """Return the JSON that a command prints."""
    result = boa(*arguments, "--json")
    assert result.exit_code == 0, result.exception
    return json.loads(result.stdout)


@pytest.mark.usefixtures("folder")
def test_commit_advises_from_the_load_of_a_plan() -> None:
    """The on-demand bill is the plan's spend, and the advised bill is at least the lower bound."""
    planned = document("plan", "--classes", "classes.yaml", "--budget", "14/h")
    (term,) = document("commit", "--offers", "offers.toml", "--classes", "classes.yaml", "--budget", "14/h")[
        "terms"
    ]

    assert term["likely"]["on_demand_usd_per_hour"] == pytest.approx(planned["mean_spend"])
    assert 0.01 < term["saved_fraction"] < 0.4
    assert term["lower_bound_usd_per_hour"] <= term["likely"]["advised_usd_per_hour"] * (1.0 + 1e-9)
    assert (term["low"]["load_factor"], term["high"]["load_factor"]) == (0.75, 1.25)
    assert term["commitments"][0]["break_even_use_fraction"] == pytest.approx(0.6)


def test_commit_tests_its_advice_on_the_rest_of_the_trace(folder: Path) -> None:
    """The best commitment in hindsight is never worse than the advised one."""
    (folder / "offers.toml").write_text(OFFERS.replace("0.4", "0.6"))
    found = document("commit", "--offers", "offers.toml", "--trace", "trace.csv", "--budget", "14/h")
    (proof,), (term,) = found["proof"], found["terms"]

    assert proof["best_usd_per_hour"] <= proof["advised_usd_per_hour"] * (1.0 + 1e-6)
    assert 0.8 <= proof["share_of_best_saving"] <= 1.0
    assert term["low"]["load_factor"] < 1.0 < term["high"]["load_factor"]


@pytest.mark.usefixtures("folder")
def test_the_proof_simulates_the_policy_of_the_site() -> None:
    """At 20 USD/h the default policy rents less and gets no commitment; policy `boa` rents more."""
    asked = ("commit", "--offers", "offers.toml", "--trace", "trace.csv", "--budget", "20/h")
    default, plan = document(*asked), document(*asked, "--policy", "boa")

    assert (default["policy"], plan["policy"]) == (WorkloadSettings().policy, "boa")
    assert default["proof"][0]["on_demand_usd_per_hour"] < 20.0 < plan["proof"][0]["on_demand_usd_per_hour"]
    assert default["terms"][0]["commitments"] == []
    assert plan["terms"][0]["commitments"] != []
    assert "under boa, it saves" in " ".join(boa(*asked, "--policy", "boa").stdout.split())
    for name in ("boa", "boa-paced"):
        assert isinstance(boa(*asked[:-1], "1/h", "--policy", name).exception, InfeasibleBudget)


def test_commit_advises_from_recorded_usage(folder: Path) -> None:
    """One machine runs always and one half of the time, so at a discount of 40 % only the first pays."""
    (folder / "usage.csv").write_text(
        "instance_type,launched_at,ended_at\np4d.24xlarge,0,7200\np4d.24xlarge,0,1800\np4d.24xlarge,3600,5400\n"
    )
    found = document("commit", "--offers", "offers.toml", "--usage", "usage.csv")

    assert found["terms"][0]["commitments"][0]["gpus"] == pytest.approx(8.0)
    assert found["proof"][0]["share_of_best_saving"] == pytest.approx(1.0)
    assert "Nothing was bought" in boa("commit", "--offers", "offers.toml", "--usage", "usage.csv").stdout


@pytest.mark.usefixtures("folder")
def test_a_plan_with_commitments_spends_the_budget_and_shortens_jobs() -> None:
    """Committed GPUs cost the plan nothing more."""
    flags = ("plan", "--classes", "classes.yaml", "--budget", "14/h")
    plain, free = document(*flags), document(*flags, "--commitments", "offers.toml")

    assert free["commitments"]["usd_per_hour"] == pytest.approx(14.0, rel=1e-6)
    assert free["commitments"]["committed_usd_per_hour"] == pytest.approx(4.0)
    assert free["mean_jct_hours"] < plain["mean_jct_hours"]
    assert "$4.00/h is paid anyway" in boa(*flags, "--commitments", "offers.toml").stdout


@pytest.mark.usefixtures("folder")
def test_a_simulation_bills_commitments_and_on_demand_use() -> None:
    """The mean completion time of jobs is shorter than without commitments."""
    flags = (
        "simulate",
        "--trace",
        "trace.csv",
        "--classes",
        "classes.yaml",
        "--budget",
        "14/h",
        "--bound",
        "plain",
    )
    plain, free = document(*flags), document(*flags, "--commitments", "offers.toml")
    bill = free["commitments"]

    assert bill["usd_per_hour"] == pytest.approx(4.0 + bill["on_demand_usd_per_hour"])
    covered = bill["used_usd_per_hour"] / 0.6
    assert covered + bill["on_demand_usd_per_hour"] == pytest.approx(
        free["mean_usd_per_simulated_hour"], rel=1e-4
    )
    assert free["mean_jct_hours"] < plain["mean_jct_hours"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("commit", "--offers", "offers.toml"), "no load is given"),
        (("commit", "--offers", "none.toml", "--usage", "u.csv"), "there is no such file"),
        (("commit", "--offers", "offers.toml", "--classes", "classes.yaml"), "no budget"),
        (
            ("commit", "--offers", "offers.toml", "--classes", "classes.yaml", "--budget", "gpus:4"),
            "in dollars",
        ),
        (
            ("plan", "--classes", "classes.yaml", "--budget", "gpus:4", "--commitments", "offers.toml"),
            "in dollars",
        ),
    ],
)
def test_missing_loads_files_and_budgets_are_refused(arguments: tuple[str, ...], said: str) -> None:
    """Each is an InputError with its reason."""
    error = boa(*arguments).exception

    assert isinstance(error, InputError)
    assert said in str(error)


def test_offers_that_cover_no_machine_are_refused(folder: Path) -> None:
    """The error names the machines."""
    (folder / "offers.toml").write_text(OFFERS.replace('"p4d"', '"g5"'))
    error = boa(
        "commit", "--offers", "offers.toml", "--classes", "classes.yaml", "--budget", "14/h"
    ).exception

    assert "no offer covers p4d.24xlarge (a100)" in str(error)
