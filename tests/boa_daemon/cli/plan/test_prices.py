"""`boa prices`: ages of prices, and a fresh price file for plans."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aws_fixtures import credentials
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.testing.fake_answers import price_entry
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import mocked

__all__ = ["credentials"]

CLASSES = """
gpu_types: {a100: {instance_type: p4d.24xlarge}}
classes: [{name: c, arrivals_per_hour: 1.0, phases: [{size_gpu_hours: 1.0, speedup: {table: {1: 1.0}}}]}]
"""


def saved(path: Path, day: str) -> None:
    """Write a saved price list with one price."""
    entry: dict[str, Any] = json.loads(price_entry("p4d.24xlarge", 16.0))
    path.write_text(json.dumps({"PriceList": [json.dumps(entry | {"publicationDate": day})]}))


def test_refreshed_prices_are_used_by_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan shows their day and source, and no longer warns of old prices."""
    monkeypatch.chdir(tmp_path)
    day = (datetime.now(UTC).date() - timedelta(days=3)).isoformat()
    saved(tmp_path / "list.json", day)
    (tmp_path / "classes.yaml").write_text(CLASSES)
    plan = ["plan", "--classes", "classes.yaml", "--budget", "9/h", "--json"]
    runner = CliRunner()
    answer = runner.invoke(app, ["prices", "refresh", "fresh.toml", "--from", "list.json", "--json"])
    old, fresh = runner.invoke(app, plan), runner.invoke(app, [*plan, "--prices", "fresh.toml"])

    (row,) = json.loads(answer.stdout)["prices"]
    assert (row["usd_per_hour"], row["as_of"], row["days_old"]) == (16.0, day, 3)
    assert row["usd_per_hour_before"] == pytest.approx(21.957642)
    assert "prices are older than 30 days (p4d.24xlarge: 2026-07-20)" in old.stderr.replace("\n", " ")
    assert "older" not in fresh.stderr
    (note,) = json.loads(fresh.stdout)["prices"]
    assert (note["usd_per_hour"], note["as_of"], note["source"]) == (16.0, day, "set in fresh.toml")


def test_every_planning_command_warns_of_old_prices(tmp_path: Path) -> None:
    """`commit`, `solve` and `frontier` each warn once."""
    (tmp_path / "classes.yaml").write_text(CLASSES)
    offers = 'as_of = 2026-11-01\nsource = "us"\n[[offers]]\nname = "o"\nkind = "family"\nfamily = "p4d"\n'
    (tmp_path / "offers.toml").write_text(f"{offers}discount = 0.4\n")
    file, money = str(tmp_path / "classes.yaml"), ("--budget", "9/h")
    for words in (
        ("commit", "--offers", str(tmp_path / "offers.toml"), "--classes", file, *money),
        ("solve", file, *money),
        ("frontier", file),
    ):
        said = CliRunner().invoke(app, list(words))
        assert said.exception is None
        assert said.stderr.replace("\n", " ").count("prices are older than 30 days") == 1


def test_prices_lists_the_age_of_every_sold_type() -> None:
    """A type that is no longer sold is left out."""
    rows = json.loads(CliRunner().invoke(app, ["prices", "--json"]).stdout)["prices"]

    assert all(row["days_old"] > 30 for row in rows if row["as_of"] == "2026-07-20")
    assert "p3.16xlarge" not in {row["instance_type"] for row in rows}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "x"], "--from is of boa prices refresh"),
        (["refresh", "x.csv"], "ends in .toml"),
        (["--refresh", "x.csv"], "ends in .toml"),
    ],
)
def test_wrong_flags_of_prices_are_refused(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each error says what is wrong, and no file is written."""
    monkeypatch.chdir(tmp_path)
    error = CliRunner().invoke(app, ["prices", *arguments]).exception

    assert isinstance(error, InputError)
    assert said in str(error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("credentials")
def test_refresh_asks_the_pricing_api_for_every_sold_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The price is as of today, and the settings give the region."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boa.toml").write_text(
        '[cloud]\nprovider = "aws"\nregion = "us-east-1"\ninstance_types = ["g5.xlarge"]\n'
    )
    with mocked(FakeCloud(time.time, Terms(list_prices={"g5.xlarge": 0.5}))):
        answer = CliRunner().invoke(app, ["prices", "refresh", "fresh.toml", "--json"])
    assert answer.exit_code == 0, answer.exception
    rows = {row["instance_type"]: row for row in json.loads(answer.stdout)["prices"]}

    assert (rows["g5.xlarge"]["usd_per_hour"], rows["g5.xlarge"]["days_old"]) == (0.5, 0)
    assert set(rows) <= {entry.name for entry in Catalog.load().select()}
    assert "# From the AWS Pricing API, us-east-1." in (tmp_path / "fresh.toml").read_text()


def test_the_flag_of_before_refreshes_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that moves works for one release, and says the new one."""
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "list.json", "2026-11-01")
    now, before = (
        CliRunner().invoke(app, ["prices", *words, "fresh.toml", "--from", "list.json", "--json"])
        for words in (["refresh"], ["--refresh"])
    )
    assert before.stdout == now.stdout
    assert "boa prices --refresh FILE is now boa prices refresh FILE" in before.stderr
