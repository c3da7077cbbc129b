"""`boa init`: its answers make settings that load, classes that plan and a job that is valid."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from typer.testing import CliRunner
from verbs import exit_code

from boa_daemon.cli import app
from boa_daemon.cli.plan.init import CloudName, JobOwners, RentalMarket
from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.inputs.catalog import Catalog


def test_the_default_answers_make_a_working_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings have a monthly budget and cap, the job passes `--check`, and the classes plan."""
    found = CliRunner().invoke(app, ["init", "--folder", str(tmp_path)], input="\n" * 5)
    assert found.exit_code == 0, found.output
    assert "p5.48xlarge" in found.output
    settings = load_settings(tmp_path / "boa.toml").settings
    assert (settings.budget.usd_per_month, settings.budget.usd_per_month_cap) == (2000.0, 2200.0)
    assert "default" in Planner(settings).classes
    monkeypatch.chdir(tmp_path)
    assert exit_code(monkeypatch, "submit", "hello.yaml", "--check") == 0
    assert exit_code(monkeypatch, "plan", "--classes", "classes.yaml", "--budget", "2000/month") == 0


@pytest.mark.parametrize(
    ("market", "whose", "where"), list(itertools.product(RentalMarket, JobOwners, CloudName))
)
def test_every_choice_makes_settings_that_load(
    market: RentalMarket, whose: JobOwners, where: CloudName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flags answer the questions; two machines with one GPU type make one entry of the classes."""
    words = (
        "--gpus",
        "g5.xlarge, g5.12xlarge,p4d.24xlarge",
        "--usd-per-month",
        "500",
        "--folder",
        str(tmp_path),
    )
    assert exit_code(monkeypatch, "init", *words, "--market", market, "--whose", whose, "--where", where) == 0
    settings = load_settings(tmp_path / "boa.toml").settings
    assert (settings.cloud.market, settings.cloud.provider) == (market, where)
    assert settings.engine.shared_account is (whose is JobOwners.everybodys and where is not CloudName.aws)
    assert settings.cloud.instance_types == ["g5.xlarge", "g5.12xlarge", "p4d.24xlarge"]
    is_warm = where is CloudName.aws and market is not RentalMarket.spot
    assert settings.cloud.warm_pool_nodes == (1 if is_warm else 0)


@pytest.mark.parametrize(("usd_per_month", "nodes"), [(50, 1), (2000, 3), (25000, 34)])
def test_a_new_site_on_aws_keeps_as_many_nodes_stopped_as_its_budget_rents(
    usd_per_month: int, nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A g5.xlarge costs 1.006 USD/hour; the number is a limit, and one node is always permitted."""
    words = ("--gpus", "g5.xlarge", "--usd-per-month", str(usd_per_month), "--folder", str(tmp_path))
    words += ("--market", "on-demand", "--whose", "mine", "--where", "aws")
    assert exit_code(monkeypatch, "init", *words) == 0
    assert load_settings(tmp_path / "boa.toml").settings.cloud.warm_pool_nodes == nodes


def test_existing_files_are_kept_without_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --force they are replaced."""
    (tmp_path / "boa.toml").write_text("mine")
    words = ("init", "--gpus", "g5.xlarge", "--usd-per-month", "5", "--folder", str(tmp_path))
    words += ("--market", "spot", "--whose", "mine", "--where", "local")
    assert exit_code(monkeypatch, *words) == 2
    assert "boa.toml is there already" in capsys.readouterr().err
    assert (tmp_path / "boa.toml").read_text() == "mine"
    assert exit_code(monkeypatch, *words, "--force") == 0
    assert (tmp_path / "boa.toml").read_text() != "mine"


def test_a_family_or_gpu_type_stands_for_its_types_and_typos_are_asked_again(tmp_path: Path) -> None:
    """`g5, a100` selects the types with a known price."""
    answers = "g5.xlagre\ng5, a100\n700\nspto\nspot\nmine\nlocal\n"
    found = CliRunner().invoke(app, ["init", "--folder", str(tmp_path)], input=answers)
    assert found.exit_code == 0, found.output
    assert "Did you mean 'g5.xlarge'?" in found.output
    assert (
        "'spto' is none of on-demand, spot, spot-then-on-demand, planned. Did you mean 'spot'?"
        in found.output
    )
    assert "vCPUs of a quota" in found.output
    settings = load_settings(tmp_path / "boa.toml").settings
    catalog = Catalog.load()
    kinds = [*catalog.select(family="g5"), *catalog.select(gpu_type="a100")]
    assert settings.cloud.instance_types == [kind.name for kind in kinds if kind.usd_per_hour is not None]
    assert settings.cloud.market == "spot"
    assert "default" in Planner(settings).classes
