"""The keys of a problem file: what each may be, and what is said of one that is none."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from boa_daemon.inputs.problem_rows import BudgetRow, ClassRow, FileRow, NetworkRow, PhaseRow, problem_schema

PHASE: dict[str, Any] = {"size_gpu_hours": 1.0}


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (BudgetRow, {"usd_per_hour": 0.0}),
        (BudgetRow, {"gpus": -1.0}),
        (NetworkRow, {"message_bytes": 1.0}),
        (NetworkRow, {"message_bytes": 1.0, "compute_seconds": 0.0}),
        (PhaseRow, {"size_gpu_hours": 0.0}),
        (PhaseRow, {"extrapolate_to": 1.5}),
        (ClassRow, {"name": "c", "phases": []}),
        (ClassRow, {"name": "", "phases": [PHASE]}),
        (ClassRow, {"name": "c", "phases": [PHASE], "weight": 0.0}),
        (ClassRow, {"name": "c", "phases": [PHASE], "startup_hours": -0.1}),
        (ClassRow, {"name": "c", "phases": [PHASE], "spread": 1.1}),
        (ClassRow, {"name": "c", "phases": [PHASE], "min_gpus": 0}),
        (FileRow, {"classes": []}),
    ],
)
def test_a_value_out_of_range_is_refused(model: Any, values: dict[str, Any]) -> None:
    """A class without work and a weight of nothing would divide by zero later."""
    with pytest.raises(ValidationError):
        model.model_validate(values)


def test_a_class_has_weight_one_and_no_overheads_unless_it_says_so() -> None:
    """It shares no GPU unless it says that as well."""
    row = ClassRow.model_validate({"name": "c", "phases": [PHASE]})
    assert (row.weight, row.startup_hours, row.rescale_hours, row.shares_gpu) == (1.0, 0.0, 0.0, False)
    assert (row.min_gpus, row.max_gpus, row.spread, row.arrivals_per_hour) == (None, None, None, None)


@pytest.mark.parametrize("key", ["size", "size_hours", "sizeGpuHours"])
def test_every_word_for_the_size_of_a_phase_is_understood(key: str) -> None:
    """The hint names the unit as well."""
    with pytest.raises(ValidationError) as found:
        PhaseRow.model_validate({key: 1.0})
    assert "size_gpu_hours" in repr(found.value.errors())


def test_the_schema_describes_every_key() -> None:
    """Editors show the descriptions."""
    schema = problem_schema()
    rows = [schema, *schema["$defs"].values()]
    assert all("description" in key for row in rows for key in row.get("properties", {}).values())
    assert all(row.get("additionalProperties") is False for row in rows if "properties" in row)
