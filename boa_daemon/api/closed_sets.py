"""Refusals of values and query parameters of a closed set: what is possible, and what was probably meant.

A misspelt filter would otherwise be answered with nothing, or with everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import Request
from fastapi.dependencies.models import Dependant

from boa_daemon.errors import InputError, choices_in, not_one_of


async def refuse_unknown_parameters(request: Request) -> None:
    """Refuse a query with a parameter that the route does not have.

    A coroutine, because FastAPI hands each function to a thread, which waits for its turn during a tick.

    Raises:
        InputError: when it has one.
    """
    dependant: Dependant | None = getattr(request.scope.get("route"), "dependant", None)
    if dependant is None or not request.query_params:
        return
    known = list(_query_names(dependant))
    for name in request.query_params:
        if name in known:
            continue
        if not known:
            raise InputError(f"query: {request.url.path} takes no parameters; got {name!r}")
        raise InputError(f"query: the parameter {not_one_of(name, known)}")


def _query_names(dependant: Dependant) -> Iterator[str]:
    """Yield the query parameters of a route and of what it depends on."""
    yield from (field.alias for field in dependant.query_params)
    for other in dependant.dependencies:
        yield from _query_names(other)


def fault_sentence(fault: Mapping[str, Any]) -> str:
    """Return a fault of a request, as pydantic found it, in a sentence."""
    where = ".".join(str(part) for part in fault["loc"])
    if fault["type"] in ("literal_error", "enum"):
        known = [name for name in choices_in(str(fault.get("ctx", {}).get("expected", ""))) if name]
        return f"{where}: {not_one_of(str(fault.get('input')), known)}"
    if fault["type"] == "value_error":
        return f"{where}: {fault['ctx']['error']}"
    return f"{where}: {fault['msg']}"
