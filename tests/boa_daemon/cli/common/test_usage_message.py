"""A wrong value of an option is said as other errors are: what was typed, and what to type."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.cli.common.usage_message import improve_message


def improved(**fault: Any) -> str:
    """Return the message of a usage error with this cause."""
    cause = SimpleNamespace(errors=lambda: [fault]) if fault else ValueError("plain")
    error = SimpleNamespace(message="as before", __cause__=cause)
    improve_message(error)
    return str(error.message)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({}, "as before"),
        (
            {"type": "value_error", "input": "jbo", "ctx": {"error": "x is not one of 'job', 'class'."}},
            "'jbo' is not one of 'job', 'class'. Did you mean 'job'?",
        ),
        ({"type": "value_error", "input": "x", "ctx": {"error": "give one of both."}}, "give one of both"),
        ({"type": "int_parsing", "input": "many"}, "must be a whole number; got 'many'"),
        ({"type": "greater_than_equal", "input": "-1", "ctx": {"ge": 0}}, "must be at least 0; got '-1'"),
    ],
)
def test_the_message_names_the_value_and_the_nearest_choice(fault: dict[str, Any], said: str) -> None:
    """Where the cause says nothing, the message stays."""
    assert improved(**fault) == said
