"""The entries of lists in JSON as a stream: a file of any size takes the memory of one entry.

    {"meta": {...}, "jobs": [{...}, {...}]}     the entries under a key that the caller names
    [{...}, {...}]                              the entries of an array
    {...} {...}                                 values that follow each other, or a line each

A value that fits into a chunk is decoded at once. Of a larger one the members, or entries, are read in turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import IO, Any

from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import RepeatedKey, distinct_keys, entries_of, exact_number

CHUNK = 2**20
"""Signs that are read at once."""
_MARGIN = 16
"""Signs at the end of a chunk in which a fault may be that the rest is missing: a part of `-Infinity`."""
_SPACE = re.compile(r"\s*")


class _NeedsMore(Exception):
    """A value goes on behind the chunk."""


def json_entries(file: IO[str], name: str, lists: Sequence[str], *, hint: str) -> Iterator[Any]:
    """Yield the entries of the lists in an open file of JSON, as programs print them and people append them.

    Each value of the text is an array of entries, an object with the array under one of the keys `lists`, or
    an entry; an array may hold such objects. Whole numbers are exact: those of 19 digits are often names.
    `name` is the file's in errors, `hint` says how to write such a file.

    Raises:
        InputError: when the text is empty, not valid, breaks off, repeats a key or is nested too deeply.
    """
    stream = _Stream(file, name, hint)
    if not stream.sign():
        raise InputError("the file is empty", file=name, hint=hint)
    stream.is_json = stream.sign() in ("{", "[")
    while stream.sign():
        yield from stream.page(lists, is_outermost=True)


class _Stream:
    """A text of which a part is in memory: `_text` from `_at` on."""

    def __init__(self, file: IO[str], name: str, hint: str) -> None:
        self._file, self._name, self._hint = file, name, hint
        self._text, self._at, self._is_whole = "", 0, False
        self._lines = 0
        self._decoder = json.JSONDecoder(object_pairs_hook=distinct_keys, parse_int=exact_number)
        self.is_json = True

    def sign(self) -> str:
        """Go to the next sign that is no space, and return it; empty at the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches no sign, too
            if self._at < len(self._text) or self._is_whole:
                return self._text[self._at : self._at + 1]
            self._fill()

    def page(self, lists: Sequence[str], *, is_outermost: bool = False) -> Iterator[Any]:
        """Yield the entries of the value that begins here."""
        try:
            value = self._decoded()
        except _NeedsMore:
            if self.sign() == "[" and is_outermost:
                yield from self._array(lists)
            elif self.sign() == "{":
                yield from self._object(lists)
            else:
                yield self._value()
        else:
            yield from entries_of(value if is_outermost and isinstance(value, list) else [value], lists)

    def _array(self, lists: Sequence[str] | None) -> Iterator[Any]:
        """Yield the entries of the array that begins here; those of its pages where `lists` are given."""
        self._take("[")
        if self.sign() == "]":
            self._take("]")
            return
        while True:
            if lists is None:
                yield self._value()
            else:
                yield from self.page(lists)
            if (sign := self.sign()) == "]":
                self._at += 1
                return
            if sign != ",":
                raise self._fault("Expecting ',' delimiter")
            self._at += 1

    def _object(self, lists: Sequence[str]) -> Iterator[Any]:
        """Yield the entries of the object that begins here, or itself if it has no list of them."""
        self._take("{")
        members: list[tuple[str, Any]] = []
        has_list, is_first = False, True
        while self.sign() != "}" or not is_first:
            if self.sign() != '"':
                raise self._fault("Expecting property name enclosed in double quotes")
            key = self._value()
            self._take(":")
            value = None
            if key in lists and self.sign() == "[" and not has_list:
                has_list = True
                yield from self._array(None)
            else:
                value = self._value()
            members.append((key, None if has_list else value))
            is_first = False
            if self.sign() == "}":
                break
            self._take(",")
        self._take("}")
        try:
            content = distinct_keys(members)
        except RepeatedKey as error:
            raise self._twice(error) from None
        if not has_list:
            yield content

    def _value(self) -> Any:
        """Return the value that begins here, however long it is."""
        while True:
            try:
                return self._decoded()
            except _NeedsMore:
                self._fill()

    def _decoded(self) -> Any:
        """Return the value that begins here, if it ends within a chunk."""
        if len(self._text) - self._at < CHUNK // 4 and not self._is_whole:
            self._fill()
        self.sign()
        try:
            value, end = self._decoder.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            is_cut = error.pos >= len(self._text) - _MARGIN or error.msg.startswith("Unterminated string")
            if is_cut and not self._is_whole:
                raise _NeedsMore from None
            raise self._fault(error.msg, error.pos) from None
        except RepeatedKey as error:
            raise self._twice(error) from None
        except RecursionError:
            raise InputError("lists and objects are nested too deeply", file=self._name) from None
        if isinstance(value, int | float) and end >= len(self._text) - _MARGIN and not self._is_whole:
            # The digits may go on, or an exponent.
            raise _NeedsMore
        self._at = end
        return value

    def _take(self, sign: str) -> None:
        if self.sign() != sign:
            raise self._fault(f"Expecting {sign!r} delimiter")
        self._at += 1

    def _fill(self) -> None:
        """Read a further chunk, as long as what is there, and let go of what was read."""
        self._lines += self._text.count("\n", 0, self._at)
        rest = self._text[self._at :]
        more = self._file.read(max(CHUNK, len(rest)))
        self._text, self._at, self._is_whole = rest + more, 0, not more

    def _fault(self, said: str, at: int | None = None) -> InputError:
        """Return the error for a fault, with its line."""
        at = self._at if at is None else at
        while not self._is_whole and len(self._text) - at < _MARGIN:
            at -= self._at
            self._fill()
        is_last = self._is_whole and "\n" not in self._text[at:].rstrip()
        # A text that does not begin as JSON is another kind of file.
        cut = "The file may be cut short" if is_last else ""
        end = min(at, len(self._text.rstrip())) if is_last else at
        line = self._lines + self._text.count("\n", 0, end) + 1
        hint = cut if self.is_json else self._hint
        return InputError(f"not valid JSON: {said}", file=self._name, line=line, hint=hint)

    def _twice(self, error: RepeatedKey) -> InputError:
        line = self._lines + self._text.count("\n", 0, self._at) + 1
        return InputError(f"the key {str(error)!r} is given twice", file=self._name, line=line)
