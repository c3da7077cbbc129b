"""The file of a source: the one that was named, or the only one of a folder that matches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from boa_daemon.errors import InputError

_PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")


def pick_file(source: Path, patterns: Sequence[str], chosen: str | None) -> Path:
    """Return the source file: `source` itself, the chosen file in it, or the only one that matches.

    Raises:
        InputError: when no file matches, or several do and none was chosen; the error lists them.
    """
    if chosen is not None:
        for candidate in (source / chosen, Path(chosen)):
            if candidate.is_file():
                return candidate
        raise InputError(
            f"--workload {chosen!r} is no file, neither in {source} nor here", hint=_listing(source, patterns)
        )
    if source.is_file():
        return source
    if not source.is_dir():
        said = "neither a file nor a folder" if source.exists() else "no such file or directory"
        raise InputError(said, file=source)
    found = _matches(source, patterns)
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"no {' or '.join(patterns)} in this directory", file=source)
    raise InputError(f"{len(found)} workloads, and none picked", file=source, hint=_listing(source, patterns))


def all_files(source: Path, patterns: Sequence[str], chosen: str | None) -> list[Path]:
    """Return the files of a log: `source` itself, the chosen file, or all of a folder that match, by name.

    Raises:
        InputError: when no file matches.
    """
    for pattern in patterns if chosen is None and source.is_dir() else ():
        found = {path for packed in ("", *_PACKED) for path in source.glob(pattern + packed)}
        if files := sorted(path for path in found if path.is_file()):
            return files
    return [pick_file(source, patterns, chosen)]


def _matches(source: Path, patterns: Sequence[str]) -> list[Path]:
    """Return the files of the first pattern with a match, also packed ones, sorted by name."""
    for pattern in patterns:
        for packed in ("", *_PACKED):
            found = sorted(path for path in source.glob(pattern + packed) if path.is_file())
            if found:
                return found
    return []


def _listing(source: Path, patterns: Sequence[str]) -> str:
    """Return a hint with the possible values of --workload."""
    names = [str(path.relative_to(source)) for path in _matches(source, patterns)]
    if not names:
        return ""
    hint = f"Pick one with --workload: {', '.join(names)}"
    if len(names) > 1 and Path(names[0]).suffix in (".csv", ".txt", ".psv"):
        hint += (
            f". Parts of one table are joined with: (cat {names[0]}; tail -qn +2 {names[1]} ...) > all.csv"
        )
    return hint
