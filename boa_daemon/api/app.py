"""The HTTP application: the routes of the API and their access rights.

Over the socket the kernel identifies the caller; over TCP a bearer token does. Every refusal is a document
with one sentence, and a refused request has stored nothing.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from boa_daemon.api.admission import BoundedRequest, CallerFirst
from boa_daemon.api.authentication import Authenticator, Caller
from boa_daemon.api.browser_security import BrowserGuard
from boa_daemon.api.job_access import job_access_routes
from boa_daemon.api.order_routes import order_routes
from boa_daemon.api.page import file_routes, page_routes
from boa_daemon.daemon.money.cost_labels import CostBy
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
JobName = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,80}$", description="id of a job")]
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of packed code")]
LARGEST_NUMBER = 2**53


class Problem(BaseModel):
    """Why a request was refused."""

    error: str
    message: str
    exit_code: int


class JobPage(BaseModel):
    """Query parameters that select the jobs to list."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(default=1000, ge=1, le=20_000)
    user: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.@-]{1,64}$")
    ended: bool = True
    team: str | None = Field(default=None, max_length=200)
    group: str | None = Field(default=None, pattern=r"^[A-Za-z0-9-]{1,80}$")
    before: int | None = Field(default=None, ge=1, le=LARGEST_NUMBER)


class Submission(BaseModel):
    """Jobs to accept, all or none; each is the content of a job file."""

    model_config = ConfigDict(extra="forbid")

    jobs: list[dict[str, Any]] = Field(min_length=1, max_length=MOST_JOBS_AT_ONCE)


class Down(BaseModel):
    """Whether to release all nodes."""

    model_config = ConfigDict(extra="forbid")

    is_down: bool


class Consent(BaseModel):
    """The code of changes of settings that may loosen limits; empty consents to none."""

    model_config = ConfigDict(extra="forbid")

    code: str = Field(default="", pattern=r"^[0-9a-f]{0,64}$")


class Resize(BaseModel):
    """The number of GPUs for a job; null means within the limits of its file."""

    model_config = ConfigDict(extra="forbid")

    gpus: Annotated[int, Field(ge=1, le=100_000)] | None


class SlurmOrder(BaseModel):
    """Nodes of Slurm, as a host list such as `c[1-3]`."""

    model_config = ConfigDict(extra="forbid")

    nodes: str = Field(min_length=1, max_length=1_000_000)


def _check_slurm(caller: Caller) -> None:
    """Refuse a caller who may not act for Slurm.

    Raises:
        NotAllowed: when the caller is no administrator.
    """
    if not caller.is_admin:
        raise NotAllowed(
            f"only Slurm's user may ask for its nodes, not {caller.user}. Name that user in [api] admins"
        )


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


def _malformed(_request: Request, error: Exception) -> JSONResponse:
    """Return the response to a malformed request."""
    faults = error.errors() if isinstance(error, RequestValidationError) else []
    first = faults[0] if faults else {"loc": (), "msg": "malformed"}
    where = ".".join(str(part) for part in first["loc"])
    if where == "path.name":
        text = str(first.get("input"))
        return _refusal(422, "MalformedRequest", f"no job can have the id {text!r}. {_IDS}", 2)
    said = f"{where}: {first['msg']}".encode("utf-8", "replace").decode()
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
        responses={
            code: {"model": Problem, "description": words}
            for code, words in (
                (400, "The request is not HTTP that can be read."),
                (401, "No valid token."),
                (403, "It belongs to another user, or exceeds your limits."),
                (404, "Not found."),
                (409, "Impossible in the present state."),
                (408, "The request did not arrive in time."),
                (413, "Too large."),
                (422, "Invalid; nothing was stored."),
                (429, "Too many requests at once."),
                (503, "The daemon cannot do that now."),
            )
        },
    )
    for kind, handler in (
        (BoaError, _refused),
        (PolicyError, _refused),
        (SQLAlchemyError, _unwritable),
        (OSError, _unwritable),
        (MemoryError, _unwritable),
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
    app.include_router(_routes(service, gatekeeper))
    app.include_router(job_access_routes(service, gatekeeper))
    app.include_router(order_routes(service, gatekeeper))
    app.include_router(page_routes(service, gatekeeper))
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
    """Build the routes' validators now: the first request would wait a third of a second for them."""
    nowhere = {"type": "http", "method": "GET", "path": "/-", "root_path": "", "headers": []}
    for route in app.router.routes:
        route.matches(dict(nowhere))


def _open_routes(service: Service) -> APIRouter:
    """Return the routes that need no authentication."""
    router = APIRouter()

    @router.get("/healthz")
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
    """Return the routes that need authentication."""
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

    @router.get("/jobs", response_model=dict[str, Any])
    def jobs(*, page: Annotated[JobPage, Query()], caller: Caller = ask) -> JSONResponse:
        """List jobs, newest first; `next` of a page is the `before` of the next page."""
        found = service.jobs(
            user=page.user,
            ended=page.ended,
            team=page.team,
            group=page.group,
            before=page.before,
            limit=page.limit,
            may_read=caller.may_read,
        )
        return JSONResponse(found)

    @router.get("/groups/{name}")
    def group_of_jobs(name: JobName, caller: Caller = ask) -> dict[str, Any]:
        """Return the number of a group's jobs by status, and their total cost."""
        return service.group(name)

    @router.post("/groups/{name}/cancel")
    def cancel_group(name: JobName, caller: Caller = ask) -> dict[str, Any]:
        """Cancel every job of a group."""
        return service.cancel_group(name, user=caller.user, is_admin=caller.is_admin)

    @router.get("/jobs/{name}")
    def job(name: JobName, caller: Caller = ask) -> dict[str, Any]:
        """Return one job; of somebody else's only what everybody may see."""
        return service.job(name, may_read=caller.may_read)

    @router.get("/jobs/{name}/explain")
    def explain(name: JobName, caller: Caller = ask) -> dict[str, Any]:
        """Explain why a job has its GPUs or waits."""
        return service.explain(name, may_read=caller.may_read)

    @router.get("/jobs/{name}/logs")
    def logs(
        name: JobName,
        caller: Caller = ask,
        since: Annotated[int, Query(ge=0, le=LARGEST_NUMBER)] = 0,
        generation: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
        node: Annotated[int | None, Query(ge=0, le=10_000)] = None,
    ) -> dict[str, Any]:
        """Return a job's output on a node."""
        return service.logs(name, since=since, generation=generation, node=node, may_read=caller.may_read)

    @router.get("/jobs/{name}/artifacts")
    def artifacts(name: JobName, caller: Caller = ask) -> dict[str, Any]:
        """List a job's output files."""
        return service.artifacts(name, may_read=caller.may_read)

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

    @router.post("/slurm/resume")
    def slurm_resume(order: SlurmOrder, caller: Caller = ask) -> dict[str, Any]:
        """Ask for nodes of Slurm, as its ResumeProgram does."""
        _check_slurm(caller)
        return service.slurm.resume(order.nodes)

    @router.post("/slurm/suspend")
    def slurm_suspend(order: SlurmOrder, caller: Caller = ask) -> dict[str, Any]:
        """Give nodes of Slurm back, as its SuspendProgram does."""
        _check_slurm(caller)
        return service.slurm.suspend(order.nodes)

    @router.post("/jobs/{name}/cancel")
    def cancel(name: JobName, caller: Caller = ask) -> dict[str, Any]:
        """Cancel a job."""
        return service.cancel(name, user=caller.user, is_admin=caller.is_admin)

    @router.post("/jobs/{name}/resize")
    def resize(name: JobName, order: Resize, caller: Caller = ask) -> dict[str, Any]:
        """Set the number of GPUs of a job; null means within the limits of its file."""
        return service.resize(name, gpus=order.gpus, user=caller.user, is_admin=caller.is_admin)

    @router.post("/jobs/{name}/interrupt")
    def interrupt(name: JobName, caller: Caller = ask) -> dict[str, Any]:
        """Rehearse a spot interruption of one of a job's nodes."""
        return service.interrupt(name, user=caller.user, is_admin=caller.is_admin)

    @router.get("/status", response_model=dict[str, Any])
    async def status(caller: Caller = ask) -> JSONResponse:
        """Return the daemon's status."""
        # Built from memory without validation, so that no thread is needed.
        return JSONResponse(service.status())

    @router.get("/decisions")
    def decisions(
        caller: Caller = ask,
        count: Annotated[int, Query(alias="limit", ge=1, le=1000)] = 20,
        acting: bool = False,
    ) -> dict[str, Any]:
        """List decisions, newest first."""
        return service.decisions(limit=count, acting=acting)

    @router.get("/decisions/{tick}")
    def decision(tick: Annotated[int, Path(ge=0, le=LARGEST_NUMBER)], caller: Caller = ask) -> dict[str, Any]:
        """Return the record of a decision."""
        return service.decision(tick)

    @router.get("/instances", response_model=dict[str, Any])
    def instances(
        ended: bool = False,
        count: Annotated[int | None, Query(alias="limit", ge=1, le=20_000)] = None,
        after: Annotated[str, Query(max_length=200)] = "",
        caller: Caller = ask,
    ) -> JSONResponse:
        """List nodes by id; `next` of a page is the `after` of the next page."""
        # Thousands of nodes: their validation would delay every other request.
        return JSONResponse(service.instances(ended=ended, limit=count, after=after))

    @router.get("/cost")
    def cost(
        caller: Caller = ask,
        by: CostBy = "job",
        since: Annotated[float | None, Query(ge=0, le=1e11)] = None,
    ) -> dict[str, Any]:
        """Return costs by job, class, user, team, market, region, machine, `tag:KEY`, day or kind."""
        return service.cost(by=by, since=since)

    @router.get("/classes")
    def classes(caller: Caller = ask) -> dict[str, Any]:
        """Return the estimates for each class."""
        return service.classes()

    @router.get("/past")
    def past(caller: Caller = ask, days: Annotated[float, Query(gt=0.0, le=366.0)] = 30.0) -> dict[str, Any]:
        """Return the jobs of the last days that are over, for `boa whatif --history`."""
        return service.past(days=days)

    @router.get("/plan")
    def plan(caller: Caller = ask) -> dict[str, Any]:
        """Return what a tick would do now."""
        return service.plan()

    @router.get("/alerts")
    def alerts(caller: Caller = ask) -> dict[str, Any]:
        """List alerts, newest first."""
        return service.alerts()

    @router.get("/settings/changes")
    def setting_changes(caller: Caller = ask) -> dict[str, Any]:
        """Return what the settings files would change of the settings in force; for administrators."""
        _for_admins(caller)
        return service.setting_changes()

    @router.post("/settings/apply")
    def apply_settings(consent: Consent, caller: Caller = ask) -> dict[str, Any]:
        """Read the settings files again and use them; for administrators."""
        _for_admins(caller)
        return service.apply_settings(consent.code)

    @router.post("/down")
    def down(order: Down, caller: Caller = ask) -> dict[str, Any]:
        """Release all nodes, or resume work; for administrators."""
        _for_admins(caller)
        return service.down(is_down=order.is_down)

    return router


def _for_admins(caller: Caller) -> None:
    """Refuse everybody but administrators.

    Raises:
        NotAllowed: when the caller is no administrator.
    """
    if not caller.is_admin:
        raise NotAllowed(f"only administrators may do that; you are {caller.user}")
