"""The HTTP application: the routes of the API and their access rights.

Over the socket the kernel identifies the caller; over TCP a bearer token does. Every refusal is a document
with one sentence, and a refused request has stored nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from boa_daemon.api.admission import BoundedRequest, CallerFirst
from boa_daemon.api.authentication import Authenticator, Caller
from boa_daemon.api.browser_security import BrowserGuard
from boa_daemon.api.closed_sets import fault_sentence, refuse_unknown_parameters
from boa_daemon.api.contract_routes import JOB_NAME, contract_routes
from boa_daemon.api.job_access import job_access_routes
from boa_daemon.api.order_routes import order_routes
from boa_daemon.api.page import file_routes, page_routes
from boa_daemon.api.process_limits import shortage_of
from boa_daemon.daemon.service.orders import CannotRehearse
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.service.service_base import NotAllowed, NotReady, UnknownJob
from boa_daemon.daemon.service.submissions import MOST_JOBS_AT_ONCE
from boa_daemon.errors import BoaError, InputError, exit_code_of
from boa_daemon.store.database import DatabaseBusy
from boa_daemon.store.database_setup import StoreUnusable
from boa_daemon.store.database_troubles import explain, trouble_of
from boa_daemon.store.leader import LedElsewhere
from policies.errors import PolicyError

_LOG = logging.getLogger("boa.api")
_IDS = "Ids are letters, digits and hyphens, and end in a number: `boa jobs --all` lists them"
JobName = Annotated[str, Path(**JOB_NAME)]
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of packed code")]


class Problem(BaseModel):
    """Why a request was refused."""

    error: str
    message: str
    exit_code: int


REFUSALS: Mapping[int | str, str] = MappingProxyType(
    {
        400: "The request is not HTTP that can be read.",
        401: "No valid token.",
        403: "It belongs to another user, or exceeds your limits.",
        404: "Not found.",
        409: "Impossible in the present state.",
        408: "The request did not arrive in time.",
        413: "Too large.",
        422: "Invalid; nothing was stored.",
        429: "Too many requests at once.",
        503: "The daemon cannot do that now.",
    }
)
"""The statuses of refusals, of every route, and what each means."""

# A model here would be compiled anew for each status of each route: two thirds of the time of a start.
_PROBLEM = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


class Submission(BaseModel):
    """Jobs to accept, all or none; each is the content of a job file."""

    model_config = ConfigDict(extra="forbid")

    jobs: list[dict[str, Any]] = Field(min_length=1, max_length=MOST_JOBS_AT_ONCE)


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (UnknownJob, 404),
    (InputError, 422),
    (PolicyError, 422),
    (NotAllowed, 403),
    (CannotRehearse, 409),
    (NotReady, 503),
    (LedElsewhere, 503),
    (DatabaseBusy, 503),
    (StoreUnusable, 503),
)


def _refusal(status: int, error: str, message: str, exit_code: int) -> JSONResponse:
    return JSONResponse(
        Problem(error=error, message=message, exit_code=exit_code).model_dump(), status_code=status
    )


def _refused(_request: Request, error: Exception) -> JSONResponse:
    """Return the response to a known error."""
    status = 500
    for kind, code in _STATUS:
        if isinstance(error, kind):
            status = code
            break
    return _refusal(status, type(error).__name__, str(error), exit_code_of(error))


def _unwritable(_request: Request, error: Exception) -> JSONResponse:
    """Return the response to trouble of the database or the machine, such as a full or read-only disk."""
    kind = trouble_of(error)
    said, remedy = explain(error, kind)
    if isinstance(error, SQLAlchemyError):
        what = "the database cannot do that now, nothing was stored"
    elif kind is None:
        # Not a trouble that passes: a fault of the program, which its log must show.
        _LOG.error("a request failed", exc_info=error)
        return _refusal(500, type(error).__name__, "the daemon failed at this request; see its log", 1)
    else:
        what = "the daemon cannot do that now"
    return _refusal(503, "NotReady", f"{what}: {said}. {remedy}", 1)


async def _short_of_threads(_request: Request, error: Exception) -> JSONResponse:
    """Return the response where no thread can be started; without a thread, so it is a coroutine."""
    said = shortage_of(error)
    if not said:
        raise error
    return _refusal(503, "NotReady", f"the daemon cannot do that now: {said}", 1)


def _malformed(_request: Request, error: Exception) -> JSONResponse:
    """Return the response to a malformed request."""
    faults = error.errors() if isinstance(error, RequestValidationError) else []
    first = faults[0] if faults else {"loc": (), "msg": "malformed", "type": ""}
    if tuple(first["loc"]) == ("path", "name"):
        text = str(first.get("input"))
        return _refusal(422, "MalformedRequest", f"no job can have the id {text!r}. {_IDS}", 2)
    said = fault_sentence(first).encode("utf-8", "replace").decode()
    return _refusal(422, "MalformedRequest", said, 2)


def _http(_request: Request, error: Exception) -> JSONResponse:
    """Return the response to an HTTP error, such as an unknown path."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else "failed"
    answer = _refusal(status, "HTTPError", str(detail), 1)
    if isinstance(error, HTTPException) and error.headers:
        answer.headers.update(error.headers)
    return answer


def create_app(service: Service, gatekeeper: Authenticator, *, version: str = "unreleased") -> FastAPI:
    """Return the application for a service; its description states `version`."""
    gatekeeper.page_may_order = lambda: service.daemon.settings.api.page_orders
    app = FastAPI(
        title="BOA daemon",
        version=version,
        # The pages of these tools load scripts from a CDN; /openapi.json is the reference.
        docs_url=None,
        redoc_url=None,
        responses={code: {"description": words, "content": _PROBLEM} for code, words in REFUSALS.items()},
    )
    for kind, handler in (
        (BoaError, _refused),
        (PolicyError, _refused),
        (SQLAlchemyError, _unwritable),
        (OSError, _unwritable),
        (MemoryError, _unwritable),
        (RuntimeError, _short_of_threads),
        (RequestValidationError, _malformed),
        (HTTPException, _http),
    ):
        app.add_exception_handler(kind, handler)
    app.include_router(_open_routes(service))
    app.add_api_route(
        "/metrics",
        lambda: PlainTextResponse(service.daemon.metrics.text(), media_type="text/plain; version=0.0.4"),
        response_class=PlainTextResponse,
        dependencies=[Depends(gatekeeper.admit)],
        summary="Return metrics for Prometheus.",
        operation_id="metrics",
    )
    for routes in (_routes, contract_routes, job_access_routes, order_routes, page_routes):
        app.include_router(routes(service, gatekeeper), dependencies=[Depends(refuse_unknown_parameters)])
    app.include_router(file_routes())
    # The last one added is the first to see a request.
    app.add_middleware(BoundedRequest, busy_seconds=lambda: service.daemon.database_busy_seconds)
    app.add_middleware(CallerFirst, gatekeeper=gatekeeper)
    app.add_middleware(
        BrowserGuard, listen=gatekeeper.listen, hosts=gatekeeper.hosts, is_proxied=gatekeeper.is_proxied
    )
    app.state.proxies = gatekeeper.proxy_hosts
    _prepare_routes(app)
    return app


def _prepare_routes(app: FastAPI) -> None:
    """Build the routes' validators now: the first request would wait for them."""
    nowhere = {"type": "http", "method": "GET", "path": "/-", "root_path": "", "headers": []}
    for route in app.router.routes:
        route.matches(dict(nowhere))


def _open_routes(service: Service) -> APIRouter:
    """Return the routes that need no authentication."""
    router = APIRouter()

    # Puts the model into the document once; the refusals of all routes refer to it.
    @router.get("/healthz", responses={503: {"model": Problem, "description": REFUSALS[503]}})
    async def healthz() -> dict[str, str]:
        """Report that the process answers."""
        return {"status": "ok"}

    @router.get("/readyz")
    def readyz() -> dict[str, str]:
        """Report whether ticks complete; 503 when one failed, or none completed for too long."""
        trouble = service.daemon.trouble
        if trouble:
            raise NotReady(trouble)
        return {"status": "ready"}

    return router


def _routes(service: Service, gatekeeper: Authenticator) -> APIRouter:
    """Return the routes that are no verbs of the contract: what comes and goes as bytes, and submissions."""
    router = APIRouter(prefix="/v1")
    writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="boa-submit")
    ask = Depends(gatekeeper.admit)

    @router.post("/jobs", status_code=201)
    async def submit(submission: Submission, caller: Caller = ask) -> dict[str, Any]:
        """Submit jobs, all or none."""
        service.check_may_submit(caller.user, is_admin=caller.is_admin)
        ticket = service.entered(submission.jobs, user=caller.user)
        if ticket is None:
            return await run_in_threadpool(service.submit, submission.jobs, user=caller.user)
        # One thread writes: submissions that arrive while it waits for the disk are committed together next.
        # The context carries the time until which the request waits for the database.
        settle = partial(copy_context().run, service.settled, ticket)
        return await asyncio.get_running_loop().run_in_executor(writer, settle)

    @router.get("/jobs/{name}/artifacts/{file:path}", response_class=StreamingResponse)
    def artifact(name: JobName, file: str, caller: Caller = ask) -> StreamingResponse:
        """Return one of a job's output files."""
        content = service.artifact(name, file, may_read=caller.may_read)
        return StreamingResponse(content, media_type="application/octet-stream")

    @router.get("/code/{digest}")
    def has_code(digest: Digest, caller: Caller = ask) -> dict[str, Any]:
        """Report whether packed code was sent before."""
        return {"digest": digest, "is_here": service.has_code(digest)}

    @router.put("/code/{digest}", status_code=201)
    async def take_code(digest: Digest, request: Request, caller: Caller = ask) -> dict[str, Any]:
        """Store packed code for the jobs that name its digest."""
        service.check_may_submit(caller.user, is_admin=caller.is_admin)
        await run_in_threadpool(service.take_code, digest, await request.body())
        return {"digest": digest, "is_here": True}

    return router
