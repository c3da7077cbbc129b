"""JSON schemas of CSV files: a list with one object for each row below the header.

Traces and lists of jobs are read without pydantic, a microsecond a row. These schemas repeat their rules, and
a test compares the two.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from boa_daemon.inputs.schema import Name, Positive, Strict


class TraceRow(Strict):
    """One arrival of a trace."""

    job_id: Name = Field(description="distinct")
    arrived_at_seconds: float = Field(ge=0.0, description="seconds from the start of the trace, in order")
    class_name: Name = Field(description="a class of the class file")
    scale: float = Field(default=1.0, gt=0.0, description="factor on the sizes of the class's phases")


class ListedRow(Strict):
    """A job of a list, all of which must run."""

    job_id: Name = Field(description="distinct")
    class_name: Name = Field(description="a class of the class file")
    scale: Positive = Field(default=1.0, description="factor on the sizes of the class's phases")
    weight: Positive = Field(default=1.0, description="worth of an hour of the job's time")
    deadline_hours: Positive | None = Field(default=None, description="hours from its arrival to its end")
    submit_hours: float = Field(default=0.0, ge=0.0, description="hours from the list's beginning")
    submit_at: str | None = Field(default=None, description="a date, in place of submit_hours")
    deadline_at: str | None = Field(default=None, description="a date, in place of deadline_hours")


def rows_schema(row: type[Strict]) -> dict[str, Any]:
    """Return the schema of a list of rows."""
    return {
        "title": row.__name__.lstrip("_"),
        "type": "array",
        "minItems": 1,
        "items": row.model_json_schema(),
    }


def trace_schema() -> dict[str, Any]:
    """Return the schema of a trace."""
    return rows_schema(TraceRow)


def jobs_schema() -> dict[str, Any]:
    """Return the schema of a list of jobs."""
    return rows_schema(ListedRow)
