"""`matrix` and `count`: the jobs that a job file makes, and its errors."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.groups import members, size_of
from boa_daemon.inputs.job_file import check_job
from boa_daemon.testing.daemon_in_a_folder import job_content


def checked(**changes: Any) -> Mapping[str, Any]:
    return check_job(Document(name="job.yaml", content=job_content(**changes), language="json"))


def test_a_job_without_matrix_and_count_is_a_single_job() -> None:
    """The job belongs to no group."""
    content = checked()
    assert list(members(content)) == [{k: v for k, v in content.items() if k not in ("matrix", "count")}]


def test_matrix_values_become_environment_variables() -> None:
    """Text stays as it is, numbers and `true` are written as in JSON, and the file's variables stay."""
    content = checked(matrix={"LR": [0.1, 1e-05], "SEED": [1, 2], "MODE": ["a b"], "BIG": [True]})
    found = [job["environment"] for job in members(content)]
    assert [(one["LR"], one["SEED"]) for one in found] == [
        ("0.1", "1"), ("0.1", "2"), ("1e-05", "1"), ("1e-05", "2"),
    ]  # fmt: skip
    assert {(one["MODE"], one["BIG"], one["HOURS"]) for one in found} == {("a b", "true", "1.0")}


@given(
    matrix=st.dictionaries(
        st.from_regex(r"[A-Z]{1,4}", fullmatch=True),
        st.lists(st.integers(), min_size=1, max_size=4),
        max_size=3,
    ),
    count=st.none() | st.integers(min_value=1, max_value=5),
)
def test_every_combination_of_the_matrix_occurs_count_times(
    matrix: dict[str, list[int]], count: int | None
) -> None:
    """Indices are consecutive from 0, and every job knows the size of its group."""
    content = checked(matrix=matrix or None, count=count)
    found = list(members(content))
    assert len(found) == size_of(content)
    if matrix or count:
        assert [job["group"]["index"] for job in found] == list(range(len(found)))
        assert {job["group"]["size"] for job in found} == {len(found)}
    values = [tuple(job["environment"].get(name) for name in matrix) for job in found]
    product = [tuple(map(str, one)) for one in itertools.product(*matrix.values())]
    assert sorted(values) == sorted(product * (count or 1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"matrix": {}}, "matrix must be a mapping of variables to lists; got an empty mapping"),
        ({"matrix": [1]}, "matrix must be a mapping of variables to lists; got a list"),
        ({"matrix": {"A": 3}}, "matrix of A must be a list of values; got 3"),
        ({"matrix": {"A": []}}, "matrix of A must be a list of values; got an empty list"),
        ({"matrix": {"A": [None]}}, "matrix of A holds nothing, which is no text and no number"),
        ({"matrix": {"A": [[1]]}}, "matrix of A holds a list"),
        ({"matrix": {"A": ["x\0"]}}, "matrix of A holds the text"),
        ({"matrix": {"A": [10**400]}}, "matrix of A holds a whole number of about 400 digits"),
        ({"matrix": {"CUDA_VISIBLE_DEVICES": [0]}}, "matrix: CUDA_VISIBLE_DEVICES is set by the daemon"),
        ({"matrix": {"a-b": [0]}}, "matrix: 'a-b' is not a valid name of a variable"),
        ({"matrix": {"A": list(range(101))}, "count": 100}, "matrix and count make 10,100 jobs"),
        ({"count": 0}, "count must be at least 1; got 0"),
        ({"count": 10_001}, "count must be at most 10000"),
        ({"retries": {"eror": 1}}, "no kind of failure 'eror'. Did you mean 'error'"),
        ({"retries": {"error": True}}, "retries of 'error' must be a whole number from 0 to 100; got true"),
        ({"retries": -1}, "retries must be a whole number from 0 to 100; got -1. Or a mapping"),
    ],
)
def test_invalid_matrix_count_and_retries_are_refused(changes: dict[str, Any], said: str) -> None:
    """The error has the key, the value, and a suggestion."""
    with pytest.raises(InputError) as refused:
        checked(**changes)
    assert said in str(refused.value)
