"""The first view and the money in worlds that are not well: each says so, and no figure has two values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from browsers import Tab
from page_site import CLASSES, TOKEN, served

from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

pytestmark = pytest.mark.browser
NOON, NEW_MONTH = 1_794_571_200.0, 1_796_083_260.0
"""13 November 2026 at noon, and a minute after November."""
BUDGET = {"usd_per_hour": 42.0, "usd_per_day_cap": 1300.0, "usd_per_month_cap": 32000.0, "max_instances": 9}


def a_world(
    folder: Path,
    *,
    ticks: int,
    jobs: int = 0,
    now: float = NOON,
    stock: int | None = None,
    every: float = 360.0,
    **budget: float,
) -> DaemonInAFolder:
    """Return a daemon that has ticked so many times up to an instant."""
    (folder / "classes.yaml").write_text(CLASSES)
    clock = ManualClock(now - max(ticks - 1, 0) * every)
    settings = {
        "budget": BUDGET | budget,
        "cloud": {
            "instance_types": ["g5.12xlarge"],
            "boot_seconds": 240.0,
            **({} if stock is None else {"stock": stock}),
        },
        "workload": {"classes": str(folder / "classes.yaml")},
    }
    play = DaemonInAFolder(folder, clock, settings)
    more = {"class": "vision", "max_gpus": 8}
    play.service.submit([job_content(hours=8.0, **more) for _ in range(jobs)], user="ann") if jobs else None
    for number in range(ticks):
        play.daemon.tick()
        if number < ticks - 1:
            clock.instant += every
    return play


def words(browser: Any, play: DaemonInAFolder, folder: Path, *views: str) -> list[str]:
    """Return what views say."""
    said = []
    with served(play, folder) as site:
        tab = Tab(browser)
        tab.page.clock.set_fixed_time(play.clock.now())
        tab.page.goto(site.url)
        tab.page.fill("input[type=password]", TOKEN)
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_selector(".tile")
        for view in views:
            tab.page.goto(f"{site.url}#{view}")
            tab.page.wait_for_selector("main .card")
            tab.page.wait_for_selector("main h1")
            said.append(tab.page.locator("main").inner_text())
        tab.close()
    play.close()
    return said


@pytest.mark.first_set(1)
@pytest.mark.parametrize(
    ("world", "is_said", "is_not"),
    [
        ({"ticks": 0}, ["Starting", "first tick is not done yet"], ["Well"]),
        ({"ticks": 4}, ["Well", "no jobs", "Nothing was rented in the last 24 hours"], ["written down yet"]),
        (
            {"ticks": 3, "jobs": 3, "stock": 0, "every": 20.0},
            ["Held back", "no job runs, 3 wait", "the queue says why"],
            ["Well"],
        ),
        ({"ticks": 4, "jobs": 6, "usd_per_day_cap": 4.0}, ["Held back", "cap on dollars per day"], ["Well"]),
        ({"ticks": 2, "jobs": 70, "max_instances": 1}, ["30 more"], []),
    ],
    ids=["before the first tick", "no jobs", "no stock", "a cap", "a long queue"],
)
def test_the_first_sentence_says_what_is_the_matter(
    browser: Any, tmp_path: Path, world: dict[str, Any], is_said: list[str], is_not: list[str]
) -> None:
    """Green and "Well" only where jobs run or there are none."""
    [said] = words(browser, a_world(tmp_path, **world), tmp_path, "now")
    for sentence in is_said:
        assert sentence in said
    for sentence in is_not:
        assert sentence not in said


@pytest.mark.first_set(1)
@pytest.mark.parametrize("now", [NOON, NEW_MONTH])
def test_the_end_of_the_month_is_one_figure_on_every_view(browser: Any, tmp_path: Path, now: float) -> None:
    """In the tile, under the cap, in the first sentence on money and below its drawing."""
    play = a_world(tmp_path, ticks=8, jobs=3, now=now)
    first, money = words(browser, play, tmp_path, "now", "money")
    figures = [
        *re.findall(r"(\$[\d,.]+) by its end at the pace", first),
        *re.findall(r"(\$[\d,.]+) at its end at the pace", first),
        *re.findall(r"(\$[\d,.]+) by its end at the pace", money),
        *re.findall(r"Dashed: (\$[\d,.]+)", money),
    ]
    assert len(figures) == 4, (first, money)
    assert len(set(figures)) == 1, figures
