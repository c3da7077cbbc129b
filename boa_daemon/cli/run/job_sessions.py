"""``boa exec``, ``boa shell``, ``boa port-forward``: enter a running job, on this machine or over SSM."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn, TypeAlias
from urllib.parse import quote

import typer

from boa_daemon.cli.common.completion import JobArgument
from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption, a_client
from boa_daemon.cli.common.output import OutputFormat, OutputOption, print_json, print_text, stderr_console
from boa_daemon.engines.ssm_session import Session, run_session
from boa_daemon.errors import FAILED, InputError

NodeOption: TypeAlias = Annotated[
    int, typer.Option("--node", min=0, help="Number of the job's node, counted from 0.")
]
PrintOption: TypeAlias = Annotated[
    bool, typer.Option("--print", help="Print the session's command instead of running it.")
]


def execute(
    *,
    job: JobArgument,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="Command to run, after `--`.")],
    node: NodeOption = 0,
    seconds: Annotated[
        float, typer.Option(min=1.0, max=3600.0, help="Seconds after which the command is ended.")
    ] = 60.0,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Run a command beside a running job: on its node, as its user, in its folder, with its GPUs.

    A single word is run as a shell line. Exit code 0 if the command's is 0, else 1.
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
    """Open a shell beside a running job: on its node, as its user, in its folder, with its GPUs.

    On a rented node the shell is your own SSM session; it needs AWS's Session Manager plugin on this machine.
    """
    from boa_daemon.cli.common.terminal import RelayedTerminal, is_on_terminal  # noqa: PLC0415 - one verb needs it

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
    port: Annotated[
        int, typer.Argument(metavar="PORT", min=1, max=65535, help="Port that the job listens on.")
    ],
    local_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port on this machine. Default: the same.")
    ] = None,
    node: NodeOption = 0,
    prints: PrintOption = False,
    config: ConfigOption = None,
    socket: SocketOption = None,
) -> None:
    """Forward a port of a job to this machine, such as TensorBoard's, until Ctrl-C.

    A rented node's port comes through an SSM session; no port of the node is open to the network.
    """
    with a_client(config, socket) as client:
        way = client.get(f"/jobs/{_quoted(job)}/way", node=node)
    here = local_port or port
    if way["kind"] == "ssm":
        stderr_console().print(
            f"http://127.0.0.1:{here}/ once the session says that it is waiting", markup=False
        )
        _session(port_session(way, port, here), prints=prints)
    if here == port:
        print_text(f"http://127.0.0.1:{port}/\n")
        stderr_console().print("[dim]The job runs on the daemon's machine: its port is there already.[/]")
        return
    from boa_daemon.cli.common.terminal import relay_port  # noqa: PLC0415 - one verb needs it

    stderr_console().print(f"http://127.0.0.1:{here}/ until Ctrl-C", markup=False)
    relay_port(here, port)


def shell_session(way: Mapping[str, Any]) -> Session:
    """Return the SSM session that opens a shell beside a job on a rented node."""
    command = {"command": [shlex.join(way["shell"])]}
    return Session(
        target=str(way["node"]),
        document="AWS-StartInteractiveCommand",
        parameters=command,
        region=str(way["region"]),
    )


def port_session(way: Mapping[str, Any], port: int, here: int) -> Session:
    """Return the SSM session that forwards a port of a rented node to this machine."""
    return Session(
        target=str(way["node"]),
        document="AWS-StartPortForwardingSession",
        parameters={"portNumber": [str(port)], "localPortNumber": [str(here)]},
        region=str(way["region"]),
    )


def _session(session: Session, *, prints: bool) -> NoReturn:
    """Run an SSM session until its end, or print its command."""
    if prints:
        print_text(f"{shlex.join(session.command)}\n")
        raise typer.Exit
    from boa_daemon.backends.aws.client.calls import own_ssm  # noqa: PLC0415 - one verb needs boto3

    raise typer.Exit(run_session(session, own_ssm(session.region), profile=os.environ.get("AWS_PROFILE", "")))


def _quoted(name: str) -> str:
    """Return an id quoted for a URL path; the daemon refuses what is no id."""
    return quote(name or " ", safe="").replace("%2F", "%252F")
