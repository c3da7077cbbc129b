"""Files of values over time: what is no such file is refused where the fault stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.errors import InputError
from boa_daemon.sim.step_file import Column, Steps, read_steps


def read(folder: Path, text: str, column: Column = "nodes", name: str = "steps.csv") -> Steps:
    """Return the steps of a file with this text."""
    (folder / name).write_text(text)
    return read_steps(folder / name, column)


def trace(folder: Path, column: Column = "nodes", **changes: Any) -> Steps:
    """Return the steps of a trace in JSON."""
    plain = {"metadata": {"gap_seconds": 195}, "data": [0, 3, 3, 1]}
    return read(folder, json.dumps({**plain, **changes}), column, "trace.json")


def test_equal_neighbours_of_a_stock_are_merged_and_of_a_price_kept(tmp_path: Path) -> None:
    """The mean price needs the time of the last row."""
    assert read(tmp_path, "at_seconds,nodes\n0,4\n10,4\n20,0\n") == ((0.0, 4.0), (20.0, 0.0))
    prices = read(tmp_path, "at_seconds,price_fraction\n0,0.5\n10,0.5\n", "price_fraction")
    assert prices == ((0.0, 0.5), (10.0, 0.5))
    assert trace(tmp_path) == ((0.0, 0.0), (195.0, 3.0), (585.0, 1.0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "steps.csv:1: not a file of values over time. It begins with at_seconds,nodes"),
        ("at_seconds,nodes\n", "steps.csv:1: not a file of values"),
        ("at_seconds,price_fraction\n0,1\n", "steps.csv:1: not a file of values"),
        ("at_seconds,nodes\n0,4\n5\n", "steps.csv:3: two numbers expected; got '5'"),
        ("at_seconds,nodes\n0,4,1\n", "steps.csv:2: two numbers expected"),
        ("at_seconds,nodes\n0,many\n", "steps.csv:2: two numbers expected"),
        ("at_seconds,nodes\n0,inf\n", "steps.csv:2: two numbers expected"),
        ("at_seconds,nodes\n0,4\n0,5\n", "steps.csv:3: at_seconds must rise from 0; got 0"),
        ("at_seconds,nodes\n-1,4\n", "steps.csv:2: at_seconds must rise from 0; got -1"),
        ("at_seconds,nodes\n0,4\n5,-1\n", "steps.csv:3: nodes must be a whole number, 0 or more; got -1"),
        ("at_seconds,nodes\n0,1.5\n", "steps.csv:2: nodes must be a whole number"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    """The header is the first line."""
    with pytest.raises(InputError) as found:
        read(tmp_path, text)
    assert said in str(found.value)


@pytest.mark.parametrize(("value", "is_read"), [("1", True), ("0.001", True), ("0", False), ("1.01", False)])
def test_a_price_is_a_share_of_that_on_demand(tmp_path: Path, value: str, is_read: bool) -> None:
    """More than nothing and at most all of it."""
    text = f"at_seconds,price_fraction\n0,{value}\n"
    if is_read:
        assert read(tmp_path, text, "price_fraction") == ((0.0, float(value)),)
    else:
        with pytest.raises(
            InputError, match=r"steps\.csv:2: price_fraction must be more than 0 and at most 1"
        ):
            read(tmp_path, text, "price_fraction")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metadata": {"gap_seconds": 0}}, "not a spot trace"),
        ({"metadata": {"gap_seconds": True}}, "not a spot trace"),
        ({"metadata": {}}, "not a spot trace"),
        ({"data": []}, "not a spot trace"),
        ({"data": [1, True]}, "data must be whole numbers"),
        ({"data": [1, 1.5]}, "data must be whole numbers"),
        ({"SpotPriceHistory": []}, "this is AWS's spot price history, in dollars"),
    ],
)
def test_a_trace_has_whole_numbers_at_equal_times(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    """AWS's own history is named, with what makes a world of it."""
    with pytest.raises(InputError, match=said):
        trace(tmp_path, **changes)


def test_the_fault_of_a_trace_has_no_line_of_a_table(tmp_path: Path) -> None:
    """A trace stands on one line, or each value on one: the number of a row would name another line."""
    for column, data in (("nodes", [0, 1, -1]), ("price_fraction", [1, 1, 2])):
        with pytest.raises(InputError) as found:
            trace(tmp_path, column, data=data)  # type: ignore[arg-type]
        assert found.value.line is None
        assert found.value.file == tmp_path / "trace.json"


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """A missing one, or one that is no text."""
    with pytest.raises(InputError, match="cannot read it: No such file"):
        read_steps(tmp_path / "none.csv", "nodes")
    (tmp_path / "steps.csv").write_bytes(b"at_seconds,nodes\n0,\xff\n")
    with pytest.raises(InputError, match="byte 19 is not UTF-8 text"):
        read_steps(tmp_path / "steps.csv", "nodes")
