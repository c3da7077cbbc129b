"""What a release promised is still there: names may be added, none may go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from public_surface import ROOT, surface

RELEASES = ROOT / "tests" / "data" / "releases"
VERSIONS = sorted(path.parent.name for path in RELEASES.glob("*/surface.json"))
NOW = surface()


def gone(before: Any, now: Any, at: str) -> Iterator[str]:
    """Yield what a record has and the present program has not."""
    if isinstance(before, dict):
        for key, value in before.items():
            if key in now:
                yield from gone(value, now[key], f"{at}, {key}")
            else:
                yield f"{at}, {key}"
    elif isinstance(before, list):
        yield from (f"{at}, {name}" for name in before if name not in now)
    elif before != now:
        yield f"{at}: {before!r} is {now!r}"


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_of_a_release_is_gone(version: str) -> None:
    """A name that must go stays for a release with a note: docs/reference/compatibility.md."""
    before = json.loads((RELEASES / version / "surface.json").read_text(encoding="utf-8"))
    assert [lost for part in before for lost in gone(before[part], NOW[part], part)] == []


def test_every_release_has_a_record() -> None:
    """`python tests/public_surface.py` writes it."""
    assert [path.name for path in RELEASES.iterdir() if path.is_dir() and path.name not in VERSIONS] == []


@pytest.mark.parametrize("part", sorted(NOW))
def test_a_loss_is_found_in_every_part(part: str) -> None:
    """A record with one more name than the program has fails."""
    more = json.loads(json.dumps(NOW[part]))
    if isinstance(more, dict):
        more["was there"] = []
    else:
        more.append("was there")
    assert list(gone(more, NOW[part], part)) == [f"{part}, was there"]


def test_the_page_names_every_part() -> None:
    """The promise and its test are about the same things."""
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text(encoding="utf-8")
    assert [part for part in NOW if part not in page.lower()] == []
