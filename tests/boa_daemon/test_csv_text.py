"""Rows of delimited text: signs that are no line ends, and long cells, through the files that users bring."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.csv_text import csv_reader
from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.measurements import read_measurements
from boa_daemon.inputs.tables import read_rows
from boa_daemon.traces.reader import read_trace

SIGNS = {
    "next line": "\x85",
    "line separator": "\u2028",
    "paragraph": "\u2029",
    "tab": "\v",
    "feed": "\f",
    "fs": "\x1c",
}
CELLS = {**{name: f"a{sign}b" for name, sign in SIGNS.items()}, "140 kB": "x" * 140_000}
ENDS = {"unix": "\n", "dos": "\r\n", "old mac": "\r"}


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_cell_keeps_its_signs(cell: str, end: str) -> None:
    """Three rows of two cells, whatever ends a line."""
    assert list(csv_reader(end.join(("a,b", f"{cell},1", "x,2", "")))) == [
        ["a", "b"],
        [cell, "1"],
        ["x", "2"],
    ]


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_every_reader_takes_the_cell(cell: str, tmp_path: Path) -> None:
    """Public traces, price files, measurements, traces and job lists read the same row."""
    table = tmp_path / "table.csv"
    table.write_text(f"name,n\n{cell},8.0\n", encoding="utf-8")
    (row,) = read_rows(table, ("name", "n"))
    assert (row.cells["name"], row.whole("n"), row.line) == (cell, 8, 2)
    prices = tmp_path / "prices.csv"
    prices.write_text(f"instance_type,source,usd_per_hour\np4d.24xlarge,{cell},20\n", encoding="utf-8")
    assert Catalog.load(prices).price_of("p4d.24xlarge") == 20.0
    steps = tmp_path / "steps.csv"
    steps.write_text(f"machine,gpus,step_seconds\n{cell},1,0.5\n", encoding="utf-8")
    assert read_measurements(steps, "step_seconds", "c")[0] == {cell: {"1": 0.5}}
    trace = tmp_path / "trace.csv"
    trace.write_text(f"job_id,arrived_at_seconds,class_name\n{cell},0,c\n", encoding="utf-8")
    assert read_trace(trace).jobs[0].id == cell


@pytest.mark.parametrize("written", ["8", "8.0", "8.", "8e0"])
@pytest.mark.parametrize("form", ["csv", "toml", "json"])
def test_eight_point_zero_gpus_are_eight(written: str, form: str, tmp_path: Path) -> None:
    """As data frames write whole numbers: 20 USD / 8 GPUs = 2.5 USD per GPU-hour."""
    if written == "8." and form != "csv":  # No number there.
        written = "8.0"
    path = tmp_path / f"prices.{form}"
    row = f'"instance_type": "rack-1", "gpus": {written}, "gpu_model": "X", "vcpus": 96.0, "usd_per_hour": 20'
    texts = {
        "csv": f"instance_type,gpus,gpu_model,vcpus,usd_per_hour\nrack-1,{written},X,96.0,20\n",
        "toml": "[[types]]\n" + row.replace(": ", " = ").replace(", ", "\n"),
        "json": f'{{"types": [{{{row}}}]}}',
    }
    path.write_text(texts[form])
    entry = Catalog.load(path).entry("rack-1")
    assert (entry.gpus, entry.vcpus, entry.usd_per_gpu_hour) == (8, 96, 2.5)


def test_eight_and_a_half_gpus_are_refused(tmp_path: Path) -> None:
    """With the line."""
    path = tmp_path / "prices.csv"
    path.write_text("instance_type,gpus,gpu_model,usd_per_hour\nrack-1,8.5,X,20\n")
    with pytest.raises(InputError, match=r"prices.csv:2: gpus must be a whole number; got 8.5"):
        Catalog.load(path)
