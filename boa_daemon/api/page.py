"""HTTP routes of the page: its files, sessions for tokens, and one document per view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, ConfigDict, Field

from boa_daemon.api.authentication import Authenticator, Caller
from boa_daemon.api.browser_security import COOKIE, SESSION_SECONDS
from boa_daemon.daemon.money.cost_labels import CostBy
from boa_daemon.daemon.service.replay import replay
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.service.service_base import NotAllowed
from boa_daemon.dashboard.assets import asset
from boa_daemon.dashboard.job_page import job_document
from boa_daemon.dashboard.market import MarketView
from boa_daemon.dashboard.money import MoneyView
from boa_daemon.dashboard.overview import overview_document, standing_document
from boa_daemon.version import __version__

_TYPES = {"index.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
Hours = Annotated[float, Query(gt=0.0, le=24.0 * 90, description="number of hours until now")]
UserName = Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9_.@+-]{1,64}$", description="name of a user")]
Month = Annotated[str, PathParameter(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])$", description="as in 2026-11")]
TeamName = Annotated[str, Query(max_length=200, description="name of a team")]
JobName = Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9-]{1,80}$", description="id of a job")]


class SignIn(BaseModel):
    """A token to exchange for a session."""

    model_config = ConfigDict(extra="forbid")

    token: str = Field(min_length=1, max_length=1024)


def file_routes() -> APIRouter:
    """Return the routes of the page's files, which are public."""
    router = APIRouter(include_in_schema=False)

    def serve(name: str) -> Callable[[], Response]:
        return lambda: Response(asset(name), media_type=f"{_TYPES[name]}; charset=utf-8")

    for path, name in (("/", "index.html"), ("/page.css", "page.css"), ("/page.js", "page.js")):
        router.add_api_route(path, serve(name), operation_id=name)
    return router


def page_routes(service: Service, gatekeeper: Authenticator) -> APIRouter:
    """Return the routes of the page's documents."""
    router = APIRouter(prefix="/v1")
    money, market_view = MoneyView(service), MarketView(service)
    ask = Depends(gatekeeper.admit)

    @router.post("/session")
    async def sign_in(given: SignIn, request: Request, response: Response) -> dict[str, str]:
        """Begin a read-only session with a token."""
        caller = await gatekeeper.of_token(given.token, request)
        response.set_cookie(
            COOKIE,
            gatekeeper.begin_session(given.token, caller.user),
            max_age=int(SESSION_SECONDS),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return {"user": caller.user}

    @router.delete("/session")
    async def sign_out(request: Request, response: Response) -> dict[str, str]:
        """End the session."""
        gatekeeper.sessions.end(request.cookies.get(COOKIE))
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return {"user": ""}

    @router.delete("/sessions/{user}")
    async def revoke(user: UserName, caller: Caller = ask) -> dict[str, Any]:
        """End all sessions of a user; for the user and for administrators."""
        if caller.user != user and not caller.is_admin:
            raise NotAllowed(f"only administrators may end the sessions of others; you are {caller.user}")
        return {"user": user, "ended": gatekeeper.sessions.revoke(user)}

    @router.get("/page/now")
    def now(caller: Caller = ask) -> dict[str, Any]:
        """Return the overview."""
        return {**overview_document(service), "month_pace": money.month_pace()}

    @router.get("/page/standing")
    def standing(caller: Caller = ask) -> dict[str, Any]:
        """Return of when the figures are, and what is wrong with the daemon."""
        return standing_document(service)

    @router.get("/page/frontier")
    def frontier(caller: Caller = ask) -> dict[str, Any]:
        """Return the curve of waiting against money, and the daemon's position on it."""
        return money.frontier()

    @router.get("/page/month")
    def this_month(caller: Caller = ask) -> dict[str, Any]:
        """Return the money of this day and month, and where the month ends at the pace of the last days."""
        status = service.status()
        names = ("as_of", "books", "budget_usd_per_hour", "beside_usd_per_hour")
        return {**{name: status.get(name) for name in names}, "month_pace": money.month_pace()}

    @router.get("/page/history")
    def history(hours: Hours = 24.0, caller: Caller = ask) -> dict[str, Any]:
        """Return the history, averaged over equal intervals."""
        return money.history(hours=hours)

    @router.get("/page/cost")
    def cost(by: CostBy = "class", hours: Hours = 24.0, caller: Caller = ask) -> dict[str, Any]:
        """Return the costs of the last hours."""
        return money.cost(by=by, hours=hours)

    @router.get("/page/uses")
    def uses(hours: Hours = 24.0, caller: Caller = ask) -> dict[str, Any]:
        """Return what the money was for, what commitments saved, and the purses of teams and users."""
        return money.uses(hours=hours)

    @router.get("/page/market")
    def market(caller: Caller = ask) -> dict[str, Any]:
        """Return the prices that plans use, with their sources, and what may still be rented."""
        return market_view.document()

    @router.get("/months/{month}")
    def month(month: Month, team: TeamName = "", caller: Caller = ask) -> dict[str, Any]:
        """Return the figures of a calendar month (UTC): days, groups, jobs; of the site, or of a team."""
        return service.month(month, team=team).to_document()

    # Named by its content, because `response_class` would say that errors are HTML too.
    @router.get("/months/{month}/page", response_model=None, responses={200: {"content": {"text/html": {}}}})
    def month_page(month: Month, team: TeamName = "", caller: Caller = ask) -> HTMLResponse:
        """Return the report of a month, of the site or of a team, as one HTML file to keep or to forward."""
        report = service.month(month, team=team)
        text = report.page(made_by=f"Written by boa {__version__}.")
        # A file to be saved: the policy of our own pages allows no styles inside a document.
        kept = {"content-disposition": f'attachment; filename="boa-{report.file_name}"'}
        return HTMLResponse(text, headers=kept)

    @router.get("/page/jobs/{name}")
    def job(name: JobName, caller: Caller = ask) -> dict[str, Any]:
        """Return a job with its starts, its progress and the curve of its class."""
        return job_document(service, name, may_read=caller.may_read)

    @router.get("/decisions/{tick}/replay")
    def again(tick: Annotated[int, PathParameter(ge=0, le=2**53)], caller: Caller = ask) -> dict[str, Any]:
        """Repeat the decision of a tick from its record, without acting, and compare the results."""
        found = replay(service.decision(tick))
        actions = [{"id": action.id, "reason": action.reason} for action in found.decision.actions]
        return {"tick": tick, "is_same": found.is_same, "actions": actions}

    return router
