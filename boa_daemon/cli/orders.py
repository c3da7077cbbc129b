"""``boa resize`` and ``boa simulate-interrupt``: orders about one job, and a rehearsal."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from boa_daemon.cli.completion import JobArgument
from boa_daemon.cli.daemon_client import ConfigOption, SocketOption, a_client, clock_time, say_next
from boa_daemon.cli.output import OutputFormat, OutputOption, print_json, stdout_console
from boa_daemon.errors import InputError


def resize(
    *,
    job: JobArgument,
    gpus: Annotated[int | None, typer.Option(min=1, help="The width that it is to have.")] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Any width that its file allows, as before.")] = False,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Have a job run on so many GPUs: it writes a checkpoint and goes on from there.

    The order takes the place of min_gpus and max_gpus of its file until --auto; caps hold as before.
    """
    if (gpus is None) != auto:
        raise InputError("give --gpus N or --auto, one of them")
    with a_client(config, socket) as client:
        document = client.post(f"/jobs/{_quoted(job)}/resize", {"gpus": gpus})
    if output is OutputFormat.json:
        print_json(document)
        return
    width = "what its file allows" if gpus is None else f"{gpus} GPU{'' if gpus == 1 else 's'}"
    said = f"is to have {width}" if document["changed"] else f"is {document['status']}; nothing is changed"
    stdout_console().print(f"{job} {said}", markup=False)
    say_next(f"boa explain {job}", f"boa logs -f {job}")


def simulate_interrupt(
    *,
    job: JobArgument,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Rehearse that the cloud takes a node of a job back, with two minutes' notice.

    The warning goes the way that a real one goes. A simulated cloud ends the node; on AWS the instance is not
    touched by EC2, and BOA gives it back once the job has left it.
    """
    with a_client(config, socket) as client:
        document = client.post(f"/jobs/{_quoted(job)}/interrupt")
    if output is OutputFormat.json:
        print_json(document)
        return
    stdout_console().print(
        f"{document['node']} is taken back at {clock_time(document['ends_by'])}", markup=False
    )
    say_next(f"boa logs -f {job}", "boa instances")


def _quoted(name: str) -> str:
    """Return an id as part of a path; what is none is for the daemon to refuse."""
    return quote(name or " ", safe="").replace("%2F", "%252F")
