"""requirements/runtime.txt: exact versions with hashes, in step with pyproject.toml."""

# To lock again: uv pip compile --group daemon --extra postgres --universal --generate-hashes
#     --python-version 3.11 --no-emit-index-url --no-header --no-annotate -o requirements/runtime.txt

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "requirements" / "runtime.txt").read_text(encoding="utf-8")
PINS = {
    canonicalize_name(name): version
    for name, version in re.findall(
        r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^ ;\\]+)", TEXT, flags=re.MULTILINE
    )
}
_SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_GROUPS = _SETTINGS["dependency-groups"]
WANTED = [
    *_GROUPS["client"],
    *(line for line in _GROUPS["daemon"] if isinstance(line, str)),
    *_SETTINGS["project"]["optional-dependencies"]["postgres"],
]


@pytest.mark.parametrize("wanted", WANTED)
def test_the_lock_file_has_a_version_that_the_project_allows(wanted: str) -> None:
    """A dependency that was added, or moved up, must be locked again."""
    requirement = Requirement(wanted)
    version = PINS.get(canonicalize_name(requirement.name))
    assert version is not None, "lock again, as the comment above says"
    assert requirement.specifier.contains(version, prereleases=True)


def test_every_locked_package_has_a_hash_and_names_no_host() -> None:
    """pip refuses a file in which one hash is missing; an address would be that of one machine."""
    blocks = re.split(r"\n(?=[A-Za-z0-9])", TEXT.strip())
    assert len(blocks) == len(re.findall(r"^\S+==", TEXT, flags=re.MULTILINE))
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in TEXT


def test_nothing_is_locked_that_the_project_does_not_need() -> None:
    """Extras for tests and training stay out of an installation."""
    assert not {"torch", "moto", "pytest", "ray"} & PINS.keys()
