"""``boa schema``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from boa_daemon.cli.common.output import print_json
from boa_daemon.cli.common.schemas import SchemaName, schema_of, write_schemas
from boa_daemon.errors import InputError


def schema(
    what: Annotated[SchemaName, typer.Argument(help="Kind of file.")] = SchemaName.job,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write every kind to DIR as KIND.schema.json instead.")
    ] = None,
) -> None:
    """Print the JSON schema of a kind of file, for editors and your own checks."""
    if folder is None:
        print_json(schema_of(what))
        return
    try:
        write_schemas(folder, SchemaName)
    except OSError as error:
        raise InputError(f"cannot write: {error.strerror}", file=folder) from None
