"""The page in a real browser, on a daemon with recorded hours: every view, both schemes, three widths."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pytest
from accessibility import faults_of
from browsers import Tab
from daemon_site import a_site, wait_for
from page_site import TOKEN, TOKENS, Served, a_day, served
from PIL import Image

from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.reasons import WAIT_REASON_TEXTS
from policies.optimum.boa import solve

pytestmark = pytest.mark.browser
VIEWS = ("now", "money", "decisions", "jobs", "job", "plan")
IMAGES = Path(__file__).resolve().parents[3] / "docs/images"
INSTANT = 1_794_571_200.0 + 14 * 3600.0


@pytest.fixture(scope="module")
def site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("day")
    play = a_day(folder, hours=24.0 if os.environ.get("BOA_RECORD_DOCS") else 8.0, now=INSTANT)
    with served(play, folder) as found:
        yield found
    play.close()


@pytest.fixture
def tab(browser: Any, site: Served) -> Iterator[Tab]:
    found = signed_in(browser, site)
    yield found
    found.close()


def signed_in(browser: Any, site: Served, **given: Any) -> Tab:
    """Return a tab that has signed in and shows the first view."""
    now = given.pop("now", INSTANT)
    tab = Tab(browser, **given)
    tab.page.clock.set_fixed_time(now)
    tab.page.goto(site.url)
    tab.page.fill("input[type=password]", TOKEN)
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector(".tile")
    # Before signing in, the first request gets status 401, and the browser logs it.
    tab.complaints.clear()
    return tab


def show(tab: Tab, site: Served, view: str) -> None:
    """Show a view and wait until it is drawn."""
    jobs = sorted(
        (job for job in site.play.storage.queue.active.values() if job.slots and job.user == "ann"),
        key=lambda job: (-job.generation, job.seq),
    )
    name = f"job/{jobs[0].id}" if view == "job" else view
    tab.page.goto(f"{site.url}#{name}")
    tab.page.wait_for_selector("main .card")


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1280),
        ("dark", 390),
        ("light", 768),
        pytest.param("light", 390, marks=pytest.mark.exhaustive),
        pytest.param("dark", 768, marks=pytest.mark.exhaustive),
        pytest.param("dark", 1280, marks=pytest.mark.exhaustive),
    ],
)
def test_every_view_is_drawn_without_faults(browser: Any, site: Served, width: int, scheme: str) -> None:
    """No console error, no request to another host, no horizontal scrolling, and enough contrast."""
    tab = signed_in(browser, site, width=width, scheme=scheme)
    for view in VIEWS:
        show(tab, site, view)
        wide = tab.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wide <= 0, view
        assert faults_of(tab.page) == [], view
        assert tab.page.locator("main").inner_text().count("NaN") == 0, view
        assert tab.page.locator("main").inner_text().count("undefined") == 0, view
        if os.environ.get("BOA_RECORD_DOCS") and (width, scheme) in (
            (1280, "light"),
            (768, "light"),
            (390, "dark"),
        ):
            tall = min(
                {"job": 1500, "money": 2000, "plan": 1500}.get(view, 1100),
                tab.page.evaluate("document.documentElement.scrollHeight"),
            )
            clip = {"x": 0, "y": 0, "width": width, "height": tall}
            picture = Image.open(BytesIO(tab.page.screenshot(clip=clip, full_page=True)))
            few = picture.convert("RGB").quantize(200, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
            few.save(IMAGES / f"page-{view}-{width}.png", optimize=True)
    assert tab.complaints == []
    assert {url.split("/")[2] for url in tab.asked} == {site.url.split("/")[2]}
    tab.close()


def test_the_first_view_shows_the_figures_of_the_last_tick(tab: Tab, site: Served) -> None:
    """Spend rate, cap and every job of the queue are shown."""
    picture = site.play.daemon.standing.picture
    assert picture is not None
    said = tab.page.locator("main").inner_text()
    assert f"${picture.usd_per_hour:.2f}" in said
    assert f"cap ${1300:,}" in said
    rows = tab.page.locator("table[aria-label=Jobs] tbody tr")
    assert rows.count() == picture.running + picture.waiting
    for row in rows.all():
        assert "on 1 node" in row.inner_text() or "nodes" in row.inner_text() or "GPUs" in row.inner_text()


def test_the_fleet_says_whose_each_gpu_is(tab: Tab, site: Served) -> None:
    """Pointing at a cell names its job, user and node; a click opens the job; colours follow the choice."""
    queue = site.play.storage.queue
    node, held = next((node, gpus) for node, gpus in queue.holders().items() if 0 in gpus)
    drawing = tab.page.locator("svg.natural").first
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    assert box is not None
    said = set()
    for column in range(9):
        tab.page.mouse.move(box["x"] + 8 + column * box["width"] / 9, box["y"] + 8)
        said.add(tab.page.locator(".readout", has_text="GPU").last.inner_text())
    job = queue.active[held[0]]
    assert any(f"{node}:" in words and f"job {job.id} of {job.user}" in words for words in said)
    for by, names in (
        ("user", {job.user for job in queue.active.values() if job.slots}),
        ("class", {job.class_name for job in queue.active.values() if job.slots}),
    ):
        tab.page.locator(f"[data-key='Colour by:{by}']").click()
        legend = tab.page.locator(".fleet ~ .legend").inner_text()
        assert all(f"{name} (" in legend for name in names)
    tab.page.mouse.click(box["x"] + 8, box["y"] + 8)
    tab.page.wait_for_selector("text=Its life")


def test_money_has_its_sign_and_every_view_one_heading(tab: Tab, site: Served) -> None:
    """No bare numbers of dollars in tables and facts; h1 once per view."""
    for view in VIEWS:
        show(tab, site, view)
        assert tab.page.locator("main h1").count() == 1, view
        assert tab.page.locator("th", has_text="dollars").count() == 0, view
    show(tab, site, "money")
    assert tab.page.locator("h2", has_text="This month").count() == 1
    assert "$" in tab.page.locator("table[aria-label=Cost] td[data-head=cost]").first.inner_text()


def test_the_present_rate_counts_what_is_paid_without_nodes(tab: Tab, site: Served) -> None:
    """The time that the month's money lasts: commitments are paid from it too."""
    show(tab, site, "now")
    status = tab.page.evaluate("fetch('v1/status').then((answer) => answer.json())")
    rate, beside = status["usd_per_hour"] + status["beside_usd_per_hour"], status["beside_usd_per_hour"]
    assert beside == pytest.approx(8.5)
    left = status["budget_usd_per_hour"] * 30.0 * 24.0 - status["books"]["month"]["spent_usd"]
    said = tab.page.locator(".tile", has_text="This month").inner_text()
    found = re.search(r"left: ([0-9.]+) (h|days) at the present rate", said)
    assert found is not None, said
    assert float(found[1]) * {"h": 1.0, "days": 24.0}[found[2]] == pytest.approx(left / rate, rel=0.03)


def saved(tab: Tab, name: str) -> str:
    """Return the file that a button makes."""
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name=name, exact=True).click()
    return Path(download.value.path()).read_bytes().decode()


def test_money_adds_up_to_the_bills_in_every_grouping_and_file(tab: Tab, site: Served) -> None:
    """One idle figure, in the parts, in the tables, and in what is exported."""
    show(tab, site, "money")
    answer = tab.page.evaluate("fetch('v1/page/uses?hours=24').then((answer) => answer.json())")
    uses = answer["uses"]
    idle, whole = f"${uses['idle_usd']:,.2f}", f"${uses['usd']:,.2f}"
    for by in ("user", "team", "class", "job"):
        tab.page.locator(f"[data-key='Cost by:{by}']").click()
        tab.page.locator("table[aria-label=Cost] th", has_text=by).first.wait_for()
        said = tab.page.locator("table[aria-label=Cost]").inner_text()
        assert idle in said, by
        assert tab.page.locator("table[aria-label=Cost] tr.sum").inner_text().split("\t")[1] == whole, by
        rows = list(csv.DictReader(saved(tab, f"CSV of cost-by-{by}").splitlines()))
        assert sum(float(row["usd"]) for row in rows) == pytest.approx(uses["usd"]), by
        cost = json.loads(saved(tab, f"JSON of cost-by-{by}"))
        assert (cost["by"], cost["usd"]) == (by, pytest.approx(uses["usd"]))
    card = tab.page.locator(".card:has(h2:has-text('What the money was for'))").inner_text()
    assert (idle in card, whole in card) == (True, True)
    for by in ("kind", "market", "machine", "day"):
        tab.page.locator(f"[data-key='Cost by:{by}']").click()
        tab.page.locator("table[aria-label=Cost] th", has_text=by).first.wait_for()
        assert tab.page.locator("table[aria-label=Cost] tr.sum").inner_text().split("\t")[1] == whole, by
    assert faults_of(tab.page) == []


def test_purses_and_commitments_say_what_is_left_and_saved(tab: Tab, site: Served) -> None:
    """Each cap of a team with spent, reserved, left and its next filling; dollars that a commitment saved."""
    show(tab, site, "money")
    answer = tab.page.evaluate("fetch('v1/page/uses?hours=24').then((answer) => answer.json())")
    said = tab.page.locator("table[aria-label=Purses]").inner_text()
    for purse in answer["purses"]:
        left = purse["cap_usd"] - purse["spent_usd"] - purse["reserved_usd"]
        assert f"{purse['kind']} {purse['name']}" in said
        assert f"${left:,.2f}" in said or f"${left:,.0f}" in said
    assert "1 Dec 00:00" in said
    (worth,) = answer["commitments"]
    assert worth["paid_usd"] == pytest.approx(24.0 * 8.5)
    assert worth["saved_usd"] == pytest.approx(worth["used_usd"] - worth["paid_usd"])
    card = tab.page.locator(".card:has(h2:has-text('Commitments and blocks'))").inner_text()
    assert f"${abs(worth['saved_usd']):,.2f} {'saved' if worth['saved_usd'] >= 0 else 'lost'}" in card
    assert "behind its share" in tab.page.locator("main").inner_text()
    with tab.page.expect_download() as report:
        tab.page.get_by_role("link", name="vision", exact=True).click()
    assert report.value.suggested_filename == "boa-2026-11-vision.html"
    assert "Team vision, November 2026 so far" in Path(report.value.path()).read_text()


def test_a_file_holds_no_formula_that_a_spreadsheet_would_run(tab: Tab, site: Served) -> None:
    """Texts that begin like formulas are marked, numbers below zero are not; quotes and lines are kept."""
    rows = [{"name": "=cmd()", "usd": -1.5, "said": 'a "b",\nc'}, {"name": "@x", "usd": 2, "more": [1, 2]}]
    text = tab.page.evaluate("(rows) => boa.csvOf(rows)", rows)
    read = list(csv.DictReader(StringIO(text, newline="")))
    assert [row["name"] for row in read] == ["'=cmd()", "'@x"]
    assert [row["usd"] for row in read] == ["-1.5", "2"]
    assert (read[0]["said"], read[1]["more"]) == ('a "b",\nc', "1 2")


def test_decisions_are_filtered_by_job_user_node_and_kind(tab: Tab, site: Served) -> None:
    """The daemon looks through all decisions, not the newest hundred; a link names what it is about."""
    storage = site.play.storage
    old = storage.store.decisions(limit=1000, with_actions=True)[-8:]
    started = next(one for row in old for one in row["actions"] if one["kind"] == "start")
    node = started["nodes"][0]
    for name, value in (("job", started["target"]), ("user", started["user"]), ("node", node)):
        tab.page.goto(f"{site.url}#decisions/{name}={value}")
        tab.page.locator("main .card .tick").first.wait_for()
        assert tab.page.locator(f"[data-key='of:{name}']").input_value() == value
        ticks = tab.page.evaluate(
            f"fetch('v1/decisions?limit=1000&acting=true&{name}={value}').then((answer) => answer.json())"
        )["decisions"]
        assert any(started in row["actions"] for row in ticks), name
        for row in ticks:
            assert any(
                value in (one["target"], one.get("user"), *one.get("nodes", ()))
                or (name == "node" and one["kind"] == "launch")
                for one in row["actions"]
            ), (name, row["tick"])
    assert faults_of(tab.page) == []
    tab.page.get_by_role("button", name="Show all").click()
    tab.page.locator("[data-key='of:kind']").select_option("terminate")
    others = tab.page.locator(".tick .did strong").filter(has_not_text="terminate")
    others.first.wait_for(state="detached")
    assert tab.page.locator(".tick .did strong").count() > 2
    # All releases of a day for one reason are one line.
    before = tab.page.locator(".card > details.tick").count()
    tab.page.locator("[data-key='Fold:reason']").click()
    assert tab.page.locator(".card > details.tick").count() < before
    rows = list(csv.DictReader(saved(tab, "CSV of decisions").splitlines()))
    assert "terminate" in {row["kind"] for row in rows}


def test_a_decision_says_what_the_alternative_would_have_cost(tab: Tab, site: Served) -> None:
    """In the line another width and the difference in dollars, with a legend; in the details both sums."""
    tab.page.goto(f"{site.url}#decisions")
    tab.page.get_by_text("what it would have cost more (+) or less (−)").wait_for()
    # A tick that started and stopped nothing weighed nothing that concerns it.
    only = tab.page.locator(
        "details.tick", has=tab.page.locator("summary strong", has_text=re.compile("^terminate [^,]*$"))
    )
    assert only.count()
    assert set(only.locator("> summary .else").all_inner_texts()) <= {""}
    tab.page.locator(".tick .else", has_text="instead: ").first.wait_for()
    row = tab.page.locator("details.tick", has_text="instead: ").first
    row.locator("summary").click()
    assert "Money and waiting together: $" in row.inner_text()


def test_the_plan_shows_prices_with_their_day_and_what_forbids_more(tab: Tab, site: Served) -> None:
    """Source and age of each price, nodes in use against the limit, what the last dollars buy, a mark."""
    show(tab, site, "plan")
    prices = tab.page.locator("table[aria-label=Prices]").inner_text()
    entry = site.play.daemon.planner.catalog.entries["g5.12xlarge"]
    assert (entry.as_of in prices, entry.source in prices, "days old" in prices) == (True, True, True)
    room = tab.page.locator("table[aria-label='Quotas and room']").inner_text()
    assert "max_instances = 9 is reached" in room
    bought = tab.page.locator("table[aria-label='What the last dollars buy'] tbody tr")
    assert bought.count() >= 2
    assert "up to the knee" in bought.first.inner_text()
    assert tab.page.get_by_text("you are here (").count() >= 1
    assert tab.page.locator("h1").inner_text().startswith("$42.00/h")


def test_a_jobs_life_is_on_one_axis(tab: Tab, site: Served) -> None:
    """A bar for each start with its width and end, below it the charts; GPU use where it was reported."""
    queue = site.play.storage.queue
    job = max((one for one in queue.active.values() if one.slots), key=lambda one: one.generation)
    tab.page.goto(f"{site.url}#job/{job.id}")
    tab.page.wait_for_selector("text=starts and moves")
    assert tab.page.locator("rect.bar").count() == job.generation
    charts = tab.page.locator("main svg[aria-label$='over time']")
    named = [one.get_attribute("aria-label") for one in charts.all()]
    assert {"steps per minute over time", "loss over time", "GPU use, % over time"} <= set(named)
    left = {one.evaluate("node => node.querySelector('.axis').getAttribute('x1')") for one in charts.all()}
    assert len(left) == 1
    assert tab.page.get_by_role("link", name="The decisions about it").count() == 1


def test_decisions_are_found_by_job_and_stand_under_their_day(tab: Tab, site: Served) -> None:
    """A search keeps the decisions that name the job."""
    show(tab, site, "decisions")
    assert tab.page.locator("h3.day").count() >= 1
    name = next(job.id for job in site.play.storage.queue.active.values() if job.slots)
    tab.page.fill("[aria-label='Search decisions']", name)
    for row in tab.page.locator("main .card > details.tick").all():
        assert name in row.text_content()
    tab.page.fill("[aria-label='Search decisions']", "no such thing")
    assert "No decision is about that." in tab.page.locator("main").inner_text()


def test_the_page_finds_the_exact_optimum(tab: Tab, site: Served) -> None:
    """At eight budgets, waiting time and spend equal those of `solve`."""
    daemon = site.play.daemon
    problem = daemon.planner.record(
        {job.class_name for job in site.play.storage.queue.active.values()}
    ).site.problem
    least = solve(problem, 1e6).cheapest_feasible_spend
    for share in (1.0, 1.01, 1.1, 1.25, 1.5, 2.0, 3.0, 10.0):
        found = tab.page.evaluate(
            "async ([budget]) => boa.solve(await (await fetch('v1/page/frontier')).json(), budget)",
            [share * least],
        )
        exact = solve(problem, share * least)
        assert found["hours"] == pytest.approx(exact.weighted_mean_jct_hours, rel=1e-6)
        assert found["spend"] == pytest.approx(exact.mean_spend, rel=1e-6)


def test_sliders_move_the_plan_by_keyboard(tab: Tab, site: Served) -> None:
    """Higher prices change the plan, and the slider keeps the focus."""
    show(tab, site, "plan")
    before = tab.page.locator("main table").first.inner_text()
    tab.page.locator("[data-key=Prices]").focus()
    for _ in range(60):
        tab.page.keyboard.press("ArrowRight")
    assert tab.page.evaluate("document.activeElement.dataset.key") == "Prices"
    assert tab.page.locator("label:has([data-key=Prices]) output").inner_text() == "160 %"
    assert tab.page.locator("main").inner_text() != before
    assert tab.page.locator("path.dash").count() == 1


def test_views_and_jobs_are_reached_by_keyboard(tab: Tab, site: Served) -> None:
    """Tab reaches every view and the first job; Enter opens the job."""
    tab.page.goto(site.url)
    tab.page.wait_for_selector(".tile")
    tab.page.locator("body").click(position={"x": 1, "y": 700})
    reached = []
    for _ in range(30):
        tab.page.keyboard.press("Tab")
        reached.append(tab.page.evaluate("document.activeElement.textContent"))
        if "-" in reached[-1] and tab.page.evaluate("document.activeElement.tagName") == "A":
            break
    assert {"Money", "Decisions", "Jobs", "Plan"} <= set(reached)
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("h1")
    assert tab.page.locator("h1").inner_text() == reached[-1]


def test_a_decision_can_be_replayed_on_the_page(tab: Tab, site: Served) -> None:
    """The newest decision shows its runner-up, and its replay gives the same result."""
    show(tab, site, "decisions")
    newest = tab.page.locator("details.tick").first
    newest.locator("summary").click()
    assert "runner-up" in newest.inner_text()
    newest.locator("button").click()
    tab.page.wait_for_selector("text=Decided once more: the same")


def test_inline_scripts_and_foreign_resources_are_blocked(tab: Tab, site: Served) -> None:
    """The browser names the rule of the content security policy for scripts, images and styles."""
    tab.page.evaluate(
        """() => {
          window.ran = false;
          const add = (tag, given) => document.body.append(Object.assign(document.createElement(tag), given));
          add("script", { textContent: "window.ran = true" });
          add("img", { src: "http://evil.example/x.png" });
          add("style", { textContent: "body { color: red }" });
        }"""
    )
    tab.page.wait_for_timeout(100)
    assert tab.page.evaluate("window.ran") is False
    said = " ".join(tab.complaints)
    assert [rule for rule in ("script-src", "img-src", "style-src") if rule not in said] == []


def test_another_site_can_neither_read_nor_frame_the_page(browser: Any, site: Served, tmp_path: Path) -> None:
    """The browser is signed in, and the other page gets no answer that its script can read."""
    tab = signed_in(browser, site)
    evil = tmp_path / "evil.html"
    evil.write_text(f'<iframe src="{site.url}"></iframe>')
    tab.page.goto(evil.as_uri())
    said = tab.page.evaluate(
        "url => fetch(url, {credentials: 'include', mode: 'no-cors'}).then(a => a.type, e => String(e))",
        site.url + "v1/page/now",
    )
    assert said == "opaque" or "TypeError" in said
    assert any(
        "frame-ancestors" in one or "X-Frame-Options" in one or "refused" in one for one in tab.complaints
    )
    tab.close()


def test_the_page_notes_an_unreachable_daemon_until_it_answers(browser: Any, tmp_path: Path) -> None:
    """The last figures stay on the page, marked as old."""
    play = DaemonInAFolder(tmp_path, ManualClock(INSTANT))
    play.daemon.tick()
    with served(play, tmp_path) as site:
        tab = signed_in(browser, site)
        tab.page.route("**/v1/**", lambda route: route.abort())
        tab.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        tab.page.wait_for_selector("#banner >> text=has not answered since")
        assert tab.page.locator(".tile").count() == 4
        assert tab.page.locator("#freshness.error").count() == 1
        tab.page.unroute("**/v1/**")
        tab.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        tab.page.wait_for_selector("#banner:empty", state="attached")
        tab.close()
    play.close()


STRANGE_ANSWERS = {
    "cut off": {"status": 200, "content_type": "application/json", "body": '{"as_of": 17'},
    "of a proxy": {"status": 200, "content_type": "text/html", "body": "<html>Sign in</html>"},
    "bad gateway": {"status": 502, "content_type": "text/html", "body": "<html>502</html>"},
    "database busy": {"status": 503, "json": {"message": "the database is busy"}},
    "too many": {"status": 429, "json": {"message": "too many requests at once"}},
    "forbidden": {"status": 403, "json": {"message": "administrators only"}},
}


@pytest.mark.first_set(2)
@pytest.mark.parametrize("answer", STRANGE_ANSWERS.values(), ids=STRANGE_ANSWERS)
def test_every_view_keeps_its_figures_and_says_since_when_they_are_old(
    tab: Tab, site: Served, answer: dict[str, Any]
) -> None:
    """Whatever comes in place of an answer, no figure vanishes and none is called live."""
    for view in ("money", "decisions"):
        show(tab, site, view)
        cards = tab.page.locator("main .card").count()
        tab.page.route("**/v1/**", lambda route: route.fulfill(**answer))
        tab.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        tab.page.wait_for_selector("#banner >> text=What you see is as it was then.")
        assert tab.page.locator("main .card").count() == cards, view
        assert "not live" in tab.page.locator("#freshness").inner_text()
        tab.page.unroute("**/v1/**")
        tab.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        tab.page.wait_for_selector("#banner:empty", state="attached")


def test_a_part_that_is_refused_says_so_in_its_place(tab: Tab, site: Served) -> None:
    """The history alone is refused: the bills stay, and nothing claims that nothing was spent."""
    refused = {"status": 422, "json": {"message": "the history cannot be read"}}
    tab.page.route("**/v1/page/history*", lambda route: route.fulfill(**refused))
    for view in ("now", "money"):
        show(tab, site, view)
        assert "the history cannot be read" in tab.page.locator("main").inner_text()
        assert "Nothing was written down" not in tab.page.locator("main").inner_text()
    assert tab.page.locator("h2", has_text="Who spent what").count() == 1


def test_figures_of_a_session_that_has_ended_do_not_come_back(tab: Tab, site: Served) -> None:
    """The page asks for a token and says why; a window that changes its size draws nothing old."""
    show(tab, site, "decisions")
    tab.page.route("**/v1/**", lambda route: route.fulfill(status=401, json={"message": "no token"}))
    tab.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    tab.page.wait_for_selector("text=Your session has ended")
    tab.page.set_viewport_size({"width": 900, "height": 700})
    assert tab.page.locator("form.sign").count() == 1
    assert tab.page.locator("#freshness").inner_text() == ""
    tab.page.route(
        "**/v1/session", lambda route: route.fulfill(status=429, json={"message": "too many tries"})
    )
    tab.page.fill("input[type=password]", TOKEN)
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("text=too many tries")


@pytest.mark.first_set(1)
@pytest.mark.parametrize("skew", [-7200.0, 3600.0, 400 * 86400.0])
def test_a_browsers_wrong_clock_changes_no_instant(browser: Any, site: Served, skew: float) -> None:
    """The ends of jobs and the age of the figures are by the daemon's clock."""
    row = "table[aria-label=Jobs] tbody tr td[data-head='ends, or starts']"
    right, wrong = signed_in(browser, site), signed_in(browser, site, now=INSTANT + skew)
    assert wrong.page.locator(row).all_inner_texts() == right.page.locator(row).all_inner_texts()
    assert wrong.page.locator("#freshness").inner_text() == right.page.locator("#freshness").inner_text()
    assert wrong.page.locator("#banner").inner_text() == ""
    right.close()
    wrong.close()


@pytest.mark.exhaustive
def test_a_daemon_that_hangs_is_told_before_its_request_ends(tab: Tab, site: Served) -> None:
    """The request stays open, and the hands of the clock go on; the day is named where it is not today."""
    tab.page.route("**/v1/**", lambda _route: None)
    tab.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    tab.page.clock.set_fixed_time(INSTANT + 30 * 3600.0)
    tab.page.wait_for_selector("#banner >> text=has not answered for 30 h", timeout=8000)
    assert "14 Nov 2026" in tab.page.locator("#freshness").inner_text()
    tab.page.unroute_all(behavior="ignoreErrors")


@pytest.mark.first_set(1)
@pytest.mark.parametrize("place", ["#job/%E0%A4%A", "#toString", "#job/", "#nosuch", "#decisions/job=%"])
def test_a_broken_link_shows_a_view(tab: Tab, site: Served, place: str) -> None:
    """Nothing stays blank."""
    tab.page.goto("about:blank")
    tab.page.goto(f"{site.url}{place}")
    tab.page.wait_for_selector("main .card")
    assert tab.complaints == []


def test_the_list_of_jobs_says_what_each_waits_for(tab: Tab, site: Served) -> None:
    """In words, also for those beyond the first hundreds; a name that is not listed is a link."""
    show(tab, site, "jobs")
    waiting = tab.page.locator("table[aria-label=Jobs] tr", has=tab.page.locator(".chip.waiting"))
    said = waiting.locator("td[data-head='waits for']").all_inner_texts()
    assert said
    assert all(one.partition(", number ")[0] in WAIT_REASON_TEXTS.values() for one in said), said
    assert all(re.search(r", number \d+", one) for one in said)
    tab.page.fill("input[type=search]", "other-9999")
    assert tab.page.get_by_role("link", name="Open job other-9999").count() == 1


def test_an_error_of_the_page_itself_is_shown(tab: Tab) -> None:
    """In any script, not in the drawing alone."""
    tab.page.evaluate("dispatchEvent(new ErrorEvent('error', {message: 'something strange'}))")
    said = tab.page.locator("#banner").inner_text()
    assert "something strange" in said
    assert "reload" in said


def test_days_and_months_of_purses_are_utc_in_every_zone(browser: Any, site: Served) -> None:
    """A reader far from UTC sees the midnight at which a purse is filled again, with its zone."""
    tab = signed_in(browser, site, zone="Pacific/Kiritimati")
    show(tab, site, "money")
    again = tab.page.locator("table[aria-label=Purses] td[data-head='filled again']")
    assert {text[-9:] for text in again.all_inner_texts()} == {"00:00 UTC"}
    assert "GMT+14" in tab.page.locator("#freshness").inner_text()
    tab.close()


def test_empty_views_say_so_and_what_to_do(browser: Any, tmp_path: Path) -> None:
    """Without nodes, jobs and decisions, each view has a sentence, and an unknown job is an error."""
    play = DaemonInAFolder(tmp_path, ManualClock(INSTANT))
    play.daemon.tick()
    with served(play, tmp_path) as site:
        tab = signed_in(browser, site)
        said = tab.page.locator("main").inner_text()
        assert "Nothing is rented" in said
        assert "boa submit job.yaml" in said
        for view, words in (
            ("decisions", "No tick has done anything"),
            ("jobs", "No jobs"),
            ("money", "Nothing was spent"),
        ):
            tab.page.goto(f"{site.url}#{view}")
            tab.page.wait_for_selector("main .card")
            assert words in tab.page.locator("main").inner_text()
        tab.page.goto(f"{site.url}#job/none-7")
        tab.page.wait_for_selector("text=no job 'none-7'")
        tab.close()
    play.close()


def test_the_page_marks_figures_as_old_when_ticks_are_late(browser: Any, tmp_path: Path) -> None:
    """The last tick was an hour ago."""
    clock = ManualClock(INSTANT)
    play = DaemonInAFolder(tmp_path, clock)
    play.daemon.tick()
    clock.instant += 3600.0
    with served(play, tmp_path) as site:
        tab = signed_in(browser, site)
        tab.page.wait_for_selector("#freshness.stale")
        assert "No tick was done for" in tab.page.locator("#banner").inner_text()
        tab.close()
    play.close()


@pytest.mark.exhaustive
def test_boa_open_shows_a_real_job_of_a_real_daemon(browser: Any) -> None:
    """The job is in the queue, and its page has its log and its loss curve."""
    with a_site() as site:
        site.up()
        (site.folder / "train.py").write_text(
            "import time\n"
            "from boa_daemon import job\n"
            "for step in range(600):\n"
            "    job.report(step + 1, samples=1, loss=1 / (step + 1))\n"
            "    print('step', step, flush=True)\n"
            "    time.sleep(0.5)\n"
        )
        (site.folder / "job.yaml").write_text(
            f"name: hello\nclass: default\nrun: {sys.executable} train.py\nmax_gpus: 1\n"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        boa = [sys.executable, "-m", "boa_daemon"]
        subprocess.run(
            [*boa, "submit", "job.yaml"], cwd=site.folder, env=environment, check=True, capture_output=True
        )
        wait_for(lambda: (site.get("/jobs/hello-1").get("step") or 0) > 3, site)
        opened = subprocess.Popen(
            [*boa, "open", "--no-browser"],
            cwd=site.folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert opened.stdout is not None
            url = opened.stdout.readline().strip()
            tab = Tab(browser)
            tab.page.goto(url)
            tab.page.wait_for_selector(".tile")
            assert "hello-1" in tab.page.locator("main").inner_text()
            tab.page.click("text=hello-1")
            tab.page.wait_for_selector("pre.log >> text=step 3")
            tab.page.wait_for_selector("svg[aria-label='loss over time']", timeout=120_000)
            assert tab.complaints == []
            tab.close()
        finally:
            opened.terminate()
            opened.communicate(timeout=120)
            # No process of the job stays after the test.
            subprocess.run([*boa, "cancel", "hello-1"], cwd=site.folder, env=environment, check=True)
            wait_for(lambda: site.get("/jobs/hello-1").get("status") == "cancelled", site)


@pytest.fixture
def ordering(browser: Any, tmp_path: Path) -> Iterator[Served]:
    """Serve a daemon whose page may order, with a running job of ann."""
    play = DaemonInAFolder(tmp_path, ManualClock(INSTANT), {"api": {"page_orders": True}})
    play.daemon.tick()
    play.service.submit([job_content(elastic=True)], user="ann")
    for _ in range(6):
        play.daemon.tick()
        play.clock.instant += 60.0
    with served(play, tmp_path) as found:
        yield found
    play.close()


def tab_of(browser: Any, site: Served, token: str, view: str) -> Tab:
    """Return a tab of who has this token."""
    tab = Tab(browser)
    tab.page.goto(f"{site.url}#{view}")
    tab.page.get_by_label("Token").fill(token)
    tab.page.get_by_role("button", name="Sign in").click()
    tab.page.wait_for_selector(".card:not(.sign)")
    return tab


def test_a_job_is_held_released_and_cancelled_by_keyboard_after_a_question(
    browser: Any, ordering: Served
) -> None:
    """Escape leaves all as it is; each order is among the decisions; others see no buttons."""
    jobs = ordering.play.storage.queue
    tab = tab_of(browser, ordering, TOKENS["ann"], "job/job-1")
    page = tab.page
    page.get_by_role("button", name="Hold").focus()
    page.keyboard.press("Enter")
    assert "saves a checkpoint" in page.get_by_role("dialog").inner_text()
    assert faults_of(page) == []
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0
    assert jobs.active["job-1"].content.get("held_by") is None

    page.get_by_role("button", name="Hold").press("Enter")
    page.keyboard.press("Enter")
    page.get_by_text("Ordered to wait.").wait_for()
    assert jobs.active["job-1"].content["held_by"] == "ann"
    page.get_by_role("button", name="Release").click()
    page.get_by_role("dialog").get_by_role("button", name="Release").click()
    page.get_by_text("Released.").wait_for()
    page.get_by_role("button", name="Priority").click()
    page.get_by_role("spinbutton", name="Weight").fill("7")
    page.get_by_role("button", name="Set").click()
    page.get_by_text("only administrators may give more").wait_for()
    page.get_by_role("button", name="Cancel the job").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    page.get_by_text("Cancelled.").wait_for()
    assert jobs.active.get("job-1") is None or jobs.active["job-1"].is_cancelled
    page.goto(f"{ordering.url}#decisions")
    page.get_by_text("job job-1 of ann was ordered to wait").wait_for()
    page.get_by_text("job job-1 of ann was cancelled").wait_for()
    assert faults_of(page) == []
    # The browser notes refusals by itself: before signing in, and that of the weight.
    assert all("status of 401" in one or "status of 403" in one for one in tab.complaints), tab.complaints
    tab.close()


def test_buttons_are_shown_to_whom_the_rights_are(browser: Any, ordering: Served, site: Served) -> None:
    """Bob sees none for ann's job, ann none for caps, an administrator both; elsewhere nobody any."""
    for token, view, shown in (
        (TOKENS["bob"], "job/job-1", 0),
        (TOKENS["ann"], "now", 0),
        (TOKENS["root"], "job/job-1", 1),
    ):
        tab = tab_of(browser, ordering, token, view)
        tab.page.wait_for_timeout(300)
        assert tab.page.get_by_role("button", name="Hold").count() == shown, view
        assert tab.page.get_by_role("button", name="Cap of").count() == 0
        tab.close()
    tab = tab_of(browser, ordering, TOKENS["root"], "now")
    tab.page.get_by_role("button", name="Cap of the day").click()
    tab.page.get_by_role("spinbutton", name="Dollars").fill("12.5")
    tab.page.get_by_role("button", name="Set").click()
    tab.page.get_by_text("The next tick keeps it.").wait_for()
    assert ordering.play.daemon.planner.rules().caps.usd_per_day == 12.5
    tab.close()
    job = next(iter(site.play.storage.queue.active))
    tab = tab_of(browser, site, TOKENS["root"], f"job/{job}")
    tab.page.wait_for_timeout(300)
    assert tab.page.get_by_role("button", name="Hold").count() == 0
    tab.close()


NODES, GPUS, RUNNING, WAITING = 2_000, 8, 4_000, 6_000


def at_scale(document: dict[str, Any], turn: int) -> dict[str, Any]:
    """Return a document of the first view with thousands of nodes and jobs; each turn differs a little."""
    jobs = [(f"train-{n}", f"user-{n % 40}", f"class-{n % 12}") for n in range(RUNNING)]
    rows = [
        (
            *(f"i-{n:017x}", ("p5.48xlarge", "g5.48xlarge")[n % 2], "ready", f"us-east-1{'abc'[n % 3]}"),
            *(("spot", "on-demand")[n % 2], GPUS, GPUS - (n + turn) % 2, 55.0),
            [-1 if g == 0 and (n + turn) % 2 else (n * 2 + g // 4) % RUNNING for g in range(GPUS)],
        )
        for n in range(NODES)
    ]
    one = document["queue"][0]
    queue = [{**one, "id": f"train-{n}", "seconds_left": 60.0 * n + turn} for n in range(200)]
    return {
        **document,
        "queue": queue,
        "running": RUNNING,
        "waiting": WAITING,
        "nodes": NODES,
        "gpus": NODES * GPUS,
        "as_of": document["as_of"] + turn,
        "fleet": {**document["fleet"], "rows": rows, "jobs": jobs},
    }


def test_two_thousand_nodes_and_ten_thousand_jobs_are_drawn_in_time(browser: Any, site: Served) -> None:
    """First paint takes less than a second of processor, and an update less than 100 ms in the middle."""
    tab = signed_in(browser, site)
    document = tab.page.evaluate("fetch('v1/page/now').then((answer) => answer.json())")
    turns = 0

    def answer(route: Any) -> None:
        nonlocal turns
        turns += 1
        route.fulfill(json=at_scale(document, turns))

    tab.page.route("**/v1/page/now", answer)
    probe = tab.context.new_cdp_session(tab.page)
    probe.send("Performance.enable", {"timeDomain": "threadTicks"})

    def processor_seconds() -> float:
        found = probe.send("Performance.getMetrics")["metrics"]
        return sum(one["value"] for one in found if one["name"] == "TaskDuration")

    began = processor_seconds()
    tab.page.reload()
    tab.page.get_by_text(f"{NODES:,} nodes").first.wait_for()
    first = processor_seconds()
    # A reload begins the count anew.
    first = first if first < began else first - began
    updates = []
    for _ in range(5):
        before, seen = processor_seconds(), turns
        tab.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        while turns == seen:
            tab.page.wait_for_timeout(20)
        tab.page.wait_for_timeout(400)
        updates.append(processor_seconds() - before)
    assert first < 1.0
    assert sorted(updates)[2] < 0.1, updates
    assert tab.page.evaluate("document.querySelectorAll('main *').length") < 20_000
    tab.close()
