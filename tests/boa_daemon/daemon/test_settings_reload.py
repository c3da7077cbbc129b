"""Reloading of settings: which changes a running daemon takes, and which need a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.settings_reload import SettingsReader, keep_observe_mode, keys_needing_restart
from boa_daemon.errors import InputError


def test_a_missing_settings_file_is_an_error_and_not_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget from the file is not replaced by the default while the file is missing."""
    monkeypatch.chdir(tmp_path)
    file = Path("boa.toml")
    file.write_text("[budget]\nusd_per_hour = 2.0\n")
    read = SettingsReader(None, {})
    assert read().budget.usd_per_hour == 2.0
    file.unlink()
    with pytest.raises(InputError, match=r"boa\.toml was read before.*Put it back"):
        read()
    file.write_text("[budget]\nusd_per_hour = 3.0\n")
    assert read().budget.usd_per_hour == 3.0


def test_changes_that_need_a_restart_are_listed() -> None:
    """A new provider or state folder needs a restart; a new budget does not."""
    old = Settings.model_validate({"budget": {"usd_per_hour": 2.0}})
    new = Settings.model_validate(
        {
            "budget": {"usd_per_hour": 3.0},
            "cloud": {"provider": "aws", "instance_types": ["p4d.24xlarge"]},
            "daemon": {"state_dir": "elsewhere", "tick_seconds": 5.0},
        }
    )
    assert keys_needing_restart(old, new, is_cloud_fixed=False) == ["cloud.provider", "daemon.state_dir"]
    assert "cloud.instance_types" in keys_needing_restart(new, old, is_cloud_fixed=True)
    assert keys_needing_restart(old, old, is_cloud_fixed=False) == []


def test_a_reload_does_not_end_observe_mode() -> None:
    """An observing daemon renews no leases, so it needs a restart to act."""
    old = Settings.model_validate({"daemon": {"observe": True}})
    new = Settings.model_validate({"daemon": {"tick_seconds": 5.0}})
    assert keys_needing_restart(old, new, is_cloud_fixed=False) == ["daemon.observe"]
    assert keep_observe_mode(old, new).daemon.observe
    assert keep_observe_mode(old, new).daemon.tick_seconds == 5.0
