"""`boa uninstall` leaves nothing of BOA behind, and touches no other file and no running instance unasked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from verbs import exit_code

from boa_daemon.cli.operate import uninstall as verb
from boa_daemon.daemon.loop.assembly import open_daemon
from boa_daemon.daemon.loop.recovery import recover
from boa_daemon.daemon.loop.systemd import UNIT
from boa_daemon.daemon.service.installation import installed_parts, take_away
from boa_daemon.daemon.settings.applied_settings import AppliedSettings, write_applied
from boa_daemon.daemon.settings.daemon_paths import DaemonPaths, daemon_paths
from boa_daemon.daemon.settings.setting_layers import load_settings

SETTINGS = '[daemon]\nstate_dir = "state"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with the traces of a daemon, and folders of a user of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "user" / name.lower()))
    Path("boa.toml").write_text(SETTINGS)
    state = tmp_path / "state"
    (state / "backups").mkdir(parents=True)
    (state / "jobs" / "j-1").mkdir(parents=True)
    for name in ("boa.sqlite", "boa.sqlite-wal", "next_job", "daemon.lock", "backups/1.sqlite", "run.log"):
        (state / name).write_text("x")
    write_applied(state, AppliedSettings(given={}, complete={}), tmp_path / "boa.toml", points=True)
    return tmp_path


def answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> dict[str, object]:
    """Return the JSON answer of the command."""
    assert exit_code(monkeypatch, "uninstall", *words, "--folder", "no-units", "--json") == 0
    return dict(json.loads(capsys.readouterr().out))


def files(folder: Path) -> set[str]:
    """Return every file and folder below a folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_without_yes_nothing_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The parts are listed with their sizes."""
    before = files(folder)
    found = answer(monkeypatch, capsys)
    assert not found["is_done"]
    assert {"database", "backups", "jobs", "state", "folder"} <= {part["kind"] for part in found["parts"]}
    assert (
        files(folder) - {"state/cloud.sqlite", "state/cloud.sqlite-wal", "state/cloud.sqlite-shm"} == before
    )


def test_with_yes_nothing_is_left_but_the_project_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """State, backups, pointer, user's settings and cache go; with --settings the project's file too."""
    for name in ("config/boa", "cache/boa/tasks"):
        (folder / "user" / name).mkdir(parents=True)
    (folder / "user/config/boa/boa.toml").write_text("[budget]\nusd_per_hour = 1.0\n")
    found = answer(monkeypatch, capsys, "--yes")
    assert found["is_done"]
    assert found["kept"] == ["boa.toml"]
    of_the_user = {"user", "user/state", "user/config", "user/cache"}
    assert files(folder) - of_the_user == {"boa.toml"}
    answer(monkeypatch, capsys, "--yes", "--settings")
    assert files(folder) - of_the_user == set()


@pytest.mark.parametrize("provider", ["simulated", "local"])
def test_what_a_daemon_and_a_recovery_made_goes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], provider: str
) -> None:
    """A daemon with a gate ticks, and its database is damaged, lost and recovered: no name is forgotten."""
    shutil.rmtree(folder / "state")
    (folder / "boa.toml").write_text(
        f'{SETTINGS}[cloud]\nprovider = "{provider}"\n[gate]\nalways_on = true\n'
    )
    settings = load_settings().settings
    daemon = open_daemon(settings)
    assert daemon.gate is not None
    daemon.gate.keep()
    assert daemon.tick() is not None
    daemon.close()
    there = daemon_paths(settings)
    there.database.write_bytes(b"no database" * 1000)
    Path(f"{there.database}-wal").touch()
    recover(settings)
    there.database.unlink()
    Path(f"{there.database}-wal").touch()
    recover(settings)
    assert {"gate.secret", "boa.lost-wal"} <= files(folder / "state")
    answer(monkeypatch, capsys, "--yes")
    assert files(folder / "state") == set()


@pytest.mark.parametrize(
    "name",
    [
        "gate.secret", "boa.recovering", "boa.recovering-wal", "boa.lost-wal", "boa.lost-shm", "next_job.new",
        "last_state.new", ".applied_settings.json.x7k2p9qa", ".local.json.4711", ".ssm.json.4711",
        "boa.unreadable-1700000000-wal", "boa.sqlite.leader",
    ],
)  # fmt: skip
def test_what_a_killed_process_left_goes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Secrets, databases that were set aside, and files that were to replace others."""
    (folder / "state" / name).write_text("x")
    answer(monkeypatch, capsys, "--yes")
    assert not (folder / "state").exists()


@pytest.mark.parametrize("name", ["code", "jobs.new", ".jobs.mine", "lost", "boa.toml.bak", "data"])
def test_what_only_looks_like_boas_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A state folder in a project has folders of the project beside BOA's."""
    (folder / "state" / name).mkdir()
    (folder / "state" / name / "train.py").write_text("mine")
    answer(monkeypatch, capsys, "--yes")
    assert files(folder / "state") == {name, f"{name}/train.py"}


def test_what_is_not_of_boa_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A state folder may be any folder; a link in it is removed, and what it points to is not."""
    (folder / "precious").mkdir()
    (folder / "precious/model.pt").write_text("weights")
    (folder / "state/notes.txt").write_text("mine")
    (folder / "state/jobs/j-1/data").symlink_to(folder / "precious")
    answer(monkeypatch, capsys, "--yes")
    assert (folder / "precious/model.pt").read_text() == "weights"
    assert files(folder / "state") == {"notes.txt"}


@pytest.mark.parametrize("words", [(), ("--settings",)])
def test_while_something_is_rented_nothing_is_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """Two instances: the command names them and exits with 1; --down ends them first."""
    rented = {"instance": 2}
    monkeypatch.setattr(verb, "count_resources", lambda _settings: dict(rented))
    before = files(folder)
    assert exit_code(monkeypatch, "uninstall", "--yes", *words, "--folder", "no-units") == 1
    assert "2 instances would go on without a daemon" in capsys.readouterr().err
    assert files(folder) == before
    monkeypatch.setattr(verb, "end_simulated", lambda _settings: rented.clear())
    assert exit_code(monkeypatch, "uninstall", "--yes", "--down", *words, "--folder", "no-units") == 0
    assert not (folder / "state").exists()


def test_on_aws_down_takes_the_stack_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The instances end and the stack goes by the same code as `boa down --all --stack`."""
    Path("boa.toml").write_text(SETTINGS + '[cloud]\nprovider = "aws"\n')
    asked: list[dict[str, object]] = []
    rented = {"instance": 1}
    monkeypatch.setattr(verb, "count_resources", lambda _settings: dict(rented))

    def down(**words: object) -> None:
        asked.append(words)
        rented.clear()

    monkeypatch.setattr(verb, "down", down)
    assert exit_code(monkeypatch, "uninstall", "--yes", "--down", "--data", "--folder", "no-units") == 0
    assert asked == [{"everything": True, "stack": True, "data": True, "config": Path("boa.toml")}]
    assert not (folder / "state").exists()


def test_a_running_daemon_is_not_pulled_away(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lock of the state folder is held: exit code 1, and nothing is removed."""
    from boa_daemon.daemon.loop.lock import Lock

    lock = Lock(folder / "state")
    lock.take()
    try:
        assert exit_code(monkeypatch, "uninstall", "--yes", "--folder", "no-units") == 1
    finally:
        lock.give_back()
    assert "another daemon" in capsys.readouterr().err
    assert (folder / "state/boa.sqlite").exists()


def test_a_broken_settings_file_does_not_hide_the_daemon(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The state folder is found by what was applied last."""
    given = {"daemon": {"state_dir": str(folder / "state")}}
    write_applied(folder / "state", AppliedSettings(given=given, complete={}), None, points=True)
    Path("boa.toml").write_text("[daemon\n")
    assert answer(monkeypatch, capsys, "--yes")["state"] == str(folder / "state")
    assert not (folder / "state").exists()


def test_the_systems_installation_has_its_unit_drop_ins_and_settings(tmp_path: Path) -> None:
    """Unit, drop-ins, link of the target, runtime folder and /etc/boa, below another root."""
    root = tmp_path / "root"
    units = root / "etc/systemd/system"
    for name in (f"{UNIT}.d", "multi-user.target.wants"):
        (units / name).mkdir(parents=True)
    (units / UNIT).write_text("[Unit]\n")
    (units / f"{UNIT}.d/override.conf").write_text("[Service]\n")
    (units / "multi-user.target.wants" / UNIT).symlink_to(units / UNIT)
    for name in ("run/boa", "etc/boa", "var/lib/boa"):
        (root / name).mkdir(parents=True)
    (root / "run/boa/boa.sock").touch()
    (root / "etc/boa/boa.toml").write_text("")
    (root / "var/lib/boa/boa.sqlite").touch()
    there = DaemonPaths(state=root / "var/lib/boa", socket=root / "run/boa/boa.sock")
    parts = installed_parts(there, unit_folder=units, settings=[root / "etc/boa/boa.toml"], root=root)
    assert [why for part, why in take_away(parts) if why and part.path.is_relative_to(root)] == []
    left = {path.relative_to(root).as_posix() for path in root.rglob("*")}
    assert left == {
        "run", "var", "var/lib", "etc", "etc/systemd", "etc/systemd/system",
        "etc/systemd/system/multi-user.target.wants",
    }  # fmt: skip


def test_what_cannot_be_removed_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 4, and the rest is gone."""
    real = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name == "boa.sqlite":
            raise PermissionError(13, "Permission denied")
        real(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert exit_code(monkeypatch, "uninstall", "--yes", "--folder", "no-units") == 4
    assert files(folder / "state") == {"boa.sqlite"}
