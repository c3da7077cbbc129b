"""Reloading of settings: which changes a running daemon takes, and that no limit gives way unasked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from boa_daemon.daemon.settings.applied_settings import FILE_NAME
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.settings_reload import (
    LooserLimits,
    SettingsReader,
    keep_observe_mode,
    keys_needing_restart,
)
from boa_daemon.errors import InputError

REAL = """\
# The site of the vision group.
[budget]
usd_per_hour = 40.0
usd_per_day_cap = 1200.0   # never more
usd_per_month_cap = 25000
usd_per_hour_ceiling = 90
max_instances = 16

[cloud]
instance_types = ["g5.xlarge", "p4d.24xlarge"]
boot_seconds = 2.0

[engine]
own_user = true

[daemon]
tick_seconds = 30
state_dir = "state"

[api]
admins = ["ann"]

[users.bob]
max_jobs = 3
usd_per_day_cap = 20.0

[teams.vision]
members = ["bob", "eve"]
usd_per_day_cap = 150
share = 1.0

[secrets]
"env:WANDB" = ["team:vision"]
"env:*" = ["ann"]
"""
Spoil = Callable[[Path], object]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a settings file, and a user's state folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Path("boa.toml").write_text(REAL)
    return tmp_path


def a_reader(text: str = REAL) -> SettingsReader:
    """Return the reader of a daemon that applied a file."""
    Path("boa.toml").write_text(text)
    read = SettingsReader(None, {})
    read()
    read.confirm()
    return read


def limits(settings: Settings) -> list[object]:
    """Return what must never be looser than in the file above, as (value, most) where it is a number."""
    budget, bob, vision = settings.budget, settings.users.get("bob"), settings.teams.get("vision")
    return [
        (budget.usd_per_day_cap or 1e9) <= 1200.0,
        (budget.usd_per_month_cap or 1e9) <= 25000.0,
        (budget.usd_per_hour_ceiling or 1e9) <= 90.0,
        (budget.max_instances or 1e9) <= 16,
        set(settings.api.admins) <= {"ann"},
        bob is not None and bob.max_jobs is not None and bob.max_jobs <= 3,
        bob is not None and (bob.usd_per_day_cap or 1e9) <= 20.0,
        vision is not None and (vision.usd_per_day_cap or 1e9) <= 150.0,
        vision is not None and {"bob", "eve"} <= set(vision.members),
        {"env:WANDB", "env:*"} <= settings.secrets.keys(),
        settings.cloud.instance_types == ["g5.xlarge", "p4d.24xlarge"],
        settings.daemon.state_dir is not None and settings.daemon.state_dir.endswith("state"),
    ]


def test_no_prefix_of_a_settings_file_loosens_a_limit_at_a_reload_or_a_restart() -> None:
    """The file is cut short at every byte; the limits in force are those of before, or tighter."""
    read = a_reader()
    for cut in range(len(REAL)):
        Path("boa.toml").write_text(REAL[:cut])
        assert all(limits(SettingsReader(None, {})())), REAL[:cut]
        try:
            found = read()
        except InputError:
            continue
        assert all(limits(found)), REAL[:cut]


def json_of(state: Path) -> dict[str, object]:
    """Return what a state folder says was given."""
    return dict(json.loads((state / FILE_NAME).read_text())["given"])


def replace_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("/mnt/is/gone/boa.toml")


def config_map_that_is_gone(path: Path) -> None:
    """Leave the links that Kubernetes makes, without the folder of the present version."""
    path.unlink()
    path.with_name("..data").symlink_to("..2026_11_29")
    path.symlink_to("..data/boa.toml")


SPOILS: dict[str, Spoil] = {
    "empty": lambda path: path.write_text(""),
    "only comments": lambda path: path.write_text("# nothing\n"),
    "only spaces": lambda path: path.write_text("  \n\n"),
    "missing": lambda path: path.unlink(),
    "a folder": replace_by_a_folder,
    "a link to a mount that is gone": link_to_nothing,
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link to a device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "a config map of Kubernetes that is gone": config_map_that_is_gone,
    "zero bytes at its end": lambda path: path.write_bytes(REAL.encode() + bytes(100)),
    "a template that was not filled in": lambda path: path.write_text(REAL.replace("1200.0", "{{ cap }}")),
    "a section given twice": lambda path: path.write_text(REAL + "[budget]\nusd_per_day_cap = 9000\n"),
    "zeros, as after a crash": lambda path: path.write_bytes(b"\0" * len(REAL)),
    "UTF-16": lambda path: path.write_text(REAL, encoding="utf-16"),
    "latin-1": lambda path: path.write_bytes(REAL.replace("vision group", "Größe").encode("latin-1")),
    "old Mac line ends": lambda path: path.write_bytes(REAL.replace("\n", "\r").encode()),
    "a renamed section": lambda path: path.write_text(REAL.replace("[budget]", "[money]")),
    "a misspelt section": lambda path: path.write_text(REAL.replace("[budget]", "[budgets]")),
    "a misspelt key": lambda path: path.write_text(
        REAL.replace("usd_per_day_cap = 1200", "usd_per_dy_cap = 1")
    ),
    "a section commented out": lambda path: path.write_text(REAL.replace("[budget]", "#[budget]")),
    "half a string": lambda path: path.write_text(REAL.replace('"ann"]', '"an')),
    "another user": lambda path: path.write_text(REAL.replace("[users.bob]", "[users.rob]")),
    "a team renamed": lambda path: path.write_text(REAL.replace("teams.vision", "teams.visions")),
    "a cap in quotes": lambda path: path.write_text(REAL.replace("1200.0", '"1200.0"')),
    "a cap with a comma": lambda path: path.write_text(REAL.replace("1200.0", "1,200.0")),
    "a cap that is not finite": lambda path: path.write_text(REAL.replace("1200.0", "inf")),
    "a cap raised": lambda path: path.write_text(REAL.replace("1200.0", "12000.0")),
    "a merge conflict": lambda path: path.write_text("<<<<<<< HEAD\n" + REAL),
    "a lock file of an editor": lambda path: path.write_text("root@host.12345:1700000000"),
}


@pytest.mark.parametrize("how", SPOILS)
def test_a_spoilt_file_loosens_nothing(how: str) -> None:
    """At a reload the settings stay, at a restart those that were applied last; the note says why."""
    before = a_reader()
    there = Settings.model_validate(json_of(Path("state")))
    SPOILS[how](Path("boa.toml"))
    with pytest.raises(InputError):
        before()
    assert "the settings stay as they were" in before.note
    again = SettingsReader(None, {})
    assert again() == there
    assert "the settings that the last daemon applied stay in force" in again.note
    again.confirm()
    assert Settings.model_validate(json_of(Path("state"))) == there


@pytest.mark.parametrize(
    "text", ["\ufeff" + REAL, REAL.replace("\n", "\r\n"), REAL + "\n\n# end", REAL.replace("16", "15")]
)
def test_a_file_that_says_the_same_or_less_is_taken(text: str) -> None:
    """A byte order mark, CRLF, comments, and a lower limit."""
    read = a_reader()
    Path("boa.toml").write_bytes(text.encode())
    assert (read().budget.max_instances or 99) <= 16
    read.confirm()
    assert read.note == ""
    assert SettingsReader(None, {})().budget.usd_per_day_cap == 1200.0


def test_an_unreadable_file_loosens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions that an editor changed: at a reload and at a restart."""
    read = a_reader()

    def refused(*_args: object, **_more: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as disk:
        disk.setattr("boa_daemon.inputs.document_file._read_bytes", refused)
        with pytest.raises(InputError, match="cannot be read: Permission denied"):
            read()


def test_layers_and_variables_that_drop_away_loosen_nothing(folder: Path) -> None:
    """A user's file and a variable of the environment give limits, and are gone at the next start."""
    config = folder / "config" / "boa"
    config.mkdir(parents=True)
    (config / "boa.toml").write_text("[budget]\nmax_instances = 2\n")
    Path("boa.toml").write_text('[daemon]\nstate_dir = "state"\n')
    first = SettingsReader(None, {}, environment={"BOA_BUDGET_USD_PER_DAY_CAP": "9"})
    first()
    first.confirm()
    without_variable = SettingsReader(None, {}, environment={})
    assert without_variable().budget.usd_per_day_cap == 9.0
    assert "[budget] usd_per_day_cap: 9.0 -> 300.0" in without_variable.note
    (config / "boa.toml").unlink()
    without_file = SettingsReader(None, {}, environment={"BOA_BUDGET_USD_PER_DAY_CAP": "9"})
    assert without_file().budget.max_instances == 2
    assert "[budget] max_instances: 2 -> 16" in without_file.note


def test_a_refusal_says_what_would_change_and_how_to_have_it() -> None:
    """Old and new value; a command or a key with the code consents, and only to these changes."""
    read = a_reader()
    Path("boa.toml").write_text(REAL.replace("1200.0", "1300.0"))
    with pytest.raises(LooserLimits, match=r"\[budget\] usd_per_day_cap: 1200\.0 -> 1300\.0") as refused:
        read()
    assert "boa config apply --yes" in str(refused.value)
    code = read.pending().code
    assert code in str(refused.value)
    Path("boa.toml").write_text(
        REAL.replace("1200.0", "1400.0").replace("[daemon]", f'[daemon]\naccept_changes = "{code}"')
    )
    with pytest.raises(LooserLimits):
        read()
    Path("boa.toml").write_text(
        REAL.replace("1200.0", "1300.0").replace("[daemon]", f'[daemon]\naccept_changes = "{code}"')
    )
    assert read().budget.usd_per_day_cap == 1300.0
    read.confirm()
    Path("boa.toml").write_text(REAL.replace("1200.0", "1500.0"))
    assert read(consent=read.pending().code).budget.usd_per_day_cap == 1500.0


def test_a_missing_settings_file_is_an_error_and_not_the_defaults() -> None:
    """A budget from the file is not replaced by the default while the file is missing."""
    file = Path("boa.toml")
    file.write_text("[budget]\nusd_per_hour = 2.0\n")
    read = SettingsReader(None, {})
    assert read().budget.usd_per_hour == 2.0
    read.confirm()
    file.unlink()
    with pytest.raises(InputError, match=r"boa\.toml was read before.*Put it back"):
        read()
    file.write_text("[budget]\nusd_per_hour = 3.0\n")
    assert read().budget.usd_per_hour == 3.0


def test_a_file_that_is_put_right_after_a_start_without_it_is_taken() -> None:
    """The files of the last daemon are remembered from the root, and `./boa.toml` is read from here."""
    a_reader()
    Path("boa.toml").write_text("[budget\n")
    read = SettingsReader(None, {})
    read()
    read.confirm()
    assert read.note
    Path("boa.toml").write_text(REAL.replace("= 40.0", "= 30.0"))
    assert read().budget.usd_per_hour == 30.0
    assert read.note == ""


def test_a_file_that_breaks_before_any_daemon_ran_is_an_error() -> None:
    """Nothing was applied, so there is nothing to go on with."""
    Path("boa.toml").write_text("[budget\n")
    with pytest.raises(InputError, match="not valid TOML"):
        SettingsReader(None, {})()


ELSEWHERE = REAL.replace('"state"', '"elsewhere"')


def _moved() -> None:
    Path("state").rename("elsewhere")
    Path("boa.toml").write_text(ELSEWHERE)


def _through_a_variable() -> None:
    Path("boa.toml").write_text(REAL.replace('state_dir = "state"\n', ""))


ANOTHER_FOLDER: dict[str, tuple[Callable[[], object], dict[str, str], bool]] = {
    "another name": (lambda: Path("boa.toml").write_text(ELSEWHERE), {}, True),
    "another name, and looser": (
        lambda: Path("boa.toml").write_text(ELSEWHERE.replace("1200.0", "9000.0")),
        {},
        True,
    ),
    "the folder was moved": (_moved, {}, False),
    # Two daemons by one file, each with a folder of its own.
    "a variable": (_through_a_variable, {"BOA_DAEMON_STATE_DIR": "elsewhere"}, False),
}
"""How another state folder comes to be named, with what environment, and whether consent is needed."""


@pytest.mark.parametrize(("change", "environment", "is_refused"), ANOTHER_FOLDER.values(), ids=ANOTHER_FOLDER)
def test_another_state_folder_forgets_nothing(
    change: Callable[[], object], environment: dict[str, str], is_refused: bool
) -> None:
    """A new folder knows neither limits nor what was spent: the daemon stays in the old one unless asked."""
    a_reader()
    change()
    read = SettingsReader(None, {}, environment=environment)
    settings = read()
    stayed = (settings.daemon.state_dir or "").endswith("state")
    assert (stayed, "would be forgotten" in read.note) == (is_refused, is_refused)
    assert settings.budget.usd_per_day_cap == 1200.0
    assert not is_refused or read.pending().needs_consent


def test_a_wrong_database_can_be_taken_back_without_consent() -> None:
    """A database that was never opened is not among the limits in force."""
    a_reader()
    Path("boa.toml").write_text(REAL.replace("[api]", 'database = "sqlite:///wrong.sqlite"\n[api]'))
    wrong = SettingsReader(None, {})
    assert wrong().daemon.database
    wrong.confirm(is_opened=False)
    wrong.save()
    Path("boa.toml").write_text(REAL)
    again = SettingsReader(None, {})
    assert again().daemon.database is None
    assert again.note == ""
    again.confirm()
    # One that was opened is.
    Path("boa.toml").write_text(REAL.replace("[api]", 'database = "sqlite:///right.sqlite"\n[api]'))
    right = SettingsReader(None, {})
    right()
    right.confirm()
    Path("boa.toml").write_text(REAL)
    assert SettingsReader(None, {})().daemon.database == f"sqlite:///{Path('right.sqlite').absolute()}"


def test_a_state_folder_whose_disk_is_not_mounted_stops_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was spent and what runs is on the disk: nothing begins anew in the bare folder below it."""
    mounted = {str(folder / "disk"), "/"}
    monkeypatch.setattr("os.path.ismount", lambda path: str(path) in mounted)
    on_disk = REAL.replace('"state"', '"disk/boa/state"')
    a_reader(on_disk)
    (folder / "disk").rename(folder / "away")
    (folder / "disk").mkdir()
    mounted.remove(str(folder / "disk"))
    # Another daemon of this user, which tidies up, does not forget it.
    Path("other.toml").write_text(REAL.replace('"state"', '"other"'))
    other = SettingsReader(Path("other.toml"), {})
    other()
    other.confirm()
    with pytest.raises(InputError, match=r"not mounted.*Mount it"):
        SettingsReader(None, {})()
    assert not (folder / "disk" / "boa").exists()
    # The disk comes back.
    (folder / "disk").rmdir()
    (folder / "away").rename(folder / "disk")
    mounted.add(str(folder / "disk"))
    assert SettingsReader(None, {})().budget.usd_per_day_cap == 1200.0
    # Who wants to begin anew says so.
    (folder / "disk").rename(folder / "away")
    mounted.remove(str(folder / "disk"))
    SettingsReader(None, {}).accept()
    assert SettingsReader(None, {})().budget.usd_per_day_cap == 1200.0


def test_limits_in_force_that_cannot_be_read_stop_the_start() -> None:
    """Nobody knows which limits were in force; the error names the remedy, which writes the file anew."""
    a_reader()
    (Path("state") / FILE_NAME).write_text("{")
    with pytest.raises(InputError, match="boa config apply --yes"):
        SettingsReader(None, {})()
    SettingsReader(None, {}).accept()
    assert SettingsReader(None, {})().budget.usd_per_day_cap == 1200.0


def test_the_applied_settings_are_for_their_owner_only() -> None:
    """Addresses of webhooks are secrets."""
    a_reader()
    assert (Path("state") / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_a_full_disk_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that cannot be written down stay in force, and are written when there is room."""

    def full(*_args: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("boa_daemon.job.whole_files.write_whole", full)
        read = a_reader()
    assert not (Path("state") / FILE_NAME).exists()
    read.save()
    assert (Path("state") / FILE_NAME).exists()


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
