"""``boa daemon`` and ``boa recover``."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption, say_next
from boa_daemon.cli.common.output import (
    OutputFormat,
    OutputOption,
    print_json,
    stderr_console,
    stdout_console,
)
from boa_daemon.errors import InputError
from boa_daemon.units import counted


def daemon(  # noqa: PLR0917 - each is an option of the command line
    config: ConfigOption = None,
    observe: Annotated[
        bool, typer.Option("--observe", help="Decide and record, but start and end nothing.")
    ] = False,
    state_dir: Annotated[str | None, typer.Option(metavar="DIR", help="Folder of the database.")] = None,
    socket: SocketOption = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait until no other daemon is the leader, then take over.")
    ] = False,
    tick_seconds: Annotated[float | None, typer.Option(min=0.1, help="Seconds between two ticks.")] = None,
) -> None:
    """Run the daemon until SIGTERM; SIGHUP reloads the settings."""
    # By default it ends a process, and the imports take a while. The settings are read later anyway.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from boa_daemon.cli.common.own_daemon import run_caps  # noqa: PLC0415
    from boa_daemon.daemon.settings.setting_origins import locate_error  # noqa: PLC0415
    from boa_daemon.daemon.settings.settings_reload import SettingsReader  # noqa: PLC0415
    from boa_daemon.serve import serve  # noqa: PLC0415 - slow to import, and most verbs need none of it

    flags = {
        "daemon.observe": True if observe else None,
        "daemon.state_dir": state_dir,
        "daemon.socket": socket,
        "daemon.tick_seconds": tick_seconds,
        **run_caps(os.environ),
    }

    def announce(path: str) -> None:
        if sys.stderr.isatty():
            stderr_console().print(f"listening at {path}; [dim]boa status, boa submit FILE[/]")

    try:
        serve(SettingsReader(config, flags), announce=announce, standby=standby)
    except InputError as error:
        raise locate_error(error, config) from None


def recover(
    config: ConfigOption = None,
    state_dir: Annotated[str | None, typer.Option(metavar="DIR", help="Folder of the database.")] = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Rebuild the database from the newest readable backup and the cloud's list of instances."""
    from boa_daemon.daemon.loop.recovery import recover as make_again  # noqa: PLC0415
    from boa_daemon.daemon.settings.setting_layers import load_settings  # noqa: PLC0415

    loaded = load_settings(config, flags={"daemon.state_dir": state_dir})
    answer = make_again(loaded.settings)
    if output is OutputFormat.json:
        print_json(answer)
        return
    console = stdout_console()
    console.print(
        f"{counted(answer['instances'], 'instance')} found by tags, {counted(answer['jobs'], 'job')} from "
        f"{answer['backup'] or 'no backup'}; the old database is {answer['old'] or 'gone'}",
        markup=False,
    )
    say_next("boa daemon", "boa status")
