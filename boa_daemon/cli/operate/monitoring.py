"""``boa grafana`` and ``boa alerts``: monitor the daemon, also with Grafana and Prometheus."""

from __future__ import annotations

from typing import Annotated

import typer

from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption, a_client, clock_time, say_as_of
from boa_daemon.cli.common.output import OutputFormat, OutputOption, print_json, print_text, stdout_console
from boa_daemon.errors import InputError


def grafana(
    *,
    as_file: Annotated[
        bool, typer.Option("--print", help="Print the dashboard as JSON, for import in Grafana.")
    ] = False,
) -> None:
    """Print a Grafana dashboard of the daemon's metrics."""
    from boa_daemon.daemon.watch.grafana import dashboard  # noqa: PLC0415 - one verb needs it

    if not as_file:
        raise InputError("nothing to do", hint="boa grafana --print > boa.json, and import that in Grafana")
    print_json(dashboard())


def alerts(
    *,
    prometheus: Annotated[
        bool,
        typer.Option("--prometheus", help="Print alert rules for Prometheus instead; needs no daemon."),
    ] = False,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """List the daemon's alerts, newest first."""
    if prometheus:
        import yaml  # noqa: PLC0415 - one flag needs it

        from boa_daemon.daemon.watch.grafana import rules  # noqa: PLC0415

        print_text(yaml.safe_dump(rules(), sort_keys=False, width=100, allow_unicode=True))
        return
    with a_client(config, socket) as client:
        document = client.alerts()
    if output is OutputFormat.json:
        print_json(document)
        return
    for row in document["alerts"]:
        stdout_console().print(f"{clock_time(row['at'])}  {row['sentence']}", markup=False)
    if not document["alerts"]:
        stdout_console().print("Nothing to report.")
    say_as_of(document)
