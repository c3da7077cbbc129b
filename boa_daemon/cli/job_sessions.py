"""``boa exec``, ``boa shell``, ``boa port-forward``: into a job that runs, on this machine or over SSM."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn, TypeAlias
from urllib.parse import quote

import typer

from boa_daemon.cli.completion import JobArgument
from boa_daemon.cli.daemon_client import ConfigOption, SocketOption, a_client
from boa_daemon.cli.output import OutputFormat, OutputOption, print_json, print_text, stderr_console
from boa_daemon.engines.ssm_session import Session, run_session
from boa_daemon.errors import FAILED, InputError

NodeOption: TypeAlias = Annotated[int, typer.Option("--node", min=0, help="The node of the job, from 0 on.")]
PrintOption: TypeAlias = Annotated[
    bool, typer.Option("--print", help="Print the command of the session, and run nothing.")
]


def execute(
    *,
    job: JobArgument,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="After `--`: what to run.")],
    node: NodeOption = 0,
    seconds: Annotated[
        float, typer.Option(min=1.0, max=3600.0, help="After so many seconds it is ended.")
    ] = 60.0,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Run a command beside a job: on its node, as its user, in its folder, with its GPUs.

    One word is a line for the shell. Exit code 0 where the command's own is 0, else 1.
    """
    with a_client(config, socket) as client:
        said = client.exec(job, command[0] if len(command) == 1 else command, node=node, seconds=seconds)
    if output is OutputFormat.json:
        print_json(said)
    else:
        if said["dropped_bytes"]:
            stderr_console().print(f"(the first {said['dropped_bytes']:,} bytes are left out)")
        print_text(said["output"])
        if said["exit_code"] != 0:
            why = said["why"] or f"exit code {said['exit_code']}"
            stderr_console().print(f"{job}: {why}", markup=False)
    if said["exit_code"] != 0:
        raise typer.Exit(FAILED)


def shell(
    *,
    job: JobArgument,
    node: NodeOption = 0,
    prints: PrintOption = False,
    config: ConfigOption = None,
    socket: SocketOption = None,
) -> None:
    """Open a shell beside a job: on its node, as its user, in its folder, with its GPUs.

    On a rented node it is a session of SSM of your own, which needs AWS's session manager plugin here.
    """
    from boa_daemon.cli.terminal import RelayedTerminal, is_on_terminal  # noqa: PLC0415 - one verb needs it

    with a_client(config, socket) as client:
        way = client.get(f"/jobs/{_quoted(job)}/way", node=node)
        if way["kind"] == "ssm":
            _session(shell_session(way), prints=prints)
        if prints or not is_on_terminal():
            raise InputError("a shell needs a terminal", hint=f"Run one command: boa exec {job} -- COMMAND")
        with RelayedTerminal() as terminal:
            term = os.environ.get("TERM", "xterm")
            order = {"terminal": terminal.name, "term": term, "node": node}
            client.post(f"/jobs/{_quoted(job)}/shell", order)
            terminal.relay()


def port_forward(
    *,
    job: JobArgument,
    port: Annotated[int, typer.Argument(metavar="PORT", min=1, max=65535, help="Where the job listens.")],
    local_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The port here; the same by default.")
    ] = None,
    node: NodeOption = 0,
    prints: PrintOption = False,
    config: ConfigOption = None,
    socket: SocketOption = None,
) -> None:
    """Bring a port of a job here, TensorBoard's for instance, until Ctrl-C.

    Of a rented node by a session of SSM; nothing on the node listens to the network.
    """
    with a_client(config, socket) as client:
        way = client.get(f"/jobs/{_quoted(job)}/way", node=node)
    here = local_port or port
    if way["kind"] == "ssm":
        stderr_console().print(f"http://127.0.0.1:{here}/ once the session says that it waits", markup=False)
        _session(port_session(way, port, here), prints=prints)
    if here == port:
        print_text(f"http://127.0.0.1:{port}/\n")
        stderr_console().print("[dim]The job runs on the daemon's machine: its port is there already.[/]")
        return
    from boa_daemon.cli.terminal import relay_port  # noqa: PLC0415 - one verb needs it

    stderr_console().print(f"http://127.0.0.1:{here}/ until Ctrl-C", markup=False)
    relay_port(here, port)


def shell_session(way: Mapping[str, Any]) -> Session:
    """Return the session that opens a shell beside a job on a rented node."""
    command = {"command": [shlex.join(way["shell"])]}
    return Session(
        target=str(way["node"]),
        document="AWS-StartInteractiveCommand",
        parameters=command,
        region=str(way["region"]),
    )


def port_session(way: Mapping[str, Any], port: int, here: int) -> Session:
    """Return the session that brings a port of a rented node here."""
    return Session(
        target=str(way["node"]),
        document="AWS-StartPortForwardingSession",
        parameters={"portNumber": [str(port)], "localPortNumber": [str(here)]},
        region=str(way["region"]),
    )


def _session(session: Session, *, prints: bool) -> NoReturn:
    """Open a session of SSM and stay until its end, or print the command that would."""
    if prints:
        print_text(f"{shlex.join(session.command)}\n")
        raise typer.Exit
    from boa_daemon.backends.aws.calls import own_ssm  # noqa: PLC0415 - one verb needs boto3

    raise typer.Exit(run_session(session, own_ssm(session.region), profile=os.environ.get("AWS_PROFILE", "")))


def _quoted(name: str) -> str:
    """Return an id as part of a path; what is none is for the daemon to refuse."""
    return quote(name or " ", safe="").replace("%2F", "%252F")
