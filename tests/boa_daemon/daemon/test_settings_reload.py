"""Settings that are read again: what a daemon that runs may be told, and what it says of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.settings_reload import SettingsReader, keep_observe_mode, keys_needing_restart
from boa_daemon.errors import InputError


def test_a_file_that_is_gone_is_not_taken_for_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever set a budget of 2 dollars does not get the default because the file is away for a moment."""
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


def test_what_counts_from_the_next_start_is_named() -> None:
    """Where machines come from is settled at the start; what they may cost is not."""
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


def test_a_daemon_that_only_looks_goes_on_looking() -> None:
    """Its cloud renews no leases: to act needs a new start, and is named with what waits for one."""
    old = Settings.model_validate({"daemon": {"observe": True}})
    new = Settings.model_validate({"daemon": {"tick_seconds": 5.0}})
    assert keys_needing_restart(old, new, is_cloud_fixed=False) == ["daemon.observe"]
    assert keep_observe_mode(old, new).daemon.observe
    assert keep_observe_mode(old, new).daemon.tick_seconds == 5.0
