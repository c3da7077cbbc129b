"""`api/app.py`: what each error becomes, and what a request must hold, on a stand-in for the service."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from boa_daemon.api.app import REFUSALS, create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.daemon.service.orders import CannotRehearse
from boa_daemon.daemon.service.service_base import NotAllowed, NotReady, UnknownJob
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.errors import BoaError, InputError
from boa_daemon.store.database import DatabaseBusy
from boa_daemon.store.leader import LedElsewhere
from policies.errors import InvalidProblem

TOKENS = {"ann": "a-token-that-is-long-enough", "dora": "another-one-that-is-long"}
DIGEST = "0" * 64
WRITE = sqlite3.OperationalError("database or disk is full")


class Stand:
    """A service that notes what reaches it, and raises what a test sets."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.heard: list[tuple[Any, ...]] = []
        self.ticket: str | None = "ticket"
        self.may_submit = True
        self.daemon = SimpleNamespace(
            trouble="",
            database_busy_seconds=0.0,
            settings=SimpleNamespace(api=SimpleNamespace(page_orders=True)),
            metrics=SimpleNamespace(text=lambda: "boa_jobs 3\n"),
        )

    def check_may_submit(self, user: str, *, is_admin: bool) -> None:
        """Refuse who may not submit."""
        self.heard.append(("check", user, is_admin))
        if not self.may_submit:
            raise NotAllowed("no")

    def entered(self, jobs: list[Any], *, user: str) -> str | None:
        """Return the ticket of jobs that wait to be written."""
        return self.ticket

    def settled(self, ticket: str) -> dict[str, Any]:
        """Return what became of a ticket."""
        self.heard.append(("settled", ticket))
        return {"jobs": ["a-1"]}

    def submit(self, jobs: list[Any], *, user: str) -> dict[str, Any]:
        """Submit at once."""
        self.heard.append(("submit", len(jobs), user))
        return {"jobs": ["a-2"]}

    def artifact(self, name: str, file: str, *, may_read: Any) -> Iterator[bytes]:
        """Return a file."""
        self.heard.append(("artifact", name, file, may_read("ann"), may_read("bob")))
        return iter([b"ab", b"c"])

    def has_code(self, digest: str) -> bool:
        """Raise what is set, or say that code is here."""
        if self.error is not None:
            raise self.error
        return True

    def take_code(self, digest: str, content: bytes) -> None:
        """Take code."""
        self.heard.append(("code", digest, content))


class Site:
    """The application of a stand-in, asked over loopback by ann unless told otherwise."""

    def __init__(self, folder: Path) -> None:
        self.service = Stand()
        tokens = folder / "tokens"
        tokens.write_text("".join(f"{token} {user}\n" for user, token in TOKENS.items()))
        tokens.chmod(0o600)
        settings = {"listen": "127.0.0.1:0", "tokens": str(tokens), "admins": ["dora"]}
        keeper = Authenticator(ApiSettings.model_validate(settings))
        app = create_app(cast(Any, self.service), keeper, version="1.2")
        self.may_order = keeper.page_may_order
        self.web = TestClient(
            app, base_url="http://127.0.0.1", client=("127.0.0.1", 5), raise_server_exceptions=False
        )

    def ask(self, method: str, path: str, user: str = "ann", **more: Any) -> Any:
        """Send a request."""
        headers = {"Authorization": f"Bearer {TOKENS[user]}"} if user else {}
        return self.web.request(method, path, headers=headers, **more)


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("app"))


@pytest.fixture
def site(_made: Site) -> Site:
    """Return the application, with a service that has heard nothing."""
    _made.service.error, _made.service.ticket, _made.service.may_submit = None, "ticket", True
    _made.service.heard.clear()
    _made.service.daemon.trouble = ""
    return _made


@pytest.mark.parametrize(
    ("error", "status", "kind", "exit_code"),
    [
        (UnknownJob("no job a-9"), 404, "UnknownJob", 2),
        (InputError("wrong"), 422, "InputError", 2),
        (InvalidProblem("wrong"), 422, "InvalidProblem", None),
        (NotAllowed("not yours"), 403, "NotAllowed", 1),
        (CannotRehearse("no"), 409, "CannotRehearse", 1),
        (NotReady("starting"), 503, "NotReady", 1),
        (LedElsewhere("another leads"), 503, "LedElsewhere", None),
        (DatabaseBusy("busy"), 503, "DatabaseBusy", None),
        (BoaError("other"), 500, "BoaError", 1),
        (OperationalError("x", {}, WRITE), 503, "NotReady", 1),
        (OSError(errno.ENOSPC, "No space left on device"), 503, "NotReady", 1),
        (MemoryError(), 503, "NotReady", 1),
        (RuntimeError("can't start new thread"), 503, "NotReady", 1),
        (OSError(errno.EBADF, "Bad file descriptor", "/x"), 500, "OSError", 1),
        (HTTPException(409, "no"), 409, "HTTPError", 1),
    ],
)
def test_every_error_is_a_document_with_one_sentence(
    site: Site, error: Exception, status: int, kind: str, exit_code: int | None
) -> None:
    """Its status says who can do something about it: the caller, nobody now, or the program's authors."""
    site.service.error = error
    answer = site.ask("GET", f"/v1/code/{DIGEST}")
    assert (answer.status_code, answer.json()["error"]) == (status, kind)
    assert set(answer.json()) == {"error", "message", "exit_code"}
    assert exit_code is None or answer.json()["exit_code"] == exit_code
    assert status == 500 or status in REFUSALS


def test_a_fault_of_the_program_tells_nothing_of_its_files(site: Site) -> None:
    """Its log does; what passes says what to try."""
    site.service.error = OSError(errno.EBADF, "Bad file descriptor", "/secret")
    assert site.ask("GET", f"/v1/code/{DIGEST}").json()["message"] == (
        "the daemon failed at this request; see its log"
    )
    site.service.error = OperationalError("x", {}, WRITE)
    said = site.ask("GET", f"/v1/code/{DIGEST}").json()["message"]
    assert said.startswith("the database cannot do that now, nothing was stored: database or disk is full")
    site.service.error = RuntimeError("a bug")
    assert site.ask("GET", f"/v1/code/{DIGEST}").status_code == 500


def test_headers_of_a_refusal_are_kept(site: Site) -> None:
    """Such as what a caller may try."""
    site.service.error = HTTPException(429, "too many", headers={"Retry-After": "5"})
    assert site.ask("GET", f"/v1/code/{DIGEST}").headers["retry-after"] == "5"
    assert site.ask("GET", "/v1/none").json()["error"] == "HTTPError"


@pytest.mark.parametrize("path", ["/v1/jobs/..%2Fx/artifacts/a", "/v1/jobs/a_b/artifacts/a"])
def test_an_id_that_no_job_can_have_is_named(site: Site, path: str) -> None:
    """And ids are explained."""
    answer = site.ask("GET", path)
    assert answer.status_code in (404, 422)
    if answer.status_code == 422:
        assert "no job can have the id 'a_b'. Ids are letters" in answer.json()["message"]
    assert site.service.heard == []


@pytest.mark.parametrize("digest", ["0" * 63, "0" * 65, "g" * 64, "A" * 64, "0" * 64 + "%0A"])
def test_code_is_named_by_a_whole_digest(site: Site, digest: str) -> None:
    """It becomes the name of a file."""
    for method in ("GET", "PUT"):
        assert site.ask(method, f"/v1/code/{digest}", content=b"x").status_code == 422
    assert site.service.heard == []


@pytest.mark.parametrize(
    "body", [{}, {"jobs": []}, {"jobs": [5]}, {"jobs": {}}, {"jobs": [{}], "more": 1}, []]
)
def test_a_submission_is_a_list_of_jobs_and_nothing_else(site: Site, body: object) -> None:
    """A word that is not understood may have been meant."""
    answer = site.ask("POST", "/v1/jobs", json=body)
    assert (answer.status_code, answer.json()["error"]) == (422, "MalformedRequest")
    assert ("settled", "ticket") not in site.service.heard


def test_jobs_wait_to_be_written_together_or_are_submitted_at_once(site: Site) -> None:
    """Who may not submit is refused before anything is stored."""
    job = {"jobs": [{"name": "a"}, {}]}
    answer = site.ask("POST", "/v1/jobs", json=job)
    assert (answer.status_code, answer.json()) == (201, {"jobs": ["a-1"]})
    assert site.service.heard == [("check", "ann", False), ("settled", "ticket")]
    site.service.ticket = None
    assert site.ask("POST", "/v1/jobs", "dora", json=job).json() == {"jobs": ["a-2"]}
    assert site.service.heard[2:] == [("check", "dora", True), ("submit", 2, "dora")]


def test_code_is_taken_from_those_who_may_submit(site: Site) -> None:
    """As it was sent."""
    answer = site.ask("PUT", f"/v1/code/{DIGEST}", content=b"\0code")
    assert (answer.status_code, answer.json()) == (201, {"digest": DIGEST, "is_here": True})
    assert site.service.heard[-1] == ("code", DIGEST, b"\0code")
    assert site.ask("GET", f"/v1/code/{DIGEST}").json()["is_here"]
    site.service.may_submit = False
    site.service.heard.clear()
    assert site.ask("PUT", f"/v1/code/{DIGEST}", content=b"x").status_code == 403
    assert site.ask("POST", "/v1/jobs", json={"jobs": [{}]}).status_code == 403
    assert [row[0] for row in site.service.heard] == ["check", "check"]


def test_an_artifact_comes_as_bytes_and_its_owner_is_asked_for(site: Site) -> None:
    """Below folders, too."""
    answer = site.ask("GET", "/v1/jobs/a-1/artifacts/out/x.txt")
    assert (answer.content, answer.headers["content-type"]) == (b"abc", "application/octet-stream")
    assert site.service.heard == [("artifact", "a-1", "out/x.txt", True, False)]


def test_health_is_open_and_everything_else_needs_a_caller(site: Site) -> None:
    """A daemon that has trouble is alive, and not ready."""
    assert site.ask("GET", "/healthz", user="").json() == {"status": "ok"}
    assert site.ask("GET", "/readyz", user="").json() == {"status": "ready"}
    site.service.daemon.trouble = "no tick completed for 10 min"
    ready = site.ask("GET", "/readyz", user="")
    assert (ready.status_code, ready.json()["message"]) == (503, "no tick completed for 10 min")
    assert site.ask("GET", "/healthz", user="").status_code == 200
    for path in ("/metrics", f"/v1/code/{DIGEST}", "/v1/jobs"):
        assert site.ask("GET", path, user="").status_code == 401
    assert site.ask("GET", "/metrics").text == "boa_jobs 3\n"


def test_the_page_may_order_as_the_settings_say_now(site: Site) -> None:
    """They may change while the daemon runs; no page loads foreign scripts."""
    api = site.service.daemon.settings.api
    for may_order in (True, False):
        api.page_orders = may_order
        assert site.may_order() == may_order
    assert site.web.app.version == "1.2"  # type: ignore[attr-defined]
    for path in ("/docs", "/redoc"):
        assert site.ask("GET", path).status_code == 404
