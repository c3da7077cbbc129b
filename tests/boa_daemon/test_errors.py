"""Errors: what they say, and the exit code each one means."""

from __future__ import annotations

import pytest

from boa_daemon.errors import (
    BoaError,
    InputError,
    MissingExtra,
    MissingPrice,
    did_you_mean,
    exit_code_of,
)
from policies.errors import (
    InfeasibleBudget,
    InfeasibleDeadline,
    InvalidProblem,
    UnknownPolicy,
)
from policies.optimum.solution import ProblemTooLarge


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BoaError("x"), 1),
        (InputError("x"), 2),
        (MissingPrice("x"), 2),
        (MissingExtra("x"), 2),
        (InvalidProblem("x"), 2),
        (UnknownPolicy("x"), 2),
        (InfeasibleBudget("x", least_spend=1.0), 3),
        (InfeasibleDeadline("x", least_hours=1.0), 3),
        (ProblemTooLarge("x", best=None, gap=0.1), 1),
        (RuntimeError("x"), 1),
    ],
)
def test_every_error_has_its_exit_code(error: Exception, code: int) -> None:
    """1 failed, 2 bad input, 3 infeasible."""
    assert exit_code_of(error) == code


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (InputError("it is wrong"), "it is wrong"),
        (InputError("it is wrong", file="a.yaml"), "a.yaml: it is wrong"),
        (InputError("it is wrong", file="a.yaml", line=3, hint="Mend it"), "a.yaml:3: it is wrong. Mend it"),
    ],
)
def test_an_input_error_says_where_what_and_what_to_try(error: InputError, words: str) -> None:
    """File and line come first, the hint last; what is not known is left out."""
    assert str(error) == words


def test_a_hint_names_the_closest_word() -> None:
    """A typo brings one word, with its meaning where there is one; anything else a short list, or nothing."""
    assert did_you_mean("buget", ["budget", "classes"]) == "Did you mean 'budget'?"
    assert did_you_mean("buget", ["budget"], meanings={"budget": "money"}) == "Did you mean 'budget' (money)?"
    assert did_you_mean("zzz", ["budget", "classes"]) == "Known: budget, classes"
    assert did_you_mean("zzz", [f"word{i}" for i in range(31)]) == ""
    assert did_you_mean("zzz", []) == ""
