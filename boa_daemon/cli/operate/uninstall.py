"""``boa uninstall``: take an installation away: unit, state folder, socket, settings, and what is rented."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.backends.cloud_kinds import cloud_kind
from boa_daemon.cli.common.cluster_resources import count_resources, end_local, end_simulated
from boa_daemon.cli.common.daemon_client import ConfigOption
from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.cli.operate.down import down
from boa_daemon.daemon.loop.lock import AlreadyRunning, Lock
from boa_daemon.daemon.loop.systemd import UNIT, UNIT_FOLDER
from boa_daemon.daemon.service.installation import InstalledPart, installed_parts, take_away
from boa_daemon.daemon.settings.applied_settings import pointed_state, read_applied
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.daemon_paths import SYSTEM_SOCKET, DaemonPaths, daemon_paths
from boa_daemon.daemon.settings.named_socket import SYSTEM_FILE, setting_files
from boa_daemon.daemon.settings.setting_layers import load_settings, with_flags
from boa_daemon.errors import PARTLY_DONE, BoaError, InputError
from boa_daemon.units import counted

SYSTEM_STATE = Path("/var/lib/boa")
"""State folder of the system's daemon (StateDirectory= of its unit)."""
STOP_SECONDS, END_SECONDS = 100.0, 30.0


class StillRented(BoaError):
    """Something is rented or runs, and would go on without a daemon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Installation:
    """The daemon to take away: the system's, or the one of these settings."""

    settings: Settings
    there: DaemonPaths
    files: tuple[Path, ...]
    unit_folder: Path | None


def uninstall(  # noqa: PLR0917 - each is an option of the command line
    config: ConfigOption = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Take it away; without this nothing is changed.")
    ] = False,
    end_rented: Annotated[
        bool,
        typer.Option("--down", help="First end all instances and jobs; on AWS delete the stack as well."),
    ] = False,
    data: Annotated[
        bool,
        typer.Option(
            "--data", help="With --down on AWS: also delete the bucket, with all checkpoints and logs."
        ),
    ] = False,
    with_settings: Annotated[
        bool, typer.Option("--settings", help="Also remove boa.toml of this folder or of --config.")
    ] = False,
    without_cloud: Annotated[
        bool,
        typer.Option("--without-cloud", help="Do not ask the cloud: what is rented goes on, and costs."),
    ] = False,
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Folder of systemd units.")] = UNIT_FOLDER,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Take BOA's daemon away from this machine: unit, socket, state folder, settings and cache.

    Without --yes it shows what would go. The daemon of the system is meant where its unit is installed, else
    the one of the settings. Nothing goes while instances are rented or jobs run, unless --down ends them
    first. Files that are not BOA's stay. Exit code 4 if something could not be removed.
    """
    found = _installation(config, folder)
    rented = {} if without_cloud else _rented(found.settings)
    kept, gone = _settings_files(found, with_settings=with_settings)
    answer: dict[str, Any] = {
        "parts": [_row(part, "") for part in _parts(found, gone)],
        "rented": rented,
        "kept": [str(path) for path in kept],
        "state": str(found.there.state),
        "is_done": False,
    }
    if yes:
        _stop(found)
        if rented and not end_rented:
            raise StillRented(
                f"{_named(rented)} would go on without a daemon: nothing was removed. Give --down to end them"
            )
        if end_rented and not without_cloud:
            _end(found, config, data=data)
            _check_ended(found.settings)
        rows = {part.path: _row(part, "") for part in _parts(found, gone)}
        for part, why in take_away(_parts(found, gone)):
            rows[part.path]["left"] = why
        answer["parts"] = list(rows.values())
        answer["is_done"] = True
        if found.unit_folder is not None:
            _systemctl("daemon-reload")
    show(output, answer, rows=lambda: answer["parts"], table=lambda: _print(answer))
    if any(row["left"] and row["kind"] != "folder" for row in answer["parts"]):
        raise typer.Exit(PARTLY_DONE)


def _parts(found: _Installation, settings: Iterable[Path]) -> list[InstalledPart]:
    return installed_parts(found.there, unit_folder=found.unit_folder, settings=settings)


def _installation(config: Path | None, folder: Path) -> _Installation:
    """Return the installation that is meant.

    Raises:
        InputError: when the settings cannot be read, and no daemon applied any.
    """
    if config is None and (folder / UNIT).exists():
        flags = {"daemon.state_dir": str(SYSTEM_STATE), "daemon.socket": str(SYSTEM_SOCKET)}
        file = SYSTEM_FILE if SYSTEM_FILE.exists() else None
        loaded = with_flags({}, flags) if file is None else load_settings(file, flags=flags)
        return _Installation(
            settings=loaded.settings,
            there=daemon_paths(loaded.settings),
            files=loaded.files,
            unit_folder=folder,
        )
    try:
        loaded = load_settings(config)
    except InputError:
        # What was applied last says where the daemon keeps its state, whatever the file says now.
        state = pointed_state(config)
        last = None if state is None else read_applied(state)
        if last is None:
            raise
        loaded = with_flags(last.given, {}, files=setting_files(config))
    return _Installation(
        settings=loaded.settings, there=daemon_paths(loaded.settings), files=loaded.files, unit_folder=None
    )


def _rented(settings: Settings) -> Mapping[str, int]:
    """Return what is rented or runs, by kind; empty when nothing is.

    Raises:
        BoaError: when the cloud cannot be asked.
    """
    if not daemon_paths(settings).state.is_dir() and not cloud_kind(settings.cloud.provider).on_aws:
        return {}
    return {kind: number for kind, number in count_resources(settings).items() if number}


def _named(rented: Mapping[str, int]) -> str:
    """Return what is rented or runs in words: ``2 instances, 1 job process``."""
    return ", ".join(counted(number, kind) for kind, number in rented.items())


def _settings_files(found: _Installation, *, with_settings: bool) -> tuple[list[Path], list[Path]]:
    """Return the settings files that stay, and those that go: the installation's own, or all if asked."""
    kept: list[Path] = []
    gone: list[Path] = []
    for path in found.files:
        is_users = path.parent.name == "boa" and path != SYSTEM_FILE
        (gone if found.unit_folder is not None or is_users or with_settings else kept).append(path)
    return kept, gone


def _stop(found: _Installation) -> None:
    """Stop the system's daemon; refuse while another one runs.

    Raises:
        AlreadyRunning: when a daemon uses the state folder.
    """
    if found.unit_folder is not None:
        _systemctl("disable", "--now", UNIT)
    if not found.there.state.is_dir():
        return
    lock = Lock(found.there.state)
    until = time.monotonic() + (STOP_SECONDS if found.unit_folder is not None else 0.0)
    while True:
        try:
            lock.take()
        except AlreadyRunning:
            if time.monotonic() >= until:
                raise
            time.sleep(0.5)
        else:
            lock.give_back()
            return


def _end(found: _Installation, config: Path | None, *, data: bool) -> None:
    """End what is rented and what runs, as `boa down --all` does; on AWS take the stack away too."""
    kind = cloud_kind(found.settings.cloud.provider)
    if kind.on_aws:
        file = config or (found.files[-1] if found.files else Path("boa.toml"))
        with redirect_stdout(sys.stderr):  # The answer of this verb is the one document on standard output.
            down(everything=True, stack=True, data=data, config=file)
    elif kind.in_a_file:
        if found.there.state.is_dir():
            end_simulated(found.settings)
    elif found.there.state.is_dir():
        end_local(found.settings)


def _check_ended(settings: Settings) -> None:
    """Wait until nothing is rented and no job runs.

    Raises:
        StillRented: when something is still there; its state folder is needed for the next try.
    """
    until = time.monotonic() + END_SECONDS
    while rented := _rented(settings):
        if time.monotonic() >= until:
            raise StillRented(
                f"{_named(rented)} did not end: nothing was removed. Run the same command again"
            )
        time.sleep(0.5)


def _systemctl(*words: str) -> None:
    """Run systemctl where it exists; a failure is no reason to leave the files behind."""
    if shutil.which("systemctl"):
        subprocess.run(["systemctl", *words], check=False, capture_output=True, timeout=STOP_SECONDS)


def _row(part: InstalledPart, why: str) -> dict[str, Any]:
    return {"kind": part.kind, "path": str(part.path), "bytes": part.size_bytes, "left": why}


def _print(answer: Mapping[str, Any]) -> None:
    console = stdout_console()
    done = answer["is_done"]
    table = a_table("Removed" if done else "Would remove", "what", "path", "KB", "still there, because")
    for row in answer["parts"]:
        if done and row["kind"] == "folder" and row["left"]:
            continue
        table.add_row(row["kind"], row["path"].replace("[", "\\["), f"{row['bytes'] / 1000:.1f}", row["left"])
    console.print(table)
    for path in answer["kept"]:
        console.print(f"{path} stays; --settings removes it.", markup=False, soft_wrap=True)
    if done:
        console.print("The package itself: pip uninstall boa-daemon.")
        return
    if answer["rented"]:
        console.print(f"{_named(answer['rented'])} would go on without a daemon: --down ends them first.")
    console.print("Nothing was changed. `boa uninstall --yes` removes it.")
