"""The schemas of CSV files accept the same rows as their readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from boa_daemon.cli.common.schemas import SCHEMAS, SchemaName
from boa_daemon.errors import InputError
from boa_daemon.inputs import jobs_file
from boa_daemon.inputs.document_file import read_document
from boa_daemon.inputs.table_schemas import ListedRow, TraceRow, jobs_schema, trace_schema
from boa_daemon.traces import reader

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TRACE = {"job_id": "a", "arrived_at_seconds": 0, "class_name": "v"}
JOB = {"job_id": "a", "class_name": "v"}


def test_the_schemas_have_the_columns_of_the_readers() -> None:
    """Every kind of file has a schema."""
    assert tuple(TraceRow.model_fields) == reader.COLUMNS
    assert tuple(ListedRow.model_fields) == jobs_file.COLUMNS
    assert set(SCHEMAS) == set(SchemaName)


def is_read(row: dict[str, Any], folder: Path, *, is_trace: bool) -> bool:
    """Return whether the reader accepts a file of one row."""
    file = folder / "rows.csv"
    file.write_text(",".join(row) + "\n" + ",".join(str(cell) for cell in row.values()) + "\n")
    try:
        if is_trace:
            reader.read_trace(file)
        else:
            jobs_file.read_list(file, ["v"])
    except InputError:
        return False
    return True


@pytest.mark.parametrize(
    "change",
    [
        {}, {"scale": 2}, {"scale": 0}, {"scale": -1}, {"scale": "large"}, {"job_id": ""}, {"class_name": ""},
        {"weight": 1}, {"arrived_at_seconds": -1}, {"arrived_at_seconds": 7.5}, {"colour": 1},
        {"arrived_at_seconds": "noon"},
    ],
)  # fmt: skip
def test_schema_and_reader_accept_the_same_rows_of_a_trace(change: dict[str, Any], tmp_path: Path) -> None:
    """Each case changes one valid row."""
    row = TRACE | change
    assert Draft202012Validator(trace_schema()).is_valid([row]) is is_read(row, tmp_path, is_trace=True)


@pytest.mark.parametrize(
    "change",
    [
        {}, {"scale": 2}, {"scale": 0}, {"weight": -1}, {"deadline_hours": 0}, {"deadline_hours": 3},
        {"submit_hours": 0}, {"submit_hours": -1}, {"submit_at": "2026-12-01"}, {"job_id": ""},
        {"submit_at": "2026-12-01", "deadline_at": "2026-12-02"}, {"arrived_at_seconds": 1},
    ],
)  # fmt: skip
def test_schema_and_reader_accept_the_same_rows_of_a_list(change: dict[str, Any], tmp_path: Path) -> None:
    """Each case changes one valid row."""
    row = JOB | change
    assert Draft202012Validator(jobs_schema()).is_valid([row]) is is_read(row, tmp_path, is_trace=False)


def test_the_example_files_match_their_schemas() -> None:
    """A list of jobs and a trace."""
    assert Draft202012Validator(jobs_schema()).is_valid(read_document(EXAMPLES / "jobs.csv").content)
    assert Draft202012Validator(trace_schema()).is_valid(read_document(EXAMPLES / "shared-links.csv").content)
