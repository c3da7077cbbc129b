"""The routes of the verbs: each is made of its declaration in `contract.py` and a method of the service."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, create_model

from boa_daemon.api.authentication import Authenticator, Caller
from boa_daemon.api.contract import VERBS, Verb
from boa_daemon.daemon.money.cost_labels import CostBy
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.service.service_base import NotAllowed

JOB_NAME = MappingProxyType({"pattern": r"^[A-Za-z0-9-]{1,80}$", "description": "id of a job"})
_FORMS: Mapping[str, Any] = {"cost-by": CostBy}
_ORDER = "order"
"""Parameter of a route that holds the body; no verb has a parameter of that name."""


def contract_routes(service: Service, gatekeeper: Authenticator) -> APIRouter:
    """Return the routes of all verbs."""
    router = APIRouter(prefix="/v1")
    ask, bodies = Depends(gatekeeper.admit), dict[str, type[BaseModel]]()
    for verb in VERBS.values():
        router.add_api_route(
            verb.path,
            _endpoint(verb, service, ask, bodies),
            methods=[verb.method],
            name=verb.operation,
            response_model=dict[str, Any],
        )
    return router


def _endpoint(
    verb: Verb, service: Service, ask: Any, bodies: dict[str, type[BaseModel]]
) -> Callable[..., Any]:
    """Return the function of a verb's route, with the signature that FastAPI reads."""
    answer, names = attrgetter(verb.answers), {each.name for each in verb.parameters}

    def call(caller: Caller, **given: Any) -> Any:
        arguments = {name: value for name, value in given.items() if name in names}
        if _ORDER in given:
            arguments |= {name: getattr(given[_ORDER], name) for name in names - arguments.keys()}
        found = answer(service)(**arguments, **_who(verb, caller))
        return JSONResponse(found) if verb.is_large else found

    async def call_at_once(caller: Caller, **given: Any) -> Any:
        # Answered from memory, so that no thread is needed.
        return call(caller, **given)

    endpoint = cast(Any, call_at_once if verb.at_once else call)
    caller = inspect.Parameter("caller", inspect.Parameter.KEYWORD_ONLY, default=ask, annotation=Caller)
    endpoint.__signature__ = inspect.Signature([*_request(verb, bodies), caller])
    endpoint.__name__ = verb.operation
    endpoint.__doc__ = verb.description
    return cast(Callable[..., Any], endpoint)


def _who(verb: Verb, caller: Caller) -> dict[str, Any]:
    """Return what the service is told of the caller.

    Raises:
        NotAllowed: when the verb is for administrators, and the caller is none.
    """
    if verb.role == "reader":
        return {"may_read": caller.may_read}
    if verb.role == "owner":
        return {"user": caller.user, "is_admin": caller.is_admin}
    if verb.role == "admin":
        check_admin(caller)
    if verb.role == "slurm" and not caller.is_admin:
        raise NotAllowed(
            f"only Slurm's user may ask for its nodes, not {caller.user}. Name that user in [api] admins"
        )
    return {}


def check_admin(caller: Caller) -> None:
    """Refuse everybody but administrators.

    Raises:
        NotAllowed: when the caller is no administrator.
    """
    if not caller.is_admin:
        raise NotAllowed(f"only administrators may do that; you are {caller.user}")


def _request(verb: Verb, bodies: dict[str, type[BaseModel]]) -> list[inspect.Parameter]:
    """Return the parameters of a route: those in the path, and the query or the body."""
    path = [each for each in verb.parameters if verb.is_in_path(each.name)]
    rest = [each for each in verb.parameters if not verb.is_in_path(each.name)]
    found = [_parameter(verb, each, Path) for each in path]
    if verb.method == "GET":
        return [*found, *(_parameter(verb, each, Query) for each in rest)]
    if not rest:
        return found
    name = verb.body
    model = bodies.setdefault(name, _model(name, verb, rest))
    return [*found, inspect.Parameter(_ORDER, inspect.Parameter.KEYWORD_ONLY, annotation=model)]


def _model(name: str, verb: Verb, parameters: list[inspect.Parameter]) -> type[BaseModel]:
    """Return the model of a body, which refuses what it does not know."""
    fields: dict[str, Any] = {}
    for each in parameters:
        rules, default = _rules(verb, each)
        fields[each.name] = (_type(verb, each), Field(default, **rules))
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


def _parameter(verb: Verb, declared: inspect.Parameter, kind: Any) -> inspect.Parameter:
    """Return a parameter of a route in the path or the query."""
    rules, default = _rules(verb, declared)
    return inspect.Parameter(
        declared.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is ... else default,
        annotation=Annotated[_type(verb, declared), kind(**rules)],
    )


def _rules(verb: Verb, declared: inspect.Parameter) -> tuple[dict[str, Any], Any]:
    """Return how a parameter is checked, and its default over HTTP; `...` if it must be given."""
    rules = dict(verb.rules.get(declared.name, JOB_NAME if declared.name == "name" else {}))
    rules.pop("form", None)
    usual = ... if declared.default is inspect.Parameter.empty else declared.default
    return rules, rules.pop("default", usual)


def _type(verb: Verb, declared: inspect.Parameter) -> Any:
    """Return the type of a parameter over HTTP."""
    form = verb.rules.get(declared.name, {}).get("form")
    return declared.annotation if form is None else _FORMS[form]
