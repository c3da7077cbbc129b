"""Problems for programs: the same from a file, a mapping, rows and a table, or refused with the row."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.errors import InputError
from boa_daemon.library.problem import Problem

ROW: dict[str, Any] = {
    "class": "bert",
    "arrivals_per_hour": 2.0,
    "size_gpu_hours": 3.0,
    "gpu_type": "a100",
    "gpus": 1,
    "speedup": 1.0,
}
WIDE = {**ROW, "gpus": 4, "speedup": 3.0}


def test_rows_are_the_widths_of_classes() -> None:
    """Text is read as a CSV file has it; a weight is a fact of the class too."""
    problem = Problem.from_rows([ROW, {**WIDE, "gpus": "4", "speedup": "3"}])
    (job_class,) = problem.file.problem.classes
    (phase,) = job_class.phases
    (curve,) = phase.speedups.values()
    assert (job_class.name, job_class.arrivals_per_hour, phase.size_gpu_hours) == ("bert", 2.0, 3.0)
    assert curve.whole_widths().tolist() == [1, 4]
    assert curve.speed_at([1, 4]).tolist() == [1.0, 3.0]
    (heavy,) = Problem.from_rows([{**ROW, "weight": 5}]).file.problem.classes
    assert heavy.weight == 5.0


def test_several_gpu_types_need_prices() -> None:
    """With prices a budget is in dollars, else in GPUs."""
    rows = [ROW, {**ROW, "gpu_type": "t4", "speedup": 0.3}]
    problem = Problem.from_rows(rows, prices={"a100": 4.0, "t4": 0.5})
    assert problem.file.problem.budget_unit == "usd_per_hour"
    assert {gpu.name: gpu.usd_per_gpu_hour for gpu in problem.file.problem.gpu_types} == {
        "a100": 4.0,
        "t4": 0.5,
    }
    assert Problem.from_rows([ROW]).file.problem.budget_unit == "gpus"
    with pytest.raises(InputError, match="class 'bert' has several GPU types"):
        Problem.from_rows(rows)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "there are no rows. Its columns are class, arrivals_per_hour"),
        ([{**ROW, "speedup": ""}], "column 'speedup' is missing"),
        ([{key: ROW[key] for key in ROW if key != "class"}], "column 'class' is missing"),
        ([{**ROW, "gpu": 1}], "column 'gpu' is not a column of a problem"),
        ([{**ROW, "gpus": "two"}], "the rows:2: gpus is a number; got 'two'"),
        ([ROW, {**WIDE, "size_gpu_hours": 4.0}], "the rows:3: class 'bert' has another rate, size or weight"),
        ([ROW, {**WIDE, "weight": 2.0}], "the rows:3: class 'bert' has another rate, size or weight"),
        ([{**ROW, "gpus": 1.5}], "the rows:2: gpus is a whole number; got 1.5"),
        ([{**ROW, "gpus": nan}], "the rows:2: gpus is a whole number; got nan"),
        ([{**ROW, "gpus": inf}], "the rows:2: gpus is a whole number; got inf"),
        ([{**ROW, "gpus": "1.5"}], "the rows:2: gpus is a whole number; got '1.5'"),
        ([ROW, {**ROW, "speedup": 2.0}], "the rows:3: class 'bert' has 1 x a100 in an earlier row as well"),
        ([{**ROW, "speedup": nan}], "speed at 1 GPUs must be a number"),
        ([{**ROW, "gpus": 0}], "widths are whole GPUs"),
    ],
)
def test_a_wrong_row_is_refused(rows: list[dict[str, Any]], said: str) -> None:
    """The number is that of a line of a CSV file under its header."""
    with pytest.raises(InputError) as found:
        Problem.from_rows(rows)
    assert said in str(found.value)


def test_a_csv_file_is_its_rows(tmp_path: Path) -> None:
    """A byte-order mark is no part of the first name."""
    path = tmp_path / "p.csv"
    lines = [",".join(ROW), *(",".join(map(str, row.values())) for row in (ROW, WIDE))]
    path.write_text("\n".join(lines), encoding="utf-8-sig")
    assert Problem.from_csv(path).file.problem == Problem.from_rows([ROW, WIDE]).file.problem
    path.write_bytes(b"class\n\xff")
    with pytest.raises(InputError, match=r"p\.csv: cannot be read"):
        Problem.from_csv(path)
    with pytest.raises(InputError, match=r"none\.csv: cannot be read"):
        Problem.from_csv(tmp_path / "none.csv")


def test_a_budget_is_text_a_number_in_the_problems_unit_or_its_own() -> None:
    """One of them there must be."""
    problem = Problem.from_rows([ROW], prices={"a100": 4.0})
    assert [problem.under(asked)[1].amount for asked in ("48/day", 7, 2.5)] == [2.0, 7.0, 2.5]
    assert problem.under("gpus:8")[1].unit == "gpus"
    assert problem.under("gpus:8")[0].problem.budget_unit == "gpus"
    for wrong in (0, -1.0, nan):
        with pytest.raises(InputError, match="a budget is a positive number"):
            problem.under(wrong)
    with pytest.raises(InputError, match="no budget"):
        problem.under(None)
    document = {
        "budget": {"gpus": 3},
        "classes": [{"name": "c", "phases": [{"size_gpu_hours": 1, "speedup": {"table": {"1": 1}}}]}],
    }
    assert Problem.from_dict(document).under(None)[1].amount == 3.0
