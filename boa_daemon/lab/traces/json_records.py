"""Lists of records in JSON: an array, an object with the list under a key, an object per line, or several.

Kubernetes' objects may be in YAML, too.

An error names the record by its place in the list, and by its name where it has one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import entries_of
from boa_daemon.inputs.json_stream import json_entries
from boa_daemon.inputs.yaml_events import YamlProblem, parse_yaml
from boa_daemon.text_files import MOST_STREAMED_BYTES, open_text, read_whole_text
from boa_daemon.time_text import epoch_seconds, instant_seconds
from policies.fast_dataclasses import fast_init

_OBJECTS = re.compile(r"\s*(?:---\s+)?(?:apiVersion|items|kind|metadata):")
"""How ``kubectl get -o yaml`` begins."""
_BEGIN = 4096


@fast_init
@dataclass(frozen=True, slots=True)
class Record:
    """One object of a list, with the file and the `noun` and `number` that name it in errors."""

    content: Mapping[str, Any]
    path: Path
    noun: str
    number: int | None = None

    @property
    def where(self) -> str:
        """The words that name it: its place in the list, and its name where it has one."""
        if self.number is None:
            return self.noun
        name = _name_of(self.content)
        return f"{self.noun} {self.number}{f' ({name})' if name else ''}"

    def get(self, *keys: str | int) -> Any:
        """Return the value at a path of keys and positions; None where a part of the path is missing.

        Raises:
            InputError: when a value on the way is of another kind than the path needs.
        """
        found: Any = self.content
        try:
            for key in keys:
                if found.__class__ is str:
                    break
                found = found[key]
            else:
                return found
        except (KeyError, IndexError, TypeError):
            pass
        # A part is missing, or is of another kind.
        found = self.content
        for number, key in enumerate(keys):
            if found is None:
                return None
            if isinstance(key, str) and isinstance(found, Mapping):
                found = found.get(key)
            elif isinstance(key, int) and isinstance(found, list):
                found = found[key] if key < len(found) else None
            else:
                kind = "a list" if isinstance(key, int) else "an object"
                raise self.refuse(f"{_spoken(keys[:number])} must be {kind}")
        return found

    def objects(self, *keys: str | int) -> list[Record]:
        """Return the objects in the list at a path; empty where there is none.

        Raises:
            InputError: when it is no list of objects.
        """
        found = self.get(*keys)
        if found is None:
            return []
        if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
            raise self.refuse(f"{_spoken(keys)} must be a list of objects")
        return [Record(one, self.path, self.where) for one in found]

    def text(self, *keys: str | int) -> str:
        """Return the text at a path, which must not be empty."""
        found = self.get(*keys)
        if not isinstance(found, str | int) or isinstance(found, bool) or not str(found).strip():
            raise self.refuse(f"{_spoken(keys)} must be text; got {json.dumps(found, default=str)[:60]}")
        return str(found).strip()

    def whole(self, *keys: str | int, default: int) -> int:
        """Return the whole number at a path, zero or more; quantities may be texts, and 8.0 counts as 8."""
        found = self.get(*keys)
        if found is None or found == "":
            return default
        try:
            value = float(found) if isinstance(found, str | int | float) else -1.0
        except (ValueError, OverflowError):
            value = -1.0
        if isinstance(found, bool) or not 0 <= value < 1e9 or value != int(value):
            problem = f"{_spoken(keys)} must be a whole number; got {json.dumps(found, default=str)[:60]}"
            raise self.refuse(problem)
        return int(value)

    def seconds(self, *keys: str | int, zone: tzinfo) -> float | None:
        """Return the instant at a path in seconds since the epoch: a text, seconds, or milliseconds.

        None where there is none, or a zero.
        """
        found = self.get(*keys)
        if found is None or found in ("", 0, "0"):
            return None
        try:
            if isinstance(found, bool) or not isinstance(found, str | int | float):
                raise ValueError
            at = instant_seconds(found, zone) if isinstance(found, str) else epoch_seconds(float(found))
            if at < 0:
                raise ValueError
        except (ValueError, OverflowError):
            problem = f"{_spoken(keys)} must be a time; got {json.dumps(found, default=str)[:60]}"
            raise self.refuse(problem) from None
        return at

    def run(self, start: float | None, end: float | None) -> float:
        """Return the seconds from a start to an end; 0 where one of them is missing.

        Raises:
            InputError: when the end is before the start.
        """
        if start is None or end is None:
            return 0.0
        if end < start:
            raise self.refuse(f"it ends {start - end:g} s before it starts")
        return end - start

    def refuse(self, problem: str, hint: str = "") -> InputError:
        """Return the error for a problem in this record."""
        return InputError(f"{self.where}: {problem}", file=self.path, hint=hint)


def read_records(path: Path, lists: Sequence[str], *, noun: str, hint: str) -> Iterator[Record]:
    """Yield the objects of a file, in order.

    `lists` are the keys under which an object may hold the list; an object with none of them is a record.
    `noun` names a record in errors, `hint` says how to write such a file.

    Raises:
        InputError: when it cannot be read, is no JSON, or holds something other than objects.
    """
    with ExitStack() as stack:
        entries: Iterable[Any]
        if _is_yaml(path):
            documents = [part for part in re.split(r"(?m)^---\s*$", read_whole_text(path)) if part.strip()]
            entries = entries_of([_of_yaml(part, path, hint) for part in documents], lists)
        else:
            file = stack.enter_context(open_text(path, most_bytes=MOST_STREAMED_BYTES))
            entries = json_entries(file, str(path), lists, hint=hint)
        for number, content in enumerate(entries):
            if not isinstance(content, Mapping):
                raise InputError(f"{noun} {number} is no object", file=path, hint=hint)
            yield Record(content, path, noun, number)


def _is_yaml(path: Path) -> bool:
    """Return whether a file begins like the YAML of ``kubectl get -o yaml``."""
    with open_text(path) as file:
        return _OBJECTS.match(file.read(_BEGIN)) is not None


def _of_yaml(text: str, path: Path, hint: str) -> Any:
    """Return the value of a document in YAML."""
    try:
        return parse_yaml(text)
    except YamlProblem as problem:
        raise InputError(f"not valid YAML: {problem}", file=path, line=problem.line, hint=hint) from None


def _name_of(content: Mapping[str, Any]) -> str:
    """Return what a record is called, for errors."""
    meta = content.get("metadata")
    inner = meta.get("name") if isinstance(meta, Mapping) else None
    names = (inner, *(content.get(key) for key in ("jobId", "submission_id", "job_id", "id", "name")))
    return next((name for name in names if isinstance(name, str) and name), "")[:60]


def _spoken(keys: Sequence[str | int]) -> str:
    """Return a path as text: ``spec.template.containers[0]``."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")
