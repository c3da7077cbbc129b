"""Usage errors in the form of other errors: the wrong value, and what to type instead."""

from __future__ import annotations

from typing import Any

from boa_daemon.errors import choices_in, not_one_of


def improve_message(error: Any) -> None:
    """Rewrite a usage error so that it names the typed value and the nearest valid one.

    pydantic checks option values; without this only its general sentence would be printed.
    """
    fault = next(iter(error.__cause__.errors()), None) if hasattr(error.__cause__, "errors") else None
    if fault is None:
        return
    value = fault["input"]
    if fault["type"] == "value_error":
        said = str(fault["ctx"]["error"]).rstrip(".")
        choices = choices_in(said.partition(" is not one of ")[2])
        error.message = not_one_of(str(value), choices) if choices else said
        return
    from boa_daemon.inputs.schema import wanted  # noqa: PLC0415 - only where something is wrong

    error.message = f"must be {wanted(fault['type'], 0, fault.get('ctx', {}))}; got {value!r}"
