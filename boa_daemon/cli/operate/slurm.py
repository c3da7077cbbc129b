"""``boa slurm``: what Slurm's power saving calls, and the lines that make it do so."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.api.connection import DaemonUnreachable
from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption, a_client
from boa_daemon.cli.common.output import OutputFormat, OutputOption, print_json, stdout_console
from boa_daemon.daemon.service.slurm_config import conf_lines, programs
from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.errors import BoaError
from boa_daemon.units import counted

app = typer.Typer(
    name="slurm",
    help="Provide Slurm with nodes.",
    epilog="Slurm's power saving calls resume and suspend; `boa slurm config` prints what to put into "
    "slurm.conf. [slurm.partitions.NAME] in boa.toml names the partitions and the machines of their nodes.",
    no_args_is_help=True,
)
PATIENCE_SECONDS = 20.0
"""How long a daemon that restarts is waited for; one that comes later finds the nodes by itself."""
HostlistArgument = Annotated[str, typer.Argument(metavar="HOSTLIST", help="Nodes of Slurm, such as c[1-3].")]


@app.command()
def resume(
    hostlist: HostlistArgument,
    *,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Ask for nodes of Slurm; the same request, made twice, asks once (ResumeProgram)."""
    answer = _ask("resume", hostlist, config, socket)
    if output is OutputFormat.json:
        print_json(answer)
        return
    console = stdout_console()
    console.print(f"{counted(len(answer['jobs']), 'node')} asked for, {answer['known']} asked for before")
    for node, why in answer["refused"].items():
        console.print(f"{node} is refused: {why}", markup=False)


@app.command()
def suspend(
    hostlist: HostlistArgument,
    *,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Give nodes of Slurm back; ends well for a node that never was (SuspendProgram)."""
    try:
        answer = _ask("suspend", hostlist, config, socket)
    except BoaError as error:
        # Slurm leaves a node POWERING_DOWN whose SuspendProgram fails; the daemon compares both lists anyway.
        sys.stderr.write(f"boa slurm suspend: {error}\n")
        answer = {"jobs": [], "unknown": 0, "fault": str(error)}
    if output is OutputFormat.json:
        print_json(answer)
    elif "fault" not in answer:
        stdout_console().print(
            f"{counted(len(answer['jobs']), 'node')} given back, {answer['unknown']} not known here"
        )


@app.command("config")
def config_lines(
    *,
    print_it: Annotated[
        bool, typer.Option("--print", help="Print the lines for slurm.conf, the default.")
    ] = True,
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the programs that Slurm calls.")
    ] = Path("/etc/slurm"),
    write: Annotated[bool, typer.Option("--write", help="Write the programs into DIR.")] = False,
    program: Annotated[
        str | None, typer.Option(metavar="PATH", help="Path of the boa that they call.")
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Print the lines for slurm.conf; write the programs that Slurm calls, and a node's boot script."""
    del print_it
    settings = load_settings(config).settings
    boa = program or shutil.which("boa") or "/usr/local/bin/boa"
    lines = conf_lines(settings, folder=str(folder.absolute()))
    scripts = programs(settings, boa=boa, config="" if config is None else str(config.absolute()))
    if write:
        for name, text in scripts.items():
            _write(folder / name, text)
    if output is OutputFormat.json:
        print_json(
            {"slurm_conf": lines, "programs": scripts, "folder": str(folder.absolute()), "written": write}
        )
    else:
        sys.stdout.write("\n".join(lines) + "\n")


def _write(file: Path, text: str) -> None:
    """Write an executable script.

    Raises:
        BoaError: when it cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    except OSError as error:
        raise BoaError(f"{file} cannot be written: {error.strerror}. Name a folder with --folder") from None


def _ask(what: str, hostlist: str, config: Any, socket: str | None) -> Mapping[str, Any]:
    """Send an order of Slurm to the daemon; wait for one that restarts.

    Raises:
        BoaError: when the daemon refuses the order, or does not come back.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with a_client(config, socket) as client:
                order = client.slurm_resume if what == "resume" else client.slurm_suspend
                return order(hostlist)
        except DaemonUnreachable:
            if time.monotonic() > until:
                raise
            time.sleep(1.0)
