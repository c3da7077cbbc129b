"""Detect from its files whether a job's command runs a script that checkpoints and reports."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

MOST_BYTES = 1 << 20
_HELPER = re.compile(r"^\s*(from|import)\s+boa_daemon\b|BOA_CHECKPOINT_DIR", re.MULTILINE)


def elastic_script(run: str, workdir: Path) -> Path | None:
    """Return the file named in a command that uses `boa_daemon.job` or writes to the checkpoint folder."""
    for file in _files(run, workdir):
        try:
            if file.stat().st_size <= MOST_BYTES and _HELPER.search(file.read_text(errors="replace")):
                return file
        except OSError:
            continue
    return None


def _files(run: str, workdir: Path) -> Iterator[Path]:
    """Yield the files that a command names, modules included."""
    try:
        words = shlex.split(run)
    except ValueError:
        words = run.split()
    for before, word in zip(["", *words], words, strict=False):
        names = [word, *([f"{word.replace('.', '/')}.py"] if before in ("-m", "--module") else [])]
        for name in names:
            try:
                file = workdir / name
                if file.is_file():
                    yield file
            except (OSError, ValueError):
                continue
