"""`--page` and `--open` write an answer as a page, and `boa open` keeps its key out of the command line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from browsers import Tab, a_browser
from daemon_site import a_site
from verbs import exit_code

from boa_daemon.inputs.problem_file import load_problem
from policies.optimum.boa import solve

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
TWO = EXAMPLES / "two-gpu-types.yaml"


def answers_in(page: Path) -> dict[str, Any]:
    """Return the answers that a page holds."""
    (text,) = re.findall(r'id="answers">(.*?)</script>', page.read_text(), re.DOTALL)
    found: dict[str, Any] = json.loads(text)["answers"]
    return found


def test_plan_writes_its_answer_as_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has the budget, the cheapest feasible spend and every class."""
    page = tmp_path / "plan.html"
    words = ("plan", "--classes", str(TWO), "--budget", "27/h", "--page", str(page))
    assert exit_code(monkeypatch, *words) == 0
    found = answers_in(page)["page/frontier"]
    problem = load_problem(TWO).problem
    assert found["budget"] == 27.0
    assert found["cheapest"] == pytest.approx(solve(problem, 27.0).cheapest_feasible_spend)
    assert [one["name"] for one in found["classes"]] == [one.name for one in problem.classes]


def test_open_writes_the_page_to_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser is told to open that file."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert exit_code(monkeypatch, "frontier", str(TWO), "--open") == 0
    (page,) = tmp_path.glob("boa-*/page.html")
    assert opened == [page.as_uri()]
    assert page.parent.stat().st_mode & 0o077 == 0


def test_open_is_refused_for_a_list_of_jobs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page draws the curve of a stream of jobs, and a list has none."""
    words = ("plan", "--classes", str(TWO), "--jobs", str(EXAMPLES / "jobs.csv"), "--budget", "100", "--open")
    assert exit_code(monkeypatch, *words) == 2
    assert "--open is for a stream of jobs" in capsys.readouterr().err


@pytest.mark.exhaustive
@pytest.mark.browser
def test_pages_of_compare_and_demo_are_drawn_without_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every view shows numbers, and the comparison shows the rival policy."""
    demo = Path(__file__).resolve().parents[4] / "boa_daemon/data/demo"
    (tmp_path / "first.csv").write_text(
        "".join((demo / "trace.csv").read_text().splitlines(keepends=True)[:26])
    )
    files = ("--trace", str(tmp_path / "first.csv"), "--classes", str(demo / "classes.yaml"))
    compared, shown = tmp_path / "compare.html", tmp_path / "demo.html"
    words = (
        *files,
        "--budget",
        "60/h",
        "--policy",
        "equal-width",
        "--on",
        "local:1",
        "--page",
        str(compared),
    )
    assert exit_code(monkeypatch, "compare", *words) == 0
    assert exit_code(monkeypatch, "demo", "--json", "--page", str(shown)) == 0
    with a_browser() as browser:
        for page, views in ((compared, ["compare"]), (shown, ["compare", "money", "plan"])):
            tab = Tab(browser, width=360, scheme="dark")
            for view in views:
                tab.page.goto(f"{page.as_uri()}#{view}")
                tab.page.wait_for_selector("main .card")
                assert "NaN" not in tab.page.locator("main").inner_text()
            tab.page.goto(f"{page.as_uri()}#compare")
            tab.page.wait_for_selector("table")
            assert "equal-width" in tab.page.locator("main").inner_text()
            assert tab.complaints == []
            assert {url.partition("#")[0] for url in tab.asked} == {page.as_uri()}
            tab.close()


def test_boa_open_passes_its_key_in_a_private_file(tmp_path: Path) -> None:
    """The browser gets a file that leads to the address; only this user can read the folder."""
    with a_site() as site:
        site.up()
        browser = tmp_path / "browser"
        browser.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/given\n')
        browser.chmod(0o700)
        process = subprocess.Popen(
            [sys.executable, "-m", "boa_daemon", "open"],
            cwd=site.folder,
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": ":".join(p for p in sys.path if p),
                "BROWSER": str(browser),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        with process:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            given = tmp_path / "given"
            while not (given.exists() and given.read_text()):
                assert process.poll() is None
            door = Path(given.read_text().strip().removeprefix("file://"))
            assert "key=" not in given.read_text()
            assert url in door.read_text()
            assert door.parent.stat().st_mode & 0o077 == 0
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=120) == 130
