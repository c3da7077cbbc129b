"""docs/how-to/frameworks: one page for each example, with exactly the script that the tests run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "how-to" / "frameworks").glob("*.md"))
EXAMPLE = re.compile(
    r"\[(train_\w+\.py)\]\(\.\./\.\./\.\./examples/\1\):\n\n```python\n(.*?)^```$", re.M | re.S
)


def quoted(page: Path) -> tuple[str, str]:
    """Return the name and the text of the example that a page shows."""
    [found] = EXAMPLE.findall(page.read_text(encoding="utf-8"))
    name, text = found
    return name, text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_its_example_word_for_word(page: Path) -> None:
    """The page quotes the script, and the command of its job file starts that script."""
    name, text = quoted(page)

    assert text == (ROOT / "examples" / name).read_text(encoding="utf-8")
    assert re.search(rf"^In the job file: `run: (torchrun|python) {name} ", page.read_text(), re.M)


def test_each_training_example_has_a_page_and_is_in_the_benchmark() -> None:
    """Each `train_*` example has one page, is in the benchmark, and is linked in write-a-job.md."""
    examples = {path.name for path in (ROOT / "examples").glob("train_*.py")}
    overview = (ROOT / "docs" / "how-to" / "write-a-job.md").read_text(encoding="utf-8")
    benchmark = (ROOT / "benchmarks" / "frameworks.py").read_text(encoding="utf-8")

    assert {quoted(page)[0] for page in PAGES} == examples
    assert [page.name for page in PAGES if f"(frameworks/{page.name})" not in overview] == []
    assert set(re.findall(r'example="(train_\w+\.py)"', benchmark)) == examples
