"""``boa artifacts``: list or download the files that a job wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from boa_daemon.cli.common.completion import JobArgument
from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption, a_client, say_as_of, say_next
from boa_daemon.cli.common.output import OutputFormat, OutputOption, a_table, show, stdout_console
from boa_daemon.errors import InputError


def artifacts(
    *,
    job: JobArgument,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Copy the files to this folder.")] = None,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """List the files that a job wrote, or copy them to this machine."""
    with a_client(config, socket) as client:
        document = client.artifacts(job)
        if out is not None:
            top = out.resolve()
            for row in document["files"]:
                target = (top / row["name"]).resolve()
                if not target.is_relative_to(top):
                    raise InputError(f"the file {row['name']!r} would be written outside of {out}")
                client.download(job, row["name"], target)

    def table() -> None:
        rows = document["files"]
        if not rows:
            stdout_console().print("No files.")
        else:
            found = a_table(f"Files of {job}", "name", "bytes", right=("bytes",))
            for row in rows:
                found.add_row(row["name"], f"{row['bytes']:,}")
            stdout_console().print(found)
        say_as_of(document)
        if rows and out is None:
            say_next(f"boa artifacts {job} --out DIR")

    show(output, dict(document), rows=lambda: document["files"], table=table)
