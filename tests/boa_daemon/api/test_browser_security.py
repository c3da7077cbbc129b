"""Other sites, names that were bound anew, sessions, and what every answer says to a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from page_site import TOKEN, Served, served

from boa_daemon.api.browser_security import COOKIE, MOST_SESSIONS, SESSION_SECONDS, Sessions
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Served]:
    play = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0))
    play.daemon.tick()
    with served(play, tmp_path) as found:
        yield found
    play.close()


@pytest.fixture
def browser(site: Served) -> Iterator[httpx.Client]:
    """Return a client that has signed in and keeps its cookie."""
    with httpx.Client(base_url=site.url) as http:
        assert http.post("v1/session", json={"token": TOKEN}).json() == {"user": "ann"}
        yield http


def test_a_session_reads(browser: httpx.Client) -> None:
    """The cookie is enough, and a script of the page cannot read it."""
    assert browser.get("v1/page/now").status_code == 200
    assert "ann" not in str(browser.cookies.get(COOKIE))
    assert TOKEN not in str(browser.cookies.get(COOKIE))


def test_the_cookie_is_for_this_site_alone(site: Served) -> None:
    """HttpOnly and SameSite=Strict; Secure over TLS only, as a browser drops it elsewhere."""
    said = httpx.post(site.url + "v1/session", json={"token": TOKEN}).headers["set-cookie"]
    assert "httponly" in said.lower()
    assert "samesite=strict" in said.lower()
    assert "secure" not in said.lower()


def test_a_session_orders_nothing(browser: httpx.Client, site: Served) -> None:
    """Submitting, cancelling and going down need the token itself."""
    (job,) = site.play.service.submit([job_content()], user="ann")["jobs"]
    for path, body in (
        ("jobs", {"jobs": [job_content()]}),
        (f"jobs/{job}/cancel", None),
        ("down", {"is_down": True}),
    ):
        assert browser.post(f"v1/{path}", json=body).status_code == 403
    assert len(site.play.storage.queue.active) == 1
    assert not site.play.daemon.standing.is_down


def test_signing_out_ends_it(browser: httpx.Client) -> None:
    """The same cookie is nobody's then."""
    key = browser.cookies.get(COOKIE)
    browser.delete("v1/session")
    assert browser.get("v1/page/now", headers={"Cookie": f"{COOKIE}={key}"}).status_code == 401


def test_a_wrong_token_begins_nothing(site: Served) -> None:
    """401, and no cookie."""
    answer = httpx.post(site.url + "v1/session", json={"token": "not-a-token-of-anybody"})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ["", "page.js", "v1/page/now", "v1/status", "metrics"])
def test_a_name_that_was_bound_anew_is_refused(browser: httpx.Client, path: str) -> None:
    """DNS rebinding: the browser believes to talk to evil.example, and says so."""
    answer = browser.get(path, headers={"Host": "evil.example"})
    assert answer.status_code == 403
    assert "[api] hosts" in answer.json()["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ],
)
def test_another_site_cannot_ask_even_with_the_cookie(browser: httpx.Client, headers: dict[str, str]) -> None:
    """Not to read, not to sign anybody in."""
    assert browser.get("v1/page/now", headers=headers).status_code == 403
    assert browser.post("v1/session", json={"token": TOKEN}, headers=headers).status_code == 403


def test_a_link_from_elsewhere_leads_to_the_page(site: Served) -> None:
    """The page itself holds nothing, and its cookie was not sent with it."""
    from_elsewhere = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert httpx.get(site.url, headers=from_elsewhere).status_code == 200


def test_a_token_in_hand_needs_no_name(site: Served) -> None:
    """No site can make a browser send it: a program behind a proxy may say any host."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Host": "boa.example"}
    assert httpx.get(site.url + "v1/status", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["", "page.css", "v1/status", "healthz", "nothing"])
def test_every_answer_says_what_a_page_may_load(site: Served, path: str) -> None:
    """Also refusals."""
    headers = httpx.get(site.url + path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


def test_what_loads_from_a_cdn_is_not_served(site: Served) -> None:
    """FastAPI's own pages of documentation would be blank on a closed network."""
    assert [httpx.get(site.url + path).status_code for path in ("docs", "redoc")] == [404, 404]


def test_sessions_end_and_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """After half a day nobody is known; one more than allowed ends the oldest."""
    now = 1000.0
    monkeypatch.setattr("boa_daemon.api.browser_security.time.monotonic", lambda: now)
    sessions = Sessions()
    keys = [sessions.begin("ann") for _ in range(MOST_SESSIONS + 1)]
    assert sessions.user(keys[0]) is None
    assert sessions.user(keys[-1]) == "ann"
    now += SESSION_SECONDS
    assert sessions.user(keys[-1]) is None
    assert sessions.user(None) is None
