"""``boa systemd``: print or install the daemon's systemd unit."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.cli.common.daemon_client import say_next
from boa_daemon.cli.common.output import OutputFormat, OutputOption, print_json, stdout_console
from boa_daemon.daemon.loop.systemd import UNIT, UNIT_FOLDER, install_unit, unit_text
from boa_daemon.errors import InputError


class SystemdAct(StrEnum):
    """Whether to print or install the unit."""

    show = "print"
    install = "install"


def systemd(  # noqa: PLR0917 - the parameters are the flags of the command
    what: Annotated[SystemdAct, typer.Argument(help="print or install.")] = SystemdAct.show,
    print_it: Annotated[
        bool, typer.Option("--print", help="Print the unit; the same as: boa systemd print.")
    ] = False,
    install: Annotated[bool, typer.Option("--install", help="The same as: boa systemd install.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what install would do.")] = False,
    program: Annotated[
        str | None, typer.Option(metavar="PATH", help="Path of the boa that the unit starts.")
    ] = None,
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Folder of systemd units.")] = UNIT_FOLDER,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Print the daemon's hardened systemd unit, or install it."""
    if print_it and (install or dry_run):
        raise InputError("--print goes with neither --install nor --dry-run")
    is_install = (install or what is SystemdAct.install) and not print_it
    text, target = unit_text(program), folder / UNIT
    old = target.read_text(encoding="utf-8") if is_install and target.is_file() else None
    change = None if not is_install else "nothing" if old == text else "create" if old is None else "replace"
    if is_install and not dry_run and change != "nothing":
        install_unit(text, folder)
    answer: dict[str, Any] = {
        "unit": UNIT,
        "path": str(target),
        "change": change,
        "dry_run": dry_run,
        "text": text,
    }
    if output is OutputFormat.json:
        print_json(answer)
    elif not is_install:
        sys.stdout.write(text)
    elif dry_run:
        stdout_console().print(
            f"would {change} {target}" if change != "nothing" else f"{target} is up to date"
        )
    else:
        done = {"create": "wrote", "replace": "replaced", "nothing": "up to date:"}[str(change)]
        stdout_console().print(f"{done} {target}", markup=False)
        say_next("systemctl daemon-reload", f"systemctl enable --now {UNIT}", f"journalctl -u {UNIT} -f")
