"""Errors of the mathematics, named for the reader's next step.

PolicyError
├── InvalidProblem         a value that no problem can have: mend the input
├── InfeasibleBudget       the budget is below the least that runs every job: raise it
├── InfeasibleDeadline     no width is fast enough: relax the deadline
├── ProblemTooLarge        exact search stopped at its limit: take the best found, or another version;
│                          defined in `policies.optimum.solution`, because it carries that answer
├── BrokenPlugin           a plug-in cannot be imported: update or remove its package
└── UnknownPolicy          no policy of that name: pick one from the list
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class PolicyError(Exception):
    """Base of all errors of this package. It can be pickled with all its attributes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, vars(self))


def _again(kind: type[PolicyError], args: tuple[Any, ...], values: dict[str, Any]) -> PolicyError:
    """Rebuild a pickled error without calling its `__init__`, whose arguments are not known here."""
    error = kind.__new__(kind, *args)
    vars(error).update(values)
    return error


class InvalidProblem(PolicyError, ValueError):
    """A value that cannot be part of a problem: negative, not finite, empty or duplicate."""


class InfeasibleBudget(PolicyError):
    """The budget is too small to run every job at its cheapest width.

    `least_spend` and `budget` are in the unit of the budget, per hour.
    """

    def __init__(self, message: str, *, least_spend: float, budget: float | None = None) -> None:
        super().__init__(message)
        self.least_spend, self.budget = least_spend, budget


class InfeasibleDeadline(PolicyError):
    """No allowed width finishes a job by its deadline.

    `least_hours` is what the first such job needs; `late` has (deadline, least hours) of each, by job id.
    """

    def __init__(
        self, message: str, *, least_hours: float, late: Mapping[str, tuple[float, float]] | None = None
    ) -> None:
        super().__init__(message)
        self.least_hours, self.late = least_hours, dict(late or {})


class BrokenPlugin(PolicyError):
    """A plug-in of BOA cannot be imported, or is not what its entry point promises."""


class UnknownPolicy(PolicyError):
    """No policy is registered under that name."""
