"""Orders from the page: read-only by default, with rights, only from the page itself, each one in the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from page_site import TOKENS, Served, served

from boa_daemon.api.browser_security import WORD_HEADER
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

BUDGET = {"usd_per_hour": 40.0, "usd_per_day_cap": 1200.0, "usd_per_month_cap": 30_000.0}


@contextmanager
def a_site(folder: Path, *, may_order: bool = True) -> Iterator[Served]:
    """Serve a daemon with a running and a waiting job of ann."""
    settings = {"budget": BUDGET, "api": {"page_orders": may_order}}
    play = DaemonInAFolder(folder, ManualClock(1_800_000_000.0), settings)
    play.daemon.tick()
    play.service.submit([job_content(elastic=True), job_content(elastic=True, weight=2.0)], user="ann")
    with served(play, folder) as found:
        yield found
    play.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Served]:
    with a_site(tmp_path) as found:
        yield found


@contextmanager
def signed_in(site: Served, user: str) -> Iterator[httpx.Client]:
    """Yield a browser of a user: its cookie, and the word of its page."""
    with httpx.Client(base_url=site.url) as http:
        http.post("v1/session", json={"token": TOKENS[user]}).raise_for_status()
        http.headers[WORD_HEADER] = http.get("v1/page/me").json()["word"]
        yield http


ORDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "cancel": ("v1/jobs/job-1/cancel", {}),
    "resize": ("v1/jobs/job-1/resize", {"gpus": 1}),
    "hold": ("v1/jobs/job-1/hold", {"is_held": True}),
    "weight": ("v1/jobs/job-1/weight", {"weight": 0.5}),
}
CAP = ("v1/caps/day", {"usd": 500.0})


def state_of(site: Served) -> tuple[Any, ...]:
    """Return all that orders may change."""
    active = site.play.storage.queue.active
    jobs = {name: (job.is_cancelled, dict(job.content)) for name, job in active.items()}
    return jobs, dict(site.play.storage.orders.lower_caps), site.play.storage.orders.newest(9)


@pytest.mark.first_set(3)
@pytest.mark.parametrize(("path", "body"), [*ORDERS.values(), CAP], ids=[*ORDERS, "cap"])
def test_the_page_only_reads_unless_the_settings_let_it_order(
    tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    """Even an administrator's session is refused; the page has no word."""
    with a_site(tmp_path, may_order=False) as site:
        before = state_of(site)
        with signed_in(site, "root") as http:
            me = http.get("v1/page/me").json()
            assert (me["may_order"], me["word"], me["is_admin"]) == (False, "", True)
            assert http.post(path, json=body).status_code == 403
        assert state_of(site) == before


@pytest.mark.first_set(3)
@pytest.mark.parametrize(("path", "body"), [*ORDERS.values(), CAP], ids=[*ORDERS, "cap"])
def test_an_order_that_does_not_come_from_the_page_is_refused(
    site: Served, path: str, body: dict[str, Any]
) -> None:
    """No word, a wrong word, another session's word, another origin, another site: nothing is changed."""
    with signed_in(site, "root") as http, signed_in(site, "ann") as other:
        before, right = state_of(site), http.headers[WORD_HEADER]
        for headers in (
            {WORD_HEADER: ""},
            {WORD_HEADER: "0" * 64},
            {WORD_HEADER: other.headers[WORD_HEADER]},
            {WORD_HEADER: "é".encode().decode("latin-1")},
            {WORD_HEADER: right, "Origin": "https://evil.example"},
            {WORD_HEADER: right, "Sec-Fetch-Site": "cross-site"},
            {WORD_HEADER: right, "Sec-Fetch-Site": "same-site"},
            {WORD_HEADER: right, "Host": "evil.example"},
        ):
            raw = {name: value.encode("latin-1") for name, value in headers.items()}
            assert http.post(path, json=body, headers=raw).status_code == 403, headers
        http.delete("v1/session")
        assert http.post(path, json=body).status_code == 401
        assert state_of(site) == before


def test_a_session_orders_nothing_but_what_the_page_has(site: Served) -> None:
    """Submitting, going down and commands beside a job need the token itself."""
    with signed_in(site, "root") as http:
        for path, body in (
            ("v1/jobs", {"jobs": [job_content()]}),
            ("v1/down", {"is_down": True}),
            ("v1/jobs/job-1/exec", {"command": "id"}),
            ("v1/jobs/job-1/interrupt", {}),
            ("v1/settings/apply", {}),
        ):
            assert http.post(path, json=body).status_code == 403, path


@pytest.mark.parametrize(("path", "body"), [*ORDERS.values(), CAP], ids=[*ORDERS, "cap"])
def test_who_has_no_right_changes_nothing(site: Served, path: str, body: dict[str, Any]) -> None:
    """Bob is neither the user of the job nor an administrator."""
    before = state_of(site)
    with signed_in(site, "bob") as http:
        assert http.post(path, json=body).status_code == 403
    assert state_of(site) == before


@pytest.mark.first_set(3)
@pytest.mark.parametrize("user", ["ann", "root"])
@pytest.mark.parametrize("what", ORDERS)
def test_an_order_is_done_and_stands_in_the_log(site: Served, what: str, user: str) -> None:
    """The user of a job and administrators may order; the log says who and what."""
    path, body = ORDERS[what]
    with signed_in(site, user) as http:
        said = http.post(path, json=body)
        assert (said.status_code, said.json()["changed"]) == (200, True), said.text
        (logged,) = http.get("v1/decisions").json()["orders"]

    assert (logged["user"], logged["target"]) == (user, "job-1")
    assert logged["said"].startswith(("job job-1 of ann", "the weight of job job-1"))
    job = site.play.storage.queue.active.get("job-1")
    assert {
        "cancel": job is None or job.is_cancelled,
        "resize": job is not None and job.content.get("ordered_gpus") == 1,
        "hold": job is not None and job.content.get("held_by") == user,
        "weight": job is not None and job.content["weight"] == 0.5,
    }[what]


def test_a_held_job_saves_stops_and_waits_until_it_is_released(site: Served) -> None:
    """What an administrator holds, its user does not release; a restart keeps the hold."""
    play = site.play

    def after(ticks: int) -> tuple[str, str | None]:
        for _ in range(ticks):
            play.daemon.tick()
            play.clock.instant += 60.0
        row = play.service.job("job-1")
        return row["status"], row["waits_for"]

    assert after(6)[0] == "running"
    with signed_in(site, "root") as root, signed_in(site, "ann") as ann:
        assert root.post("v1/jobs/job-1/hold", json={"is_held": True}).status_code == 200
        assert after(4) == ("queued", "held")
        assert "It waits until it is released: root ordered so." in play.service.explain("job-1")["text"]
        refused = ann.post("v1/jobs/job-1/hold", json={"is_held": False})
        assert (refused.status_code, "held by root" in refused.json()["message"]) == (403, True)
        assert after(4) == ("queued", "held")
        assert root.post("v1/jobs/job-1/hold", json={"is_held": False}).json()["changed"]
        assert after(6)[0] == "running"
        # Ann's own hold is hers to end.
        assert ann.post("v1/jobs/job-1/hold", json={"is_held": True}).json()["changed"]
        assert after(4) == ("queued", "held")
        assert ann.post("v1/jobs/job-1/hold", json={"is_held": False}).json()["changed"]


def test_a_job_that_would_lose_its_work_is_not_held_while_it_runs(site: Served) -> None:
    """It is not known to save and resume."""
    play = site.play
    (name,) = play.service.submit([job_content(elastic=False)], user="ann")["jobs"]
    for _ in range(6):
        play.daemon.tick()
        play.clock.instant += 60.0
    with signed_in(site, "ann") as http:
        said = http.post(f"v1/jobs/{name}/hold", json={"is_held": True})
    assert (said.status_code, "would lose its work" in said.json()["message"]) == (422, True)


def test_priority_stays_within_the_purse(site: Served) -> None:
    """A user's job weighs at most what the heaviest job of the same purse was submitted with."""
    with signed_in(site, "ann") as ann, signed_in(site, "root") as root:
        assert ann.post("v1/jobs/job-1/weight", json={"weight": 2.0}).status_code == 200
        refused = ann.post("v1/jobs/job-1/weight", json={"weight": 2.5})
        assert (refused.status_code, "at most 2" in refused.json()["message"]) == (403, True)
        assert root.post("v1/jobs/job-1/weight", json={"weight": 9.0}).status_code == 200
        for weight in (0.0, -1.0, 1e9):
            assert root.post("v1/jobs/job-1/weight", json={"weight": weight}).status_code == 422


def test_an_administrator_lowers_a_cap_and_no_order_raises_one_above_the_settings(site: Served) -> None:
    """The next tick keeps the lower cap, also after a change of settings; null sets it back."""
    daemon = site.play.daemon
    with signed_in(site, "root") as http:
        assert http.post("v1/caps/day", json={"usd": 500.0}).json()["caps"]["day"] == {
            "usd": 500.0,
            "usd_in_settings": 1200.0,
        }
        assert daemon.planner.rules().caps.usd_per_day == 500.0
        daemon.use(daemon.settings)
        assert daemon.planner.rules().caps.usd_per_day == 500.0
        refused = http.post("v1/caps/day", json={"usd": 1200.01})
        assert (refused.status_code, "the settings cap a day at $1,200.00" in refused.json()["message"]) == (
            422,
            True,
        )
        assert http.post("v1/caps/month", json={"usd": 0.0}).status_code == 422
        assert http.post("v1/caps/month", json={"usd": 0.01}).status_code == 200
        assert daemon.planner.rules().caps.usd_per_month == 0.01
        daemon.tick()
        http.post("v1/caps/day", json={"usd": None})
        assert daemon.planner.rules().caps.usd_per_day == 1200.0
        said = [one["said"] for one in http.get("v1/decisions").json()["orders"]]
        assert said[0] == "the cap of a day was changed from $500.00 to $1,200.00"
