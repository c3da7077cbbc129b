"""What a cluster still has on the simulated cloud: counted, and ended if it is the one that was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.backends.simulated import FileCloud
from boa_daemon.cli.common.cluster_resources import (
    count_resources,
    end_simulated,
    find_simulated,
    simulated_settings,
)
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock, an_instance_type
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.ports import Launched


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, and a user's settings that name the simulated cloud."""
    monkeypatch.chdir(tmp_path)
    for name in ("STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    (tmp_path / "config" / "boa").mkdir(parents=True)
    (tmp_path / "config" / "boa" / "boa.toml").write_text('[cloud]\nprovider = "simulated"\n')
    return tmp_path


@pytest.mark.parametrize("name", ["typo.toml", "./typo.toml", "sub/typo.toml", "/nowhere/boa.toml"])
def test_a_mistyped_settings_file_is_never_another_one(name: str) -> None:
    """`boa down --all --config typo.toml` would end what the user's own settings name."""
    with pytest.raises(InputError, match="there is no such settings file"):
        simulated_settings(Path(name))


def test_the_default_file_may_be_missing(folder: Path) -> None:
    """Then the user's settings hold; a provider that nobody named means AWS."""
    assert simulated_settings(Path("boa.toml")) is not None
    (folder / "own.toml").write_text('[cloud]\nprovider = "aws"\n')
    assert simulated_settings(Path("own.toml")) is None
    (folder / "config" / "boa" / "boa.toml").write_text("[budget]\nusd_per_hour = 3\n")
    assert simulated_settings(Path("boa.toml")) is None


def settings(folder: Path) -> Settings:
    """Return the settings of a site in a folder."""
    given = {"cloud": {"provider": "simulated"}, "daemon": {"state_dir": str(folder / "site")}}
    return Settings.model_validate(given)


def rented(folder: Path, count: int) -> list[str]:
    """Rent nodes in the site's cloud, and return their ids."""
    (folder / "site").mkdir(exist_ok=True)
    cloud = FileCloud(folder / "site" / "cloud.sqlite", ManualClock(1_800_000_000.0), durable=False)
    launched = cloud.launch(LaunchNodes(id="l", instance_type=an_instance_type(), count=count, reason=""))
    cloud.close()
    assert isinstance(launched, Launched)
    return [str(node) for node in launched.nodes]


def test_nodes_are_counted_and_ended_by_name_or_all(folder: Path) -> None:
    """The receipt says how many ended, and what is left of those that were meant."""
    site, names = settings(folder), rented(folder, 3)
    assert count_resources(site) == {"instance": 3, "job process": 0}
    assert sorted(found.id for found in find_simulated(site)) == sorted(names)
    one = end_simulated(site, [names[0], "not-ours"])
    assert (one.ended, one.left["instance"], one.is_clean) == (1, 0, True)
    assert count_resources(site)["instance"] == 2
    none = end_simulated(site, [])
    assert (none.ended, none.stopped_at) == (0, None)
    rest = end_simulated(site)
    assert (rest.ended, rest.left["instance"]) == (2, 0)
    assert find_simulated(site) == []


def test_a_site_that_never_was_is_not_made(folder: Path) -> None:
    """The error says which folder there is none of."""
    with pytest.raises(InputError, match=r"there is no state folder .*site: nothing was ever rented here"):
        end_simulated(settings(folder))
    assert not (folder / "site").exists()
