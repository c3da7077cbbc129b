"""`boa open`: the page of a daemon's socket, for this user's browser only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from page_site import Served, served

from boa_daemon.api.browser_security import COOKIE
from boa_daemon.api.client import DaemonUnreachable
from boa_daemon.api.local_page import LocalPage
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Served]:
    play = DaemonInAFolder(tmp_path, ManualClock(1_800_000_000.0))
    play.daemon.tick()
    with served(play, tmp_path) as found:
        yield found
    play.close()


@pytest.fixture
def page(site: Served) -> Iterator[LocalPage]:
    found = LocalPage(site.socket)
    thread = threading.Thread(target=found.serve)
    thread.start()
    yield found
    found.stop()
    thread.join()


@pytest.fixture
def browser(page: LocalPage) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{page.host}{page.place}") as http:
        first = http.get(page.url)
        assert page.place in first.text
        yield http


def test_the_address_gives_a_cookie_only_once(page: LocalPage, browser: httpx.Client) -> None:
    """A second request for the same address is refused."""
    assert browser.get("").status_code == 200
    again = httpx.get(page.url)
    assert again.status_code == 403
    assert "set-cookie" not in again.headers


def test_the_cookie_is_limited_to_the_path_of_the_page(page: LocalPage) -> None:
    """Other servers on 127.0.0.1 have other paths; browsers do not separate cookies by port."""
    said = httpx.get(page.url).headers["set-cookie"]
    assert f"Path={page.place};" in said
    assert said.endswith("HttpOnly; SameSite=Strict")


def test_the_page_and_its_answers_are_passed_through(browser: httpx.Client) -> None:
    """HTML, script and JSON answers arrive."""
    assert "<title>BOA</title>" in browser.get("").text
    assert browser.get("page.js").headers["content-type"].startswith("text/javascript")
    assert browser.get("v1/page/now").json()["fault"] == ""


def test_requests_without_the_cookie_are_refused(page: LocalPage) -> None:
    """Another user of the machine gets 403 or 404 for every path."""
    for path in (page.place, f"{page.place}v1/status", "/v1/status", "/"):
        answer = httpx.get(f"http://{page.host}{path}", headers={"Cookie": f"{COOKIE}=guessed"})
        assert answer.status_code in (403, 404)


def test_a_wrong_key_does_not_use_up_the_right_one(page: LocalPage) -> None:
    """The right key works afterwards."""
    assert httpx.get(f"http://{page.host}{page.place}?key=wrong").status_code == 403
    assert "set-cookie" in httpx.get(page.url).headers


@pytest.mark.first_set(2)
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost:1"},
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_requests_of_other_sites_are_refused_even_with_the_cookie(
    browser: httpx.Client, headers: dict[str, str]
) -> None:
    """Another host name, origin or fetch site gives status 403."""
    assert browser.get("v1/page/now", headers=headers).status_code == 403


def test_only_read_requests_of_the_page_are_passed_on(browser: httpx.Client, site: Served) -> None:
    """Orders are refused, and other paths are not found."""
    assert browser.post("v1/down", json={"is_down": True}).status_code == 403
    assert not site.play.daemon.standing.is_down
    assert browser.get("metrics").status_code == 404
    assert browser.get("v1/../metrics").status_code == 404


def test_a_missing_daemon_gives_status_502(page: LocalPage, browser: httpx.Client, site: Served) -> None:
    """The page shows the sentence of the answer."""
    site.socket.unlink()
    answer = browser.get("v1/page/now")
    assert answer.status_code == 502
    assert "no daemon listens" in answer.text


def test_a_missing_socket_is_refused(tmp_path: Path) -> None:
    """The error comes before anything is served."""
    with pytest.raises(DaemonUnreachable, match="no daemon listens"):
        LocalPage(tmp_path / "none.sock")


def test_a_port_in_use_is_refused_with_advice(page: LocalPage) -> None:
    """The error says how to use any free port."""
    with pytest.raises(InputError, match="any free one"):
        LocalPage(page.path, port=int(page.host.rpartition(":")[2]))
