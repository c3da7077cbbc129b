"""``boa gate``: run the gate that orders messages on shared network cards; show its status; issue tokens."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, print_json, show, stdout_console
from boa_daemon.errors import BoaError, GateUnreachable, InputError
from boa_daemon.gate.server import GateServer
from boa_daemon.gate.types import POLICIES, GateSettings
from boa_daemon.job.gate.address import BadAddress, GateAddress
from boa_daemon.job.gate.handshake import call_as_planner
from boa_daemon.job.gate.token import PLANNER, issue_token, read_or_make_secret, read_token, write_token
from policies.links.ada_srsf import DEFAULT_LINK_POLICY
from policies.links.contention import Link

app = typer.Typer(
    name="gate",
    help="Order the messages of jobs that share network cards.",
    epilog="Without a command the gate runs until SIGTERM or Ctrl-C; the commands ask a running gate. Jobs "
    "find the gate through BOA_GATE (see `boa gate token`). If the gate fails, jobs go on without it.",
    invoke_without_command=True,
)

PolicyName = StrEnum("PolicyName", {name: name for name in POLICIES})  # type: ignore[misc]  # names from a table


def default_folder() -> Path:
    """Return the folder of the socket and the secret: systemd's, or the user's state folder."""
    for name in ("RUNTIME_DIRECTORY", "STATE_DIRECTORY"):
        if os.environ.get(name):
            return Path(os.environ[name].split(":")[0])
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "boa"


SecretOption = Annotated[
    Path | None,
    typer.Option(help="File with the gate's secret. Created at the first start.", show_default="gate.secret"),
]
AddressOption = Annotated[str, typer.Option(help="Where the gate listens.", show_default="unix:gate.sock")]


@app.callback()
def run(
    context: typer.Context,
    *,
    listen: Annotated[
        list[str] | None,
        typer.Option(help="unix:PATH or tcp:HOST:PORT; may be repeated.", show_default="unix:gate.sock"),
    ] = None,
    secret_file: SecretOption = None,
    policy: Annotated[
        PolicyName, typer.Option(help="Policy that decides which job sends first.")
    ] = PolicyName[DEFAULT_LINK_POLICY],
    gigabits: Annotated[float, typer.Option(min=0.001, help="Speed of a network card, Gbit/s.")] = 10.0,
    link: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Measured link: the output of `boa network fit -o json`."),
    ] = None,
    bucket_megabytes: Annotated[
        float | None, typer.Option(min=0.001, help="Least megabytes that one grant covers.")
    ] = None,
    patience_seconds: Annotated[
        float, typer.Option(min=0.001, help="A job that waited longer sends first.")
    ] = 5.0,
    always_on: Annotated[
        bool, typer.Option(help="Order messages even where ordering brings nothing.")
    ] = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Run the gate until SIGTERM or Ctrl-C, if no command is given."""
    if context.invoked_subcommand is not None:
        return
    folder = default_folder()
    addresses = [_address(text) for text in listen or [f"unix:{folder / 'gate.sock'}"]]
    settings = GateSettings(
        policy=policy.value,
        link=Link.of_gigabits(gigabits) if link is None else _read_link(link),
        bucket_bytes=None if bucket_megabytes is None else bucket_megabytes * 1e6,
        patience_seconds=patience_seconds,
        is_always_on=always_on,
    )
    path = secret_file or folder / "gate.secret"
    try:
        secret = read_or_make_secret(path)
    except (OSError, ValueError) as fault:
        raise InputError(
            f"the secret can be neither read nor made: {fault}", hint="Name another with --secret-file"
        ) from None
    code = asyncio.run(_serve(settings, secret, addresses, path, form=output))
    raise typer.Exit(code)


@app.command()
def status(
    *,
    address: AddressOption = "",
    secret_file: SecretOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Show which network cards are ordered and why, and the state of each job."""
    where = _address(address or f"unix:{default_folder() / 'gate.sock'}")
    token = issue_token(_read_secret(secret_file), role=PLANNER)
    try:
        answer = call_as_planner(where, token, {"op": "status"})["status"]
    except OSError as fault:
        raise GateUnreachable(
            f"no gate answers at {where}: {fault}. Start one with `boa gate`, or name it with --address"
        ) from None
    show(
        output,
        answer,
        rows=lambda: answer["nics"],
        table=lambda: _print_status(answer),
    )


@app.command()
def token(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, its BOA_JOB_ID.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File to create for the token, readable only by you.")
    ],
    *,
    address: AddressOption = "",
    secret_file: SecretOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Write a job's token to a file, and print the BOA_GATE variable for the job."""
    where = _address(address or f"unix:{default_folder() / 'gate.sock'}")
    secret = _read_secret(secret_file)
    try:
        write_token(file, issue_token(secret, job=job))
    except FileExistsError:
        raise InputError("the file exists already", file=file, hint="Remove it, or name another") from None
    except OSError as fault:
        raise InputError(f"cannot write the token: {fault.strerror}", file=file) from None
    value = str(
        GateAddress(
            path=where.path,
            host=where.host,
            port=where.port,
            token_file=str(file.resolve()),
            answer_seconds=where.answer_seconds,
        )
    )
    if output is OutputFormat.table:
        typer.echo(f"BOA_JOB_ID={job}\nBOA_GATE={value}")
    else:
        print_json({"BOA_JOB_ID": job, "BOA_GATE": value})


async def _serve(
    settings: GateSettings,
    secret: str,
    addresses: list[GateAddress],
    secret_file: Path,
    *,
    form: OutputFormat,
) -> int:
    """Run the gate until a signal, and return the exit code."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(number: int) -> None:
        if not stopped.done():
            stopped.set_result(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    server = GateServer(settings, secret)
    try:
        bound = await server.start(*addresses)
    except OSError as fault:
        await server.close()
        raise BoaError(f"the gate cannot listen: {fault}") from None
    if form is OutputFormat.json:
        print_json(
            {
                "listening": [str(one) for one in bound],
                "policy": settings.policy,
                "secret_file": str(secret_file),
            }
        )
    else:
        for one in bound:
            typer.echo(f"The gate ({settings.policy}) listens on {one}")
        typer.echo(f"Secret: {secret_file}. A job's BOA_GATE: boa gate token JOB FILE")
    # Flush: into a pipe the lines would be buffered until the gate ends.
    sys.stdout.flush()
    code = await stopped
    await server.close()
    return code


def _address(text: str) -> GateAddress:
    try:
        return GateAddress.parse(text)
    except BadAddress as fault:
        raise InputError(str(fault)) from None


def _read_secret(path: Path | None) -> str:
    """Return the secret that a gate on this machine has made."""
    path = path or default_folder() / "gate.secret"
    try:
        return read_token(path)
    except (OSError, ValueError) as fault:
        raise InputError(
            f"cannot read the gate's secret: {getattr(fault, 'strerror', None) or fault}",
            file=path,
            hint="`boa gate` makes it; name it with --secret-file",
        ) from None


def _read_link(path: Path) -> Link:
    try:
        constants = json.loads(path.read_text(encoding="utf-8"))["link"]
        return Link(**{name: float(constants[name]) for name in Link.__slots__})
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise InputError(
            f"no link found: {type(fault).__name__}: {fault}",
            file=path,
            hint="Expected the output of `boa network fit SAMPLES -o json`",
        ) from None


def _print_status(answer: dict[str, Any]) -> None:
    console = stdout_console()
    link = answer["link"]
    fitted = link["fitted_from_messages"]
    console.print(
        f"{answer['policy']}, up {answer['uptime_seconds']:,.0f} s. "
        f"Link {8e-9 / link['seconds_per_byte']:,.3g} Gbit/s, "
        f"latency {link['latency_seconds'] * 1e3:.3g} ms, "
        f"AdaDUAL threshold {answer['adadual_threshold']:.3f} "
        f"({f'fitted from {fitted} messages' if fitted else 'as configured'})."
    )
    counts = answer["counts"]
    console.print(
        f"{counts['asks']:,} requests, {counts['meetings']:,} of them while another message was in flight; "
        f"{counts['stalled']:,} grants expired."
    )
    cards = a_table("Cards", "card", "ordered", "jobs", "meetings", "why", right=("jobs", "meetings"))
    for nic in answer["nics"]:
        cards.add_row(
            nic["nic"],
            "yes" if nic["is_on"] else "no",
            str(nic["jobs"]),
            f"{nic['meeting_fraction']:.0%}",
            nic["why"],
        )
    console.print(cards)
    columns = ("left (GPU-h)", "exposed", "mean wait (ms)", "grants")
    jobs = a_table("Jobs", "job", "state", *columns, right=columns)
    for job in answer["jobs"]:
        exposed = job["exposed_fraction"]
        jobs.add_row(
            job["job"],
            job["state"],
            f"{job['remaining_gpu_seconds'] / 3600:,.3g}",
            "?" if exposed is None else f"{exposed:.0%}",
            f"{job['mean_wait_seconds'] * 1e3:,.1f}",
            f"{job['grants']:,}",
        )
    console.print(jobs)
