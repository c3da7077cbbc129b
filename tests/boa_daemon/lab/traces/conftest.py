"""Excerpts of public traces, and a fixture that writes small files."""

from collections.abc import Callable
from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "data"


@pytest.fixture
def data() -> Path:
    """Excerpts of public traces and profiles; see its README.md."""
    return DATA


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, str], Path]:
    """Return a function that writes a text to a file in a fresh directory."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write
