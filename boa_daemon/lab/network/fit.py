"""Reads samples of measured all-reduces from a CSV file, and fits a link to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import read_document
from boa_daemon.inputs.schema import Positive, Strict, checked
from boa_daemon.inputs.table_schemas import rows_schema
from policies.errors import InvalidProblem
from policies.links.contention import LinkFit, LinkSample, fit_link


class SampleEntry(Strict):
    """One row: an all-reduce during which the number of messages at once was constant."""

    messages_at_once: Annotated[int, Field(ge=1, le=10**6, description="messages, this one included")]
    message_bytes: Annotated[Positive, Field(description="bytes")]
    seconds: Annotated[Positive, Field(description="seconds, from start to end")]


def samples_schema() -> dict[str, Any]:
    """Return the JSON schema of the rows of a file of samples."""
    return rows_schema(SampleEntry)


def fit_file(path: str | Path, *, confidence: float) -> LinkFit:
    """Return the link fitted to the samples in a CSV file.

    Raises:
        InputError: when the file cannot be read, or the samples cannot tell the constants apart.
    """
    document = read_document(path)
    rows = document.content
    if not isinstance(rows, list) or not rows:
        raise InputError(
            "no samples found",
            file=document.name,
            hint="Expected CSV with the columns messages_at_once, message_bytes, seconds",
        )
    entries = [checked(SampleEntry, row, document=document, at=(number,)) for number, row in enumerate(rows)]
    try:
        return fit_link([LinkSample(**entry.model_dump()) for entry in entries], confidence=confidence)
    except InvalidProblem as problem:
        raise InputError(str(problem), file=document.name) from None
