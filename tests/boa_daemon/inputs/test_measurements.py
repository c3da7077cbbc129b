"""Measurements of a class: means by machine and width, and how far they lie apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.measurements import read_measurements


def read(folder: Path, text: str, class_name: str = "c") -> tuple[dict[str, dict[str, float]], float]:
    """Return what a file says of a class."""
    (folder / "m.csv").write_text(text)
    return read_measurements(folder / "m.csv", "step_seconds", class_name)


def test_measurements_of_a_machine_and_width_are_averaged(tmp_path: Path) -> None:
    """The spread is the largest deviation from a mean; columns come in any order, empty lines say nothing."""
    rows = "gpus, machine,step_seconds\n1,a100,2.0\n1, a100 ,3.0\n\n ,,\n2,a100,1.0\n1,g5.xlarge,4.0\n"
    means, apart = read(tmp_path, rows)
    assert means == {"a100": {"1": 2.5, "2": 1.0}, "g5.xlarge": {"1": 4.0}}
    assert apart == pytest.approx(0.2)
    assert read(tmp_path, "machine,gpus,step_seconds\na,1,2.0\n")[1] == 0.0


def test_only_the_rows_of_the_class_count(tmp_path: Path) -> None:
    """Without a column for it all rows do; rows of other classes are not read at all."""
    rows = "class_name,machine,gpus,step_seconds\nc,a,1,2.0\nd,a,1,none\n"
    assert read(tmp_path, rows)[0] == {"a": {"1": 2.0}}
    with pytest.raises(InputError, match="no row is about class 'e'"):
        read(tmp_path, rows, "e")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "column 'machine' must occur exactly once"),
        ("machine,step_seconds\n", "column 'gpus' must occur exactly once"),
        ("machine,gpus,gpus,step_seconds\n", "column 'gpus' must occur exactly once"),
        ("machine,gpus,step_second\n", "m.csv:1: unknown column 'step_second'.*step_seconds"),
        ("machine,gpus,step_seconds\na,1\n", "m.csv:2: 2 cells where the header has 3"),
        (
            "machine,gpus,step_seconds\na,1,2.0\na,1,0\n",
            "m.csv:3: step_seconds must be a number, more than zero",
        ),
        ("machine,gpus,step_seconds\na,1,inf\n", "m.csv:2: step_seconds must be a number"),
        ("machine,gpus,step_seconds\na,1,fast\n", "m.csv:2: step_seconds must be a number.*got 'fast'"),
        ("machine,gpus,step_seconds\n", "no row is about class 'c'"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    """The error says what is wrong there."""
    with pytest.raises(InputError, match=said):
        read(tmp_path, text)
