"""Errors keep their message and numbers on the way between processes."""

from __future__ import annotations

import pickle

import pytest

from policies.errors import InfeasibleBudget, InfeasibleDeadline, InvalidProblem, PolicyError


@pytest.mark.parametrize(
    "error",
    [
        InvalidProblem("no jobs"),
        InfeasibleBudget("too small", least_spend=2.5),
        InfeasibleDeadline("too early", least_hours=3.5),
    ],
)
def test_an_error_survives_pickling(error: PolicyError) -> None:
    """Class, message and numbers survive pickling, although the constructor has keyword-only arguments."""
    found = pickle.loads(pickle.dumps(error))
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))
