"""The docs are true: commands print what is recorded, links work, and no page names a machine's path."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
TOP_PAGES = (*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md")
FIRST_COMMANDS = [
    "python3 -m venv .venv && .venv/bin/pip install --quiet '.[plot]' && .venv/bin/boa demo",
    "python3 -m venv .venv && .venv/bin/pip install --quiet -e '.[test]' && .venv/bin/pytest -q -n 4",
]
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<words>.+)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_MACHINE_PATH = re.compile(r"(?<![\w.~$])/(?:home|root|work|tmp|mnt|opt(?!/boa)|Users)/\S*")


def name_of(page: Path) -> str:
    """Return the name of a page in test ids."""
    return page.relative_to(ROOT).as_posix()


LONG = (
    "docs/how-to/compare-policies.md",
    "docs/how-to/plan-a-month.md",
    "docs/how-to/run-a-study.md",
    "docs/how-to/simulate-a-world.md",
    "docs/tutorial/first-plan.md",
    "docs/tutorial/ten-minute-tour.md",
)
"""Pages whose commands take five seconds or more together."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=name_of(page),
            marks=pytest.mark.exhaustive if name_of(page) in LONG else (),
        )
        for page in PAGES
    ],
)
def test_commands_print_what_is_recorded(page: Path, follow: Callable[[Path], None]) -> None:
    """Every ``$ boa`` with a recorded output is run, in order, in one folder per page."""
    follow(page)


def test_the_readme_begins_with_the_two_commands() -> None:
    """The first two fenced blocks of the README are the two first commands."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)

    assert [(kind, body.strip()) for kind, body in blocks[:2]] == [("sh", c) for c in FIRST_COMMANDS]


def test_the_readme_has_at_most_80_lines() -> None:
    """The README fits a screen, recorded output included."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80


@pytest.mark.parametrize("page", TOP_PAGES, ids=name_of)
def test_relative_links_lead_to_files_and_headings(page: Path) -> None:
    """Each relative link is a file of the repository, each anchor a heading of that file."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for found in _LINK.finditer(text):
        target, _, anchor = found["target"].partition("#")
        if target.startswith(("https://", "http://")):
            continue
        file = page if not target else (page.parent / target).resolve()
        assert file.exists(), f"{found['target']} does not exist"
        assert file.is_relative_to(ROOT), f"{found['target']} leaves the repository"
        if anchor:
            assert anchor in anchors_of(file), f"{found['target']}: no such heading"


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    words = (found["words"].lower() for found in _HEADING.finditer(page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in words}


@pytest.mark.parametrize("page", TOP_PAGES, ids=name_of)
def test_no_page_names_a_path_of_one_machine(page: Path) -> None:
    """The commands of a page must work in any folder on any machine."""
    assert not _MACHINE_PATH.search(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", TOP_PAGES, ids=name_of)
def test_files_that_pages_name_exist(page: Path) -> None:
    """Files of the repository that are named in running text exist."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for name in re.findall(r"`((?:policies|boa_daemon|examples|benchmarks|tests|docs)/[\w./-]+\.\w+)`", text):
        assert (ROOT / name).is_file(), f"{name} does not exist"


def test_dollars_have_one_sign_in_pages_examples_and_notebooks() -> None:
    """`$1.00` as in every output, and no `1.00 USD` beside it."""
    rooms = ("tutorial", "how-to", "explanation")
    pages = [page for room in rooms for page in (ROOT / "docs" / room).rglob("*.md")]
    examples = [file for kind in ("*.py", "*.ipynb") for file in (ROOT / "examples").rglob(kind)]
    found = {
        name_of(file): match[0]
        for file in (ROOT / "README.md", *pages, *examples)
        if (match := re.search(r"[\d}] USD\b", file.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_the_index_names_every_page() -> None:
    """docs/README.md links to each page of the four rooms."""
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    rooms = ("tutorial", "how-to", "reference", "explanation")
    pages = [page for room in rooms for page in (ROOT / "docs" / room).glob("*.md")]

    assert [name_of(p) for p in pages if f"({p.relative_to(ROOT / 'docs').as_posix()})" not in index] == []


def test_the_index_of_decisions_names_every_page() -> None:
    """Each page of docs/decisions has a row, and the index lists the numbers that no page has."""
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    pages = sorted(path.name for path in folder.glob("0*.md"))
    skipped = {number for first, last in re.findall(r"(\d{4}) to (\d{4})", index)
               for number in range(int(first), int(last) + 1)}  # fmt: skip
    numbers = {int(name[:4]) for name in pages}

    assert re.findall(r"^\| \[(\d{4})\]\((\1-[\w-]+\.md)\)", index, re.MULTILINE) == [
        (name[:4], name) for name in pages
    ]
    assert numbers | skipped >= set(range(1, max(numbers) + 1))
    assert numbers.isdisjoint(skipped)


def test_the_table_of_calls_is_what_the_script_prints() -> None:
    """Each line that benchmarks/aws_calls.py counts from the code stands on the page."""
    page = (ROOT / "docs" / "how-to" / "check-a-real-account.md").read_text(encoding="utf-8")
    lines = runpy.run_path(str(ROOT / "benchmarks" / "aws_calls.py"))["table"]()
    assert len(lines) == 14
    assert [line for line in lines if line not in page.splitlines()] == []


def test_the_map_of_the_code_names_files_and_functions_that_exist() -> None:
    """Each file and function that docs/explanation/architecture.md names exists."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w./]+\.(?:py|sh))`(?:, `(\w+)`)?", text)
    assert named
    for name, function in named:
        rooms = ("", "policies", "boa_daemon", "boa_daemon/tick", "boa_daemon/daemon")
        places = [ROOT / room / name for room in rooms]
        found = next((place for place in places if place.is_file()), None)
        assert found is not None, f"{name} does not exist"
        assert not function or f"def {function}(" in found.read_text(encoding="utf-8"), (
            f"{name}: no {function}"
        )


def test_figures_in_running_text_are_those_of_the_recorded_output() -> None:
    """The tutorial's alt text and its answer for the manager repeat figures of the recorded output."""
    tutorial = (ROOT / "docs" / "tutorial" / "first-plan.md").read_text(encoding="utf-8")
    answer = " ".join(tutorial.split("## 6. The answer")[1].replace("\n> ", " ").split())

    def shown(pattern: str) -> str:
        """Return the figure that the tutorial's output shows."""
        return str(re.findall(pattern, tutorial, re.MULTILINE)[0])

    cliff, knee = shown(r"Cliff: below (\$[\d.]+)/h"), shown(r"Knee: at (\$[\d.]+)/h")
    floor, quota = shown(r"Floor: ([\d.]+) min"), shown(r"(\d+) nodes$")
    achieved = shown(r"^mean JCT +([\d.]+) min$")
    alt = " ".join(tutorial.split("![Mean")[1].split("]")[0].split())
    assert f"infeasible below {cliff}, a knee at {knee}, a floor of {floor} minutes" in alt
    assert f"in about {float(achieved):.0f} minutes" in answer
    assert f"{cliff} per hour" in answer
    assert f"quota of {quota} g4dn.12xlarge" in answer
