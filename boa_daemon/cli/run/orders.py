"""``boa resize``, ``hold``, ``release`` and ``simulate-interrupt``: orders for one job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from boa_daemon.cli.common.completion import JobArgument
from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption, a_client, clock_time, say_next
from boa_daemon.cli.common.output import OutputFormat, OutputOption, print_json, stdout_console
from boa_daemon.errors import InputError


def resize(
    *,
    job: JobArgument,
    gpus: Annotated[int | None, typer.Option(min=1, help="Number of GPUs.")] = None,
    auto: Annotated[
        bool, typer.Option("--auto", help="Let the daemon choose again, within the job file's limits.")
    ] = False,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Set a job's number of GPUs; it writes a checkpoint and resumes from it.

    The number replaces min_gpus and max_gpus of the job file until --auto. Caps still apply.
    """
    if (gpus is None) != auto:
        raise InputError("give --gpus N or --auto, one of them")
    with a_client(config, socket) as client:
        document = client.resize(job, gpus)
    if output is OutputFormat.json:
        print_json(document)
        return
    width = "the width that the plan gives it" if gpus is None else f"{gpus} GPU{'' if gpus == 1 else 's'}"
    said = f"will get {width}" if document["changed"] else f"is {document['status']}; nothing is changed"
    stdout_console().print(f"{job} {said}", markup=False)
    say_next(f"boa explain {job}", f"boa logs -f {job}")


def hold(
    *,
    job: JobArgument,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Make a job wait until it is released; a running job saves, stops and gives its GPUs back first.

    It keeps its place in the order of arrival. A job that would lose its work is not held: cancel it.
    """
    _hold(job, is_held=True, config=config, socket=socket, output=output)


def release(
    *,
    job: JobArgument,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Let a job that is held start again, in its turn."""
    _hold(job, is_held=False, config=config, socket=socket, output=output)


def _hold(job: str, *, is_held: bool, config: Path | None, socket: str | None, output: OutputFormat) -> None:
    with a_client(config, socket) as client:
        document = client.hold(job, is_held)
    if output is OutputFormat.json:
        print_json(document)
        return
    if document["changed"]:
        said = "waits until `boa release`" if is_held else "may start again, in its turn"
    elif document["status"] in ("queued", "running"):
        said = "is held already" if is_held else "is not held; nothing is changed"
    else:
        said = f"is {document['status']}; nothing is changed"
    stdout_console().print(f"{job} {said}", markup=False)
    say_next(*((f"boa release {job}",) if is_held and document["changed"] else ()), f"boa explain {job}")


def simulate_interrupt(
    *,
    job: JobArgument,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Simulate a spot interruption of a job's node, with two minutes' notice.

    The warning takes the path of a real one. The simulated cloud ends the node. On AWS, EC2 does not touch
    the instance, and BOA gives it back once the job has left it.
    """
    with a_client(config, socket) as client:
        document = client.interrupt(job)
    if output is OutputFormat.json:
        print_json(document)
        return
    stdout_console().print(
        f"{document['node']} is taken back at {clock_time(document['ends_by'])}", markup=False
    )
    say_next(f"boa logs -f {job}", "boa instances")
