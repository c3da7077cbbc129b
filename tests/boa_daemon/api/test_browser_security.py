"""Browser security: cross-site requests, DNS rebinding, sessions and response headers."""

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
    """Yield a client that has signed in and keeps its cookie."""
    with httpx.Client(base_url=site.url) as http:
        assert http.post("v1/session", json={"token": TOKEN}).json() == {"user": "ann"}
        yield http


def test_a_session_may_read(browser: httpx.Client) -> None:
    """The cookie is enough, and contains neither user name nor token."""
    assert browser.get("v1/page/now").status_code == 200
    assert "ann" not in str(browser.cookies.get(COOKIE))
    assert TOKEN not in str(browser.cookies.get(COOKIE))


def test_the_cookie_is_httponly_and_samesite_strict(site: Served) -> None:
    """Over plain HTTP the cookie is not `Secure`, because browsers would drop it."""
    said = httpx.post(site.url + "v1/session", json={"token": TOKEN}).headers["set-cookie"]
    assert "httponly" in said.lower()
    assert "samesite=strict" in said.lower()
    assert "secure" not in said.lower()


def test_a_session_may_not_submit_cancel_or_go_down(browser: httpx.Client, site: Served) -> None:
    """Orders need the token itself."""
    (job,) = site.play.service.submit([job_content()], user="ann")["jobs"]
    for path, body in (
        ("jobs", {"jobs": [job_content()]}),
        (f"jobs/{job}/cancel", None),
        ("down", {"is_down": True}),
    ):
        assert browser.post(f"v1/{path}", json=body).status_code == 403
    assert len(site.play.storage.queue.active) == 1
    assert not site.play.daemon.standing.is_down


def test_signing_out_ends_the_session(browser: httpx.Client) -> None:
    """The same cookie gives status 401 afterwards."""
    key = browser.cookies.get(COOKIE)
    browser.delete("v1/session")
    assert browser.get("v1/page/now", headers={"Cookie": f"{COOKIE}={key}"}).status_code == 401


def test_a_wrong_token_begins_no_session(site: Served) -> None:
    """The answer is 401, without a cookie."""
    answer = httpx.post(site.url + "v1/session", json={"token": "not-a-token-of-anybody"})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.first_set(2)
@pytest.mark.parametrize("path", ["", "page.js", "v1/page/now", "v1/status", "metrics"])
def test_a_request_for_an_unknown_host_name_is_refused(browser: httpx.Client, path: str) -> None:
    """In DNS rebinding, the browser sends a foreign host name such as `evil.example`."""
    answer = browser.get(path, headers={"Host": "evil.example"})
    assert answer.status_code == 403
    assert "[api] hosts" in answer.json()["message"]


@pytest.mark.first_set(2)
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
def test_cross_site_requests_are_refused_even_with_the_cookie(
    browser: httpx.Client, headers: dict[str, str]
) -> None:
    """Neither reading nor signing in is possible."""
    assert browser.get("v1/page/now", headers=headers).status_code == 403
    assert browser.post("v1/session", json={"token": TOKEN}, headers=headers).status_code == 403


def test_a_link_from_another_site_opens_the_page(site: Served) -> None:
    """The page itself contains no data."""
    from_elsewhere = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert httpx.get(site.url, headers=from_elsewhere).status_code == 200


def test_a_request_with_a_token_may_use_any_host_name(site: Served) -> None:
    """A browser does not send the token on its own, so any host name is safe."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Host": "boa.example"}
    assert httpx.get(site.url + "v1/status", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["", "page.css", "v1/status", "healthz", "nothing"])
def test_every_answer_has_the_security_headers(site: Served, path: str) -> None:
    """Error answers have them too."""
    headers = httpx.get(site.url + path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


def test_the_documentation_pages_of_fastapi_are_not_served(site: Served) -> None:
    """These pages load files from a CDN and would be blank on a closed network; a stranger learns nothing."""
    assert [httpx.get(site.url + path).status_code for path in ("docs", "redoc")] == [401, 401]


def test_sessions_expire_and_their_number_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """One session more than allowed ends the oldest."""
    now = 1000.0
    monkeypatch.setattr("boa_daemon.api.browser_security.time.monotonic", lambda: now)
    sessions = Sessions()
    keys = [sessions.begin("ann") for _ in range(MOST_SESSIONS + 1)]
    assert sessions.user(keys[0]) is None
    assert sessions.user(keys[-1]) == "ann"
    now += SESSION_SECONDS
    assert sessions.user(keys[-1]) is None
    assert sessions.user(None) is None
