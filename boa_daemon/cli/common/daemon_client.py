"""Shared by the verbs that talk to the daemon: options, the client, ages, dollars, next commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from boa_daemon.cli.common.output import stdout_console
from boa_daemon.units import format_hours
from policies.money_text import in_dollars

if TYPE_CHECKING:
    from boa_daemon.api.client import Client

ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file. Default: ./boa.toml, then the user's and the system's.",
    ),
]
SocketOption: TypeAlias = Annotated[
    str | None, typer.Option("--socket", metavar="PATH", help="Socket or URL of the daemon.")
]


@contextmanager
def a_client(config: Path | None, socket: str | None) -> Iterator[Client]:
    """Open a client of the daemon that the settings and flags name."""
    from boa_daemon.api import client as api  # noqa: PLC0415 - slow to import, and most verbs need no daemon

    with api.Client(api.default_address(config, socket)) as client:
        yield client


def age(instant: float | None, now: float) -> str:
    """Return how long before `now` an instant was; empty for None."""
    return "" if instant is None else format_hours(max(now - instant, 0.0) / 3600.0)


def clock_time(instant: float) -> str:
    """Return an instant as date and time in UTC."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def usd(amount: float | None) -> str:
    """Return dollars with their sign; a dash for None."""
    return in_dollars(amount)


def say_as_of(document: Mapping[str, Any]) -> None:
    """Print the instant of an answer."""
    stdout_console().print(f"[dim]as of {clock_time(float(document['as_of']))}[/]")


def say_next(*commands: str) -> None:
    """Print the next useful commands."""
    console = stdout_console()
    console.print("[dim]next:[/]")
    for command in commands:
        console.print(f"  {command}", markup=False)
