"""Origins of settings: each value is shown with the layer it comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from verbs import exit_code

from boa_daemon.daemon.settings.setting_layers import load_settings, setting_rows
from boa_daemon.daemon.settings.setting_origins import settings_with_origins


def test_the_origin_of_a_value_is_the_environment_the_file_or_the_default(tmp_path: Path) -> None:
    """The environment wins over the file, and its origin names the variable."""
    path = tmp_path / "boa.toml"
    path.write_text("[budget]\nusd_per_hour = 4.0\nmax_instances = 3\n")
    words = {"BOA_BUDGET_USD_PER_HOUR": "7"}
    rows = settings_with_origins(load_settings(path, environment=words), environment=words)
    found = {(row["section"], row["key"]): (row["value"], row["origin"]) for row in rows}
    assert found["budget", "usd_per_hour"] == (7.0, "environment: BOA_BUDGET_USD_PER_HOUR")
    assert found["budget", "max_instances"] == (3, str(path))
    assert found["budget", "usd_per_day_cap"][1] == "default"
    assert set(found) >= {(section, key) for section, key, _, _ in setting_rows() if section != "users.NAME"}


def test_boa_config_show_prints_set_values_and_all_values_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table has only values that were set; the JSON has all of them."""
    (tmp_path / "boa.toml").write_text("[budget]\nusd_per_hour = 4.0\n")
    monkeypatch.chdir(tmp_path)
    assert exit_code(monkeypatch, "config", "show") == 0
    said = capsys.readouterr().out
    assert "[budget] usd_per_hour" in said
    assert "tick_seconds" not in said
    assert exit_code(monkeypatch, "config", "show", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["settings"]) > 50
