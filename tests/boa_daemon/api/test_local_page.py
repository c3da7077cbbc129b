"""`boa open`: a daemon's socket in this user's browser, and in nobody else's."""

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


def test_the_address_gives_a_cookie_once(page: LocalPage, browser: httpx.Client) -> None:
    """Whoever has it after the browser gets nothing."""
    assert browser.get("").status_code == 200
    again = httpx.get(page.url)
    assert again.status_code == 403
    assert "set-cookie" not in again.headers


def test_the_cookie_goes_to_this_path_alone(page: LocalPage) -> None:
    """Other servers of this machine share the name 127.0.0.1, and browsers do not tell ports apart."""
    said = httpx.get(page.url).headers["set-cookie"]
    assert f"Path={page.place};" in said
    assert said.endswith("HttpOnly; SameSite=Strict")


def test_it_asks_as_this_user(browser: httpx.Client) -> None:
    """The page and its answers come through."""
    assert "<title>BOA</title>" in browser.get("").text
    assert browser.get("page.js").headers["content-type"].startswith("text/javascript")
    assert browser.get("v1/page/now").json()["fault"] == ""


def test_without_the_cookie_there_is_nothing(page: LocalPage) -> None:
    """Another user of this machine, with the path and without."""
    for path in (page.place, f"{page.place}v1/status", "/v1/status", "/"):
        answer = httpx.get(f"http://{page.host}{path}", headers={"Cookie": f"{COOKIE}=guessed"})
        assert answer.status_code in (403, 404)


def test_a_wrong_key_gives_no_cookie_and_spends_nothing(page: LocalPage) -> None:
    """The right one works afterwards."""
    assert httpx.get(f"http://{page.host}{page.place}?key=wrong").status_code == 403
    assert "set-cookie" in httpx.get(page.url).headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost:1"},
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_another_site_cannot_ask_even_with_the_cookie(browser: httpx.Client, headers: dict[str, str]) -> None:
    """A name that was bound anew, or a page of somebody else's."""
    assert browser.get("v1/page/now", headers=headers).status_code == 403


def test_only_questions_go_through(browser: httpx.Client, site: Served) -> None:
    """Nothing is ordered by a page; paths that are none of it are not passed on."""
    assert browser.post("v1/down", json={"is_down": True}).status_code == 501
    assert not site.play.daemon.standing.is_down
    assert browser.get("metrics").status_code == 404
    assert browser.get("v1/../metrics").status_code == 404


def test_a_daemon_that_is_gone_is_said(page: LocalPage, browser: httpx.Client, site: Served) -> None:
    """502 with a sentence, which the page shows."""
    site.socket.unlink()
    answer = browser.get("v1/page/now")
    assert answer.status_code == 502
    assert "no daemon listens" in answer.text


def test_a_socket_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """Before anything is served."""
    with pytest.raises(DaemonUnreachable, match="no daemon listens"):
        LocalPage(tmp_path / "none.sock")


def test_a_port_that_is_taken_is_named(page: LocalPage) -> None:
    """One error with what to do."""
    with pytest.raises(InputError, match="any free one"):
        LocalPage(page.path, port=int(page.host.rpartition(":")[2]))
