"""``boa config``: show the settings and their origins, compare them with those in force, apply them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption, a_client
from boa_daemon.cli.common.output import (
    OutputFormat,
    OutputOption,
    a_table,
    show,
    stderr_console,
    stdout_console,
)
from boa_daemon.errors import CHANGES_PRESENT, InputError

if TYPE_CHECKING:
    from boa_daemon.api.answers import ChangesAnswer
    from boa_daemon.api.client import Client

FileArgument: TypeAlias = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="Settings file; the same as --config."),
]
DetailedOption: TypeAlias = Annotated[
    bool, typer.Option("--detailed-exitcode", help="Exit with 10 when there are changes.")
]

app = typer.Typer(
    name="config",
    help="Show settings and their origins, compare them with those in force, and apply them.",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """Show settings and their origins, compare them with those in force, and apply them."""


@app.command("show")
def show_settings(
    *,
    config: ConfigOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show settings that have their defaults.")
    ] = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Show each setting with its value and its origin: a file, the environment, or the default."""
    from boa_daemon.daemon.settings.setting_layers import load_settings  # noqa: PLC0415 - slow to import
    from boa_daemon.daemon.settings.setting_origins import DEFAULT, settings_with_origins  # noqa: PLC0415 - slow to import

    loaded = load_settings(config)
    rows = settings_with_origins(loaded)
    for warning in loaded.warnings():
        stderr_console().print(f"warning: {warning}", markup=False, soft_wrap=True)
    shown = (
        rows
        if everything or output is not OutputFormat.table
        else [r for r in rows if r["origin"] != DEFAULT]
    )

    def print_table() -> None:
        table = a_table("Settings", "setting", "value", "origin")
        for row in shown:
            table.add_row(
                f"[{row['section']}] {row['key']}".replace("[", "\\["),
                json.dumps(row["value"]),
                row["origin"],
            )
        stdout_console().print(table)
        if len(shown) < len(rows):
            stdout_console().print(
                f"[dim]{len(rows) - len(shown)} other settings have their defaults; --all shows them[/]"
            )

    show(output, {"settings": rows}, rows=lambda: rows, table=print_table)


@app.command("diff")
def diff(
    file: FileArgument = None,
    *,
    config: ConfigOption = None,
    socket: SocketOption = None,
    detailed: DetailedOption = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Show what the settings files would change of the settings in force.

    In force are those of the running daemon; without one, those that the last daemon applied. Changes that
    loosen a limit, or let a default take the place of a value, are marked: they need consent.
    """
    answer = _Site(file or config, socket).pending()
    _show(answer, output)
    if detailed and answer["changes"]:
        raise typer.Exit(CHANGES_PRESENT)


@app.command("apply")
def apply_settings(  # noqa: PLR0917 - each is an option of the command line
    file: FileArgument = None,
    config: ConfigOption = None,
    socket: SocketOption = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Apply the changes, those that loosen limits included.")
    ] = False,
    detailed: DetailedOption = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Apply the settings files; without --yes show what would change, and change nothing.

    A daemon never loosens a limit by itself when its settings are reloaded or it is restarted. --yes consents
    to exactly the changes that are shown. The running daemon takes them at once, else the next one.
    """
    site = _Site(file or config, socket)
    answer = site.pending()
    if yes:
        answer |= site.apply(answer["code"])
    _show(answer, output)
    if detailed and answer["changes"]:
        raise typer.Exit(CHANGES_PRESENT)


class _Site:
    """The settings in force: of the daemon that runs, else of the one that ran last."""

    def __init__(self, file: Path | None, socket: str | None) -> None:
        from boa_daemon.daemon.settings.settings_reload import SettingsReader  # noqa: PLC0415 - slow to import

        self._file, self._socket = file, socket
        self._reader = SettingsReader(file, {})

    def pending(self) -> dict[str, Any]:
        """Return what the files would change of the settings in force.

        Raises:
            InputError: when a file is wrong, or the daemon reads another one.
        """
        here = self._reader.pending()  # An error in a file is said with its line, daemon or none.
        answer = self._ask(lambda client: client.setting_changes())
        if answer is None:
            return {**here.to_document(), "is_applied": False, "of_running_daemon": False}
        if self._file is not None and self._file.resolve() not in {
            Path(name).resolve() for name in answer["files"]
        }:
            named = ", ".join(answer["files"]) or "no file"
            raise InputError(
                f"the running daemon reads {named}", file=self._file,
                hint="Change that file; or restart the daemon with --config",
            )  # fmt: skip
        return {**answer, "is_applied": False, "of_running_daemon": True}

    def apply(self, code: str) -> dict[str, Any]:
        """Apply the files, and consent to the changes of a code."""
        answer = self._ask(lambda client: client.apply_settings(code))
        if answer is not None:
            return {"is_applied": True, "after_restart": answer["after_restart"]}
        self._reader.accept()
        return {"is_applied": True, "after_restart": []}

    def _ask(self, question: Callable[[Client], ChangesAnswer]) -> ChangesAnswer | None:
        """Return the running daemon's answer; None when no daemon listens."""
        from boa_daemon.api.client import DaemonUnreachable  # noqa: PLC0415 - slow to import

        try:
            with a_client(self._file, self._socket) as client:
                return question(client)
        except DaemonUnreachable:
            return None


def _show(answer: dict[str, Any], output: OutputFormat) -> None:
    """Print changes of settings."""

    def print_table() -> None:
        console = stdout_console()
        whose = "the running daemon" if answer["of_running_daemon"] else "the last daemon"
        if not answer["changes"]:
            console.print(f"The settings are those of {whose}.")
        else:
            table = a_table(
                f"Changes to the settings of {whose}", "setting", "in force", "new", "needs consent"
            )
            for change in answer["changes"]:
                table.add_row(
                    change["setting"].replace("[", "\\["),
                    _text(change["before"]),
                    _text(change["after"]),
                    change["why"],
                )
            console.print(table)
        if answer["is_applied"]:
            console.print("Applied." if answer["of_running_daemon"] else "The next daemon takes them.")
            if answer["after_restart"]:
                console.print(
                    f"These take effect only after a restart: {', '.join(answer['after_restart'])}."
                )
        elif answer["changes"]:
            if answer["needs_consent"]:
                console.print("A reload or a restart refuses them: limits would be loosened.")
            console.print("`boa config apply --yes` applies them.")
        for warning in answer["warnings"]:
            stderr_console().print(f"warning: {warning}", markup=False, soft_wrap=True)

    show(output, answer, rows=lambda: answer["changes"], table=print_table)


def _text(value: object) -> str:
    """Return a value for a cell of the table."""
    if value is None:
        return "not set"
    return (
        value if isinstance(value, str) and value.startswith("(") else json.dumps(value).replace("[", "\\[")
    )
