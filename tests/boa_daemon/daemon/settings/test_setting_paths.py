"""Paths and signs that people write into settings: taken as meant, or refused with a line and a remedy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from boa_daemon.daemon.settings.named_socket import named_socket
from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.daemon.settings.settings_reload import SettingsReader
from boa_daemon.errors import InputError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, a folder with settings in it, and another working folder."""
    home, site, elsewhere = (tmp_path / name for name in ("home", "site", "elsewhere"))
    for each in (home, site, elsewhere):
        each.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(elsewhere)
    return tmp_path


MEANT = {
    '[daemon]\nstate_dir = "~/boa"': "home/boa",
    '[daemon]\nstate_dir = "~"': "home",
    '[daemon]\nstate_dir = "~/a b"': "home/a b",
    '[daemon]\nstate_dir = "state"': "site/state",
    '[daemon]\nstate_dir = "./state/"': "site/state",
    '[daemon]\nstate_dir = "stäte"': "site/stäte",
    '[daemon]\nstate_dir = "a b"': "site/a b",
    '[daemon]\nstate_dir = "100%"': "site/100%",
    '[daemon]\nstate_dir = "what?#"': "site/what?#",
    "[daemon]\nstate_dir = 'a\\b'": "site/a\\b",
    '[daemon]\nstate_dir = "cost$"': "site/cost$",
    '[daemon]\nstate_dir = "a~b"': "site/a~b",
}


@pytest.mark.parametrize("text", MEANT)
def test_a_path_is_where_it_was_meant(folder: Path, text: str) -> None:
    """From another working folder, for the daemon and for its clients alike."""
    file = folder / "site" / "boa.toml"
    file.write_text(text)
    assert load_settings(file, environment={}).settings.daemon.state_dir == str(folder / MEANT[text])
    assert named_socket(file) == folder / MEANT[text] / "boa.sock"


REFUSED = {
    '[daemon]\nstate_dir = ""': "Leave the key out",
    '[daemon]\nstate_dir = "$HOME/boa"': "settings have none",
    '[daemon]\nstate_dir = "${HOME}/boa"': "settings have none",
    '[daemon]\nstate_dir = "%h/boa"': "settings have none",
    '[daemon]\nstate_dir = "state "': "a space at an end",
    '[daemon]\nstate_dir = "state\\n"': "unseen sign",
    '[daemon]\nstate_dir = "C:\\boa"': "A backslash in double quotes",
    '[daemon]\nstate_dir = "~nobody-here/boa"': "the home of nobody here",
    '[daemon]\nstate_dir = "file:///var/boa"': "Write the path alone",
    '[daemon]\nsocket = ""': "Leave the key out",
    '[workload]\nclasses = ""': "Leave the key out",
    '[workload]\nclasses = "https://x.org/classes.yaml"': "Write the path alone",
    '[api]\ntokens = "$TOKENS"': "settings have none",
    '[cloud]\ncommitments = " c.toml"': "a space at an end",
    "budget:\n  usd_per_hour: 5": "no colon",
    "[budget]\nusd_per_hour: 5": "no colon",
    '{"budget": {"usd_per_hour": 5}}': "It looks like JSON",
    "```toml\n[budget]": "Markdown",
    "; the caps\n[budget]": "A comment begins with #",
    "// the caps\n[budget]": "A comment begins with #",
    "export BOA_BUDGET_USD_PER_HOUR=5": "Variables of a shell",
    # Python 3.15 reads TOML 1.1, in which an inline table may have several lines.
    **({} if sys.version_info >= (3, 15) else {"budget = {\n usd_per_hour = 5 }": "on one line"}),
    "[users.ann@x.org]\nmax_jobs = 3": "stands in quotes",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_only_a_shell_or_another_format_would_read_is_refused(folder: Path, text: str) -> None:
    """With file and line, once, and with what to write."""
    file = folder / "site" / "boa.toml"
    file.write_text(text)
    with pytest.raises(InputError) as refused:
        load_settings(file, environment={})
    said = str(refused.value)
    assert REFUSED[text] in said
    assert said.count(REFUSED[text]) == 1
    assert f"{file}:{1 if text[0] not in '[' or '@' in text else 2}: " in said


@pytest.mark.parametrize("key", ["prices", "secrets_file"])
def test_a_path_whose_default_is_empty_may_be_empty(folder: Path, key: str) -> None:
    """It was read as the folder of the settings."""
    file = folder / "site" / "boa.toml"
    section = '[cloud]\nprovider = "aws"' if key == "prices" else "[engine]"
    file.write_text(f'{section}\n{key} = ""\n')
    given = load_settings(file, environment={}).given
    assert given["cloud" if key == "prices" else "engine"][key] == ""


DATABASES = {
    "sqlite:///boa.sqlite": "sqlite:///{}/site/boa.sqlite",
    "sqlite:///sub/boa.sqlite": "sqlite:///{}/site/sub/boa.sqlite",
    "sqlite:///~/boa.sqlite": "sqlite:///{}/home/boa.sqlite",
    "sqlite:////var/lib/boa.sqlite": "sqlite:////var/lib/boa.sqlite",
    "sqlite:///old.sqlite": "sqlite:///{}/elsewhere/old.sqlite",
    "sqlite://": "sqlite://",
    "postgresql://boa@host/boa": "postgresql://boa@host/boa",
}


@pytest.mark.parametrize("url", DATABASES)
def test_a_sqlite_file_does_not_depend_on_the_working_folder(folder: Path, url: str) -> None:
    """Except one that is there already, which an earlier version has made."""
    (folder / "elsewhere" / "old.sqlite").touch()
    file = folder / "site" / "boa.toml"
    file.write_text(f'[daemon]\ndatabase = "{url}"\n')
    found = load_settings(file, environment={}).settings.daemon.database
    assert found == DATABASES[url].format(folder)


def test_variables_and_flags_know_the_home(folder: Path) -> None:
    """A shell does not complete `--state-dir=~/boa`, and systemd no variable."""
    environment = {"BOA_DAEMON_STATE_DIR": "~/boa"}
    found = load_settings(environment=environment, flags={"daemon.socket": "~/s"}).settings.daemon
    assert (found.state_dir, found.socket) == (str(folder / "home/boa"), str(folder / "home/s"))
    read = SettingsReader(None, {"daemon.state_dir": "~/boa"}, environment={})
    read()
    read.confirm()
    assert (folder / "home" / "boa" / "applied_settings.json").exists()
    with pytest.raises(InputError, match="settings have none"):
        load_settings(environment={"BOA_DAEMON_STATE_DIR": "$HOME/boa"})


def test_a_folder_called_by_the_sign_of_a_home_was_made_by_an_earlier_version(folder: Path) -> None:
    """What was spent stands there: in a new folder nothing would be counted. It is so for every writer."""
    file, old = folder / "site" / "boa.toml", folder / "elsewhere" / "~" / "boa"
    (folder / "site" / "~" / "boa").mkdir(parents=True)
    old.mkdir(parents=True)
    file.write_text('[daemon]\nstate_dir = "~/boa"\n')
    assert load_settings(file, environment={}).settings.daemon.state_dir == str(folder / "site/~/boa")
    assert named_socket(file) == folder / "site/~/boa/boa.sock"
    for environment, flags in (({"BOA_DAEMON_STATE_DIR": "~/boa"}, {}), ({}, {"daemon.state_dir": "~/boa"})):
        read = SettingsReader(None, flags, environment=environment)
        assert Path(read().daemon.state_dir or "").absolute() == old
    (old / "boa.sqlite").touch()
    environment = {"BOA_DAEMON_DATABASE": "sqlite:///~/boa/boa.sqlite"}
    assert (
        load_settings(environment=environment).settings.daemon.database == environment["BOA_DAEMON_DATABASE"]
    )


def test_of_two_sqlite_files_none_is_taken(folder: Path) -> None:
    """One has what was spent, and nobody but a person knows which; by a link they are one."""
    file = folder / "site" / "boa.toml"
    (folder / "site" / "boa.sqlite").touch()
    (folder / "elsewhere" / "boa.sqlite").touch()
    file.write_text('[daemon]\ndatabase = "sqlite:///boa.sqlite"\n')
    with pytest.raises(InputError, match="Write the path of the one that is meant") as refused:
        load_settings(file, environment={})
    assert f"{file}:2: " in str(refused.value)
    (folder / "elsewhere" / "boa.sqlite").unlink()
    (folder / "elsewhere" / "boa.sqlite").symlink_to(folder / "site" / "boa.sqlite")
    assert load_settings(file, environment={}).settings.daemon.database


@pytest.mark.parametrize(
    "name", ["DAEMON_STATE_DIR", "DAEMON_SOCKET", "API_TOKENS", "WORKLOAD_CLASSES", "CLOUD_COMMITMENTS"]
)
def test_a_variable_that_is_empty_names_no_path(name: str) -> None:
    """A compose file gives one for each variable that its host lacks; the daemon started with it before."""
    assert load_settings(environment={f"BOA_{name}": ""}).given == {}
