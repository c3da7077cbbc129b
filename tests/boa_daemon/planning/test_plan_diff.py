"""The differences between two answers of `boa plan`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.errors import InputError
from boa_daemon.planning.plan_diff import differences, read_plan

FIGURES = st.floats(0.1, 1e6)
ANSWERS = st.fixed_dictionaries(
    {
        "budget": FIGURES,
        "mean_spend": FIGURES,
        "classes": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from("abc"), "mean_jct_hours": FIGURES}),
            unique_by=lambda row: str(row["name"]),
        ),
    }
)


@given(old=ANSWERS, new=ANSWERS)
def test_differences_are_symmetric_and_empty_for_equal_plans(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    """In the other direction new and gone, and old and new figures, are exchanged."""
    there, back = differences(old, new), differences(new, old)

    assert differences(old, old) == []
    turned = {"new": "gone", "gone": "new", "changed": "changed"}
    assert {(turned[one.kind], one.what, one.figure, str(one.new), str(one.old)) for one in there} == {
        (one.kind, one.what, one.figure, str(one.old), str(one.new)) for one in back
    }


def test_differences_show_widths_and_machines_as_counts_and_types() -> None:
    """A width is shown as `8 x a100` and a machine as `2 x p4d`."""
    wide = {"name": "c", "plans": [{"phases": [{"gpu_type": "a100", "gpus": 8}]}]}
    narrow = {"name": "c", "plans": [{"phases": [{"gpu_type": "a100", "gpus": 4}]}]}
    (change,) = differences({"classes": [narrow]}, {"classes": [wide]})
    assert (change.figure, change.old, change.new) == ("widths", "4 x a100", "8 x a100")

    job = {"job_id": "j", "instance_type": "p4d", "start_at": "1", "start_hours": 0.0, "end_hours": 2.0}
    moved = differences(
        {"jobs": [{**job, "instances": 1, "end_at": "2"}]},
        {"jobs": [{**job, "instances": 2, "end_at": "3", "end_hours": 3.0}]},
    )
    assert [(one.figure, one.old, one.new) for one in moved] == [
        ("on", "1 x p4d", "2 x p4d"),
        ("end_at", "2", "3"),
    ]


def test_plans_of_different_kinds_and_unreadable_files_are_refused(tmp_path: Path) -> None:
    """The hint says how to save a plan."""
    with pytest.raises(InputError, match="the old plan is of a list, this one of a stream"):
        differences({"jobs": []}, {"classes": []})
    for text in ("{", "[]", json.dumps({"spend": 1})):
        (tmp_path / "old.json").write_text(text)
        with pytest.raises(InputError) as error:
            read_plan(tmp_path / "old.json")
        assert "-o json > old.json" in str(error.value.hint)
