"""``boa slurm``: what Slurm's power saving calls, and the lines that make it do so."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boa_daemon.api.slurm_orders import Order, said, send_order
from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption
from boa_daemon.cli.common.output import OutputFormat, OutputOption, print_json, stdout_console
from boa_daemon.cli.common.toml_keys import toml_value
from boa_daemon.errors import BoaError, InputError
from boa_daemon.slurm.commands import Slurm
from boa_daemon.slurm.limits import COLUMNS, read_controller, read_limits
from boa_daemon.text_files import read_whole_text
from policies.money_text import in_dollars, price_in_dollars

if TYPE_CHECKING:
    from boa_daemon.daemon.service.slurm_caps import SlurmCaps

app = typer.Typer(
    name="slurm",
    help="Provide Slurm with nodes.",
    epilog="Slurm's power saving calls resume and suspend; `boa slurm config` prints what to put into "
    "slurm.conf. [slurm.partitions.NAME] in boa.toml names the partitions and the machines of their nodes.",
    no_args_is_help=True,
)
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
    _print("resume", send_order("resume", hostlist, config, socket), output)


@app.command()
def suspend(
    hostlist: HostlistArgument,
    *,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Give nodes of Slurm back; ends well for a node that never was (SuspendProgram)."""
    _print("suspend", send_order("suspend", hostlist, config, socket), output)


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
    # Slurm waits for `boa slurm resume`, which needs neither the planner nor all settings.
    from boa_daemon.daemon.service.slurm_config import conf_lines, programs  # noqa: PLC0415 - see above
    from boa_daemon.daemon.settings.setting_layers import load_settings  # noqa: PLC0415 - see above

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


@app.command("caps")
def team_caps(
    *,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Output of `sacctmgr -P show association`; else Slurm is asked."
        ),
    ] = None,
    controller: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Output of `scontrol show config; scontrol show partition`."),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Print GrpTRESMins of Slurm's accounts as caps of teams, in dollars per month, for boa.toml."""
    from boa_daemon.daemon.service.slurm_caps import caps_of  # noqa: PLC0415 - as for `boa slurm config`
    from boa_daemon.daemon.settings.setting_layers import load_settings  # noqa: PLC0415 - as above

    if (source is None) != (controller is None):
        raise InputError(
            "--from and --controller go together: Slurm forgets usage over time, and bills by weights",
            hint="Write it with: (scontrol show config; scontrol show partition) > FILE",
        )
    settings = load_settings(config).settings
    if source is not None and controller is not None:
        listed, shown = read_whole_text(source), read_whole_text(controller)
    else:
        slurm = Slurm(conf=settings.slurm.conf)
        listed = slurm.run("sacctmgr", "-P", "show", "association", f"format={COLUMNS}")
        shown = slurm.run("scontrol", "show", "config") + slurm.run("scontrol", "show", "partition")
    limits = read_controller(shown)
    found = caps_of(read_limits(listed, file=str(source or "sacctmgr")), limits, settings)
    lines = toml_lines(found, limits.said, settings.slurm.teams)
    if output is OutputFormat.json:
        caps = [asdict(one) for one in found.caps]
        print_json({"caps": caps, "left_out": found.left_out, "boa_toml": lines})
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines or ["# no account has GrpTRESMins"]))


def toml_lines(found: SlurmCaps, why: str, teams: Mapping[str, str]) -> list[str]:
    """Return the lines for boa.toml; a table that it has already gets the key of the line below its name.

    `why` says over which time the limits hold, and `teams` are the known ones by account.
    """
    lines = [f"# {text}" for text in found.left_out]
    mapped = {one.account: one.team for one in found.caps if teams.get(one.account) != one.team}
    if mapped:
        lines += ["[slurm.teams]", *(f"{_key(name)} = {toml_value(team)}" for name, team in mapped.items())]
    for one in found.caps:
        lines += [
            f"# {one.money.tres} of account {one.account} pays for {one.money.node_hours:,.0f} hours of "
            f"{one.machine} at {price_in_dollars(one.usd_per_hour)}/h: {in_dollars(one.money.usd)}. {why}",
            f"[teams.{_key(one.team)}]",
            f"usd_per_month_cap = {one.money.usd_per_month:.2f}",
        ]
    return lines


def _key(name: str) -> str:
    """Return a key of TOML: bare where it may be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)


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


def _print(order: Order, answer: Mapping[str, Any], output: OutputFormat) -> None:
    """Print the daemon's answer to an order."""
    if output is OutputFormat.json:
        print_json(answer)
        return
    for line in said(order, answer):
        stdout_console().print(line, markup=False)
