"""``boa config show``: the settings in force, and the origin of each value."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from boa_daemon.cli.daemon_client import ConfigOption
from boa_daemon.cli.output import OutputFormat, OutputOption, a_table, show, stdout_console

app = typer.Typer(
    name="config", help="Show the settings in force, and where they come from.", no_args_is_help=True
)


@app.callback()
def _group() -> None:
    """Show the settings in force, and where they come from."""


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
    from boa_daemon.daemon.setting_origins import DEFAULT, settings_with_origins  # noqa: PLC0415 - slow to import

    rows = settings_with_origins(config)
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
