"""``boa resize`` and ``boa simulate-interrupt``: change one job's width, or test its interruption."""

from __future__ import annotations

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
