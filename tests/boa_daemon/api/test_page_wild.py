"""The page with what an organisation may bring: long and foreign names, thousands of teams, a printer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from accessibility import faults_of
from browsers import Tab
from page_site import TOKEN, Served, a_day, served

pytestmark = pytest.mark.browser
INSTANT = 1_794_571_200.0 + 14 * 3600.0
NAMES = {
    "ann": "\u0623\u062d\u0645\u062f-\u0645\u062d\u0645\u0648\u062f-\u0627\u0644\u0637\u0648\u064a\u0644",
    "bob": "b" * 64,
    "carol": "\u5c71\u7530\u592a\u90ce\u7814\u7a76\u5ba4",
    "dora": "o'Brien <b>x</b> & co",
    "language": "\u00fcbergro\u00dfe-Sprachmodelle-" + "x" * 40,
    "speech": "\u05e2\u05d1\u05e8\u05d9\u05ea",
}
OVER = """() => [...document.querySelectorAll("main .scroll, main .card, main td, main dd, main .tile")]
  .filter((node) => node.checkVisibility() && node.scrollWidth > node.clientWidth + 2)
  .map((node) => `${node.tagName}.${node.className}: ${node.textContent.slice(0, 40)}`)"""


@pytest.fixture(scope="module")
def site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("day")
    play = a_day(folder, hours=4.0, now=INSTANT)
    with served(play, folder) as found:
        yield found
    play.close()


def renamed(text: str) -> str:
    """Return an answer of the daemon in which people, teams and classes have other names."""
    for name, other in NAMES.items():
        text = re.sub(rf"\b{name}\b", json.dumps(other, ensure_ascii=False)[1:-1].replace("\\", "\\\\"), text)
    return text


def signed_in(browser: Any, site: Served, change: Any = None, **given: Any) -> Tab:
    """Return a tab whose answers from the daemon are changed."""
    tab = Tab(browser, **given)
    tab.page.clock.set_fixed_time(INSTANT)

    def answer(route: Any) -> None:
        found = route.fetch()
        is_ours = route.request.method == "GET" and found.status == 200 and found.text().startswith("{")
        route.fulfill(response=found, body=change(found.text()) if is_ours else found.text())

    if change:
        tab.page.route("**/v1/**", answer)
    tab.page.goto(site.url)
    tab.page.fill("input[type=password]", TOKEN)
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector(".tile")
    return tab


def show(tab: Tab, site: Served, view: str) -> None:
    tab.page.goto(f"{site.url}#{view}")
    tab.page.wait_for_selector("main .card")
    tab.page.wait_for_timeout(200)


@pytest.mark.first_set(1)
@pytest.mark.parametrize("width", [1280, 768, 390, 320])
def test_names_of_any_length_and_direction_fit(browser: Any, site: Served, width: int) -> None:
    """No table, card or cell is wider than its place, and no name takes the words beside it along."""
    tab = signed_in(browser, site, renamed, width=width)
    for view in ("now", "money", "decisions", "jobs"):
        show(tab, site, view)
        said = tab.page.locator("main").inner_text()
        assert any(name in said for name in NAMES.values()), view
        assert tab.page.evaluate(OVER) == [], view
        assert faults_of(tab.page) == [], view
        if width > 700 and view == "now":
            why = tab.page.locator("table[aria-label=Jobs] td.wide").first.bounding_box()
            assert why
            assert why["width"] > 150
    tab.close()


def test_thousands_of_teams_are_folded_the_fullest_first(browser: Any, site: Served) -> None:
    """A purse that is nearly used up stands before those that have room."""

    def many(text: str) -> str:
        found = json.loads(text)
        if found.get("purses"):
            one = {**found["purses"][0], "kind": "team", "reserved_usd": 0.0}
            found["purses"] = [
                {**one, "name": f"team-{n}", "spent_usd": one["cap_usd"] * n / 3000} for n in range(3000)
            ]
        if found.get("shares"):
            found["shares"] = [
                {**found["shares"][0], "team": f"team-{n}", "ahead_usd": n} for n in range(3000)
            ]
        return json.dumps(found)

    tab = signed_in(browser, site, many)
    show(tab, site, "money")
    rows = tab.page.locator("table[aria-label=Purses] tbody tr")
    assert (rows.count(), "team-2999" in rows.first.inner_text()) == (40, True)
    said = tab.page.locator("main").inner_text()
    assert "2,960 more" in said
    assert "2,990 others are closer to theirs" in said
    assert tab.page.evaluate("document.querySelectorAll('main *').length") < 4000
    tab.page.get_by_text("2,960 more").click()
    rows.nth(2999).wait_for(state="attached")
    tab.close()


def test_the_colours_of_a_fleet_say_something(browser: Any, site: Served) -> None:
    """By job where jobs are few; where nearly all would be others, by user or class; a choice stays."""

    def of_many(text: str) -> str:
        found = json.loads(text)
        if "fleet" in found:
            found["fleet"]["jobs"] = [[f"job-{n}", f"user-{n}", f"class-{n % 3}"] for n in range(400)]
            row = dict(zip(found["fleet"]["columns"], found["fleet"]["rows"][0], strict=True))
            found["fleet"]["rows"] = [
                list({**row, "id": f"n{n}", "phase": "ready", "used": 4, "jobs": [n] * 4}.values())
                for n in range(400)
            ]
        return json.dumps(found)

    few = signed_in(browser, site)
    pressed = few.page.locator(".seg[aria-label='Colour by'] button[aria-pressed=true]")
    assert pressed.inner_text() == "job"
    few.close()
    tab = signed_in(browser, site, of_many)
    pressed = tab.page.locator(".seg[aria-label='Colour by'] button[aria-pressed=true]")
    assert pressed.inner_text() == "class"
    tab.page.locator(".seg[aria-label='Colour by'] button", has_text="user").click()
    assert pressed.inner_text() == "user"
    tab.close()


def test_a_booting_gpu_has_the_colour_of_no_job(browser: Any, site: Served) -> None:
    """Nor has one that is free or ends: only what a job holds is filled with a colour of the legend."""
    tab = signed_in(browser, site)
    fills = tab.page.evaluate(
        """() => Object.fromEntries(["f0", "f4", "boot", "free"].map((kind) => {
          const one = document.createElementNS("http://www.w3.org/2000/svg", "path");
          one.setAttribute("class", kind);
          document.querySelector("main svg").append(one);
          return [kind, getComputedStyle(one).fill];
        }))"""
    )
    assert fills["boot"] == fills["free"] == "none"
    tab.close()


@pytest.mark.first_set(1)
@pytest.mark.parametrize("view", ["now", "money", "decisions", "jobs", "plan"])
def test_a_view_is_printed_from_its_first_sheet_on(browser: Any, site: Served, view: str) -> None:
    """What is taller than a sheet is broken over two, else the first one is blank; all within margins."""
    tab = signed_in(browser, site)
    show(tab, site, view)
    tab.page.emulate_media(media="print")
    tab.page.set_viewport_size({"width": 700, "height": 900})
    tall = tab.page.evaluate(
        """() => [...document.querySelectorAll("main .card")].filter((card) => card.offsetHeight > 950
          && getComputedStyle(card).breakInside !== "auto").map((card) => card.textContent.slice(0, 40))"""
    )
    assert tall == []
    margins = tab.page.evaluate(
        """() => [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules])
          .filter((rule) => rule instanceof CSSPageRule).map((rule) => rule.style.margin)"""
    )
    assert margins == ["12mm"]
    assert not tab.page.locator("nav").is_visible()
    tab.close()


def test_without_scripts_the_page_says_where_the_answers_are(
    browser: Any, site: Served, tmp_path: Path
) -> None:
    """The commands that answer without a browser."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site.url)
    assert "boa status" in page.locator("body").inner_text()
    context.close()
