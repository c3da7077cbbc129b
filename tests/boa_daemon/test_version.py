"""The version of the package is that of its distributions."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import boa_daemon
from boa_daemon.version import __version__

TREE = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "file", ["pyproject.toml", "packaging/client/pyproject.toml", "packaging/job/pyproject.toml"]
)
def test_each_distribution_has_the_version_of_the_package(file: str) -> None:
    """Stated, or read from the package."""
    project = tomllib.loads((TREE / file).read_text())["project"]
    assert boa_daemon.__version__ == __version__
    assert project.get("version", __version__) == __version__
    assert "version" in (*project, *project.get("dynamic", ()))
