"""Commands that install optional libraries, as they are printed."""

from __future__ import annotations

import shlex
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from boa_daemon import extras
from boa_daemon.extras import install_command, install_daemon_command

ROOT = Path(__file__).parents[2]


class Installed:
    """A distribution that was installed from a wheel of a folder."""

    version = "0.1.0"

    def __init__(self, direct_url: str | None) -> None:
        self._direct_url = direct_url

    def read_text(self, name: str) -> str | None:
        """Return the file that pip writes beside the metadata."""
        assert name == "direct_url.json"
        return self._direct_url


def test_the_libraries_of_an_extra_are_named_and_not_the_distribution() -> None:
    """A package index need not have BOA for the command to work; another library goes by its own name."""
    *_, plot = shlex.split(install_command("plot"))
    assert plot.startswith("matplotlib>=")
    assert shlex.split(install_command("pandas"))[-1] == "pandas"


def test_every_extra_that_a_message_names_has_requirements() -> None:
    """`install_command("NAME")` in the sources names an extra, or a library."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = set(project["optional-dependencies"])
    libraries = {"pandas", "pyarrow"}
    named = set()
    for path in Path(extras.__file__).parent.rglob("*.py"):
        parts = path.read_text(encoding="utf-8").split("install_command(")[1:]
        named |= {part.split(")")[0].strip("\"'") for part in parts if part[0] in "\"'"}
    assert named - known == libraries


@pytest.mark.parametrize(
    ("tools", "start"),
    [
        ({"pip", "uv"}, f"{sys.executable} -m pip install"),
        ({"pipx", "uv"}, "pipx inject tool"),
        ({"uv"}, f"uv pip install --python {sys.executable}"),
        (set(), f"pip --python {sys.executable} install"),
    ],
    ids=["a virtual environment", "pipx", "uv tool, uvx", "a Debian package"],
)
def test_the_command_fits_how_it_was_installed(
    tools: set[str], start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter's own pip, or the tool that made an environment without one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tool").mkdir()
    if "pipx" in tools:
        (tmp_path / "tool" / "pipx_metadata.json").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "tool"))
    monkeypatch.setattr(extras, "find_spec", lambda name: object() if "pip" in tools else None)
    monkeypatch.setattr(extras.shutil, "which", lambda name: "/usr/bin/uv" if "uv" in tools else None)
    assert install_command("plot").startswith(f"{start} 'matplotlib>=")


@pytest.mark.parametrize(
    ("direct_url", "words"),
    [
        (
            '{"url": "file:///tmp/my dist/boa_client-0.1.0-py3-none-any.whl"}',
            ["--find-links", "/tmp/my dist"],
        ),
        (None, []),
    ],
    ids=["from a wheel", "from an index"],
)
def test_the_daemon_is_installed_from_where_the_client_came_from(
    direct_url: str | None, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of wheels has both, of one version."""
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(direct_url))
    command = shlex.split(install_daemon_command())
    assert command[command.index("install") + 1 :] == [*words, "boa-daemon==0.1.0"]
