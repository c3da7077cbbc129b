"""HTTP routes for access to running jobs: where a job runs, a command, a shell."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from boa_daemon.api.authentication import Authenticator, Caller
from boa_daemon.daemon.service.job_access import MOST_SECONDS, JobAccess
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.service.service_base import NotAllowed

JobName = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,80}$", description="id of a job")]
ExecId = Annotated[
    str, Path(pattern=r"^[0-9a-f]{32}$", description="id from the answer to the start of a command")
]
Node = Annotated[int, Field(ge=0, le=10_000)]


class Command(BaseModel):
    """A command to run beside a job on one of its nodes, for at most `seconds`."""

    model_config = ConfigDict(extra="forbid")

    command: str = Field(min_length=1, max_length=8192)
    node: Node = 0
    seconds: Annotated[float, Field(gt=0.0, le=MOST_SECONDS)] = 60.0


class Terminal(BaseModel):
    """A terminal of this machine for a shell."""

    model_config = ConfigDict(extra="forbid")

    terminal: str = Field(max_length=100)
    term: str = Field(default="xterm", pattern=r"^[A-Za-z0-9._+-]{1,64}$")
    node: Node = 0


def job_access_routes(service: Service, gatekeeper: Authenticator) -> APIRouter:
    """Return the routes for access to running jobs."""
    router = APIRouter(prefix="/v1/jobs/{name}")
    entering = JobAccess(service)
    ask = Depends(gatekeeper.admit)

    @router.get("/way")
    def way(
        name: JobName, caller: Caller = ask, node: Annotated[int, Query(ge=0, le=10_000)] = 0
    ) -> dict[str, Any]:
        """Return where a job runs, and the command that opens a shell there."""
        return entering.way(name, node=node, user=caller.user, is_admin=caller.is_admin)

    @router.post("/exec", status_code=201)
    def begin(name: JobName, order: Command, caller: Caller = ask) -> dict[str, Any]:
        """Start a command beside a job, as the job's user."""
        return entering.begin(
            name,
            order.command,
            node=order.node,
            seconds=order.seconds,
            user=caller.user,
            is_admin=caller.is_admin,
        )

    @router.get("/exec/{word}")
    def end(name: JobName, word: ExecId, caller: Caller = ask) -> dict[str, Any]:
        """Return how a command ended; the end is returned only once."""
        return entering.end(name, word, user=caller.user, is_admin=caller.is_admin)

    @router.post("/shell", status_code=201)
    def shell(name: JobName, order: Terminal, request: Request, caller: Caller = ask) -> dict[str, Any]:
        """Open a shell beside a job on the caller's terminal on this machine."""
        host = "" if request.client is None else request.client.host
        if not host.startswith("uid:"):
            raise NotAllowed(
                "a shell is opened over the daemon's socket, on its machine; `boa exec` works here"
            )
        uid = int(host.removeprefix("uid:"))
        return entering.open(
            name,
            order.terminal,
            node=order.node,
            term=order.term,
            user=caller.user,
            is_admin=caller.is_admin,
            may_use=lambda owner: owner == uid,
        )

    return router
