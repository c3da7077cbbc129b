"""How to install an optional library: a command that works as printed, however BOA was installed.

The requirements of an extra stand in the installed distribution, so the command names the libraries and not
``boa-daemon[plot]``, which a package index may not have. It names the interpreter too, because people call
``.venv/bin/boa`` with another environment active, or BOA from pipx, uv or a Debian package.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTIONS = ("boa-daemon", "boa-client")
_EXTRA = re.compile(r"""extra\s*==\s*["']([\w.-]+)["']""")


def install_command(extra: str) -> str:
    """Return the command that installs the libraries of an extra, or a library of that name."""
    return _command(list(dict.fromkeys(_libraries(extra))) or [extra])


def install_daemon_command() -> str:
    """Return the command that installs boa-daemon over boa-client, from where boa-client came from."""
    try:
        client = metadata.distribution(DISTRIBUTIONS[1])
    except metadata.PackageNotFoundError:
        return _command([DISTRIBUTIONS[0]])
    wanted = f"{DISTRIBUTIONS[0]}=={client.version}"
    found = re.search(r'"url":\s*"file://([^"]+)/[^"/]+\.whl"', client.read_text("direct_url.json") or "")
    return _command(["--find-links", found[1], wanted] if found else [wanted])


def _libraries(extra: str) -> Iterator[str]:
    """Yield the requirements of an extra of the installed distribution."""
    for name in DISTRIBUTIONS:
        with suppress(metadata.PackageNotFoundError):
            for line in metadata.requires(name) or []:
                requirement, _, marker = (part.strip() for part in line.partition(";"))
                if extra in _EXTRA.findall(marker):
                    yield requirement


def _command(words: Sequence[str]) -> str:
    """Return the command that installs into this interpreter's environment."""
    if find_spec("pip") is not None:
        start = [_short(sys.executable), "-m", "pip", "install"]
    elif (Path(sys.prefix) / "pipx_metadata.json").exists():
        start = ["pipx", "inject", Path(sys.prefix).name]
    elif shutil.which("uv") is not None:
        start = ["uv", "pip", "install", "--python", _short(sys.executable)]
    else:
        start = ["pip", "--python", _short(sys.executable), "install"]
    return shlex.join([*start, *words])


def _short(path: str) -> str:
    """Return a path relative to the working folder if it is below it."""
    inside = os.path.relpath(path)
    return path if inside.startswith(os.pardir) else inside
