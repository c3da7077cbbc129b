"""Layers of settings: which value counts, and which values are refused."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from pydantic import Field

from boa_daemon.daemon.settings.applied_settings import AppliedSettings, pointed_state, write_applied
from boa_daemon.daemon.settings.named_socket import named_socket
from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.errors import InputError
from boa_daemon.inputs.schema import Positive, Strict
from policies import plugins


def test_two_budgets_in_one_file_are_refused(tmp_path: Path) -> None:
    """The error names both keys and says what to do."""
    file = tmp_path / "boa.toml"
    file.write_text("[budget]\nusd_per_hour = 10.0\nusd_per_month = 7300.0\n")

    with pytest.raises(InputError, match="budget has both usd_per_hour and usd_per_month") as refused:
        load_settings(file, environment={})
    assert "Give one of them" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("in_file", "in_environment", "usd_per_hour"),
    [("usd_per_hour = 40.0", ("MONTH", "7300"), 10.0), ("usd_per_month = 7300.0", ("HOUR", "40"), 40.0)],
)
def test_a_budget_from_the_environment_replaces_the_one_of_the_file(
    tmp_path: Path, in_file: str, in_environment: tuple[str, str], usd_per_hour: float
) -> None:
    """One budget may be per hour and the other per month."""
    file = tmp_path / "boa.toml"
    file.write_text(f"[budget]\n{in_file}\n")
    name, value = in_environment
    loaded = load_settings(file, environment={f"BOA_BUDGET_USD_PER_{name}": value})

    assert loaded.settings.budget.mean_usd_per_hour == usd_per_hour


@pytest.mark.parametrize(
    ("section", "key", "name", "said"),
    [
        (
            "cloud",
            "provider",
            "simulatd",
            "[cloud] provider: 'simulatd' is not known. Did you mean 'simulated'?",
        ),
        (
            "cloud",
            "provider",
            "azure",
            "[cloud] provider: 'azure' is not known. Known: aws, local, simulated",
        ),
        ("engine", "name", "smm", "[engine] name: 'smm' is not known. Did you mean 'ssm'?"),
        ("workload", "policy", "bao", "no policy 'bao'. Did you mean 'boa'?"),
        ("workload", "placer", "lfw", "no placer 'lfw'"),
    ],
)
def test_an_unknown_plugin_name_is_refused_with_file_and_line(
    tmp_path: Path, section: str, key: str, name: str, said: str
) -> None:
    """An unknown name from the environment is refused without a file and line."""
    file = tmp_path / "boa.toml"
    file.write_text(f'[daemon]\ntick_seconds = 10.0\n[{section}]\n{key} = "{name}"\n')
    with pytest.raises(InputError) as refused:
        load_settings(file, environment={})
    assert str(refused.value).startswith(f"{file}:4: {said}")

    with pytest.raises(InputError, match=re.escape(said)):
        load_settings(None, environment={f"BOA_{section.upper()}_{key.upper()}": name})


def test_a_name_from_an_installed_plugin_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is accepted without loading the plugin."""
    file = tmp_path / "boa.toml"
    file.write_text('[cloud]\nprovider = "ours"\n[engine]\nname = "pbs"\n')
    with pytest.raises(InputError, match="'ours' is not known"):
        load_settings(file, environment={})
    monkeypatch.setattr(plugins, "names", {"boa.clouds": ("ours",), "boa.engines": ("pbs",)}.__getitem__)
    assert load_settings(file, environment={}).settings.engine.name == "pbs"


class _Pager(Strict):
    """Settings of a plug-in."""

    team: str = Field(description="team to page")
    repeat_minutes: Positive = Field(default=30.0, description="minutes between two pages")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('team = "ml"\nrepeat_minutes = "9"', r"boa\.toml:3: plugins.pager.repeat_minutes must be a number"),
        (
            'teem = "ml"',
            r"boa\.toml:2: unknown key 'teem' in plugins.pager. Did you mean 'team'",
        ),
        ("repeat_minutes = 9.0", r"boa\.toml:1: plugins.pager.team is missing"),
        ("team = true", r"boa\.toml:2: plugins.pager.team must be text; got true"),
    ],
)
def test_settings_of_a_plugin_are_checked_like_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, said: str
) -> None:
    """The plug-in's own model, in the same words, with file and line."""

    def page(_address: str, _sentence: str) -> None:
        """Page nobody."""

    page.Settings = _Pager  # type: ignore[attr-defined]
    monkeypatch.setattr(plugins, "names", lambda group: ("pager",) if group == "boa.notifiers" else ())
    monkeypatch.setattr(plugins, "load", lambda _group, _name: page)
    file = tmp_path / "boa.toml"
    file.write_text(f"[plugins.pager]\n{table}\n")
    with pytest.raises(InputError, match=said):
        load_settings(file, environment={})
    file.write_text('[plugins.pager]\nteam = "ml"\n')
    assert load_settings(file, environment={}).settings.plugins == {"pager": {"team": "ml"}}
    file.write_text('[plugins.pagr]\nteam = "ml"\n')
    with pytest.raises(InputError, match=r"boa\.toml:1: \[plugins\.pagr\]: no plug-in.*'pager'"):
        load_settings(file, environment={})


MISSPELT = {
    "a letter left out": ("BOA_BUDGT_USD_PER_DAY_CAP", "BOA_BUDGET_USD_PER_DAY_CAP"),
    "letters swapped": ("BOA_BUGDET_MAX_INSTANCES", "BOA_BUDGET_MAX_INSTANCES"),
    "a plural": ("BOA_CLOUDS_SPOT_MAX_USD_PER_HOUR", "BOA_CLOUD_SPOT_MAX_USD_PER_HOUR"),
    "without its section": ("BOA_USD_PER_DAY_CAP", "BOA_BUDGET_USD_PER_DAY_CAP"),
    "joined": ("BOA_BUDGETUSD_PER_DAY_CAP", "BOA_BUDGET_USD_PER_DAY_CAP"),
    "a point": ("BOA_BUDGET.USD_PER_DAY_CAP", "BOA_BUDGET_USD_PER_DAY_CAP"),
    "two signs in front": ("BOA__BUDGET_USD_PER_DAY_CAP", "BOA_BUDGET_USD_PER_DAY_CAP"),
    "two signs within": ("BOA_BUDGET__USD_PER_DAY_CAP", "usd_per_day_cap"),
    "the key": ("BOA_BUDGET_USD_PER_DY_CAP", "usd_per_day_cap"),
    "the section alone": ("BOA_BUDGET", "BOA_BUDGET_USD_PER_HOUR"),
    "a right": ("BOA_APIS_ADMINS", "BOA_API_ADMINS"),
    "a team": ("BOA_TEAMS_RED_USD_PER_DAY_CAP", "[teams] can be given in a file only"),
    "one team": ("BOA_TEAM_RED_USD_PER_DAY_CAP", "in a file only"),
    "a user": ("BOA_USER_BOB_MAX_JOBS", "in a file only"),
    "rights to secrets": ("BOA_SECRETS_WANDB", "[secrets] can be given in a file only"),
}


@pytest.mark.parametrize("how", MISSPELT)
def test_a_variable_that_was_to_state_a_limit_is_not_passed_over(tmp_path: Path, how: str) -> None:
    """The error names the variable, and the one that was meant."""
    (tmp_path / "boa.toml").write_text("[budget]\nusd_per_hour = 1.0\n")
    name, hint = MISSPELT[how]
    with pytest.raises(InputError, match=f"the environment variable {re.escape(name)} names no") as refused:
        load_settings(tmp_path / "boa.toml", environment={name: "5"})
    assert hint in str(refused.value.hint)


def test_variables_of_jobs_and_of_others_are_no_settings(tmp_path: Path) -> None:
    """A command in a job reads settings beside the job's variables, and people have their own."""
    (tmp_path / "boa.toml").write_text("[budget]\nusd_per_hour = 1.0\n")
    source = Path(__file__).parents[4] / "boa_daemon"
    files = [*source.glob("job/**/*.py"), *source.glob("engines/*.py"), *source.glob("api/*.py")]
    names = {name for file in files for name in re.findall(r"\bBOA_[A-Z_]*[A-Z]\b", file.read_text())}
    theirs = {"BOA_JOB_ID", "BOA_GPUS", "BOA_GATE", "BOA_GATE_HYBRID", "BOA_TOKEN", "BOA_IN_X", "BOA_HOME"}
    assert len(names) > 20
    load_settings(tmp_path / "boa.toml", environment=dict.fromkeys(names | theirs, "1"))


def test_relative_paths_of_a_volume_of_kubernetes_stay_where_they_are(tmp_path: Path) -> None:
    """Each change of the volume has a hidden folder of another name, to which the file is a link."""
    volume, folders = tmp_path / "etc", []
    volume.mkdir()
    for version in ("..2026_11_28_10_00_00.1", "..2026_11_28_11_00_00.2"):
        (volume / version).mkdir()
        (volume / version / "boa.toml").write_text('[daemon]\nstate_dir = "state"\n')
        (volume / "new").symlink_to(version)
        (volume / "new").rename(volume / "..data")
        if not (volume / "boa.toml").exists():
            (volume / "boa.toml").symlink_to("..data/boa.toml")
        folders.append(load_settings(volume / "boa.toml", environment={}).settings.daemon.state_dir)
        assert named_socket(volume / "boa.toml") == volume / "state" / "boa.sock"
    assert folders == [str(volume / "state")] * 2
    elsewhere = tmp_path / "boa.toml"
    dotfiles = tmp_path / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "boa.toml").write_text('[daemon]\nstate_dir = "state"\n')
    elsewhere.symlink_to("dotfiles/boa.toml")
    assert load_settings(elsewhere, environment={}).settings.daemon.state_dir == str(dotfiles / "state")


@pytest.mark.parametrize("place", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_settings_from_a_pipe_are_toml_and_start_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """`boa daemon --config <(sops --decrypt boa.toml)`; nothing is remembered under the pipe's name."""
    monkeypatch.chdir(tmp_path)
    reads, writes = os.pipe()
    os.write(writes, b'[daemon]\nstate_dir = "state"\n')
    os.close(writes)
    name = Path(place.format(reads))
    try:
        loaded = load_settings(name, environment={})
    finally:
        os.close(reads)
    assert loaded.settings.daemon.state_dir == str(tmp_path / "state")
    found = AppliedSettings(given={}, complete={}, files=(str(name),))
    write_applied(tmp_path / "state", found, name, points=True)
    assert pointed_state(name) is None
