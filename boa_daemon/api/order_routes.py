"""HTTP routes for orders: weigh jobs, lower caps; and what the page may order for whom."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from boa_daemon.api.authentication import Authenticator, Caller
from boa_daemon.api.browser_security import COOKIE
from boa_daemon.daemon.service.orders import MOST_WEIGHT
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.service.service_base import NotAllowed

JobName = Annotated[str, Path(pattern=r"^[A-Za-z0-9-]{1,80}$", description="id of a job")]
Window = Annotated[Literal["day", "month"], Path(description="whose cap")]


class Weight(BaseModel):
    """The worth of an hour of a job's time, as in its file."""

    model_config = ConfigDict(extra="forbid")

    weight: Annotated[float, Field(gt=0.0, le=MOST_WEIGHT, allow_inf_nan=False)]


class LowerCap(BaseModel):
    """A cap in dollars; null means what the settings say."""

    model_config = ConfigDict(extra="forbid")

    usd: Annotated[float, Field(gt=0.0, le=1e12, allow_inf_nan=False)] | None


def order_routes(service: Service, gatekeeper: Authenticator) -> APIRouter:
    """Return the routes of orders."""
    router = APIRouter(prefix="/v1")
    ask = Depends(gatekeeper.admit)

    @router.post("/jobs/{name}/weight")
    def weigh(name: JobName, order: Weight, caller: Caller = ask) -> dict[str, Any]:
        """Set the weight of a job, at most the greatest of the jobs of its purse."""
        return service.weigh(name, weight=order.weight, user=caller.user, is_admin=caller.is_admin)

    @router.get("/caps")
    def caps(caller: Caller = ask) -> dict[str, Any]:
        """Return the caps of a day and a month, in force and in the settings."""
        return service.caps()

    @router.post("/caps/{window}")
    def lower_cap(window: Window, order: LowerCap, caller: Caller = ask) -> dict[str, Any]:
        """Lower a cap, at most up to what the settings say; for administrators."""
        if not caller.is_admin:
            raise NotAllowed(f"only administrators may change caps; you are {caller.user}")
        return service.lower_cap(window, order.usd, user=caller.user)

    @router.get("/page/me")
    def me(request: Request, caller: Caller = ask) -> dict[str, Any]:
        """Return who is signed in, whether the page may order, and the word that its orders have to bear."""
        may_order = service.daemon.settings.api.page_orders
        word = gatekeeper.sessions.word(request.cookies.get(COOKIE)) if may_order else ""
        return {"user": caller.user, "is_admin": caller.is_admin, "may_order": may_order, "word": word}

    return router
