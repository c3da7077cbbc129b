"""`--report`: every figure on the page comes from the JSON answer, and the page loads no other resource."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from accessibility import faults_of
from browsers import Tab, a_browser
from verbs import exit_code

from boa_daemon.units import format_hours

pytest.importorskip("matplotlib")

CLASSES = """
gpu_types:
  a100: {instance_type: p4d.24xlarge}
classes:
  - name: train
    arrivals_per_hour: 0.5
    phases:
      - size_gpu_hours: 8.0
        speedup: {a100: {table: {1: 1.0, 2: 1.9, 4: 3.6, 8: 6.5}}}
"""
LIST = """job_id,class_name,scale,submit_at,deadline_at
one,train,1.0,2026-12-01,2026-12-03
<two>,train,3.0,2026-12-01,2026-12-01T03:00
"""


def reported(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    *words: str,
    size: str = "8.0",
) -> tuple[dict[str, Any], str]:
    """Run a command with a report, and return its JSON answer and the page."""
    (folder / "classes.yaml").write_text(CLASSES.replace("8.0", size, 1))
    (folder / "list.csv").write_text(LIST)
    monkeypatch.chdir(folder)
    code = exit_code(monkeypatch, *words, "--report", "page.html", "-o", "json")
    assert code in (0, 3)
    return json.loads(capsys.readouterr().out), (folder / "page.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with a_browser() as found:
        yield found


def cells(page: str, column: str) -> list[str]:
    """Return the cells of a column of the first table that has it."""
    for table in re.findall(r"<table>.*?</table>", page, re.DOTALL):
        rows = [
            [unescape(text) for text in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
            for row in re.findall(r"<tr>(.*?)</tr>", table)
        ]
        if column in rows[0]:
            return [row[rows[0].index(column)] for row in rows[1:]]
    raise AssertionError(column)


CASES = {
    "plan": ("plan", "--classes", "classes.yaml", "--budget", "40/h"),
    "frontier": ("frontier", "classes.yaml"),
    "whatif": (
        *("whatif", "--classes", "classes.yaml", "--jobs", "list.csv", "--budget", "20000/month"),
        *("--change", "budget=30000/month", "--change", "prices=+10%"),
    ),
    "calendar": (
        *("calendar", "list.csv", "--classes", "classes.yaml", "--budget", "20000/month"),
        *("--quota", "a100=1"),
    ),
}


@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_a_report_holds_the_answer_one_picture_and_the_assumptions(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: tuple[str, ...],
) -> None:
    """The page loads nothing from a network."""
    document, page = reported(monkeypatch, capsys, tmp_path, *words)
    answer = page.partition('id="answer">')[2].partition("</script>")[0]

    assert json.loads(answer) == document
    assert page.count("<svg") == 1
    assert "$21.957642 per hour for 8 x a100, as of 20" in page
    assert "JCT is job completion time" in page
    assert not re.search(r"(src|href)=\"(?!#)|url\((?!#)|@import", page)
    assert "@media print" in page


def figures(value: Any) -> Iterator[float]:
    """Yield every number of an answer, including the lengths of its lists."""
    if isinstance(value, dict):
        for one in value.values():
            yield from figures(one)
    elif isinstance(value, list):
        yield float(len(value))
        for one in value:
            yield from figures(one)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


UNITS = (1.0, 60.0, 3600.0, 1.0 / 24.0, 100.0, 730.0)
"""Hours as minutes, seconds and days; fractions in per cent; dollars per hour as dollars a month."""


def unexplained(page: str, document: dict[str, Any]) -> list[str]:
    """Return the figures of the page's tables and sentences that match no number of the answer."""
    shown = page.partition("<h2>What was assumed")[0]
    shown = re.sub(
        r"<svg.*?</svg>|<style>.*?</style>|<h1>.*?</h1>|<title>.*?</title>", " ", shown, flags=re.DOTALL
    )
    words = unescape(re.sub(r"<[^>]+>", " ", shown))
    words = re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d)?|\d\d \w{3} \d\d:\d\d|\S*[a-z@=]\S*\d\S*|x\d\S*", " ", words)
    known = [value * unit for value in figures(document) for unit in UNITS]
    known += [100.0 - value for value in known]
    found = []
    for text in re.findall(r"\d[\d,]*(?:\.\d+)?", words):
        value, digits = float(text.replace(",", "")), len(text.partition(".")[2])
        if not any(abs(abs(one) - value) <= 0.5000001 * 10.0**-digits for one in known):
            found.append(text)
    return found


@pytest.mark.parametrize("size", ["8.0", "13.7"])
@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_every_figure_of_a_report_is_a_rounded_number_of_the_answer(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: tuple[str, ...],
    size: str,
) -> None:
    """A check against another answer finds many figures without a number."""
    document, page = reported(monkeypatch, capsys, tmp_path, *words, size=size)

    assert unexplained(page, document) == []
    assert len(unexplained(page, {"a": 0.123})) > 10


def test_the_report_of_a_calendar_shows_jobs_costs_and_widths(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The late job is highlighted."""
    document, page = reported(monkeypatch, capsys, tmp_path, *CASES["calendar"])
    jobs = document["jobs"]

    assert cells(page, "job") == [job["job_id"] for job in jobs]
    assert cells(page, "$") == [f"{job['spend']:,.2f}" for job in jobs]
    assert cells(page, "GPUs") == [str(job["gpus"]) for job in jobs]
    assert f"for ${document['spend']:,.2f}." in page
    assert page.count('class="text bad') == len(document["missed"]) == 1


def test_the_reports_of_scenarios_and_of_a_plan_show_their_spend(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A plan shows dollars per hour."""
    document, page = reported(monkeypatch, capsys, tmp_path, *CASES["whatif"])
    assert cells(page, "$") == [f"{row['spend']:,.2f}" for row in document["scenarios"]]
    assert cells(page, "scenario") == [row["scenario"] for row in document["scenarios"]]

    document, page = reported(monkeypatch, capsys, tmp_path, *CASES["plan"])
    spend = f"{document['mean_spend']:,.2f}"
    assert cells(page, "$/h")[-1] == spend
    assert f"the plan spends ${spend}/h" in page


INFEASIBLE = (
    *("whatif", "--classes", "classes.yaml", "--budget", "20000/month"),
    *("--change", "budget=1/month", "--change", "load=x900"),
)


def test_a_report_begins_with_what_is_not_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Late jobs and infeasible scenarios stand above the picture, and the picture has them too."""
    document, page = reported(monkeypatch, capsys, tmp_path, *CASES["calendar"])
    verdict = unescape(page.partition("<svg")[0])
    (late,) = document["missed"]
    assert "Not every deadline is met. All done by" in verdict
    assert f"1 of 2 deadlines missed: {late['job_id']} by {format_hours(late['late_hours'])}." in verdict
    for sign in ("late", "waits", "deadline", "01 Dec", ">2026", "p4d.24xlarge"):
        assert sign in page.partition("<svg")[2].partition("</svg>")[0]

    document, page = reported(monkeypatch, capsys, tmp_path, *INFEASIBLE)
    verdict, drawing = page.partition("<svg")[0], page.partition("<svg")[2].partition("</svg>")[0]
    for row in document["scenarios"][1:]:
        assert f"{row['scenario']} is infeasible: the jobs need $" in verdict
        assert row["scenario"] in drawing
    assert drawing.count("infeasible below $") == 2


@pytest.mark.parametrize("words", [*CASES.values(), INFEASIBLE], ids=[*CASES, "infeasible"])
def test_a_report_keeps_the_paths_of_its_sender(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: tuple[str, ...],
) -> None:
    """Files are named without their folders, in the answer too; prices of one's own are no exception."""
    folder = tmp_path / "home-of-ann"
    folder.mkdir()
    (folder / "prices.csv").write_text(
        "instance_type,usd_per_hour,as_of,source\np4d.24xlarge,21.957642,2026-11-01,our contract\n"
    )
    whole = [str(folder / word) if word.endswith((".yaml", ".csv")) else word for word in words]
    _, page = reported(monkeypatch, capsys, folder, *whole, "--prices", str(folder / "prices.csv"))

    assert "home-of-ann" not in page
    assert "classes.yaml" in page


@pytest.mark.parametrize(("budget", "unit"), [("900/day", "day"), ("20000/month", "month"), ("40/h", "h")])
def test_a_report_answers_in_the_unit_asked(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    budget: str,
    unit: str,
) -> None:
    """Title, table, sentences and picture: no rate in another unit stands alone."""
    _, page = reported(monkeypatch, capsys, tmp_path, "plan", "--classes", "classes.yaml", "--budget", budget)
    shown = re.sub(r"<style>.*?</style>", "", page.partition("<h2>What was assumed")[0], flags=re.DOTALL)

    assert f"/{unit}</h1>" in shown
    assert f">$/{unit}</th>" in shown
    assert f"dollars per {'hour' if unit == 'h' else unit}" in shown
    assert set(re.findall(r"\$[\d,.]+/(\w+)", shown)) == {unit}


@pytest.mark.first_set(1)
@pytest.mark.browser
@pytest.mark.parametrize("words", [*CASES.values(), INFEASIBLE], ids=[*CASES, "infeasible"])
def test_a_report_is_readable_on_a_phone_by_keyboard_and_on_paper(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    browser: Any,
    words: tuple[str, ...],
) -> None:
    """Both schemes: no fault of access, nothing scrolls sideways but boxes that the keyboard reaches."""
    reported(monkeypatch, capsys, tmp_path, *words)
    for width, scheme in ((1280, "light"), (768, "dark"), (390, "light")):
        tab = Tab(browser, width=width, scheme=scheme)
        tab.page.goto((tmp_path / "page.html").as_uri())
        assert faults_of(tab.page) == []
        if width == 390:
            boxes = tab.page.locator(".wide").count()
            reached = 0
            for _ in range(boxes):
                tab.page.keyboard.press("Tab")
                reached += tab.page.evaluate("document.activeElement.className === 'wide'")
            assert reached == boxes
            assert tab.page.pdf().startswith(b"%PDF")
        assert tab.complaints == []
        assert all(url.startswith("file:") for url in tab.asked)
        tab.close()


def test_a_report_with_a_wrong_suffix_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A page ends in .html, not in .pdf."""
    monkeypatch.chdir(tmp_path)

    assert exit_code(monkeypatch, *CASES["plan"], "--report", "page.pdf") == 2
    assert "--report page.pdf: .pdf is no page" in capsys.readouterr().err


def test_the_report_of_a_commitment_names_its_low_likely_and_high_case(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Bars of the terminal are not on the page of a frontier."""
    (tmp_path / "offers.toml").write_text(
        'as_of = 2026-11-01\nsource = "the test"\n'
        '[[offers]]\nname = "c1"\nkind = "compute"\nterm_years = 1\ndiscounts = {p4d = 0.5}\n'
    )
    words = ("commit", "--offers", "offers.toml", "--classes", "classes.yaml", "--budget", "4000/h")
    answer, page = reported(monkeypatch, capsys, tmp_path, *words, size="800.0")
    (term,) = answer["terms"]
    usd, saved = term["committed_usd_per_hour"], term["saved_usd_per_month"]

    assert f"Commit to ${usd:,.2f}/h for 1 year: that saves ${saved:,.0f} a month" in page
    assert all(f">{name}</td>" in page for name in ("low", "likely", "high"))
    _, curve = reported(monkeypatch, capsys, tmp_path, "frontier", "classes.yaml")
    assert "█" not in curve
